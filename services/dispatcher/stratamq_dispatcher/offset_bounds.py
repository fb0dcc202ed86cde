"""Consumer groups' offsets checked against the ends of queues: none is committed beyond an end, and
none that was is kept.

Offsets do not wait for the log. They are saved, and travel to slaves, while the messages below them
may still be lost: by a power failure under asynchronous flush, by a failover. Whatever begins a
generation of a master (a start, a promotion) fixes where the queues of the one before it ended; an
offset beyond that would skip the messages that take the lost ones' places. It is lowered to there:
at once for who asks or commits, and in the table a few topics a tick.

A slave's offsets may be ahead of its log, which will get there. Who asks hears of the queue's end;
the table is left alone, and nothing is committed.
"""

import logging
from collections.abc import Iterable

from stratamq.errors import CorruptionError, NotWritableError, OffsetOutOfRangeError
from stratamq_dispatcher.consumer_offsets import ConsumerOffsets, GroupOffset, GroupTopic
from stratamq_dispatcher.findings import Findings
from stratamq_dispatcher.queue_ends import QueueEnds

log = logging.getLogger(__name__)

TOPICS_PER_TICK = 64


class OffsetBounds:
    """Belongs to the engine's thread."""

    def __init__(self, offsets: ConsumerOffsets, ends: QueueEnds, findings: Findings) -> None:
        self._offsets = offsets
        self._ends = ends
        self._findings = findings
        self._epoch = (0, 0)
        """The generation, and the start of the table's keys, that the following is about."""
        self._next = self._stop = 0
        """Keys from the one to the other were there when the generation began, and have not been
        checked against the ends."""
        self._held: set[GroupTopic] = set()
        """But these of them, and new ones."""

    def bounded(self, group: str, topic: str, queue_id: int, offset: int) -> int:
        """What to tell of an offset in the table."""
        if not self._ends.begun:
            return min(offset, self._ends.end(topic, queue_id))
        self._renew()
        if self._is_held((group, topic)):
            return offset
        return min(offset, self._end(topic, queue_id, offset))

    def commit(self, group: str, offsets: Iterable[GroupOffset]) -> None:
        """All of them or none; on a master.

        InvalidRequestError; NotWritableError (`role`) on a slave; OffsetOutOfRangeError for one
        beyond its queue's end.
        """
        taken = list(offsets)
        self.require_master()
        self._offsets.check(group, taken)
        for topic, queue_id, offset in taken:
            end = self._ends.end(topic, queue_id)
            if offset > end:
                raise OffsetOutOfRangeError(
                    f"offset {offset} of {topic} {queue_id} is beyond the queue's end: commit 0 to "
                    f"{end}",
                    0,
                    end,
                )
        self._renew()
        for topic in {topic for topic, _, _ in taken}:
            self._hold((group, topic))
        self._offsets.commit(group, taken)

    def require_master(self) -> None:
        """NotWritableError (`role`) on a slave."""
        if self._ends.is_slave:
            raise NotWritableError("a slave takes no offset commits: commit at its master", "role")

    def tick(self) -> None:
        """To be called a few times a second."""
        if not self._ends.begun:
            return
        self._renew()
        stop = min(self._next + TOPICS_PER_TICK, self._stop)
        for key in self._offsets.keys[self._next : stop]:
            self._hold(key)
        self._next = stop
        if stop == self._stop:
            self._held.clear()

    def _renew(self) -> None:
        epoch = self._ends.begun, self._offsets.incarnation
        if epoch != self._epoch:
            self._epoch, self._next, self._stop = epoch, 0, len(self._offsets.keys)
            self._held.clear()

    def _is_held(self, key: GroupTopic) -> bool:
        return self._next == self._stop or key in self._held

    def _hold(self, key: GroupTopic) -> None:
        if self._is_held(key):
            return
        self._held.add(key)
        group, topic = key
        for queue_id, offset in list(self._offsets.queues_of(key).items()):
            end = self._end(topic, queue_id, offset)
            if offset > end:
                self._offsets.keep_copy()
                self._offsets.put(group, [(topic, queue_id, end)])
                log.warning(
                    "offset beyond the queue's end lowered",
                    extra={
                        "group": group,
                        "topic": topic,
                        "queue_id": queue_id,
                        "offset": offset,
                        "end": end,
                    },
                )

    def _end(self, topic: str, queue_id: int, offset: int) -> int:
        """Where the queue ended when the generation began; `offset` if its files are damaged."""
        try:
            return self._ends.end_at_begin(topic, queue_id)
        except CorruptionError as error:
            self._findings.add_damage(error)
            return offset
