"""The wall clock of the machine, set forward and back."""

import random

from stratamq.files.port import Clock

EVERY = 4
"""The clock jumps in every so many seeds: those that leave this rest."""
REST = 2
AHEAD_MS = (0, 0, 7_200_000, 360_000_000, -360_000_000)
"""Two hours, 100 hours. The log doubts a clock that is ahead."""
CHANCE = 0.1


class Jumps:
    """Draws by itself, so that what else a seed does is as without it."""

    def __init__(self, seed: int) -> None:
        self.ahead_ms = 0
        self._chance = random.Random(f"jumps {seed}")
        self._happens = seed % EVERY == REST

    @property
    def doubt(self) -> str:
        """The log's, whose monotonic clock shows how much time has really passed."""
        return "the wall clock jumped ahead" if self.ahead_ms > 0 else ""

    def step(self) -> str:
        """What has been done: "" for nothing."""
        if not self._happens or self._chance.random() >= CHANCE:
            return ""
        before, self.ahead_ms = self.ahead_ms, self._chance.choice(AHEAD_MS)
        if self.ahead_ms == before:
            return ""
        return "wall clocks set forward" if self.ahead_ms > before else "wall clocks set back"

    def settle(self) -> None:
        self.ahead_ms = 0


class MachineClock:
    """Wall times of a clock, with the jumps; monotonic times are the clock's."""

    def __init__(self, clock: Clock, jumps: Jumps) -> None:
        self._clock = clock
        self._jumps = jumps
        self.monotonic_ns = clock.monotonic_ns

    def wall_ms(self) -> int:
        return self._clock.wall_ms() + self._jumps.ahead_ms
