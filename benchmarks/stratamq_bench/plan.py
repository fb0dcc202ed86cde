"""How long a case is measured, and how large what is made ready for it is."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median
from typing import TypeVar

F = TypeVar("F")
C = TypeVar("C")

FULL_SECONDS = 30.0
"""The length of a case for which the bars are chosen."""
MIB = 1 << 20


def _nothing() -> None:
    pass


@dataclass(frozen=True, slots=True)
class Plan:
    """`seconds` are measured of each case, all its rounds together, without floors and warm-up."""

    seconds: float = FULL_SECONDS
    rounds: int = 2
    body: int = 1024
    make_ready: Callable[[], None] = _nothing
    """Called before each case, and before each of its rounds that writes into new pages."""

    @property
    def round_s(self) -> float:
        return self.seconds / self.rounds

    @property
    def warm_up_s(self) -> float:
        return min(1.0, self.round_s)

    @property
    def floor_s(self) -> float:
        """A floor is steadier than a case, and there is one more of it."""
        return max(min(1.0, self.round_s), self.round_s / 3)

    def scaled(self, full: int, least: int) -> int:
        """How many of what is made ready in advance: fewer for a case that is measured briefly."""
        return max(least, round(full * min(1.0, self.seconds / FULL_SECONDS)))

    def segment_bytes(self, full: int) -> int:
        """Segments of a size that lets them roll in a brief case as often as in a full one."""
        return self.scaled(full // MIB, 2) * MIB


def alternate(
    rounds: int, floor: Callable[[], F], case: Callable[[], C]
) -> tuple[list[F], list[C]]:
    """floor, case, floor, case, …, floor."""
    floors, found = [floor()], []
    for _ in range(rounds):
        found.append(case())
        floors.append(floor())
    return floors, found


def ratio_of(rates: Sequence[float], floor_rates: Sequence[float]) -> float:
    """The median of the rounds, each compared with the mean of the floors before and after it."""
    beside = [fmean(pair) for pair in pairwise(floor_rates)]
    return median(rate / floor for rate, floor in zip(rates, beside, strict=True))


def percentiles(sorted_ms: Sequence[float]) -> tuple[float, float, float]:
    """p50, p99, p999 of latencies in ascending order; at least one."""
    last = len(sorted_ms) - 1
    return tuple(sorted_ms[min(last, int(len(sorted_ms) * part))] for part in (0.5, 0.99, 0.999))  # type: ignore[return-value]
