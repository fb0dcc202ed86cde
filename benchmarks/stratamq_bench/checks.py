"""A fast wrong answer is a failure: what every benchmark raises when a result is not as sent."""


class Mismatch(AssertionError):
    """What was stored or read back is not what was sent: the figures are worth nothing."""
