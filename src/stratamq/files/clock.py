"""The real clock. Everything else takes a `Clock`, so that tests and the simulator own time."""

import time
from pathlib import Path

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class SystemClock:
    """Implements `stratamq.files.port.Clock` with the machine's clocks."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970, UTC. May jump when the machine's clock is set."""
        return time.time_ns() // 1_000_000

    def monotonic_ns(self) -> int:
        """Nanoseconds that never go backwards, the time that the machine was suspended included;
        only differences mean anything."""
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def machine_boot() -> str:
    """Names this start of the machine: within one, monotonic times of different processes can be
    compared. Of no use (never equal to another start's) where the kernel does not provide it."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return f"unknown-{time.monotonic_ns()}"
