"""A process that walks segments for recovery.

    python -m stratamq_commitlog.recovery.walker_process ROOT

Tasks come in on standard input and what was found goes out on standard output, pickled, in the same
order; None for a segment that could not be read. It ends with its input, which ends with recovery
however that ends, and it only reads: whatever becomes of it, the log is as it was.
"""

import pickle
import signal
import sys
from typing import BinaryIO

from stratamq.files.port import Files
from stratamq.files.real import RealFiles
from stratamq_commitlog.recovery.walk_ahead import Task, WalkedSegment, carry_out


def serve(files: Files, tasks: BinaryIO, answers: BinaryIO) -> None:
    while True:
        try:
            task: Task = pickle.load(tasks)
        except EOFError:
            return
        found: WalkedSegment | None
        try:
            found = carry_out(files, task)
        except OSError:
            # Recovery reads it itself, and meets the error where it can report what to do.
            found = None
        pickle.dump(found, answers, pickle.HIGHEST_PROTOCOL)
        answers.flush()


def main() -> None:
    # Ctrl-C goes to the whole group of processes; recovery decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        serve(RealFiles(sys.argv[1]), sys.stdin.buffer, sys.stdout.buffer)
    except BrokenPipeError:
        # The reader of the answer has gone.
        sys.stderr.close()


if __name__ == "__main__":
    main()
