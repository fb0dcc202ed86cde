"""Committing a queue's messages to a tier: README.md has the protocol."""
