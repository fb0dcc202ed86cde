"""Runs a service that must not outlive its supervisor.

    python -m stratamq.service.supervised [--after ROOT ROOM] MODULE[+MODULE…] ARGUMENTS

Standard input is a pipe that the supervisor holds and never writes to. It ends when the supervisor
does, however that ends; the service then stops as by SIGTERM, once. With `--after`
it stops when the service ROOM of the store at ROOT has ended: the log announces its end, the
others bring everything to disk and report it. A service that has not stopped `STOP_LIMIT_S` after
its supervisor is killed, so that the wait before a new start is bounded. Several modules are
services of one process (`service/hosting.py`).

(The kernel's PR_SET_PDEATHSIG would signal the end of the supervisor's thread that started the
service, and a second SIGTERM means at once.)
"""

import os
import runpy
import signal
import sys
import threading
from importlib import import_module
from pathlib import Path

from stratamq.service.room_lock import room_lock_holder

FIRST_LIMIT_S = 30.0
"""So long the others wait for the end of the room that stops before them."""
STOP_LIMIT_S = 60.0
"""More than the log waits for followers, and its grace."""

BESIDE = "+"
PACKAGE = "stratamq_"
_STANDARD_INPUT = 0
_LOOK_S = 0.05


def main() -> None:
    arguments = sys.argv[1:]
    first: tuple[Path, str] | None = None
    if arguments[0] == "--after":
        first = Path(arguments[1]), arguments[2]
        del arguments[:3]
    watcher = threading.Thread(
        target=_stop_with_supervisor, args=(first,), name="supervisor", daemon=True
    )
    watcher.start()
    sys.argv = arguments
    modules = arguments[0].split(BESIDE)
    if len(modules) == 1:
        runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
    else:
        from stratamq.service.server import run_services

        mains = {one: import_module(f"{one}.__main__").main for one in modules}
        run_services({one.removeprefix(PACKAGE): main for one, main in mains.items()})


def _stop_with_supervisor(first: tuple[Path, str] | None) -> None:
    while os.read(_STANDARD_INPUT, 4096):
        continue
    never = threading.Event()
    waited_s = 0.0
    while first is not None and waited_s < FIRST_LIMIT_S and room_lock_holder(*first) is not None:
        never.wait(_LOOK_S)
        waited_s += _LOOK_S
    os.kill(os.getpid(), signal.SIGTERM)
    never.wait(STOP_LIMIT_S - waited_s)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
