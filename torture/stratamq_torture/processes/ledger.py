"""What was promised: acknowledged, perhaps stored, refused, and what consumers have seen.

Filled by the threads of a workload, read by the checker while they rest.
"""

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

from stratamq.client import SendResult, SendStatus
from stratamq.errors import StrataError, UnavailableError

Queue = tuple[str, int]
"""(topic, queue id)."""
GROUP = "torture"
"""The consumer group that commits how far it has come."""


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """A PUT_OK: where the message is, and when (monotonic clock) the answer was there."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    store_timestamp_ms: int
    at_ns: int


@dataclass(slots=True)
class Ledger:
    """By unique key. A message is in exactly one of the three tables, or still unanswered."""

    acknowledged: dict[str, Acknowledged] = field(default_factory=dict)
    perhaps: dict[str, str] = field(default_factory=dict)
    """The connection broke, or the answer was "stored, not confirmed": may be there or not."""
    refused: dict[str, str] = field(default_factory=dict)
    """Nothing was stored, by the service's answer: must not be there."""
    seen: dict[Queue, dict[int, tuple[int, int]]] = field(default_factory=dict)
    """Queue offset to (physical offset, hash of the frame) of what a consumer was given."""
    committed: dict[Queue, int] = field(default_factory=dict)
    """The highest offset that the group GROUP has tried to commit."""
    newest_offset: int = -1
    """The log offset of the message that was acknowledged last."""
    faults: list[str] = field(default_factory=list)
    """Promises that the workload itself saw broken."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, unique_key: str, result: SendResult, at_ns: int) -> None:
        """The log's answer for one message."""
        error = result.error
        with self._lock:
            if error is None and result.status is SendStatus.PUT_OK:
                self.newest_offset = result.physical_offset
                self.acknowledged[unique_key] = Acknowledged(
                    result.topic,
                    result.queue_id,
                    result.queue_offset,
                    result.physical_offset,
                    result.store_timestamp_ms,
                    at_ns,
                )
            elif error is None:
                self.perhaps[unique_key] = result.status.name
            else:
                self._not_stored(unique_key, error)

    def failed(self, unique_key: str, error: StrataError) -> None:
        """The error that a delivery raised."""
        with self._lock:
            self._not_stored(unique_key, error)

    def _not_stored(self, unique_key: str, error: StrataError) -> None:
        # After an append UnavailableError means "perhaps stored", unless the client knows better.
        unknown = isinstance(error, UnavailableError) and error.fields.get("perhaps_stored", True)
        flush_failed = error.fields.get("status") == "UNKNOWN_ERROR"
        table = self.perhaps if unknown or flush_failed else self.refused
        table[unique_key] = str(error)

    def saw(self, topic: str, queue_id: int, offset: int, place: tuple[int, int]) -> None:
        """A consumer was given a message. Another one than before at an offset is a fault."""
        with self._lock:
            queue = self.seen.setdefault((topic, queue_id), {})
            before = queue.setdefault(offset, place)
            if before != place:
                self.faults.append(
                    f"consumers of {topic}/{queue_id} saw two messages at queue offset {offset}: "
                    f"at log offsets {before[0]} and {place[0]}"
                )

    def tried_to_commit(self, offsets: Mapping[Queue, int]) -> None:
        """Group GROUP is about to commit this offset."""
        with self._lock:
            for queue, offset in offsets.items():
                self.committed[queue] = max(offset, self.committed.get(queue, -1))

    def fault(self, sentence: str) -> None:
        with self._lock:
            self.faults.append(sentence)
