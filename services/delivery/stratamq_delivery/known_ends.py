"""Where the queues of some topics end in the log: whether there is something to hand out, without a
question to another service."""

from collections.abc import Callable, Iterable

import numpy as np

from stratamq.follow.queues import QueueCalls
from stratamq.formats.dispatch import DispatchColumns


class KnownEnds:
    """In memory, of the topics that were asked for since the start."""

    def __init__(self, arrived: Callable[[str], None] = lambda _: None) -> None:
        """`arrived` is called with a topic that has new messages."""
        self.arrived = arrived
        self._ends: dict[str, dict[int, int]] = {}
        self._learned: set[str] = set()

    def of(self, topic: str) -> dict[int, int] | None:
        """By queue. None: the topic is not known; give `learn` what the dispatcher says."""
        return self._ends[topic] if topic in self._learned else None

    async def ask(self, topic: str, queues: QueueCalls, applied: int) -> None:
        """`applied`: how far the log was read. What lies before is not seen again: the dispatcher
        has to have it."""
        self.watch(topic)
        bounds = await queues.bounds(topic, applied)
        self.learn(topic, [(queue_id, end) for queue_id, (_, end) in bounds.items()])

    def watch(self, topic: str) -> None:
        """See what arrives from now on."""
        self._ends.setdefault(topic, {})

    def learn(self, topic: str, ends: Iterable[tuple[int, int]]) -> None:
        for queue_id, end in ends:
            self._raise(topic, queue_id, end)
        if topic in self._ends:
            self._learned.add(topic)

    def drop(self, topic: str) -> None:
        """Stop watching it."""
        self._ends.pop(topic, None)
        self._learned.discard(topic)

    def see(self, columns: DispatchColumns) -> None:
        for number, topic in enumerate(columns.topics):
            if topic not in self._ends:
                continue
            rows = (columns.topic_index == number) & columns.in_queue
            for queue_id in np.unique(columns.queue_id[rows]).tolist():
                mine = rows & (columns.queue_id == queue_id)
                self._raise(topic, queue_id, int(columns.queue_offset[mine].max()) + 1)
            if rows.any():
                self.arrived(topic)

    def forget(self) -> None:
        """The log was cut."""
        self._ends.clear()
        self._learned.clear()

    def _raise(self, topic: str, queue_id: int, end: int) -> None:
        ends = self._ends.get(topic)
        if ends is not None:
            ends[queue_id] = max(end, ends.get(queue_id, 0))
