"""How long a client retries when a service does not answer."""

from stratamq.files.port import Clock, Random

FIRST_DELAY_S = 0.05
LONGEST_DELAY_S = 1.0


class Backoff:
    """Delays that grow, until `limit_s` have passed since the first failure. None: forever."""

    def __init__(self, limit_s: float | None, clock: Clock, random: Random) -> None:
        self._limit_s = limit_s
        self._clock = clock
        self._random = random
        self._since_ns: int | None = None
        self._delay_s = FIRST_DELAY_S

    def reset(self) -> None:
        """The service answered."""
        self._since_ns = None
        self._delay_s = FIRST_DELAY_S

    def next_delay_s(self) -> float | None:
        """How long to wait before the next attempt, with jitter; None: give up."""
        now_ns = self._clock.monotonic_ns()
        if self._since_ns is None:
            self._since_ns = now_ns
        if self._limit_s is not None and (now_ns - self._since_ns) / 1e9 >= self._limit_s:
            return None
        delay_s, self._delay_s = self._delay_s, min(2 * self._delay_s, LONGEST_DELAY_S)
        return delay_s * (0.5 + self._random.getrandbits(16) / 2**17)
