"""Group commit: who waits for the disk, one flush at a time, and what ends writing.

All appends that arrive while a flush runs share the next one. A flush that fails is never retried
and never acknowledged: the kernel has marked the pages clean, and a second flush would succeed for
bytes that are not on the disk. Only a restart recovers.

    append ──► wait(end, …) ──► flush up to *appended* ──► flushed ──► PUT_OK
                     │                    │ OSError
                     │ its time is over   └──► failed: every waiter, now and later
                     └──► FLUSH_DISK_TIMEOUT: stored, not confirmed
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from stratamq.files.port import Clock, Worker
from stratamq_commitlog.messages import LogListener

Resolve = Callable[[bool | None], None]
"""True: durable. False: its time is over. None: flushing failed, nothing more will be durable."""


@dataclass(slots=True)
class _Waiter:
    end: int
    deadline_ns: int
    resolve: Resolve


class GroupCommit:
    """`make_task(start, end)` gives the work of one flush; it runs on `worker`."""

    def __init__(
        self,
        worker: Worker,
        make_task: Callable[[int, int], Callable[[], None]],
        clock: Clock,
        *,
        flushed: int,
        timeout_ms: int,
        on_flushed: Callable[[int], None],
        on_failed: Callable[[OSError], None],
        listener: LogListener,
    ) -> None:
        self.flushed = flushed
        """Everything below is durable."""
        self.failure: OSError | None = None
        """The first flush that failed; forever."""
        self.flushes = 0
        self._worker = worker
        self._make_task = make_task
        self._clock = clock
        self._timeout_ns = timeout_ms * 1_000_000
        self._on_flushed = on_flushed
        self._on_failed = on_failed
        self._listener = listener
        self._waiters: deque[_Waiter] = deque()
        self._running = False
        self._wanted = flushed

    @property
    def idle(self) -> bool:
        """No flush is running or wanted."""
        return not self._running

    def wait(self, end: int, resolve: Resolve) -> None:
        """Call `resolve` once everything below `end` is durable, or it is clear that it is not.

        An end below that of an earlier call may wait as long as that.
        """
        if self.failure is not None:
            resolve(None)
        elif end <= self.flushed:
            resolve(True)
        else:
            deadline = self._clock.monotonic_ns() + self._timeout_ns
            self._waiters.append(_Waiter(end, deadline, resolve))

    def request(self, end: int) -> None:
        """Flush up to `end`: now, or when the running flush is done."""
        if end <= self._wanted or self.failure is not None:
            return
        self._wanted = end
        if not self._running:
            self._start()

    def fail(self, error: OSError) -> None:
        """Writing has ended for another reason: as if a flush had failed."""
        if self.failure is None:
            self._failed(error)

    def expire(self) -> None:
        """Answer those whose time is over. Their messages are stored and may yet become durable."""
        now = self._clock.monotonic_ns()
        while self._waiters and self._waiters[0].deadline_ns <= now:
            self._waiters.popleft().resolve(False)

    def _start(self) -> None:
        end, started = self._wanted, self._clock.monotonic_ns()
        self._running = True
        task = self._make_task(self.flushed, end)

        def done(_: None, error: BaseException | None) -> None:
            self._running = False
            elapsed = self._clock.monotonic_ns() - started
            self.flushes += 1
            self._listener.flush_took(elapsed)
            if error is None:
                self._finished(end)
            elif isinstance(error, OSError):
                self._failed(error)
            else:
                raise error
            if not self._running:
                self._listener.idle()

        self._worker.submit(task, done)

    def _finished(self, end: int) -> None:
        self.flushed = end
        # The next flush begins before anyone is answered: answers take the engine's thread, and the
        # disk would be idle meanwhile.
        if self._wanted > end:
            self._start()
        # The high-water mark moves before producers are answered: one that is told of its message
        # and asks a consumer for it finds it.
        self._on_flushed(end)
        waiters = self._waiters
        while waiters and waiters[0].end <= end:
            waiters.popleft().resolve(True)

    def _failed(self, error: OSError) -> None:
        # Forever: the kernel may have dropped what it could not write, and marked the pages clean.
        # Bytes [100, 200) fail, a second flush of [100, 300) succeeds, and [100, 200) is lost.
        self.failure = error
        # Writing ends before the waiters are answered: one that sends again at once is refused, and
        # told why.
        self._on_failed(error)
        while self._waiters:
            self._waiters.popleft().resolve(None)
