"""What all parts of one client share."""

import random
from dataclasses import dataclass, field

from stratamq.client.hooks import Hooks
from stratamq.files.clock import SystemClock
from stratamq.files.port import Clock, Random
from stratamq.rpc.backoff import Backoff


@dataclass(frozen=True, slots=True)
class ClientSettings:
    timeout_s: float = 30.0
    """Within which each call ends."""
    retry_timeout_s: float = 0.0
    """How long calls that change nothing, and first connections, are tried again."""
    hooks: Hooks = field(default_factory=Hooks)
    clock: Clock = field(default_factory=SystemClock)
    random: Random = field(default_factory=random.SystemRandom)

    def backoff(self, limit_s: float | None) -> Backoff:
        return Backoff(limit_s, self.clock, self.random)
