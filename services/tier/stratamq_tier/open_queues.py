"""Queues that are read, with the lists of their parts: bounded in bytes."""

from collections import OrderedDict

from stratamq.tier.reading.manifests import ManifestQueue
from stratamq.tier.writing.intake import QueueKey

OPEN_BYTES = 64 << 20
"""About seventy thousand parts."""
_QUEUE_BYTES, _PART_BYTES = 2_000, 900
"""In memory, of a queue and of a part: the part, its places in both chains, its point of time."""


class OpenQueues:
    """Those that were used last. `get` is of any thread, the rest of one. One queue is kept even
    where it is larger than all may be together."""

    def __init__(self, most_bytes: int = OPEN_BYTES) -> None:
        self.bytes = 0
        """About what they take in memory."""
        self._most_bytes = most_bytes
        self._queues: OrderedDict[QueueKey, ManifestQueue] = OrderedDict()

    def __len__(self) -> int:
        return len(self._queues)

    def get(self, key: QueueKey) -> ManifestQueue | None:
        return self._queues.get(key)

    def use(self, key: QueueKey) -> ManifestQueue | None:
        """Return what `get` does, and make it the queue that was used last."""
        if key in self._queues:
            self._queues.move_to_end(key)
        return self._queues.get(key)

    def put(self, key: QueueKey, queue: ManifestQueue) -> None:
        """Those that were not used for longest give way."""
        before = self._queues.pop(key, None)
        self.bytes += _size(queue) - (_size(before) if before is not None else 0)
        self._queues[key] = queue
        while self.bytes > self._most_bytes and len(self._queues) > 1:
            _, gone = self._queues.popitem(last=False)
            self.bytes -= _size(gone)


def _size(queue: ManifestQueue) -> int:
    return _QUEUE_BYTES + _PART_BYTES * len(queue.points)
