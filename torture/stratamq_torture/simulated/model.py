"""What the simulated broker was given, what it answered, what consumers saw: the only truth.

Every message carries its number in its body, so that whatever turns up in the log can be named. A
message's *grade* is what must have happened to the disk before it may be missing:

    NONE      nothing: it was never confirmed
    CACHED    a power loss, or a page that was dropped after its write-back had failed
    DURABLE   nothing that is simulated
"""

import enum
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from stratamq.formats.delay import dispatch_tags_code
from stratamq.formats.frame import Frame, decode
from stratamq.formats.properties import DELAY, TAGS
from stratamq.formats.queue_unit import QueueUnit
from stratamq.formats.sysflag import TRANSACTION_MASK, TRANSACTION_ROLLBACK, is_in_queue
from stratamq_torture.trial import Violation

NUMBER_BYTES = 8
CHECKSUM_PROPERTY = "__CRC32#"


class Fate(enum.Enum):
    OPEN = "no answer, or `perhaps stored`"
    STORED = "the answer names its place"
    REFUSED = "the answer is that nothing was stored"
    GONE = "it was not in the log after a restart, and must never come back"


class Grade(enum.IntEnum):
    NONE = 0
    CACHED = 1
    DURABLE = 2


@dataclass(slots=True, eq=False)
class Message:
    """One message as it was sent, under the topic it must be stored under.

    `queue_id` −1: the log chooses. `group`: messages with the same number other than 0 are stored
    together or not at all.
    """

    number: int
    topic: str
    queue_id: int
    body: bytes
    properties: dict[str, str]
    sys_flag: int = 0
    flag: int = 0
    group: int = 0
    fate: Fate = Fate.OPEN
    grade: Grade = Grade.NONE
    acknowledged: bool = False
    seen: bool = False
    unguarded: bool = False
    """RocketMQ wrote it, without a checksum over its properties."""
    offset: int = -1
    queue_offset: int = -1
    store_ms: int = 0
    frame: bytes = b""

    @property
    def counted(self) -> bool:
        """It takes a queue offset and is in its consume queue."""
        return is_in_queue(self.sys_flag)

    @property
    def indexed(self) -> bool:
        """The index knows its keys."""
        return self.sys_flag & TRANSACTION_MASK != TRANSACTION_ROLLBACK

    @property
    def end(self) -> int:
        return self.offset + len(self.frame)

    def raise_to(self, grade: Grade) -> None:
        self.grade = max(self.grade, grade)

    def __str__(self) -> str:
        place = f" at {self.offset}" if self.offset >= 0 else ""
        return f"#{self.number} ({self.topic}/{self.queue_id}{place}, {self.fate.name.lower()})"


@dataclass(slots=True)
class Model:
    """All messages of one run. `log` is the history that the last restart confirmed, deleted
    messages included, in the log's order."""

    messages: list[Message] = field(default_factory=list)
    log: list[Message] = field(default_factory=list)
    deleted_below: int = 0
    rebased: bool = False
    """Queues may have restarted at any number: `log` holds what came since."""
    by_offset: dict[int, Message] = field(default_factory=dict)
    gone_from: set[int] = field(default_factory=set)
    """The places of messages that are not in the log any more."""
    aligned: int = 0
    """How many messages ended exactly where one of those had begun."""
    torn: bool = False
    """Since the last restart of the log pages may have been lost: groups may be in pieces."""
    broken_groups: set[int] = field(default_factory=set)
    group_sizes: Counter[int] = field(default_factory=Counter)
    next_group: int = 1

    def new(
        self,
        topic: str,
        queue_id: int,
        body_bytes: int,
        properties: dict[str, str],
        *,
        sys_flag: int = 0,
        flag: int = 0,
        group: int = 0,
    ) -> Message:
        number = len(self.messages) + 1
        body = b"%0*d" % (NUMBER_BYTES, number)
        filler = b"abcdefgh%d" % (number % 10)
        body += (filler * (body_bytes // len(filler) + 1))[:body_bytes]
        message = Message(number, topic, queue_id, body, properties, sys_flag, flag, group)
        self.messages.append(message)
        self.group_sizes[group] += 1
        return message

    def new_group(self) -> int:
        self.next_group += 1
        return self.next_group - 1

    # --- what comes back ---

    def observe(self, offset: int, raw: bytes, where: str) -> Message:
        """The message whose frame was found at `offset`. Violation unless it is what was sent."""
        known = self.by_offset.get(offset)
        if known is not None and known.frame == raw and known.fate is not Fate.GONE:
            return known
        frame = decode(raw)
        if not isinstance(frame, Frame) or frame.total_size != len(raw):
            raise Violation("frame", f"{where}: no whole frame at {offset}")
        message = self._named(frame, offset, where)
        if self._torn_unguarded(message, raw):
            message.properties, message.frame = frame.properties, raw
        self._compare(message, frame, where)
        if frame.physical_offset != offset:
            raise Violation(
                "frame", f"{where}: {message} has the physical offset {frame.physical_offset}"
            )
        if message.fate in (Fate.REFUSED, Fate.GONE):
            word = "came back" if message.fate is Fate.GONE else "was refused, and is there"
            raise Violation("phantom", f"{where}: {message} {word} at {offset}")
        if message.frame and (message.offset, message.frame) != (offset, raw):
            raise Violation("bytes", f"{where}: {message} was stored otherwise, at {offset} now")
        message.offset, message.frame = offset, raw
        message.queue_id, message.queue_offset = frame.queue_id, frame.queue_offset
        message.store_ms = frame.store_timestamp_ms
        self.by_offset[offset] = message
        self.aligned += message.end in self.gone_from
        return message

    def _torn_unguarded(self, message: Message, raw: bytes) -> bool:
        """Whether a power loss took the end of the properties of what RocketMQ wrote and no process
        flushed: RocketMQ keeps such a record, and so do we."""
        if not (message.unguarded and self.torn and message.grade < Grade.DURABLE):
            return False
        there = len(raw.rstrip(b"\0"))
        return len(raw) == len(message.frame) and raw[:there] == message.frame[:there]

    def _named(self, frame: Frame, offset: int, where: str) -> Message:
        digits = frame.body[:NUMBER_BYTES]
        number = int(digits) if digits.isdigit() else 0
        if not 0 < number <= len(self.messages):
            raise Violation("unknown", f"{where}: the frame at {offset} was never sent")
        return self.messages[number - 1]

    def _compare(self, message: Message, frame: Frame, where: str) -> None:
        properties = frame.properties
        properties.pop(CHECKSUM_PROPERTY, None)
        found = (frame.topic, frame.body, properties, frame.flag)
        sent = (message.topic, message.body, message.properties, message.flag)
        same_queue = message.queue_id in (-1, frame.queue_id)
        if (
            found != sent
            or not same_queue
            or (frame.sys_flag ^ message.sys_flag) & (TRANSACTION_MASK)
        ):
            raise Violation("bytes", f"{where}: {message} is not what was sent: {found!r}")

    # --- for the checks ---

    def demanded(self, grade: Grade) -> Iterator[Message]:
        """Messages of at least this grade whose deletion was not allowed."""
        for message in self.messages:
            if message.grade >= grade and message.offset >= self.deleted_below:
                yield message

    def claim(self, below: int, grade: Grade) -> None:
        """The log reports that everything below an offset is as safe as that."""
        for message in self.messages:
            if message.fate is Fate.STORED and message.frame and message.end <= below:
                message.raise_to(grade)

    def groups(self, among: Iterable[Message]) -> Counter[int]:
        """How many messages of each group are there."""
        return Counter(message.group for message in among if message.group)


def expected_unit(message: Message) -> QueueUnit:
    """The unit of a message, by the scalar codecs."""
    frame = decode(message.frame)
    assert isinstance(frame, Frame)
    properties = frame.properties
    code = dispatch_tags_code(
        frame.topic, properties.get(TAGS), properties.get(DELAY), frame.store_timestamp_ms
    )
    return QueueUnit(frame.physical_offset, frame.total_size, code)
