"""Runs a service that must not outlive its supervisor: `python -m … MODULE ARGUMENTS`.

Standard input is a pipe that the supervisor holds and never writes to. It ends when the supervisor
does, however that ends; the service is then told to stop, once, as by its SIGTERM. (The kernel's
PR_SET_PDEATHSIG would say it again for every thread of the supervisor, and a second SIGTERM means
at once.)
"""

import os
import runpy
import signal
import sys
import threading

_STANDARD_INPUT = 0


def main() -> None:
    watcher = threading.Thread(target=_stop_with_supervisor, name="supervisor", daemon=True)
    watcher.start()
    module = sys.argv[1]
    sys.argv = sys.argv[1:]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _stop_with_supervisor() -> None:
    while os.read(_STANDARD_INPUT, 4096):
        continue
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()
