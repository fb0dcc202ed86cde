"""Segments walked ahead of recovery, in this process: what walker processes do, over any files."""

import pickle
from collections.abc import Sequence

from stratamq_commitlog.recovery.walk_ahead import Task, WalkedSegment, carry_out

from stratamq.files.port import Files


class WalkersHere:
    """So many that recovery itself has the first segment only. All tasks are carried out when it
    begins; they and their answers go through pickle."""

    least_bytes = 0
    count = 1000

    def __init__(self, files: Files) -> None:
        self._files = files
        self._found: dict[int, bytes] = {}
        self.walked: list[int] = []
        self.taken: list[int] = []

    def begin(self, tasks: Sequence[Task]) -> None:
        for task in tasks:
            sent: Task = pickle.loads(pickle.dumps(task))
            try:
                self._found[sent.base] = pickle.dumps(carry_out(self._files, sent))
            except OSError:
                continue
            self.walked.append(sent.base)

    def take(self, base: int) -> WalkedSegment | None:
        answer = self._found.pop(base, None)
        if answer is None:
            return None
        self.taken.append(base)
        found: WalkedSegment = pickle.loads(answer)
        return found

    def close(self) -> None:
        self._found.clear()
