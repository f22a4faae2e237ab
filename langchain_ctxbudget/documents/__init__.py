"""Documents: loaded, split, kept, summed up and searched."""
