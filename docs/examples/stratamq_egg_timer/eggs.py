"""The state: messages that wait for their time, and what the service appends when it has come."""

from collections.abc import Sequence

import numpy as np

from stratamq.errors import OffsetOutOfRangeError, StrataError
from stratamq.follow.fold import FoldPlace
from stratamq.follow.own_appends import OwnRecord, copy_of
from stratamq.follow.timers import Timers
from stratamq.formats.frame import Frame, decode
from stratamq.formats.source_item import MessageSource
from stratamq.formats.topics import is_system_topic
from stratamq.store.log_pieces import LogPiece

REQUESTS = "rmq_sys_EGG_TIMER"
"""Producers send here. Properties: RING_TO, the target topic, and RING_AT, milliseconds."""
RECORDS = "rmq_sys_STRATAMQ_EGG_TIMER"
"""What became of each: written by this service alone."""
TO, AT = "RING_TO", "RING_AT"
MAX_TAKEN = 32
"""Messages that are read at once: the largest ones have 4 MiB."""


class Eggs(Timers):
    """Implements `SmallState` and `Author`; most of both is in `Timers`."""

    def __init__(self, followed: FoldPlace) -> None:
        super().__init__()
        self._followed = followed
        self._errors: dict[int, str] = {}

    def apply(self, piece: LogPiece) -> None:
        columns, copies = piece.columns, piece.copies
        requests = [n for n, topic in enumerate(columns.topics) if topic == REQUESTS]
        rows = np.flatnonzero(np.isin(columns.topic_index, requests) & columns.in_queue)
        for row in sorted({*rows.tolist(), *copies}):
            place, source = int(columns.physical_offset[row]), copies.get(row)
            if source is None:
                frame = decode(piece.frame(row))
                assert isinstance(frame, Frame)
                self.add(place, frame.total_size, _time_of(frame))
            elif source.generation == self._followed.generation_of(source.offset):
                is_record = columns.topics[columns.topic_index[row]] == RECORDS
                (self.closed if is_record else self.delivered)(source.offset, place)

    def take(self, now_ms: int, most: int) -> Sequence[OwnRecord]:
        records = []
        for timer in self.due(now_ms, min(most, MAX_TAKEN)):
            source = MessageSource(self._followed.generation_of(timer.offset), timer.offset)
            if timer.delivered_at is not None:
                outcome = f"delivered at {timer.delivered_at}"
            elif self.is_given_up(timer.offset):
                outcome = f"refused: {self._errors.get(timer.offset, '')}"
            elif (copy := self._copy(source, timer.size)) is not None:
                records.append(copy)
                continue
            else:
                continue
            records.append(OwnRecord(RECORDS, outcome.encode(), source=source))
        return records

    def acknowledged(self, records: Sequence[OwnRecord], *, is_flushed: bool) -> None:
        """Nothing to do: the fold hears of each record."""

    def refused(self, record: OwnRecord, error: StrataError) -> None:
        """There is no such topic, or it may not be written: the record says so."""
        assert record.source is not None and record.topic != RECORDS, error
        self._errors[record.source.offset] = str(error)
        self.give_up(record.source.offset)

    def _copy(self, source: MessageSource, size: int) -> OwnRecord | None:
        """None: the log is deleting the message, and the fold will hear of it."""
        segments = self._followed.segments
        assert segments is not None
        try:
            frame = decode(bytes(segments.window(source.offset, size)))
        except OffsetOutOfRangeError:
            return None
        assert isinstance(frame, Frame)
        target = frame.properties.get(TO, "")
        if is_system_topic(target):
            target = ""  # which the log refuses: what this service may write, its callers may not
        return copy_of(frame, target, source, without=(TO, AT))


def _time_of(frame: Frame) -> int:
    """Without a time that can be read it is due at once."""
    text = frame.properties.get(AT, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 15 else 0
