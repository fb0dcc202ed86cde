"""The log read in pieces that are small enough for the event loop, as columns."""

from collections.abc import Iterator

from stratamq.errors import OffsetOutOfRangeError
from stratamq.follow.fold import STEP_MESSAGES, FoldPlace
from stratamq.formats.frame import Frame, decode
from stratamq.formats.frame_layout import BLANK, BORN_HOST_POSITION, I32, I64, SYS_FLAG_POSITION
from stratamq.formats.properties import TAGS
from stratamq.formats.sysflag import host_bytes
from stratamq.store.log_pieces import LogPiece, read_pieces
from stratamq.store.segment_reader import SegmentReader, UnreadableError

_STORE_TIME_REACH = 20 + I64.size


class LogPieces:
    """Reads ranges of the log that are known to be there, once it has answered. One thread at a
    time.

    CorruptRecordError for what is no frame, OffsetOutOfRangeError for what was deleted meanwhile,
    UnreadableError for what the device refuses.
    """

    def __init__(self, followed: FoldPlace) -> None:
        self._followed = followed

    def read(self, start: int, end: int) -> Iterator[LogPiece]:
        """`start` and `end` are frame boundaries."""
        size = self._followed.segment_bytes
        return read_pieces(self._segments.window, size, STEP_MESSAGES, start, end)

    def store_time(self, offset: int) -> int | None:
        """Read from the message at `offset`; None when it is not there or unreadable."""
        try:
            head = self._segments.read(offset, BORN_HOST_POSITION + _STORE_TIME_REACH)
        except (OffsetOutOfRangeError, UnreadableError):
            return None
        if len(head) < BORN_HOST_POSITION + _STORE_TIME_REACH:
            return None
        (flags,) = I32.unpack_from(head, SYS_FLAG_POSITION)
        born_bytes, _ = host_bytes(flags)
        return I64.unpack_from(head, BORN_HOST_POSITION + born_bytes)[0]

    def tags(self, offset: int) -> tuple[str, str] | None:
        """(topic, TAGS) of the message at `offset`, None without tags. It is known to be whole."""
        head = self._segments.window(offset, BLANK.size)
        size, _ = BLANK.unpack_from(head)
        frame = decode(self._segments.window(offset, size), 0, verify_body=False)
        tags = frame.properties.get(TAGS) if isinstance(frame, Frame) else None
        return (frame.topic, tags) if isinstance(frame, Frame) and tags else None

    @property
    def _segments(self) -> SegmentReader:
        assert self._followed.segments is not None
        return self._followed.segments
