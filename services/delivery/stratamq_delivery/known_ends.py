"""The ends of some topics' queues in the log: they show whether there is something to hand out,
without a call of another service."""

from collections import Counter
from collections.abc import Iterable

import numpy as np

from stratamq.follow.demand import Demand
from stratamq.follow.queues import QueueCalls
from stratamq.formats.dispatch import DispatchColumns
from stratamq_delivery.waiting_line import WaitingLines


class KnownEnds:
    """In memory, of the topics that were asked for since the start."""

    def __init__(self, demand: Demand | None = None) -> None:
        """`demand` is told the queues of topics that workers wait for."""
        self.lines = WaitingLines()
        """They are told the topics that have new messages."""
        self._demand = demand or Demand()
        self._waited: Counter[str] = Counter()
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

    def begin_waiting(self, topic: str) -> None:
        self._waited[topic] += 1
        if self._waited[topic] == 1:
            self._tell(topic, waits=True)

    def end_waiting(self, topic: str) -> None:
        self._waited[topic] -= 1
        if not self._waited[topic]:
            del self._waited[topic]
            self._tell(topic, waits=False)

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
                self.lines.arrived(topic)

    def forget(self) -> None:
        """The log was cut."""
        for topic in self._waited:
            self._tell(topic, waits=False)
        self._ends.clear()
        self._learned.clear()

    def _tell(self, topic: str, *, waits: bool) -> None:
        for queue_id in self._ends.get(topic, ()):
            self._demand.wait_for((topic, queue_id), waits)

    def _raise(self, topic: str, queue_id: int, end: int) -> None:
        ends = self._ends.get(topic)
        if ends is not None:
            if queue_id not in ends and topic in self._waited:
                self._demand.wait_for((topic, queue_id), True)
            ends[queue_id] = max(end, ends.get(queue_id, 0))
