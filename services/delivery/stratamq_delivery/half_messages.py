"""Half messages with their state by the log, as rows of columns (`follow/log_rows.py`)."""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from stratamq.errors import OffsetOutOfRangeError
from stratamq.files.metadata import JsonObject
from stratamq.follow.fold import FoldPlace
from stratamq.follow.log_rows import NEVER, LogRows
from stratamq.formats import sysflag
from stratamq.formats.frame import Frame, decode
from stratamq.formats.properties import (
    CHECK_IMMUNITY_TIME,
    PGROUP,
    REAL_TOPIC,
    TRANSACTION_CHECK_TIMES,
)
from stratamq.formats.source_item import MessageSource
from stratamq.formats.topics import HALF_TOPIC, OP_HALF_TOPIC
from stratamq.store.log_pieces import LogPiece
from stratamq_delivery.records import RECORDS
from stratamq_delivery.taken_over import HALVES, TakenOver
from stratamq_delivery.transaction_records import MAGIC, Outcome, decode_entries

LOOK_MS = 1_000
"""Between two looks at all half messages for those that are to be checked, at least."""
FINAL = 1 << 31
"""More checks than any half has."""
MAX_DIGITS = 18
"""A queue offset in an op message that has more of them does not fit the column."""
_FAR = 1 << 62
_FOLDED = {HALF_TOPIC, OP_HALF_TOPIC, RECORDS}
_COLUMNS = {
    "size": "i4",
    "queue_offset": "i8",
    "ops_before": "i8",
    "party": "i4",
    "immune_until_ms": "i8",
    "checks": "i4",
    "checked_ms": "i8",
    "checked_at": "i8",
    "outcome": "i4",
    "decided_at": "i8",
    "shown_at": "i8",
}
_FIXED = ("size", "queue_offset", "ops_before", "party", "immune_until_ms")


@dataclass(frozen=True, slots=True)
class CheckRules:
    """RocketMQ's settings of the same names, and its defaults."""

    timeout_ms: int = 6_000
    """`transactionTimeOut`: a half is not checked before, unless it says otherwise."""
    interval_ms: int = 30_000
    """`transactionCheckInterval`: between two checks of one half."""
    max_checks: int = 15
    """`transactionCheckMax`: after so many without a decision it is given up."""


class Party(NamedTuple):
    """Who can be asked about a half message: the group's producers that may send to its topic."""

    group: str
    topic: str


@dataclass(frozen=True, slots=True)
class TransactionCheck:
    """A question to the producers of a half message: was it committed?"""

    source: MessageSource
    queue_offset: int
    number: int
    """Which check of this message it is, from 1."""
    frame: bytes
    """The half message's, in the half topic."""


class CheckFloor(NamedTuple):
    """Where RocketMQ's checks begin in the queues of the half topic and of the op topic: all halves
    below are closed, and no op message below names one of the others."""

    half: int
    op: int


class Producers(Protocol):
    """Those who can be asked."""

    def parties(self) -> Collection[Party]:
        """The parties of which a member is connected."""

    def ask(self, party: Party, check: TransactionCheck) -> None:
        """Ask one member. It may be gone by now."""


class HalfMessages:
    """All half messages of one log that are not closed, or were closed lately. Single-threaded."""

    def __init__(
        self, followed: FoldPlace, rules: CheckRules, taken_over: TakenOver, undo_bytes: int
    ) -> None:
        self._taken_over = taken_over
        self._followed = followed
        self._rules = rules
        self.rows = LogRows(_COLUMNS, fixed=_FIXED, undo_bytes=undo_bytes)
        self._parties: dict[Party, int] = {}
        self._listed: list[Party] = []
        self._ends = CheckFloor(NEVER, 0)
        """Where the queues end, as far as this state has come. Without a half that is not known."""
        self.look_at_ms = 0
        """When the next one may be due for a check."""
        self.expired = 0
        """Halves that the log deleted before they were decided, since the start."""
        self.lost = 0
        """Committed ones that it deleted before their topic took them."""

    # --- what the log holds ---

    def apply(self, piece: LogPiece) -> list[int]:
        """Returns the halves that were decided or shown."""
        moved: list[int] = []
        columns, copies = piece.columns, piece.copies
        wanted = columns.of_topics(_FOLDED)
        wanted |= (columns.sys_flag & sysflag.TRANSACTION_MASK) == sysflag.TRANSACTION_COMMIT
        rows = np.flatnonzero(wanted & columns.in_queue)
        for row in sorted({*rows.tolist(), *copies}):
            place = int(columns.physical_offset[row])
            topic = columns.topics[columns.topic_index[row]]
            if row in copies:
                moved += self._shown(copies[row], place)
                continue
            frame = decode(piece.frame(row))
            assert isinstance(frame, Frame)
            if topic == HALF_TOPIC:
                self._add(frame, place)
            elif topic == OP_HALF_TOPIC:
                self._closed(frame, place)
            elif topic == RECORDS:
                moved += self._record(frame, place)
            else:
                moved += self._shown(self.source(frame.prepared_transaction_offset), place)
        for place, below, positions in self._taken_over.enabled_within(piece):
            self._close_replaced(below, positions.get(HALVES, 0), place)
        return moved

    def _close_replaced(self, below: int, checked: int, place: int) -> None:
        """RocketMQ had looked at its halves up to the queue offset `checked`, and those that stayed
        open it had appended again: they are decided there."""
        halves = self.rows
        replaced = (halves["closed_at"] == NEVER) & (halves["decided_at"] == NEVER)
        replaced &= (halves["source"] < below) & (halves["queue_offset"] < checked)
        halves.close_all(replaced, place)

    def _add(self, frame: Frame, place: int) -> None:
        """A half message. RocketMQ's carry how often they were checked."""
        values = frame.properties
        immune_ms = 1_000 * _number(values.get(CHECK_IMMUNITY_TIME)) or self._rules.timeout_ms
        immune_until_ms = frame.store_timestamp_ms + immune_ms
        party = Party(values.get(PGROUP, ""), values.get(REAL_TOPIC, ""))
        if party not in self._parties:
            self._parties[party] = len(self._listed)
            self._listed.append(party)
        self.rows.add(
            place,
            size=frame.total_size,
            queue_offset=frame.queue_offset,
            ops_before=self._ends.op,
            party=self._parties[party],
            immune_until_ms=immune_until_ms,
            checks=_number(values.get(TRANSACTION_CHECK_TIMES)),
        )
        self._ends = self._ends._replace(half=frame.queue_offset + 1)
        self.look_at_ms = min(self.look_at_ms, immune_until_ms)

    def _closed(self, frame: Frame, place: int) -> None:
        """An op message: queue offsets of halves, of RocketMQ 5.x several."""
        self._ends = self._ends._replace(op=frame.queue_offset + 1)
        queue_offsets = self.rows["queue_offset"]
        for text in frame.body.split(b","):
            if not text.isdigit() or len(text) > MAX_DIGITS:
                continue
            number = int(text)
            row = int(np.searchsorted(queue_offsets, number))
            if row < len(queue_offsets) and queue_offsets[row] == number:
                self.rows.close(row, place)

    def _record(self, frame: Frame, place: int) -> Iterator[int]:
        if not frame.body.startswith(MAGIC):
            return  # of another part of the service
        for outcome, source in decode_entries(frame.body):
            row = self.row(source)
            if row is None or self.outcome(row) is not None:
                continue
            if outcome is Outcome.CHECKED:
                self.rows["checks"][row] += 1
                self.rows["checked_ms"][row] = frame.store_timestamp_ms
                self.rows["checked_at"][row] = place
            else:
                self._decided(row, outcome, place)
                yield source.offset

    def _shown(self, source: MessageSource, place: int) -> Iterator[int]:
        row = self.row(source)
        if row is None or self.rows["shown_at"][row] != NEVER:
            return
        if self.outcome(row) is None:
            self._decided(row, Outcome.COMMITTED, place)  # by RocketMQ, which keeps no record
        self.rows["shown_at"][row] = place
        yield source.offset

    def _decided(self, row: int, outcome: Outcome, place: int) -> None:
        self.rows["outcome"][row] = outcome
        self.rows["decided_at"][row] = place

    def cut(self, offset: int) -> int:
        halves = self.rows
        # How often a half was checked before the cut is read again, from the half on.
        checked = halves["source"][halves["checked_at"] >= offset]
        position = halves.cut(min(offset, int(checked.min())) if len(checked) else offset)
        self._ends = CheckFloor(NEVER, 0)
        if halves.count:  # Some op messages behind the last half may be left: fewer are safe.
            last = halves["queue_offset"][-1], halves["ops_before"][-1]
            self._ends = CheckFloor(int(last[0]) + 1, int(last[1]))
        return position

    def forget_below(self, minimum: int) -> bool:
        """Returns whether some were not closed."""
        halves = self.rows
        gone = slice(0, int(np.searchsorted(halves["source"], minimum)))
        missing = (halves["closed_at"][gone] == NEVER) & (halves["shown_at"][gone] == NEVER)
        committed = missing & (halves["decided_at"][gone] != NEVER)
        committed &= halves["outcome"][gone] == Outcome.COMMITTED
        self.lost += int(committed.sum())
        self.expired += int((missing & (halves["decided_at"][gone] == NEVER)).sum())
        return bool(halves.forget_below(minimum))

    def snapshot(self) -> Callable[[], JsonObject]:
        rows, parties = self.rows.snapshot(), [*self._listed]
        more: JsonObject = {"parties": [[*party] for party in parties], "ends": [*self._ends]}
        return lambda: {"rows": rows(), **more}

    def restore(self, document: JsonObject) -> None:
        rows, parties = document.get("rows", {}), document.get("parties", [])
        assert isinstance(rows, dict) and isinstance(parties, list)
        self._listed = [Party(str(group), str(topic)) for group, topic in parties]
        self._parties = {party: number for number, party in enumerate(self._listed)}
        self.rows.restore(rows)
        ends = document.get("ends")
        self._ends = CheckFloor(*ends) if isinstance(ends, list) else CheckFloor(NEVER, 0)

    # --- one half message ---

    def row(self, source: MessageSource) -> int | None:
        row = self.rows.row_of(source.offset)
        if row is None or source.generation != self._followed.generation_of(source.offset):
            return None
        return row

    def source(self, offset: int) -> MessageSource:
        return MessageSource(self._followed.generation_of(offset), offset)

    def outcome(self, row: int) -> Outcome | None:
        if self.rows["decided_at"][row] == NEVER:
            return None
        return Outcome(int(self.rows["outcome"][row]))

    def is_over(self, row: int) -> bool:
        """Nothing comes of it any more, and no record of ours says what became of it."""
        return not self.rows.is_open(row) and self.outcome(row) is None

    def is_open(self, offset: int) -> bool:
        row = self.rows.row_of(offset)
        return row is not None and self.rows.is_open(row)

    def has_come_to(self, offset: int, number: int) -> bool:
        """Whether the log has this check of a half message, or a decision; `FINAL`: a decision."""
        row = self.rows.row_of(offset)
        if row is None or self.outcome(row) is not None:
            return True
        return bool(self.rows["checks"][row] >= number)

    def party(self, row: int) -> Party:
        return self._listed[int(self.rows["party"][row])]

    def frame(self, row: int) -> Frame | None:
        raw = self.raw(row)
        frame = decode(raw) if raw is not None else None
        assert frame is None or isinstance(frame, Frame)
        return frame

    def raw(self, row: int) -> bytes | None:
        """None: the log is deleting the message, and the fold will hear of it."""
        segments = self._followed.segments
        assert segments is not None
        offset, size = int(self.rows["source"][row]), int(self.rows["size"][row])
        try:
            return bytes(segments.window(offset, size))
        except OffsetOutOfRangeError:
            return None

    @property
    def held(self) -> int:
        """Half messages that another program stored and that are not decided."""
        halves = self.rows
        waits = (halves["closed_at"] == NEVER) & (halves["decided_at"] == NEVER)
        return int((waits & (halves["source"] < self._taken_over.held_below)).sum())

    def check_floor(self, passed: int) -> CheckFloor | None:
        """Where RocketMQ's checks would begin. None: this state has seen no half.

        `passed`: the queue offset below which RocketMQ looks at no half any more. Those that it
        stored and did not close lie there, since it appends a half again for each check.
        """
        halves = self.rows
        waits = halves["closed_at"] == NEVER
        ours = halves["source"] >= self._taken_over.held_below
        waits &= ours | (halves["queue_offset"] >= passed)
        if not waits.any():
            return self._ends if self._ends.half != NEVER else None
        row = int(waits.argmax())
        return CheckFloor(int(halves["queue_offset"][row]), int(halves["ops_before"][row]))

    def to_check(self, now_ms: int, parties: Collection[Party]) -> Iterator[tuple[int, Outcome]]:
        """Halves that are to be checked now, for one of these parties, or given up; the oldest
        first. Those that another program stored are held: it may have shown them."""
        halves, rules = self.rows, self._rules
        waits = (halves["closed_at"] == NEVER) & (halves["decided_at"] == NEVER)
        waits &= halves["source"] >= self._taken_over.held_below
        checks, checked_ms = halves["checks"], halves["checked_ms"]
        again_ms = np.where(checked_ms == NEVER, 0, checked_ms + rules.interval_ms)
        due_ms = np.maximum(halves["immune_until_ms"], again_ms)
        later = due_ms[waits & (due_ms > now_ms)]
        self.look_at_ms = max(int(later.min()) if len(later) else _FAR, now_ms + LOOK_MS)
        whole = {party.group for party in parties if not party.topic}
        here = [
            number
            for number, party in enumerate(self._listed)
            if party in parties or party.group in whole
        ]
        spent = checks >= rules.max_checks
        due = waits & (due_ms <= now_ms)
        if due.any():
            self.look_at_ms = min(self.look_at_ms, now_ms + LOOK_MS)
        rows = np.flatnonzero(due & (spent | np.isin(halves["party"], here)))
        for row in rows.tolist():
            yield int(halves["source"][row]), Outcome.GIVEN_UP if spent[row] else Outcome.CHECKED


def _number(text: str | None) -> int:
    """What is no number counts as none."""
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 10 else 0
