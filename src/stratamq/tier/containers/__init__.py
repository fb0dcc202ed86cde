"""A queue's files in the tier: chains of segments that read as one file."""
