"""One entry of a table of next queue offsets, as the log gives it to followers and to slaves."""

NextOffset = tuple[str, int, int]
"""topic, queue id, the queue offset that its next message gets."""
