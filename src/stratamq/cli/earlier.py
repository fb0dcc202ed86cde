"""The services of an earlier `stratamq up` that was killed: they end by themselves, and are waited
for. Until then they hold the store."""

import contextlib
import os
import select
import threading
from collections.abc import Callable, Iterable
from pathlib import Path

from stratamq.errors import StoreRefusedError
from stratamq.files.port import Clock
from stratamq.service.room_lock import room_lock_holder
from stratamq.service.supervised import STOP_LIMIT_S

EARLIER_LIMIT_S = STOP_LIMIT_S + 5.0
"""After `STOP_LIMIT_S` they kill themselves."""
_LOOK_S = 0.05


def wait_for_earlier(
    root: Path,
    rooms: Iterable[str],
    report: Callable[[str], None],
    clock: Clock,
    limit_s: float = EARLIER_LIMIT_S,
) -> None:
    """Return when no process holds the lock of a room, and those that did have ended. Blocking.

    StoreRefusedError when some still does after `limit_s`.
    """
    deadline_ns = clock.monotonic_ns() + round(limit_s * 1e9)
    pause = threading.Event()
    reported = False
    with contextlib.ExitStack() as opened:
        processes: dict[int, int] = {}
        while True:
            holders = {
                room: pid for room in rooms if (pid := room_lock_holder(root, room)) is not None
            }
            for pid in holders.values():
                if pid and pid not in processes:
                    with contextlib.suppress(ProcessLookupError):
                        processes[pid] = os.pidfd_open(pid)
                        opened.callback(os.close, processes[pid])
            alive = [one for one in processes.values() if not select.select([one], [], [], 0)[0]]
            if not holders and not alive:
                return
            if clock.monotonic_ns() >= deadline_ns:
                pids = " ".join(str(pid) for pid in sorted(set(processes)))
                raise StoreRefusedError(
                    f"the store is in use: after {limit_s:.0f} s services of an earlier start "
                    f"still run: {_named(holders)}; end them (kill {pids}) and start again"
                )
            if not reported and holders:
                reported = True
                report(
                    f"services of an earlier start still run, and are waited for, at most "
                    f"{limit_s:.0f} s: {_named(holders)}"
                )
            pause.wait(_LOOK_S)


def _named(holders: dict[str, int]) -> str:
    return ", ".join(
        f"{room} (process {pid})" if pid else f"{room} (in another container)"
        for room, pid in holders.items()
    )
