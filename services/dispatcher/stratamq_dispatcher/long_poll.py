"""Who waits for the next message of a queue: woken when something is applied, never by a clock."""

from collections.abc import Callable, Iterable

QueueKey = tuple[str, int]
ANYTHING: QueueKey = ("", -1)
"""No queue: who waits for it is woken when the log is applied further, whatever it holds."""


class Waiter:
    """One caller's wish, on one queue or several. `wake` is called at most once."""

    __slots__ = ("keys", "wake")

    def __init__(self, keys: tuple[QueueKey, ...], wake: Callable[[], None]) -> None:
        self.keys = keys
        self.wake = wake


class WaitingRoom:
    """All waiters by queue. Belongs to the engine's thread."""

    def __init__(self) -> None:
        self._waiters: dict[QueueKey, dict[Waiter, None]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def enter(self, keys: Iterable[QueueKey], wake: Callable[[], None]) -> Waiter:
        """Call `wake` when one of the queues grows. The waiter must `leave` if it gives up."""
        waiter = Waiter(tuple(dict.fromkeys(keys)), wake)
        for key in waiter.keys:
            self._waiters.setdefault(key, {})[waiter] = None
        self._count += 1
        return waiter

    def leave(self, waiter: Waiter) -> None:
        """Fine for one that was woken."""
        here = False
        for key in waiter.keys:
            at_queue = self._waiters.get(key)
            if at_queue is not None and waiter in at_queue:
                here = True
                del at_queue[waiter]
                if not at_queue:
                    del self._waiters[key]
        self._count -= here

    def grown(self, keys: Iterable[QueueKey]) -> None:
        """Wake everyone who waits for one of these queues, in the order of their coming."""
        woken: dict[Waiter, None] = {}
        for key in keys:
            woken.update(self._waiters.get(key, {}))
        self._wake(woken)

    def wake_all(self) -> None:
        """The service stops, or the queues were cut: everyone must look again."""
        self.grown(list(self._waiters))

    def _wake(self, woken: dict[Waiter, None]) -> None:
        for waiter in woken:
            self.leave(waiter)
        for waiter in woken:
            waiter.wake()
