"""System calls of a running process that fail, or hang, by `strace`'s injection.

    with failing(pid, "fdatasync", "EIO", scratch) as injection:
        until(injection.has_struck, 10)
    with hanging(pid, "fdatasync", scratch):
        ...

The process runs on when the block ends; what failed has failed, and what hung is done.
"""

import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stratamq_torture.processes.services import until
from stratamq_torture.trial import TrialFailedError

ATTACH_S = 20.0
_HOUR_US = 3_600_000_000


class InjectionFailedError(TrialFailedError):
    """strace could not take hold of the process."""


def obstacle() -> str:
    """Why nothing can be injected here; empty when it can."""
    if shutil.which("strace") is None:
        return "needs strace: apt-get install -y --no-install-recommends strace"
    return ""


class Injection:
    """What strace has written so far."""

    def __init__(self, trace: Path) -> None:
        self._trace = trace

    @property
    def count(self) -> int:
        """How many calls have failed by it."""
        return self._trace.read_text(errors="replace").count("(INJECTED)")

    def has_struck(self) -> bool:
        return self.count > 0


@contextmanager
def failing(
    pid: int, calls: str, error: str, scratch: Path, when: str = "1+"
) -> Iterator[Injection]:
    """`calls`: one or more names, with commas. `when`: which of them, as strace has it."""
    with _injecting(pid, calls, f"error={error}:when={when}", scratch) as injection:
        yield injection


@contextmanager
def hanging(pid: int, calls: str, scratch: Path) -> Iterator[Injection]:
    """None of these calls returns before the block ends; other threads go on."""
    with _injecting(pid, calls, f"delay_enter={_HOUR_US}", scratch) as injection:
        yield injection


@contextmanager
def _injecting(pid: int, calls: str, what: str, scratch: Path) -> Iterator[Injection]:
    trace = scratch / f"strace-{pid}.txt"
    output_path = scratch / f"strace-{pid}.output"
    trace.write_bytes(b"")
    command = ["strace", "-f", "-o", str(trace), "-p", str(pid), "-e", f"trace={calls}"]
    command += ["-e", f"inject={calls}:{what}"]
    with output_path.open("wb") as output:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=output)
    try:
        # It reports `attached` once it holds all threads of the process.
        attached = until(
            lambda: b"attached" in output_path.read_bytes() or process.poll() is not None, ATTACH_S
        )
        if not attached or process.poll() is not None:
            raise InjectionFailedError(f"strace did not attach: {output_path.read_text()[-300:]}")
        yield Injection(trace)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        process.wait(ATTACH_S)
