"""What was promised (acknowledged, perhaps stored, refused, and what consumers have seen), what the
log holds from its first byte, and the files of a stopped store checked against that.

Every message follows from the seed, its producer and its number: nothing has to be remembered to
know, byte for byte, what the log must hold. Ledgers are filled by the threads of a workload, and
read by the checker while they rest.
"""

import hashlib
import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from stratamq.client import Message, ReceivedMessage, SendResult, SendStatus
from stratamq.errors import StrataError, UnavailableError
from stratamq.formats.delay import dispatch_tags_code
from stratamq.formats.file_names import parse_offset_name
from stratamq.formats.frame_check import FrameOutcome, check
from stratamq.formats.index_file import IndexFileView
from stratamq.formats.index_layout import index_key
from stratamq.formats.javahash import index_key_hash
from stratamq.formats.queue_unit import QUEUE_UNIT_BYTES, iter_queue_units
from stratamq_torture.processes.services import directory_names

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


TOPICS = ("orders", "payments", "audit")
QUEUES = 3
KEYS = 40
"""Each message has one of so many keys, beside its unique one."""


@dataclass(frozen=True, slots=True)
class Messages:
    """The messages of one trial. `largest_body_bytes` bounds their bodies."""

    seed: int
    largest_body_bytes: int = 4096

    def message(self, producer: int, number: int) -> Message:
        """The `number`-th message of a producer, with an explicit queue and a unique key."""
        digest = hashlib.sha256(f"{self.seed}/{producer}/{number}".encode()).digest()
        size = digest[3] << 1 if digest[4] >= 16 else int.from_bytes(digest[5:7])
        filler = hashlib.shake_128(digest).digest(min(size, self.largest_body_bytes))
        return Message(
            topic=TOPICS[digest[0] % len(TOPICS)],
            body=f"{producer}/{number}/".encode() + filler,
            tag=f"tag{digest[1] % 4}" if digest[1] & 1 else "",
            keys=[f"key{digest[2] % KEYS}"],
            queue_id=digest[7] % QUEUES,
            unique_key=self.unique_key(producer, number),
            flag=digest[8],
        )

    def unique_key(self, producer: int, number: int) -> str:
        return f"{self.seed}-{producer}-{number}"

    def origin(self, unique_key: str) -> tuple[int, int] | None:
        """(producer, number) of a unique key; None when it is not one of ours."""
        parts = unique_key.split("-")
        if len(parts) != 3 or not all(part.isdecimal() for part in parts):
            return None
        seed, producer, number = (int(part) for part in parts)
        return (producer, number) if seed == self.seed else None

    def difference(self, stored: ReceivedMessage) -> str:
        """How a stored message differs from what was sent; empty when it does not."""
        origin = self.origin(stored.unique_key)
        if origin is None:
            return f"unique key {stored.unique_key!r} was never sent"
        sent = self.message(*origin)
        pairs = {
            "topic": (sent.topic, stored.topic),
            "queue": (sent.queue_id, stored.queue_id),
            "body": (sent.body, stored.body),
            "tag": (sent.tag, stored.tag),
            "keys": (list(sent.keys), stored.keys),
            "flag": (sent.flag, stored.flag),
        }
        wrong = [name for name, (wanted, found) in pairs.items() if wanted != found]
        return f"{', '.join(wrong)} of {stored.unique_key} differ" if wrong else ""


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
            result = check(data, position)
            if result.outcome is FrameOutcome.GOOD:
                self._take(ReceivedMessage(data[position : position + result.size]))
                size = result.size
            elif result.outcome is FrameOutcome.BLANK:
                size = self.segment_bytes - self.end % self.segment_bytes
                if size > len(data) - position:
                    break
            elif result.outcome is FrameOutcome.INCOMPLETE:
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


def check_files(root: Path, image: LogImage, slots: int, items: int) -> list[str]:
    """Where the files differ from `image`, a sentence each; nothing when they agree."""
    return (
        check_log(root, image) + check_queues(root, image) + check_index(root, image, slots, items)
    )


def check_log(root: Path, image: LogImage) -> list[str]:
    """Segments without a gap, the image's frames in them, zeros behind them."""
    names = directory_names(root / "commitlog")
    starts = [parse_offset_name(name) for name in names]
    wanted = [number * image.segment_bytes for number in range(len(names))]
    if starts != wanted:
        return [f"commitlog/ holds {names[:5]}…: not segments in order from 0"]
    content = b"".join((root / "commitlog" / name).read_bytes() for name in names)
    faults = []
    if len(content) != len(names) * image.segment_bytes:
        faults.append(f"the segments hold {len(content)} bytes together")
    if content[image.end :].strip(b"\0"):
        faults.append(f"behind the log's end at {image.end} there is something else than zeros")
    again = LogImage(Messages(image.messages.seed), image.segment_bytes)
    again.read([(0, content[: image.end])])
    faults += again.faults
    if again.in_order != image.in_order:
        faults.append(f"the segments hold {len(again.in_order)} frames that are not the log's")
    return faults


def check_queues(root: Path, image: LogImage) -> list[str]:
    faults = []
    base = root / "consumequeue"
    on_disk = {
        (topic, int(number)) for topic in directory_names(base)
        for number in directory_names(base / topic)
    }  # fmt: skip
    for queue in sorted(on_disk | set(image.queues)):
        directory = base / queue[0] / str(queue[1])
        content = b"".join((directory / name).read_bytes() for name in directory_names(directory))
        units = [(u.physical_offset, u.size, u.tags_code) for u in iter_queue_units(content)]
        wanted = [(s.physical_offset, s.size, _tags_code(s)) for s in image.queues.get(queue, [])]
        if units != wanted:
            first = next(
                (i for i, (a, b) in enumerate(zip(units, wanted, strict=False)) if a != b),
                min(len(units), len(wanted)),
            )
            faults.append(
                f"the files of {queue[0]}/{queue[1]} hold {len(units)} units, the log has "
                f"{len(wanted)}; they differ from queue offset {first} on"
            )
        elif content[len(wanted) * QUEUE_UNIT_BYTES :].strip(b"\0"):
            faults.append(f"behind the end of {queue[0]}/{queue[1]} there are stale units")
    return faults


def check_index(root: Path, image: LogImage, slots: int, items: int) -> list[str]:
    faults = []
    found: Counter[tuple[int, int]] = Counter()
    for name in directory_names(root / "index"):
        reader = IndexFileView((root / "index" / name).read_bytes(), slots, items)
        if not reader.has_geometry_of_its_items():
            faults.append(f"index/{name}: slots and chains do not reach every item once")
        found.update((item.key_hash, item.physical_offset) for item in reader)
    wanted: Counter[tuple[int, int]] = Counter()
    for stored in image.in_order:
        for key in (stored.unique_key, *stored.keys):
            wanted[index_key_hash(index_key(stored.topic, key)), stored.physical_offset] += 1
    missing, strange = wanted - found, found - wanted
    if missing or strange:
        faults.append(
            f"index files: {missing.total()} items missing, {strange.total()} that stand for "
            f"nothing in the log; first at log offset "
            f"{min(offset for _, offset in (*missing, *strange))}"
        )
    return faults


def _tags_code(stored: Stored) -> int:
    return dispatch_tags_code(stored.topic, stored.tag or None, None, stored.store_timestamp_ms)
