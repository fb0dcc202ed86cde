"""What all brokers of one run share: chance, time, the network between them, and what came up."""

import random
from collections import Counter

from stratamq.files.simulated import SimulatedClock
from stratamq.formats.members import configured_members
from stratamq_torture.brokers.settings import Settings


class World:
    """`chance` decides every order and every loss. Brokers are known by their numbers from 0."""

    def __init__(self, settings: Settings, chance: random.Random) -> None:
        self.settings = settings
        self.chance = chance
        self.clock = SimulatedClock()
        named = [(str(number), str(number)) for number in range(settings.brokers)]
        self.members = configured_members(named, settings.required)
        self.apart: set[frozenset[int]] = set()
        """Pairs without a connection between them."""
        self.paused: set[int] = set()
        """Brokers that are paused, as if stopped by a signal."""
        self.situations: Counter[str] = Counter()
        self.notes: list[str] | None = None

    @property
    def now_ms(self) -> int:
        return self.clock.monotonic_ns() // 1_000_000

    def note(self, line: str) -> None:
        """For the trace."""
        if self.notes is not None:
            self.notes.append(line)

    def met(self, situation: str) -> None:
        self.situations[situation] += 1

    def reach(self, one: int, other: int) -> bool:
        return frozenset((one, other)) not in self.apart

    def misses(self) -> bool:
        """A question, or its answer, does not arrive in time."""
        return self.chance.random() < self.settings.misses
