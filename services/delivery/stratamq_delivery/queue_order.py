"""Which messages of an ordered group's queue wait for which: pure, by message group."""

from collections import OrderedDict, deque

from stratamq.formats.topics import retried_topic
from stratamq_delivery.entries import Bounds
from stratamq_delivery.records import GroupPlace
from stratamq_delivery.runs import Runs
from stratamq_delivery.shared_queue import SharedQueue
from stratamq_delivery.waiting_line import WaitingLines

Key = str | int
"""A message group; an offset: a message without one that was passed over."""


class QueueOrder:
    """The unfinished messages of one queue by message group, as far as they were seen."""

    def __init__(self, first: int) -> None:
        self._keys: Runs[Key | None] = Runs(first)
        self._unfinished: dict[Key, deque[Bounds]] = {}
        self._changed: OrderedDict[Key, None] = OrderedDict()
        """Message groups whose first message may have become free."""

    @property
    def end(self) -> int:
        """What was seen ends here."""
        return self._keys.end

    def add(self, offset: int, key: Key | None) -> None:
        """An unfinished message at `end` or behind it. None: nothing waits for it."""
        self.skip_to(offset)
        self._keys.put(offset, offset + 1, key)
        if key is None:
            return
        runs = self._unfinished.setdefault(key, deque())
        if runs and runs[-1][1] == offset:
            runs[-1] = (runs[-1][0], offset + 1)
        else:
            runs.append((offset, offset + 1))

    def skip_to(self, offset: int) -> None:
        if offset > self.end:
            self._keys.put(self.end, offset, None)

    def drop_below(self, floor: int) -> None:
        self.skip_to(floor)
        self._keys.drop_below(floor)

    def change(self, key: Key | None) -> None:
        if key is not None:
            self._changed[key] = None

    def finished(self, runs: tuple[Bounds, ...]) -> None:
        for start, end in runs:
            start, end = max(start, self._keys.first), min(end, self.end)
            for *_, key in self._keys.within(start, end):
                self.change(key)

    def is_locked(self, key: Key | None, queue: SharedQueue) -> bool:
        """Whether the message group has an unfinished message."""
        return key is not None and self._first_of(key, queue) is not None

    def free(self, queue: SharedQueue, most: int) -> list[int]:
        """The first messages of message groups of which nothing is handed out, in order."""
        found: list[int] = []
        locked: list[Key] = []
        for key in self._changed:
            if len(found) == most:
                break
            first = self._first_of(key, queue)
            if first is None or queue.held(first) is not None:
                locked.append(key)
            else:
                found.append(first)
        for key in locked:
            del self._changed[key]
        return sorted(found)

    def _first_of(self, key: Key, queue: SharedQueue) -> int | None:
        runs = self._unfinished.get(key)
        while runs:
            start, end = runs[0]
            first = queue.first_unfinished(start, end)
            if first is not None:
                runs[0] = (first, end)
                return first
            runs.popleft()
        self._unfinished.pop(key, None)
        return None


class Orders:
    """Those of the queues that were read since the start, or since the log changed its master."""

    def __init__(self, lines: WaitingLines) -> None:
        """`lines`: of workers that may get a successor of what is finished."""
        self.of: dict[GroupPlace, QueueOrder] = {}
        self._lines = lines

    def finished(
        self, place: GroupPlace, runs: tuple[Bounds, ...], queue: SharedQueue | None
    ) -> None:
        """Messages were decided to be finished, by which the queue is as it is now."""
        order = self.of.get(place)
        if order is None:
            return
        order.finished(runs)
        if queue is None or not queue.unfinished:
            del self.of[place]
        self._lines.wake(place.group, retried_topic(place.group, place.topic))
