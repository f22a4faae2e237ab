"""Deterministic rules that read what a person says: about themselves, of whom and what, and about which subjects."""
