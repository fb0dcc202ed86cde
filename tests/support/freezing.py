"""A process that is held still in the middle of whatever it does, or its event loop alone."""

import ctypes
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.support.waiting import until

_PTRACE_DETACH, _PTRACE_SEIZE, _PTRACE_INTERRUPT = 17, 0x4206, 0x4207
_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
_libc.ptrace.restype = ctypes.c_long


def freeze(pid: int) -> None:
    """SIGSTOP, and wait until every thread has stopped: a signal takes effect a little later."""
    os.kill(pid, signal.SIGSTOP)
    until(lambda: all(state == "T" for state in _states(pid)), f"process {pid} is stopped")


def thaw(pid: int) -> None:
    os.kill(pid, signal.SIGCONT)


@contextmanager
def frozen_loop(pid: int) -> Iterator[None]:
    """Stop the thread of the event loop, as a call into a disk that stands still does. gRPC's
    threads go on: connections live, and are made. Entered and left in one thread."""
    _ptrace(_PTRACE_SEIZE, pid)
    _ptrace(_PTRACE_INTERRUPT, pid)
    try:
        loop = Path(f"/proc/{pid}/task/{pid}/stat")
        until(lambda: _state(loop) == "t", f"the loop of process {pid} is stopped")
        yield
    finally:
        _ptrace(_PTRACE_DETACH, pid)


def _ptrace(request: int, pid: int) -> None:
    if _libc.ptrace(request, pid, None, None) != 0:
        raise OSError(ctypes.get_errno(), f"ptrace {request} of {pid}")


def _states(pid: int) -> list[str]:
    states = []
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # it ends meanwhile
            states.append(_state(thread / "stat"))
    return states


def _state(stat: Path) -> str:
    return stat.read_text().rpartition(")")[2].split()[0]
