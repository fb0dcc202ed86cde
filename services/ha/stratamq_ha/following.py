"""What a slave reports of following its master, and why it leaves it."""

from dataclasses import dataclass


class MasterLeft(Exception):
    """The connection is given up. `reason` is one constant word."""

    def __init__(self, reason: str, sentence: str) -> None:
        super().__init__(sentence)
        self.reason = reason
        self.sentence = sentence


@dataclass(slots=True)
class FollowingStatus:
    """What the status reports of it. Offsets of the log."""

    connected: bool = False
    problem: str = ""
    appended: int = 0
    received: int = 0
    heard_ms: int = 0
    """Wall clock; 0: never."""
    bytes_per_second: float = 0.0
    needs_resync: bool = False
