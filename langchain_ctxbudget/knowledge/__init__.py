"""What is known about the user: topics and entities."""
