"""Tokens: counters, what providers charge for messages, tools and images, and how large windows are."""
