"""Finding texts: words, vectors, ranking and packing. Pure."""
