"""From a message and a conversation to a prompt: the six steps."""
