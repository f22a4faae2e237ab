"""Just-in-time retrieval."""
