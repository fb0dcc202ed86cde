"""The real clock. Everything else takes a `Clock`, so that tests and the simulator own time."""

import time


class SystemClock:
    """Implements `stratamq.files.port.Clock` with the machine's clocks."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970, UTC. May jump when the machine's clock is set."""
        return time.time_ns() // 1_000_000

    def monotonic_ns(self) -> int:
        """Nanoseconds that never go backwards; only differences mean anything."""
        return time.monotonic_ns()
