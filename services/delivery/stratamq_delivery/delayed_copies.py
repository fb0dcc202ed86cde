"""The copies by which delayed messages reach their topics, and what the log says to them.

REAL_TOPIC and REAL_QID of the waiting message name its topic and queue. A queue that the topic does
not have is replaced by any of its queues. A message that the log will never take is closed by a
record in `RECORDS`, which says why.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from stratamq.errors import InvalidRequestError, OffsetOutOfRangeError, StrataError
from stratamq.follow.fold import FoldPlace
from stratamq.follow.own_appends import ANY_QUEUE, OwnRecord, copy_of
from stratamq.formats.frame import Frame, decode
from stratamq.formats.properties import REAL_QID, REAL_TOPIC
from stratamq.formats.source_item import MessageSource
from stratamq.formats.topics import OWN_PREFIX, is_system_topic

RECORDS = f"{OWN_PREFIX}DELAY"
MAX_TAKEN = 32
"""Messages that are read at once, and as many bytes of them as follow."""
MAX_TAKEN_BYTES = 1 << 20
MAX_ON_THE_WAY = 512

NONE: Mapping[str, str] = MappingProxyType({})


class DelayedCopies:
    """Each machine has its own. Offsets are in bytes of the log."""

    def __init__(self, followed: FoldPlace) -> None:
        self.delivered = 0
        """Copies that the log has answered, since the start."""
        self.given_up = 0
        """Messages that the log will never take, since the start."""
        self.lateness_ms: Callable[[int], None] = lambda _: None
        """Called with how late each message was taken."""
        self._followed = followed
        self.clear()

    def clear(self) -> None:
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

    def begin(self) -> None:
        self._on_the_way.clear()

    def closed(self, offset: int) -> None:
        """The log has what closes the message."""
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

    def refusal(self, offset: int) -> OwnRecord | None:
        """The record that closes a message that the log does not take; None: it has not refused
        it."""
        error = self._refused.get(offset)
        if error is None:
            return None
        self._on_the_way.add(offset)
        return OwnRecord(RECORDS, f"given up: {error}".encode(), source=self.source(offset))

    def copy(self, offset: int, frame: Frame, more: Mapping[str, str] = NONE) -> OwnRecord:
        """`more`: properties of the copy alone."""
        self._on_the_way.add(offset)
        topic = frame.properties.get(REAL_TOPIC, "")
        if is_system_topic(topic):
            topic = ""  # which the log refuses: what this service may write, its callers may not
        queue = ANY_QUEUE if offset in self._elsewhere else _queue_of(frame)
        return replace(copy_of(frame, topic, self.source(offset), more=more), queue_id=queue)

    def acknowledged(self, records: Sequence[OwnRecord]) -> None:
        for record in records:
            self.delivered += record.topic != RECORDS
            self.given_up += record.topic == RECORDS

    def refused(self, record: OwnRecord, error: StrataError) -> int:
        """Returns the message that is to be taken once more: with any of its topic's queues if it
        has the one no longer that was asked for, and otherwise to be closed."""
        assert record.source is not None and record.topic != RECORDS, error
        offset = record.source.offset
        self._on_the_way.discard(offset)
        if isinstance(error, InvalidRequestError) and record.queue_id != ANY_QUEUE:
            self._elsewhere.add(offset)
        else:
            self._refused[offset] = error
        return offset


def _queue_of(frame: Frame) -> int:
    text = frame.properties.get(REAL_QID, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 9 else ANY_QUEUE
