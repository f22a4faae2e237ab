"""Documents: loaded, split, written, found."""
