"""What slaves have acknowledged, and what that means for those who wait. A pure object.

*replicated* is the k-th largest acknowledgement of connected slaves that are near enough
(spec 5.5: strictly less than the gap behind). Fewer than k: no append waits for them. A slave that
acknowledges more than there is has another history, or is faulty: it does not count.
"""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Replica:
    """One slave as the replication service reports it. `acknowledged` is a log offset. No two that
    count are the same broker."""

    address: str
    acknowledged: int
    connected: bool
    lag_ms: int = 0
    counts: bool = True
    """It is a member that has joined, or a slave of a master without members."""
    member: str = ""


class Replicas:
    """`required` is k, `max_gap_bytes` how far behind a slave may be to count."""

    def __init__(self, required: int, max_gap_bytes: int) -> None:
        self.required = required
        self._max_gap_bytes = max_gap_bytes
        self.known: tuple[Replica, ...] = ()

    def report(self, replicas: Iterable[Replica]) -> None:
        self.known = tuple(replicas)

    def replicated(self, appended: int) -> int | None:
        """Up to where k slaves have the log; None when fewer than k qualify."""
        if self.required == 0:
            return appended
        qualified = sorted(
            (
                replica.acknowledged
                for replica in self.known
                if replica.connected
                and replica.counts
                and 0 <= appended - replica.acknowledged < self._max_gap_bytes
            ),
            reverse=True,
        )
        return qualified[self.required - 1] if len(qualified) >= self.required else None
