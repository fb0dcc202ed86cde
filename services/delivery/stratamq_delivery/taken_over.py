"""Pending messages that another program stored in the log: held until an operator enables them.

    the log was taken over at B ──► a record: all below B is another program's
                                      └──► EnableSchedule ──► a record: it is delivered from here on

RocketMQ's deliveries name no source, so that the log alone does not show what RocketMQ had
delivered. The record of the boundary is the first that a master appends, before any delivery. So
every member knows the boundary, also one that began empty, whose own list of generations begins
at 0. The record that enables has two kinds of RocketMQ's positions: those of the levels
(`config/delayOffset.json`), below which a level is closed, and that of its checks; half messages
below it are decided at the place where RocketMQ appended them again. Timed messages are judged one
by one when they are taken (`timed_messages.py`).

The format is ours, in `RECORDS`. Big-endian:

    0   4   magic, "STO1"
    4   1   kind: 1 boundary, 2 enabled
    5   8   B, an offset in the log
    13  8   store time of the newest message below B, ms
    21      of kind 2 entries of 12 bytes until the end: level, from 1 on, or 0
            for the half topic (4); queue offset (8)

Anything else raises CorruptRecordError: the fold never skips a record.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from struct import Struct
from typing import NamedTuple

import numpy as np

from stratamq.errors import CorruptRecordError, StrataError, UnavailableError
from stratamq.files.metadata import JsonObject
from stratamq.follow.fold import FoldPlace
from stratamq.follow.own_appends import OwnRecord
from stratamq.formats.frame import Frame, decode
from stratamq.store.log_pieces import LogPiece
from stratamq_delivery.delayed_copies import RECORDS

MAGIC = b"STO1"
BOUNDARY, ENABLED = 1, 2
HALVES = 0
"""In the place of a level: up to where the other program has looked at half messages."""
_HEAD = Struct(">4sBqq")
_POSITION = Struct(">iq")
Done = Callable[[StrataError | None], None]


class _Record(NamedTuple):
    """`place`: the record's own offset in the log."""

    place: int
    kind: int
    below: int
    positions: Mapping[int, int]


class TakenOver:
    """Implements `Machine`. It is the first of them: the others are folded by what it knows, and
    its records go out in front of theirs."""

    name, version = "taken_over", "1"

    def __init__(self, followed: FoldPlace) -> None:
        self._followed = followed
        self._asked: tuple[Mapping[int, int], list[Done]] | None = None
        self._sent: set[int] = set()
        """Kinds of records that are in flight."""
        self.restore({})

    @property
    def below(self) -> int:
        """Messages below were stored by another program."""
        begins = self._followed.begins if self._followed.opened else 0
        return max(begins, self._recorded)

    @property
    def held_below(self) -> int:
        """Messages below are not delivered."""
        below = self.below
        return (
            0 if any(one.kind == ENABLED and one.below == below for one in self._known) else below
        )

    @property
    def _recorded(self) -> int:
        return max([one.below for one in self._known], default=0)

    # --- the state ---

    def restore(self, document: JsonObject) -> None:
        known = document.get("records")
        self._known = [_known(*one) for one in known] if isinstance(known, list) else []
        """All records of the log, in order."""
        self.newest_ms = int(str(document.get("newest_ms", 0)))
        """Store time of the newest message below the boundary."""

    def snapshot(self) -> JsonObject:
        known = [[one.place, one.kind, one.below, [*one.positions.items()]] for one in self._known]
        return {"records": known, "newest_ms": self.newest_ms}

    def apply(self, piece: LogPiece) -> None:
        columns, begins = piece.columns, self._followed.begins
        if piece.start < begins and self._recorded < begins:
            foreign = columns.store_timestamp_ms[columns.physical_offset < begins]
            self.newest_ms = max(self.newest_ms, int(foreign.max(initial=0)))
        rows = np.flatnonzero(columns.of_topics((RECORDS,)) & columns.in_queue)
        for row in rows.tolist():
            frame = decode(piece.frame(row))
            assert isinstance(frame, Frame)
            if frame.body.startswith(MAGIC):
                self._record(frame.body, int(columns.physical_offset[row]))

    def _record(self, body: bytes, place: int) -> None:
        kind, below, newest_ms, positions = _decoded(body)
        self._known.append(_Record(place, kind, below, positions))
        self.newest_ms = newest_ms

    def enabled_within(self, piece: LogPiece) -> list[tuple[int, int, Mapping[int, int]]]:
        """The records of this piece that enable: where each lies, what it enables below, and the
        other program's positions by level, from 1 on, and `HALVES`."""
        found = [one for one in self._known if one.kind == ENABLED and one.place >= piece.start]
        return [(one.place, one.below, one.positions) for one in found if one.place < piece.end]

    def cut(self, offset: int) -> int:
        self._known = [one for one in self._known if one.place < offset]
        return offset

    def needed(self) -> int | None:
        """A record is needed no longer than the messages that it is about, which lie below it."""
        return None

    def forget_below(self, minimum: int) -> None:
        """A record lies above all that it is about, and is a few bytes."""

    # --- what is appended ---

    def enable(self, positions: Mapping[int, int], done: Done) -> None:
        """Deliver what is held. `positions`: by level, from 1 on, and `HALVES`: up to where the
        other program had come. `done` is called as an acknowledgement is answered."""
        if not self.held_below:  # enabled already, or nothing is another program's
            done(None)
            return
        waiting = self._asked[1] if self._asked is not None else []
        self._asked = positions, [*waiting, done]

    def begin(self) -> None:
        self._sent.clear()

    def take(self, now_ms: int, most: int) -> Sequence[OwnRecord]:
        records = []
        if self._recorded < self.below and BOUNDARY not in self._sent:
            self._sent.add(BOUNDARY)
            records.append(self._encoded(BOUNDARY, {}))
        if self._asked is not None and ENABLED not in self._sent:
            self._sent.add(ENABLED)
            records.append(self._encoded(ENABLED, self._asked[0]))
        return records

    def due_ms(self) -> int | None:
        boundary = self._recorded < self.below and BOUNDARY not in self._sent
        asked = self._asked is not None and ENABLED not in self._sent
        return 0 if boundary or asked else None

    def acknowledged(self, records: Sequence[OwnRecord], *, is_flushed: bool) -> None:
        if self._asked is not None and any(one.body[4] == ENABLED for one in records):
            waiting, self._asked = self._asked[1], None
            for done in waiting:
                done(None)

    def refused(self, record: OwnRecord, error: StrataError) -> None:
        raise AssertionError(f"the log refuses a record of the delivery's: {error}")

    def give_up(self) -> None:
        """This is no master's service any more: who waits is told so."""
        if self._asked is not None:
            waiting, self._asked = self._asked[1], None
            for done in waiting:
                done(UnavailableError("the log has changed its master: ask again"))

    def _encoded(self, kind: int, positions: Mapping[int, int]) -> OwnRecord:
        head = _HEAD.pack(MAGIC, kind, self.below, self.newest_ms)
        entries = [_POSITION.pack(level, offset) for level, offset in sorted(positions.items())]
        return OwnRecord(RECORDS, head + b"".join(entries))


def _known(place: int, kind: int, below: int, positions: Iterable[tuple[int, int]]) -> _Record:
    return _Record(place, kind, below, dict(positions))


def _decoded(body: bytes) -> tuple[int, int, int, dict[int, int]]:
    if len(body) < _HEAD.size or (len(body) - _HEAD.size) % _POSITION.size:
        raise CorruptRecordError(f"a record about a take-over of {len(body)} bytes", 0, "length")
    _, kind, below, newest_ms = _HEAD.unpack_from(body)
    if kind not in (BOUNDARY, ENABLED):
        raise CorruptRecordError(f"kind {kind} of a record about a take-over", 0, "kind")
    return kind, below, newest_ms, dict(_POSITION.iter_unpack(body[_HEAD.size :]))
