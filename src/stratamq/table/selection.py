"""Which messages are wanted: a pure value, applied to header columns before anything is decoded."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from stratamq.formats.columns import FrameColumns, columns_at
from stratamq.formats.sysflag import TRANSACTION_COMMIT, TRANSACTION_MASK, TRANSACTION_NONE
from stratamq.formats.text import decode_text
from stratamq.formats.text_groups import group_texts

Queue = tuple[str, int]
Mask = NDArray[np.bool_]
FOREVER = (1 << 63) - 1
"""Behind every offset."""


@dataclass(frozen=True, slots=True)
class Covered:
    """Queue offsets [begin, end) of a queue that are read elsewhere: messages that were stored at
    `last_ms` or before. A later one is of the queue's next life, after its topic was deleted."""

    begin: int
    end: int
    last_ms: int


_NOT_NAMED = (-1, -1)
_NOT_COVERED = Covered(0, 0, 0)


@dataclass(frozen=True, slots=True)
class Selection:
    """Conditions that all must hold; the default is every message that stands in a queue.

    `topics`, `queues` (ids): None means any. `offsets`: queue offsets [begin, end) of single
    queues; when there are any, no other queue is wanted, unless `others_too`. `physical`: log
    offsets [begin, end) in which a frame begins. `since_ms` ≤ store time < `until_ms`.
    """

    topics: frozenset[str] | None = None
    topic_pattern: str | None = None
    """A regular expression that the whole topic matches."""
    queues: frozenset[int] | None = None
    offsets: dict[Queue, tuple[int, int]] = field(default_factory=dict)
    others_too: bool = False
    all_offsets: tuple[int, int] | None = None
    """Queue offsets [begin, end) of every queue."""
    physical: tuple[int, int] | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    queued_only: bool = True
    """Leave out what stands in no consume queue: prepared and rolled back messages."""
    elsewhere: Mapping[Queue, Covered] = field(default_factory=dict)
    """Left out, because they are read from the tier."""
    _named_topics: frozenset[str] = field(init=False, repr=False, compare=False)
    """Those of `offsets`."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "_named_topics", frozenset(topic for topic, _ in self.offsets))

    def wants_topic(self, topic: str) -> bool:
        if self.topics is not None and topic not in self.topics:
            return False
        if self.topic_pattern is not None and not re.fullmatch(self.topic_pattern, topic):
            return False
        if self.others_too or not self.offsets:
            return True
        return topic in self._named_topics

    @property
    def by_queues(self) -> bool:
        """Some queues are wanted and others are not, and nothing that stands in none."""
        named = self.topics, self.topic_pattern, self.queues, self.offsets or None
        return self.queued_only and any(one is not None for one in named)

    def span_of(self, topic: str, queue_id: int) -> tuple[int, int] | None:
        """Queue offsets [begin, end) that are wanted of a queue; None: nothing of it."""
        if not self.wants_topic(topic) or (self.queues is not None and queue_id not in self.queues):
            return None
        begin, end = self.all_offsets or (0, FOREVER)
        if self.offsets:
            own = self.offsets.get((topic, queue_id), (0, FOREVER if self.others_too else 0))
            begin, end = max(begin, own[0]), min(end, own[1])
        return (begin, end) if begin < end else None

    def rows(self, raw: NDArray[np.uint8], frames: FrameColumns) -> NDArray[np.int64] | None:
        """Numbers of the wanted frames, in order; None: all of them."""
        mask = np.ones(len(frames), np.bool_)
        if self.physical is not None:
            begin, end = self.physical
            mask &= (frames.physical_offset >= begin) & (frames.physical_offset < end)
        if self.all_offsets is not None:
            begin, end = self.all_offsets
            mask &= (frames.queue_offset >= begin) & (frames.queue_offset < end)
        if self.since_ms is not None:
            mask &= frames.store_timestamp_ms >= self.since_ms
        if self.until_ms is not None:
            mask &= frames.store_timestamp_ms < self.until_ms
        if self.queues is not None:
            mask &= np.isin(frames.queue_id, list(self.queues))
        if self.queued_only:
            mask &= in_queue(frames)
        if self.topics is not None or self.topic_pattern is not None or self.offsets:
            mask &= self._of_topics(raw, frames)
        if self.elsewhere:
            mask &= ~self._covered(raw, frames)
        return None if mask.all() else np.flatnonzero(mask)

    def wanted(self, raw: NDArray[np.uint8], frames: FrameColumns) -> FrameColumns:
        rows = self.rows(raw, frames)
        return frames if rows is None else columns_at(raw, frames.start[rows], frames.size[rows])

    def _of_topics(self, raw: NDArray[np.uint8], frames: FrameColumns) -> Mask:
        if not self.offsets:
            index, names = group_texts(raw, frames.topic_start, frames.topic_length)
            wanted = [self.wants_topic(decode_text(name)) for name in names]
            return np.array(wanted, np.bool_)[index]
        queues, number = queues_in(raw, frames)
        topics = {topic: self.wants_topic(topic) for topic, _ in queues}
        wanted = np.array([topics[topic] for topic, _ in queues], np.bool_)
        # Looked up queue by queue, whatever number of them the selection names.
        bounds = np.array([self.offsets.get(queue, _NOT_NAMED) for queue in queues], np.int64)
        begin, end = bounds.reshape(-1, 2)[number].T
        # What stands in no queue has queue offset 0, and none in it.
        named = (begin >= 0) & in_queue(frames)
        inside = (frames.queue_offset >= begin) & (frames.queue_offset < end)
        return wanted[number] & np.where(named, inside, self.others_too)

    def _covered(self, raw: NDArray[np.uint8], frames: FrameColumns) -> Mask:
        queues, number = queues_in(raw, frames)
        found = [self.elsewhere.get(queue, _NOT_COVERED) for queue in queues]
        bounds = np.array([(one.begin, one.end, one.last_ms) for one in found], np.int64)
        begin, end, last_ms = bounds.reshape(-1, 3)[number].T
        offsets = frames.queue_offset
        inside = (offsets >= begin) & (offsets < end)
        return inside & (frames.store_timestamp_ms <= last_ms) & in_queue(frames)


def queues_in(
    raw: NDArray[np.uint8], frames: FrameColumns
) -> tuple[list[Queue], NDArray[np.int64]]:
    """The queues that frames name, and of each frame the number of its queue among them."""
    index, names = group_texts(raw, frames.topic_start, frames.topic_length)
    topics = [decode_text(name) for name in names]
    keys = index.astype(np.int64) << 32 | frames.queue_id.astype(np.uint32)
    found, number = np.unique(keys, return_inverse=True)
    ids = (found & 0xFFFFFFFF).astype(np.uint32).view(np.int32).tolist()
    rows = (found >> 32).tolist()
    return [(topics[row], queue) for row, queue in zip(rows, ids, strict=True)], number


def in_queue(frames: FrameColumns) -> Mask:
    """Whether each frame stands in a consume queue."""
    kind = frames.sys_flag & TRANSACTION_MASK
    return (kind == TRANSACTION_NONE) | (kind == TRANSACTION_COMMIT)
