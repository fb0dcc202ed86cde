"""Ctrl-C in a program whose main thread waits on conditions.

Python raises KeyboardInterrupt at almost any instruction, and `threading.Condition` is not safe
against it. Example:
1. `Condition.wait` was notified. The interrupt is raised before it has taken its lock back.
2. The `with` around it releases a lock that it does not hold. That raises RuntimeError, and the
   command does not see the KeyboardInterrupt at which it would commit.
"""

import signal
import threading
from types import FrameType

RETRY_S = 0.001
_LOCKING = {
    method.__code__
    for method in (
        threading.Condition.__enter__,
        threading.Condition.__exit__,
        threading.Condition._acquire_restore,  # type: ignore[attr-defined]
        threading.Condition._release_save,  # type: ignore[attr-defined]
    )
}


def raise_outside_locks() -> None:
    """Raise KeyboardInterrupt only when no condition is taking or giving back its lock. Changes
    nothing where Ctrl-C is ignored, or handled otherwise. For the main thread."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGALRM, _interrupt)
        signal.signal(signal.SIGINT, _interrupt)


def _interrupt(_: int, frame: FrameType | None) -> None:
    while frame is not None:
        if frame.f_code in _LOCKING:
            signal.setitimer(signal.ITIMER_REAL, RETRY_S)
            return
        frame = frame.f_back
    raise KeyboardInterrupt
