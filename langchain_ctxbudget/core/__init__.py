"""The pure core: values in, values out."""
