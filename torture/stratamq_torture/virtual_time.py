"""An event loop whose time passes only while nothing can be done: no seed waits for a clock."""

import asyncio
import selectors
from typing import Any

from stratamq_torture.trial import TrialFailedError

START_MS = 1_700_000_000_000


class VirtualLoop(asyncio.SelectorEventLoop):
    """Also the `Clock` of all that runs in it. Nothing in it may use threads or sockets."""

    def __init__(self) -> None:
        self._now_s = 0.0
        super().__init__(_Jumping(self))

    def time(self) -> float:
        return self._now_s

    def pass_by(self, seconds: float) -> None:
        self._now_s += seconds

    def wall_ms(self) -> int:
        return START_MS + int(self._now_s * 1000)

    def monotonic_ns(self) -> int:
        return int(self._now_s * 1e9)


class _Jumping(selectors.SelectSelector):
    """No file is ever ready; a wait is over at once, at its end."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise TrialFailedError("everything waits for something that never comes")
        self._loop.pass_by(max(0.0, timeout))
        return []
