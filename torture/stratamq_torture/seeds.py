"""Trials of many seeds or workloads in worker processes: what they came to, as one report.

Each is run in one process from its first operation to its last, so that one that fails does so
again wherever it runs.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from stratamq_torture.trial import Progress, Task, Trial, spread

COUNTED = ("crash_points", "kills", "power_losses", "promotions", "acknowledged")


@dataclass(slots=True)
class Tally:
    """What some seeds came to. Crosses process borders, and adds up."""

    seeds: int = 0
    crash_points: int = 0
    kills: int = 0
    power_losses: int = 0
    promotions: int = 0
    acknowledged: int = 0
    situations: Counter[str] = field(default_factory=Counter)
    """How often each of them came up."""
    seeds_that_met: Counter[str] = field(default_factory=Counter)
    """In how many seeds each of them came up."""
    failed: list[Any] = field(default_factory=list)
    """Outcomes with a violation."""

    def take(self, outcome: Any) -> None:
        self.seeds += 1
        self._sum(outcome)
        self.seeds_that_met.update(outcome.situations.keys())
        if outcome.violation is not None:
            self.failed.append(outcome)

    def add(self, other: "Tally") -> None:
        self.seeds += other.seeds
        self._sum(other)
        self.seeds_that_met.update(other.seeds_that_met)
        self.failed += other.failed

    def _sum(self, other: Any) -> None:
        for name in COUNTED:
            setattr(self, name, getattr(self, name) + getattr(other, name, 0))
        self.situations.update(other.situations)


class Seeds(Trial):
    """`losses`: rules whose violation means that a message is gone that somebody relies on."""

    def __init__(
        self, name: str, losses: frozenset[str], seconds: float, progress: Progress | None
    ) -> None:
        super().__init__(name, seconds, progress)
        self._losses = losses

    def gather(self, work: Callable[[Task], Tally], tasks: Iterable[Task], jobs: int) -> Tally:
        """The sum of all tasks that begin in time."""
        whole = Tally()
        for tally in spread(work, self.within(tasks), jobs):
            whole.add(tally)
            self.count(tally.seeds, len(whole.failed))
        return whole

    def sum_up(self, tally: Tally) -> None:
        """The report's numbers; the failures are the caller's to name."""
        report = self.report
        report.seeds = tally.seeds
        report.acknowledged_messages = tally.acknowledged
        for name in ("crash_points", "kills", "power_losses", "promotions"):
            setattr(report, name, getattr(tally, name))
        report.lost = sum(outcome.violation.rule in self._losses for outcome in tally.failed)


def ranges(first: int, count: int, size: int) -> Iterator[range]:
    """`count` seeds from `first` on, `size` to a task."""
    for begin in range(first, first + count, size):
        yield range(begin, min(begin + size, first + count))
