"""A process that is held still in the middle of whatever it does."""

import os
import signal
from contextlib import suppress
from pathlib import Path

from tests.support.waiting import until


def freeze(pid: int) -> None:
    """SIGSTOP, and wait until every thread has stopped: a signal takes effect a little later."""
    os.kill(pid, signal.SIGSTOP)
    until(lambda: all(state == "T" for state in _states(pid)), f"process {pid} is stopped")


def thaw(pid: int) -> None:
    os.kill(pid, signal.SIGCONT)


def _states(pid: int) -> list[str]:
    states = []
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # it ends meanwhile
            states.append((thread / "stat").read_text().rpartition(")")[2].split()[0])
    return states
