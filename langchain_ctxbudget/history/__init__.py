"""Conversation history that fits."""
