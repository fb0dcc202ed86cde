"""Looks at followers while others work: how old the newest dispatched message is, what they hold.

The age is read off one clock: when the log's end was first seen at or beyond what the dispatcher
has applied by now.
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from types import TracebackType

from stratamq.client import Client
from stratamq_bench.usage import descriptors

LOOK_S = 0.05


class LagWatch:
    """`ends()`: (where the leader ends, how far the follower is). A thread; to be left by `with`.

    `worst_s` errs on the long side: what is seen at one look may be as old as the look before.
    """

    def __init__(self, ends: Callable[[], tuple[int, int]], pid: int | None = None) -> None:
        self.worst_s = 0.0
        self.most_descriptors = 0
        self.looks = 0
        self._ends = ends
        self._pid = pid
        self._stopped = threading.Event()
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        seen: deque[tuple[int, float]] = deque()
        before = time.perf_counter()
        try:
            while not self._stopped.wait(LOOK_S):
                leader, follower = self._ends()
                now = time.perf_counter()
                if not seen or leader > seen[-1][0]:
                    seen.append((leader, before))
                while seen and seen[0][0] <= follower:
                    seen.popleft()
                before = now
                if seen:
                    # A follower that is behind lacks what the first look it has not reached showed.
                    self.worst_s = max(self.worst_s, now - seen[0][1])
                if self._pid is not None:
                    self.most_descriptors = max(self.most_descriptors, descriptors(self._pid))
                self.looks += 1
        except Exception as error:  # noqa: BLE001 - the top of a thread: raised at the block's end
            self._failure = error

    def __enter__(self) -> "LagWatch":
        self._thread.start()
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stopped.set()
        self._thread.join()
        if self._failure is not None and error is None:
            raise self._failure


def dispatch_ends(client: Client) -> tuple[int, int]:
    """Return the ends of a broker's log and of its dispatcher."""
    state = client.admin.dispatch_state()
    return client.log_state().confirmed_offset, state.applied_offset
