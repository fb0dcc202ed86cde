"""Runs a service that must not outlive its supervisor: `python -m … MODULE ARGUMENTS`.

The kernel sends SIGTERM, a clean stop, when the process that started it is gone, however it went.
"""

import ctypes
import os
import runpy
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    parent = os.getppid()
    module = sys.argv[1]
    sys.argv = sys.argv[1:]
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")
    if os.getppid() != parent:
        sys.exit(128 + signal.SIGTERM)  # the supervisor went before it could be watched
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
