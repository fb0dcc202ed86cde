"""Reading a tier: messages by offset, time and key."""
