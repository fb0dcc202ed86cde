"""Who waits for messages of which queues: a watch is open before its owner looks, and stays open.

    grown(queue) ──▶ every watch on it: the queue's cursors become ready, `on_grown` is called
    take()       ──▶ the owner removes one cursor from the ready ones, and only then looks at it

A queue that grows after its cursor was taken makes the cursor ready again, whatever the owner does
in between: no wake-up is lost. The owner's work is proportional to what grew, not to what it
watches.
"""

from collections import deque
from collections.abc import Callable, Iterable

REMOVED_AT_ONCE = 512
"""Cursors: a stream may have 10 000, and removing each takes a microsecond."""

QueueKey = tuple[str, int]
OnChange = Callable[[QueueKey, bool], None]
"""Called with the queue, and whether it is watched now."""
ANYTHING: QueueKey = ("", -1)
"""No queue: grows whenever the log is applied further, whatever it holds."""


class LongPolls:
    """All watches by queue. Belongs to the engine's thread."""

    def __init__(self, on_change: OnChange = lambda key, is_watched: None) -> None:
        """`on_change` is called when a queue gets its first watch, and when it has lost its
        last."""
        self._watches: dict[QueueKey, dict[Watch, list[int]]] = {}
        """The numbers of the watch's cursors in this queue."""
        self._closed: list[Watch] = []
        """Closed, and not yet removed from all queues."""
        self._count = 0
        self._on_change = on_change

    def __len__(self) -> int:
        """How many watches are open."""
        return self._count

    @property
    def is_empty(self) -> bool:
        """No watch is open, and of closed ones nothing is left."""
        return not self._watches

    def is_watched(self, key: QueueKey) -> bool:
        return key in self._watches

    def watch(self, on_grown: Callable[[], None]) -> "Watch":
        """Open a watch without cursors. `on_grown` is called whenever one of them becomes ready,
        from within `grown`: it must only note that."""
        self._count += 1
        return Watch(self._watches, on_grown, self._on_closed, self._on_change)

    def grown(self, keys: Iterable[QueueKey]) -> None:
        """Make the cursors of these queues ready, in this order."""
        for key in keys:
            for watch, numbers in self._watches.get(key, {}).items():
                watch.grown(numbers)

    def wake_all(self) -> None:
        """The service stops, or the queues were cut: everyone must look again."""
        self.grown(self._watches)

    def sweep(self) -> None:
        """Remove some of what was closed. To be called a few times a second."""
        if self._closed and self._closed[-1].remove(REMOVED_AT_ONCE):
            self._closed.pop()

    def _on_closed(self, watch: "Watch") -> None:
        self._count -= 1
        if not watch.remove(REMOVED_AT_ONCE):
            self._closed.append(watch)


class Watch:
    """One caller's cursors and which of them are ready. A context manager that closes it."""

    def __init__(
        self,
        watches: dict[QueueKey, dict["Watch", list[int]]],
        on_grown: Callable[[], None],
        on_closed: Callable[["Watch"], None],
        on_change: OnChange,
    ) -> None:
        self._watches = watches
        self._on_grown = on_grown
        self._on_closed = on_closed
        self._on_change = on_change
        self._keys: list[QueueKey] = []
        self._ready: deque[int] = deque()
        self._are_ready: set[int] = set()

    def __enter__(self) -> "Watch":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def add(self, number: int, key: QueueKey) -> None:
        """A further cursor under a number of the caller's, ready at once."""
        self._keys.append(key)
        at_queue = self._watches.setdefault(key, {})
        is_first = not at_queue
        at_queue.setdefault(self, []).append(number)
        self.mark_ready(number)
        if is_first:
            self._on_change(key, True)

    def take(self) -> int | None:
        """The cursor that has been ready for longest, not ready any more; None if none is."""
        if not self._ready:
            return None
        number = self._ready.popleft()
        self._are_ready.remove(number)
        return number

    def mark_ready(self, number: int) -> None:
        """Put the cursor behind all others that are ready: it has more to read."""
        if number not in self._are_ready:
            self._are_ready.add(number)
            self._ready.append(number)

    def grown(self, numbers: Iterable[int]) -> None:
        """The room's call: these cursors' queue grew."""
        for number in numbers:
            self.mark_ready(number)
        self._on_grown()

    def close(self) -> None:
        """What grows from now on means nothing."""
        self._on_closed(self)

    def remove(self, most: int) -> bool:
        """Take up to so many cursors from their queues; True when none is left. Once closed."""
        for _ in range(min(most, len(self._keys))):
            key = self._keys.pop()
            at_queue = self._watches.get(key, {})
            at_queue.pop(self, None)
            if not at_queue and self._watches.pop(key, None) is not None:
                self._on_change(key, False)
        return not self._keys
