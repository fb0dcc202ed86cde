"""The log read from its first byte, frame by frame: what every other answer is held against."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from stratamq.client.received import ReceivedMessage
from stratamq.formats import frame as frames
from stratamq.formats.frame import Outcome
from stratamq_torture.processes.ledger import Queue
from stratamq_torture.processes.messages import Messages


@dataclass(frozen=True, slots=True)
class Stored:
    """One frame of the log, without its body."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    size: int
    frame_hash: int
    store_timestamp_ms: int
    unique_key: str
    keys: tuple[str, ...]
    tag: str


@dataclass(slots=True)
class LogImage:
    """Grows by `read`. `faults` has what in the log itself cannot be right."""

    messages: Messages
    segment_bytes: int
    end: int = 0
    by_key: dict[str, list[Stored]] = field(default_factory=dict)
    """Unique key to its copies, in the order of the log."""
    queues: dict[Queue, list[Stored]] = field(default_factory=dict)
    """Each queue's messages; a place in the list is the queue offset."""
    in_order: list[Stored] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    def read(self, pieces: Iterable[tuple[int, bytes]]) -> None:
        """Go on at `end` with (offset, bytes), which need not end with a frame or a segment."""
        rest = b""
        for offset, data in pieces:
            if offset != self.end + len(rest):
                self.faults.append(f"asked for log offset {self.end + len(rest)}, got {offset}")
                return
            rest = self._walk(rest + data)
        if rest:
            self.faults.append(f"{len(rest)} bytes at {self.end} end in the middle of a frame")

    def _walk(self, data: bytes) -> bytes:
        """Take whole frames; what is left begins at `self.end`."""
        position = 0
        while position < len(data):
            result = frames.check(data, position)
            if result.outcome is Outcome.GOOD:
                self._take(ReceivedMessage(data[position : position + result.size]))
                size = result.size
            elif result.outcome is Outcome.BLANK:
                size = self.segment_bytes - self.end % self.segment_bytes
                if size > len(data) - position:
                    break
            elif result.outcome is Outcome.INCOMPLETE:
                break
            else:
                self.faults.append(f"at log offset {self.end}: {result.outcome.value}")
                self.end += len(data) - position
                return b""
            position += size
            self.end += size
        return data[position:]

    def _take(self, message: ReceivedMessage) -> None:
        stored = Stored(
            message.topic,
            message.queue_id,
            message.queue_offset,
            message.physical_offset,
            message.size,
            hash(message.frame),
            message.store_timestamp_ms,
            message.unique_key,
            tuple(message.keys),
            message.tag,
        )
        if stored.physical_offset != self.end:
            self.faults.append(
                f"the frame at {self.end} has the physical offset {stored.physical_offset}"
            )
        queue = self.queues.setdefault((stored.topic, stored.queue_id), [])
        if stored.queue_offset != len(queue):
            self.faults.append(
                f"{stored.topic}/{stored.queue_id} continues with {stored.queue_offset} instead of "
                f"{len(queue)} at log offset {self.end}"
            )
        if self.in_order and stored.store_timestamp_ms < self.in_order[-1].store_timestamp_ms:
            self.faults.append(f"the store timestamp goes back at log offset {self.end}")
        difference = self.messages.difference(message)
        if difference:
            self.faults.append(f"at log offset {self.end}: {difference}")
        queue.append(stored)
        self.in_order.append(stored)
        self.by_key.setdefault(stored.unique_key, []).append(stored)
