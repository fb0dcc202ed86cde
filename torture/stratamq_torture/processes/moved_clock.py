"""The wall clock of services that run, moved as by an administrator or a time server: up, or while
they are down.

    clock = MovedClock(directory / "clock")
    services = Services(root, logs, settings, prefixes=clock.prefixes(rooms))
    clock.move(-3_600_000)

A service reads the wall clock at one place, `stratamq.files.clock.SystemClock`. One that is started
behind the prefix adds the milliseconds in the clock's file. Every process sees a move at once, and
the monotonic clock goes on, as when the machine's clock is set; no other program's clock is moved.
"""

import mmap
import sys
from collections.abc import Iterable
from pathlib import Path
from struct import Struct

from stratamq.files.clock import SystemClock
from stratamq.service import supervised

_AHEAD_MS = Struct("<q")
_COMMAND_WORDS = 3
"""`python -m stratamq.service.supervised`."""


class MovedClock:
    """`ahead_ms`: of the machine's clock."""

    def __init__(self, path: Path) -> None:
        path.write_bytes(bytes(_AHEAD_MS.size))
        self._path = path
        self._memory = _map(path)
        self.ahead_ms = 0

    def move(self, ahead_ms: int) -> None:
        self.ahead_ms = ahead_ms
        _AHEAD_MS.pack_into(self._memory, 0, ahead_ms)

    def prefixes(self, rooms: Iterable[str]) -> dict[str, tuple[str, ...]]:
        """For `Services`."""
        return dict.fromkeys(rooms, (sys.executable, "-m", __name__, str(self._path)))

    def close(self) -> None:
        self._memory.close()


def _map(path: Path) -> mmap.mmap:
    with path.open("r+b") as file:
        return mmap.mmap(file.fileno(), _AHEAD_MS.size)


def main() -> None:
    memory, machine = _map(Path(sys.argv[1])), SystemClock.wall_ms

    def wall_ms(clock: SystemClock) -> int:
        ahead_ms: int = _AHEAD_MS.unpack_from(memory)[0]
        return machine(clock) + ahead_ms

    SystemClock.wall_ms = wall_ms
    del sys.argv[1 : 2 + _COMMAND_WORDS]
    supervised.main()


if __name__ == "__main__":
    main()
