"""Messages: what they hold, which live or die together, how they are clipped and fenced. Pure."""
