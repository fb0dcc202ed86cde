"""The log's snapshot of its queues: what is in it, and the text of the lock that goes with it.

    stratamq/queue-offsets.journal  pieces [[topic, id, next], …]; commits {"generation", "offset",
                                    "frame", "store_timestamp_ms", "minimum"}

`frame` is [physical offset, size, SHA-256] of the last frame below the offset that the file stands
on (null in an empty log).
"""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice

from stratamq.files.journal import PIECE_ENTRIES
from stratamq.files.metadata import JsonObject
from stratamq.formats.numbers import NextOffset
from stratamq.store.confirmed import LOCK_MARK

QueueTable = dict[tuple[str, int], int]
"""(topic, queue id) → the queue offset that the next message gets."""


@dataclass(frozen=True, slots=True)
class FrameMark:
    """Identity of one frame: its offset, its size and the SHA-256 of its bytes."""

    offset: int
    size: int
    sha256: str

    @property
    def end(self) -> int:
        return self.offset + self.size


@dataclass(frozen=True, slots=True)
class TableSnapshot:
    """The queue table at `offset`, a position known durable when this was written."""

    generation: int
    offset: int
    frame: FrameMark | None
    store_timestamp_ms: int
    minimum: int | None = None
    """Where the log began: what is below is no part of it. None: written before this was kept."""
    queues: QueueTable = field(default_factory=dict)
    """The loaded table; one that is to be stored is passed separately."""

    @property
    def place(self) -> tuple[int, int]:
        """Greater in one that was written later: each start has a greater generation."""
        return self.generation, self.offset


def mark(offset: int, frame: bytes | memoryview) -> FrameMark:
    return FrameMark(offset, len(frame), hashlib.sha256(frame).hexdigest())


def lock_text(pid: int) -> bytes:
    return LOCK_MARK + b"pid %d\n" % pid


def pieces_of(changes: Iterable[QueueTable]) -> Iterator[list[NextOffset]]:
    """The journal's pieces."""
    for table in changes:
        entries = ((topic, queue_id, following) for (topic, queue_id), following in table.items())
        while piece := list(islice(entries, PIECE_ENTRIES)):
            yield piece


def commit_of(snapshot: TableSnapshot) -> JsonObject:
    """The journal's commit."""
    frame = snapshot.frame
    return {
        "generation": snapshot.generation,
        "offset": snapshot.offset,
        "frame": None if frame is None else [frame.offset, frame.size, frame.sha256],
        "store_timestamp_ms": snapshot.store_timestamp_ms,
        "minimum": snapshot.minimum,
    }
