"""What a run is made of: how often each operation comes, and what kind of broker it meets."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from stratamq_torture.simulated.producers import KINDS, Sizes
from stratamq_torture.simulated.settings import ASYNC, SYNC, BrokerSettings, chosen

EVERYTHING: dict[str, int] = {
    "send": 60,
    "run": 70,
    "tick": 6,
    "pull": 12,
    "ask": 6,
    "rest": 1,
    "start": 30,
    "start_crash": 4,
    "stop": 2,
    "kill": 4,
    "kill_all": 2,
    "power_loss": 4,
    "crash_point": 6,
    "disconnect": 2,
    "delete": 12,
    "flush_fails": 2,
    "call_fails": 1,
    "write_back": 2,
    "write_back_fails": 1,
    "evict": 4,
    "overgrow": 2,
    "starve": 1,
    "feed": 3,
    "clock_jumps": 1,
    "rocketmq": 3,
}
"""Weights. An operation that makes no sense at a moment is not offered."""


@dataclass(frozen=True)
class Profile:
    """`weights` replace those of EVERYTHING that they name; `only` leaves all others out."""

    weights: Mapping[str, int] = field(default_factory=dict)
    only: bool = False
    flush: Sequence[str] = (SYNC, SYNC, ASYNC)
    checksum: float = 0.3
    kinds: Sequence[str] = KINDS
    sizes: Sizes | None = None
    settings: BrokerSettings | None = None
    steps: Sequence[int] = (2, 8, 30, 80)
    """How many steps one `run` may have."""
    crash_points: Sequence[tuple[str, str]] = ()
    """Patterns of calls at which crash points are put; none: anywhere."""
    audits: bool = True
    power: float = 0.4
    """How likely a crash point is a power loss."""

    def all_weights(self) -> dict[str, int]:
        base = {} if self.only else EVERYTHING
        return {**base, **self.weights}

    def choose_settings(self, chance: random.Random) -> BrokerSettings:
        if self.settings is not None:
            return self.settings
        return chosen(chance, self.flush, self.checksum)

    def choose_sizes(self, chance: random.Random) -> Sizes:
        if self.sizes is not None:
            return self.sizes
        return chance.choice(
            (
                Sizes(),
                Sizes(bodies=(40,), odd=0, alike=True),
                Sizes(bodies=(40, 200), odd=0, alike=True),
                Sizes(bodies=(0, 100, 500), odd=3, long_properties=2),
            )
        )


DEFAULT = Profile()
