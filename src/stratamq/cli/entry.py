"""The program `stratamq`: a Ctrl-C while it is being imported ends it as any other does."""

import signal
import sys


def main() -> None:
    try:
        from stratamq.cli.__main__ import main as run
        from stratamq.cli.interrupts import raise_outside_locks

        raise_outside_locks()
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
    run()
