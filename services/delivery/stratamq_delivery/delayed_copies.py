"""The copies by which delayed messages reach their topics, and the log's refusals of copies.

REAL_TOPIC and REAL_QID of the waiting message name its topic and queue. If the topic no longer has
that queue, another of its queues gets the copy. A record in `RECORDS` closes a message that the log
will never take, and says why; another closes a message that an operator cancels.

For a message that an operator delivers at once, a record of the request (`encode_wish`) comes
first, by which an audit distinguishes it from a mistake. Its copy follows, and has the time at
which it was due in `DELIVERED_NOW`. An operator who cancels a message whose copy is already on the
way is told that it was delivered.
"""

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from struct import Struct
from types import MappingProxyType

from stratamq.errors import (
    CorruptRecordError,
    InvalidRequestError,
    NotFoundError,
    OffsetOutOfRangeError,
    StrataError,
    UnavailableError,
)
from stratamq.follow.fold import FoldPlace
from stratamq.follow.own_appends import OwnRecord, copy_of
from stratamq.formats.frame import Frame, decode
from stratamq.formats.properties import DELIVERED_NOW, REAL_QID, REAL_TOPIC
from stratamq.formats.source_item import MessageSource
from stratamq.formats.topics import ANY_QUEUE, OWN_PREFIX, TIMER_TOPIC, is_system_topic
from stratamq_delivery.asked import AskedFor

RECORDS = f"{OWN_PREFIX}DELAY"
MAX_TAKEN = 32
"""Messages that are read at once, and as many bytes of them as follow."""
MAX_TAKEN_BYTES = 1 << 20
MAX_ON_THE_WAY = 512
CANCELLED = b"cancelled"
DELIVERED_BY_OTHER, ROLLED_BY_OTHER = b"delivered by RocketMQ", b"appended again by RocketMQ"

WISH_MAGIC = b"STW1"
_WISH = Struct(">4sqq")
"""Big-endian: the magic; generation and offset of the message. The frame names no source."""

NONE: Mapping[str, str] = MappingProxyType({})


class WaitEnd(enum.Enum):
    """What ended the wait of a message; the value completes a sentence about it."""

    CANCELLED = "was cancelled"
    DELIVERED = "was delivered"
    ROLLED = "was appended again for its time, and waits at another place: list it again"
    GIVEN_UP = "could not be delivered, and was given up"
    DELETED = "was deleted by the log"


def wait_end_of(frame: Frame) -> WaitEnd:
    """What a frame that names a waiting message as its source says of it."""
    if frame.topic != RECORDS:
        return WaitEnd.ROLLED if frame.topic == TIMER_TOPIC else WaitEnd.DELIVERED
    starts = {
        CANCELLED: WaitEnd.CANCELLED,
        DELIVERED_BY_OTHER: WaitEnd.DELIVERED,
        ROLLED_BY_OTHER: WaitEnd.ROLLED,
    }
    found = (end for start, end in starts.items() if frame.body.startswith(start))
    return next(found, WaitEnd.GIVEN_UP)


def encode_wish(source: MessageSource) -> bytes:
    return _WISH.pack(WISH_MAGIC, *source)


def decode_wish(body: bytes) -> MessageSource:
    """CorruptRecordError for what is none."""
    if len(body) != _WISH.size or not body.startswith(WISH_MAGIC):
        raise CorruptRecordError(f"a record of what is wanted of {len(body)} bytes", 0, "length")
    _, generation, offset = _WISH.unpack(body)
    return MessageSource(generation, offset)


def not_waiting(source: MessageSource, ending: WaitEnd) -> NotFoundError:
    return NotFoundError(f"message {source.generation}:{source.offset} {ending.value}")


class DelayedCopies:
    """Each machine has its own. Offsets are in bytes of the log."""

    def __init__(self, followed: FoldPlace) -> None:
        self.delivered = 0
        """Copies that the log has answered, since the start."""
        self.given_up = 0
        """Messages that the log will never take, since the start."""
        self.cancelled = 0
        """Messages that operators cancelled, since the start."""
        self.lateness_ms: Callable[[int], None] = lambda _: None
        """Called with how late each message was taken."""
        self._followed = followed
        self.asked = AskedFor[WaitEnd](followed)
        """How operators want the wait of messages to end."""
        self.clear()

    def clear(self) -> None:
        """Forget everything. Who asked is told to ask again."""
        self.asked.give_up()
        self._early: set[int] = set()
        """Messages whose copies were sent before their time."""
        self._recorded: set[int] = set()
        """Messages of which a record was sent since `begin` that they are wanted now."""
        self._refused: dict[int, StrataError] = {}
        self._elsewhere: set[int] = set()
        """Messages whose queue their topic does not have: they may go to any."""
        self._on_the_way: set[int] = set()
        """Messages whose ends were made since `begin`, and not seen in the log."""

    @property
    def room(self) -> int:
        """How many more may be taken. Without a bound a burst fills the log faster than it is read
        here, and what comes in meanwhile is seen late, of every machine."""
        return MAX_ON_THE_WAY - len(self._on_the_way)

    def begin(self) -> list[int]:
        """Returns the messages of which something was asked: they are to be taken again."""
        self._on_the_way.clear()
        self._early.clear()
        self._recorded.clear()
        return self.asked.offsets

    def wishes(self, most: int) -> list[OwnRecord]:
        """The records that go in front of copies that operators want now. With `most` of them no
        copy is to be taken: more may be to come."""
        asked = self.asked
        fresh = [
            offset
            for offset in asked.offsets
            if offset not in self._recorded and asked.wanted(offset) is WaitEnd.DELIVERED
        ][:most]
        self._recorded.update(fresh)
        return [OwnRecord(RECORDS, encode_wish(self.source(offset))) for offset in fresh]

    def is_on_the_way(self, offset: int) -> bool:
        return offset in self._on_the_way

    def deleted_below(self, minimum: int) -> None:
        for offset in [one for one in self.asked.offsets if one < minimum]:
            self._end(offset, -1, WaitEnd.DELETED)

    def _end(self, offset: int, at: int, ending: WaitEnd) -> None:
        error = not_waiting(self.source(offset), ending)
        self.asked.end(offset, at, lambda wanted: None if wanted is ending else error)

    def closed(self, offset: int, at: int, raw: Callable[[], bytes]) -> None:
        """The log has at `at` what closes the message; `raw` gives its frame."""
        if offset in self.asked:
            frame = decode(raw())
            assert isinstance(frame, Frame)
            self._end(offset, at, wait_end_of(frame))
        self._early.discard(offset)
        self._recorded.discard(offset)
        self._on_the_way.discard(offset)
        self._refused.pop(offset, None)
        self._elsewhere.discard(offset)

    def source(self, offset: int) -> MessageSource:
        return MessageSource(self._followed.generation_of(offset), offset)

    def frame(self, offset: int, size: int) -> Frame | None:
        """The waiting message. None: the log is deleting it, and the fold will hear of it."""
        segments = self._followed.segments
        assert segments is not None
        try:
            frame = decode(bytes(segments.window(offset, size)))
        except OffsetOutOfRangeError:
            return None
        assert isinstance(frame, Frame)
        return frame

    def stored_at(self, place: int) -> Frame | None:
        """The message that begins there. None: the log has deleted it."""
        segments = self._followed.segments
        assert segments is not None
        try:
            size = int.from_bytes(segments.window(place, 4))
        except OffsetOutOfRangeError:
            return None
        return self.frame(place, size)

    def wait_end_at(self, place: int) -> WaitEnd | None:
        """What the frame says that closed a message. None: the log has deleted it.
        UnavailableError: the log has not flushed it."""
        if place >= self._followed.flushed:
            raise UnavailableError("the log has not flushed the end of the message: ask again")
        frame = self.stored_at(place)
        return None if frame is None else wait_end_of(frame)

    def refusal(self, offset: int) -> OwnRecord | None:
        """The record that closes a message that the log does not take; None: it has not refused
        it."""
        error = self._refused.get(offset)
        if error is None:
            return None
        self._on_the_way.add(offset)
        return OwnRecord(RECORDS, f"given up: {error}".encode(), source=self.source(offset))

    def cancellation(self, offset: int) -> OwnRecord:
        """The record that closes a message that an operator does not want to be delivered."""
        self._on_the_way.add(offset)
        return OwnRecord(RECORDS, CANCELLED, source=self.source(offset))

    def copy(
        self, offset: int, frame: Frame, more: Mapping[str, str] = NONE, early_ms: int = 0
    ) -> OwnRecord:
        """`more`: properties of the copy alone. `early_ms`: when it would be due, if it is not."""
        self._on_the_way.add(offset)
        if early_ms:
            self._early.add(offset)
            more = {**more, DELIVERED_NOW: str(early_ms)}
        topic = frame.properties.get(REAL_TOPIC, "")
        if is_system_topic(topic):
            topic = ""  # which the log refuses: what this service may write, its callers may not
        queue = ANY_QUEUE if offset in self._elsewhere else _queue_of(frame)
        return replace(copy_of(frame, topic, self.source(offset), more=more), queue_id=queue)

    def acknowledged(self, records: Sequence[OwnRecord], *, is_flushed: bool) -> None:
        for record in records:
            if record.source is None:
                continue  # a wish
            is_cancelled = record.topic == RECORDS and record.body == CANCELLED
            self.delivered += record.topic != RECORDS
            self.cancelled += is_cancelled
            self.given_up += record.topic == RECORDS and not is_cancelled

    def refused(self, record: OwnRecord, error: StrataError) -> int:
        """Returns the message that is to be taken once more: with any of its topic's queues if it
        has the one no longer that was asked for, and otherwise to be closed. One whose time has not
        come waits on instead: who asked for it is told why."""
        assert record.source is not None and record.topic != RECORDS, error
        offset = record.source.offset
        self._on_the_way.discard(offset)
        if isinstance(error, InvalidRequestError) and record.queue_id != ANY_QUEUE:
            self._elsewhere.add(offset)
        elif offset in self._early:
            self.asked.refuse(offset, error)
            self._recorded.discard(offset)
        else:
            self._refused[offset] = error
        self._early.discard(offset)
        return offset


def _queue_of(frame: Frame) -> int:
    text = frame.properties.get(REAL_QID, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 9 else ANY_QUEUE
