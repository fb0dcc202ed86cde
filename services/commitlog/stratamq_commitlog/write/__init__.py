"""From a message to the bytes of the log, and the answer."""
