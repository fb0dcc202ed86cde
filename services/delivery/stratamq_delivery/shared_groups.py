"""All queues of all shared groups: the decided state, and the state that the log has.

    a call ──► decide ──► ahead ──► collected ──► in flight ──► the log ──► apply ──► folded
                                 one record at a time                        │
               done(None) ◄── flushed, and on k slaves ◄──────┘

*Folded* is the state at a position of the log, and depends on the log alone. *Ahead* is the state
that follows once the log has every decision: a copy of each queue with open decisions, which gets
their entries at once. The next decision is based on it. `begin` discards it: what the log does not
have by then was not stored, and its callers are told so.

What is decided while a record is in flight goes into the next one. `sent_records.py` says when a
promise is kept.

Once in each segment the whole state is written in pieces, so that it is a function of the retained
log. A piece names a range of offsets of a queue and their state. A fold that has the state already
is not changed by a piece; one that begins there learns it.

A cut goes back to a state that is kept in memory: one for each `KEPT_BYTES` of the log, `KEPT` of
them. They share the queues that did not change. A deeper cut reads the log from its beginning.
"""

from base64 import b64decode, b64encode
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from stratamq.errors import StrataError, UnavailableError
from stratamq.files.metadata import JsonObject
from stratamq.follow.fold import FoldPlace
from stratamq.follow.own_appends import OwnRecord
from stratamq.formats.frame import Frame, decode
from stratamq.store.log_pieces import LogPiece
from stratamq_delivery import records
from stratamq_delivery.acknowledged import StoredAcknowledgements
from stratamq_delivery.dead_letters import DeadLetters, Owed
from stratamq_delivery.entries import (
    Buried,
    Completed,
    Configured,
    Entry,
    QueueEntry,
    Started,
    Stopped,
)
from stratamq_delivery.group_settings import SettingsOfGroups, in_pieces
from stratamq_delivery.known_ends import KnownEnds
from stratamq_delivery.leases import GroupLeases, Leases
from stratamq_delivery.queue_order import Orders
from stratamq_delivery.records import RECORDS, GroupPlace, GroupRecord, in_workers_hands
from stratamq_delivery.sent_records import Done, SentRecords
from stratamq_delivery.shared_queue import SharedQueue

Entries = list[tuple[GroupPlace, Entry]]

MAX_RECORD_RUNS = 2_048
"""The limit of one record. With texts of 255 bytes at most, a record stays below a megabyte."""
PIECE_RUNS = 256
KEPT_BYTES = 32 << 20
KEPT = 4


@dataclass(frozen=True, slots=True)
class _Kept:
    """The folded state at a position of the log."""

    position: int
    settings: dict[str, Configured]
    queues: dict[GroupPlace, SharedQueue]
    owed: Owed
    whole_at: int
    whole_begins: int


class SharedGroups:
    """Implements `Machine`. Single-threaded."""

    name = "shared_groups"
    version = "1"

    def __init__(
        self,
        followed: FoldPlace,
        ends: KnownEnds | None = None,
        *,
        kept_bytes: int = KEPT_BYTES,
    ) -> None:
        """`ends` sees what the fold sees."""
        self._ends = ends or KnownEnds()
        self._kept_bytes = kept_bytes
        self._followed = followed
        self._folded: dict[GroupPlace, SharedQueue] = {}
        self._ahead: dict[GroupPlace, SharedQueue | None] = {}
        """None: the group will have the queue no more."""
        self.epoch = 0
        """Another one after `give_up`: what was seen before may not be so."""
        self._collected: Entries = []
        self._promises: list[Done] = []
        """The promises of what is collected."""
        self._sent = SentRecords()
        self._given_up: deque[GroupRecord] = deque()
        """What `give_up` took away, and the log has not shown since."""
        self._generation = 0
        """In which they were sent: what the fold sees in another one are others' records."""
        self._fresh: set[GroupPlace] = set()
        """Folded queues that neither a snapshot nor a kept state has: they are changed in place."""
        self.dead_letters = DeadLetters(followed)
        self.needed = self.dead_letters.needed
        self.settings = SettingsOfGroups()
        self.acknowledged_lately = StoredAcknowledgements()
        self.leases, self.unfinished = Leases(), 0
        self.orders = Orders(self._ends.lines)
        self._changed: set[GroupPlace] = set()
        self._whole_at = -1
        """Where the newest whole state begins in the log of which it has all pieces."""
        self._whole_begins = -1
        """Where one begins of which the last piece is still to come."""
        self._kept: deque[_Kept] = deque(maxlen=KEPT)
        self._pieces: Iterator[GroupRecord] | None = None
        self._is_whole_sent = False
        """The last piece, which the fold has not read."""

    # --- questions ---

    def queue(self, place: GroupPlace) -> SharedQueue | None:
        """With all that was decided. Not to be changed; None: the group does not have it."""
        return self._ahead[place] if place in self._ahead else self._folded.get(place)

    def folded(self, place: GroupPlace) -> SharedQueue | None:
        """What the log has decided."""
        return self._folded.get(place)

    @property
    def newest_whole(self) -> int:
        """Where in the log a whole state begins; -1: nowhere."""
        return self._whole_at

    def folded_places(self) -> set[GroupPlace]:
        return {*self._folded}

    def places(self) -> set[GroupPlace]:
        """With those of which nothing is in the log yet."""
        return self._folded.keys() | self._ahead.keys()

    def take_changed(self) -> set[GroupPlace]:
        """The queues whose folded state changed since this was asked last; all of them at first."""
        changed, self._changed = self._changed, set()
        return changed

    # --- decisions ---

    def decide(self, place: GroupPlace, entry: Entry) -> None:
        """In force at once, in the log with the next record."""
        self._collected.append((place, entry))
        if not place.topic:
            self.settings.decide(place.group, entry)
            return
        assert not isinstance(entry, Configured)
        if place not in self._ahead and (known := self._folded.get(place)) is not None:
            self._ahead[place] = known.copy()
        changed = self._applied(place, self._ahead.get(place), entry, is_piece=False)
        # What ends a queue counts before the log shows its start, and in whole states behind it.
        if changed is not None or place in self._folded or isinstance(entry, Stopped):
            self._ahead[place] = changed
        if isinstance(entry, Buried):
            self.dead_letters.decide(place, entry)
        if isinstance(entry, Buried | Completed):
            self.orders.finished(place, entry.runs, self.queue(place))

    def promise(self, done: Done) -> None:
        """`done` is called when the log has flushed all that was decided so far, on its slaves too,
        or with UnavailableError when that is not known, and may never be."""
        if self._collected:
            self._promises.append(done)
        else:
            self._sent.promise(done)

    def moved(self, is_active: bool) -> None:
        """The log has come further; `is_active`: what is decided is appended."""
        if not is_active:
            self.give_up()
        self._sent.flushed(self._followed.flushed)

    def give_up(self) -> None:
        """Nothing more is appended in this generation: forget what the log may not have."""
        self.epoch += 1
        unread, lost = self._sent.give_up()
        lost += self._promises
        self._given_up += unread
        if self._collected:
            self._given_up.append(GroupRecord(tuple(self._collected)))
        self._ahead, self._collected, self._promises = {}, [], []
        self._pieces, self._is_whole_sent = None, False
        if self._followed.is_slave:
            self._ends.lines.wake_all()  # its workers are to ask the master
        self.dead_letters.give_up()
        self.settings.give_up()
        for done in lost:
            done(UnavailableError("the log has changed its master, or was restarted: ask again"))

    # --- Author ---

    def begin(self) -> None:
        self.give_up()
        given_up, self._given_up = self._given_up, deque()
        before, self._generation = self._generation, self._followed.generation
        self.dead_letters.begin()
        self._sent.begin(self._followed)
        # Workers have these messages: they are not another's because a stream broke.
        if before == self._generation:
            for place, entry in in_workers_hands(given_up):
                self.decide(place, entry)

    def take(self, now_ms: int, most: int) -> Sequence[OwnRecord]:
        if not self._sent.may_send:
            return []
        made: list[OwnRecord] = []
        while self._collected and len(made) < most:
            count = _count_of_a_record(self._collected)
            record = GroupRecord(tuple(self._collected[:count]))
            del self._collected[:count]
            promises: list[Done] = []
            if not self._collected:
                promises, self._promises = self._promises, []
            made.append(self._send(record, promises))
        # What is decided is in the state that a piece describes: it comes before the piece.
        if not self._collected and len(made) < most:
            if self._pieces is None and self._wants_whole:
                self._pieces = self._whole()
            piece = next(self._pieces, None) if self._pieces is not None else None
            if piece is None:
                self._pieces = None
            else:
                self._is_whole_sent |= piece.is_last
                made.append(self._send(piece, []))
        return made or self.dead_letters.take(now_ms, most)

    def _send(self, record: GroupRecord, promises: list[Done]) -> OwnRecord:
        body = records.encode(record)
        # A piece decides nothing that would be decided again.
        self._sent.send(GroupRecord(()) if record.is_piece else record, body, promises)
        return OwnRecord(RECORDS, body, queue_id=0)

    def due_ms(self) -> int | None:
        if not self._sent.may_send:
            return None
        has_work = self._collected or self._pieces is not None or self._wants_whole
        return 0 if has_work else self.dead_letters.due_ms()

    def acknowledged(self, records: Sequence[OwnRecord], *, is_flushed: bool) -> None:
        own = [record.body for record in records if record.topic == RECORDS]
        if own and is_flushed:
            self._sent.acknowledged(own[-1])

    def refused(self, record: OwnRecord, error: StrataError) -> None:
        if record.topic == RECORDS:
            raise error
        self.dead_letters.refused(record, error)

    # --- SmallState ---

    def apply(self, piece: LogPiece) -> None:
        if not self._kept or piece.start >= self._kept[-1].position + self._kept_bytes:
            self._fresh.clear()
            queues = self._folded.copy()
            owed, settings = self.dead_letters.owed.copy(), self.settings.folded.copy()
            whole_at, whole_begins = self._whole_at, self._whole_begins
            self._kept.append(_Kept(piece.start, settings, queues, owed, whole_at, whole_begins))
        columns = piece.columns
        self._ends.see(columns)
        for row in np.flatnonzero(columns.of_topics((RECORDS,))).tolist():
            frame = decode(piece.frame(row))
            assert isinstance(frame, Frame)
            if frame.body.startswith(records.MAGIC):
                offset = int(columns.physical_offset[row])
                self._fold(records.decode(frame.body), offset, offset + frame.total_size)
        # A copy is behind the record that asks for it.
        if self.dead_letters.owed:
            self.dead_letters.apply(piece)

    def cut(self, offset: int) -> int:
        self.give_up()
        self._given_up.clear()
        self._ends.forget()
        while self._kept and self._kept[-1].position > offset:
            self._kept.pop()
        kept = self._kept[-1] if self._kept else _Kept(0, {}, {}, {}, -1, -1)
        self._fresh.clear()
        self._folded = kept.queues.copy()
        self.unfinished = sum(queue.unfinished for queue in self._folded.values())
        self.settings.folded = kept.settings.copy()
        self.dead_letters.restore(kept.owed)
        self._whole_at, self._whole_begins = kept.whole_at, kept.whole_begins
        self.acknowledged_lately.cut(kept.position)
        return kept.position

    def forget_below(self, minimum: int) -> None:
        self.dead_letters.forget_below(minimum)

    def snapshot(self) -> Callable[[], JsonObject]:
        self._fresh.clear()
        queues, settings = self._folded.copy(), self.settings.folded.copy()
        owed, lately = self.dead_letters.owed.copy(), self.acknowledged_lately.snapshot()
        numbers = {"whole_at": self._whole_at, "whole_begins": self._whole_begins}
        return partial(_document, settings, queues, owed, lambda: {**numbers, **lately()})

    def restore(self, document: JsonObject) -> None:
        self.give_up()
        self._given_up.clear()
        self._folded, self._whole_at, self._whole_begins = {}, -1, -1
        self.unfinished, self.settings.folded = 0, {}
        self.dead_letters.restore({})
        self.acknowledged_lately.restore(document)
        self._fresh.clear()
        self._kept.clear()
        if not isinstance(pieces := document.get("records"), list):
            return
        for piece in pieces:
            for place, entry in records.decode(b64decode(str(piece))).entries:
                self._enter(place, entry, is_piece=True)
        self._whole_at = int(str(document["whole_at"]))
        self._whole_begins = int(str(document["whole_begins"]))

    # --- inside ---

    def _fold(self, record: GroupRecord, start: int, end: int) -> None:
        for place, entry in record.entries:
            self._enter(place, entry, is_piece=record.is_piece)
        self.acknowledged_lately.see(record, start)
        if record.is_first:
            self._whole_begins = start
        if record.is_last and self._whole_begins >= 0:
            self._whole_at, self._whole_begins = self._whole_begins, -1
            self._is_whole_sent = False
        is_own = self._followed.generation == self._generation
        if is_own and not self._sent.read(end) and self._given_up:
            self._given_up.popleft()

    def _enter(self, place: GroupPlace, entry: Entry, *, is_piece: bool) -> None:
        if not place.topic:
            self.settings.apply(place.group, entry)
            return
        assert not isinstance(entry, Configured)
        self._changed.add(place)
        if isinstance(entry, Buried):
            self.dead_letters.add(place, entry)
        queue = self._folded.get(place)
        self.unfinished -= queue.unfinished if queue is not None else 0
        if queue is not None and place not in self._fresh:
            queue = queue.copy()
        self._fresh.add(place)
        queue = self._applied(place, queue, entry, is_piece=is_piece)
        if queue is None:
            self._folded.pop(place, None)
        else:
            self._folded[place] = queue
            self.unfinished += queue.unfinished

    def _applied(
        self, place: GroupPlace, queue: SharedQueue | None, entry: QueueEntry, *, is_piece: bool
    ) -> SharedQueue | None:
        """What the queue is then. An entry for a queue that the group does not have changes
        nothing: the fold began behind the entry that started it, and a whole state is to come."""
        if isinstance(entry, Stopped):
            return None
        if queue is None:
            if not isinstance(entry, Started):
                return None
            return SharedQueue(entry.floor, GroupLeases(self.leases, place.group))
        if is_piece:
            queue.restore(entry)
        else:
            queue.apply(entry)
        return queue

    @property
    def _wants_whole(self) -> bool:
        """The log has begun a segment, and there is a state."""
        followed = self._followed
        is_empty = not (self._folded or self.settings.folded)
        if is_empty or self._is_whole_sent or not followed.segment_bytes:
            return False
        return self._whole_at < followed.segment_of(followed.applied)

    def _whole(self) -> Iterator[GroupRecord]:
        """The pieces. Each is made when it is taken, of the state of then."""
        entries: Entries = []
        runs, is_first = 0, True
        for some in self.settings.whole(PIECE_RUNS):
            yield GroupRecord(some, is_piece=True, is_first=is_first)
            is_first = False
        started = [place for place in self._ahead if place not in self._folded]
        for place in [*self._folded, *started]:
            at: int | None = 0
            while at is not None:
                queue = self.queue(place)
                if queue is None:
                    break
                described, at = _piece(queue, at, PIECE_RUNS - runs)
                entries += [(place, entry) for entry in described]
                runs += 1 + sum(_runs_of(entry) for entry in described)
                if runs >= PIECE_RUNS:
                    yield GroupRecord(tuple(entries), is_piece=True, is_first=is_first)
                    entries, runs, is_first = [], 0, False
        entries += self.dead_letters.still_owed()
        yield GroupRecord(tuple(entries), is_piece=True, is_first=is_first, is_last=True)


def _piece(queue: SharedQueue, start: int, most: int) -> tuple[list[Entry], int | None]:
    """Entries from `start` on, and where the next piece begins; None: this was the last one. The
    first one says from where on the group has the queue."""
    described, end = queue.whole(start, max(1, most))
    head: list[Entry] = [Started(queue.floor)] if start <= queue.floor else []
    return [*head, *described], end if end < queue.next else None


def _runs_of(entry: Entry) -> int:
    return 1 if isinstance(entry, Started | Stopped | Configured) else len(entry.runs)


def _count_of_a_record(entries: Entries) -> int:
    runs = 0
    for count, (_, entry) in enumerate(entries):
        runs += _runs_of(entry)
        if count and runs > MAX_RECORD_RUNS:
            return count
    return len(entries)


def _document(
    settings: dict[str, Configured],
    queues: dict[GroupPlace, SharedQueue],
    owed: Owed,
    more: Callable[[], JsonObject],
) -> JsonObject:
    pieces = []
    for some in in_pieces(settings, MAX_RECORD_RUNS):
        pieces.append(b64encode(records.encode(GroupRecord(some, is_piece=True))).decode())
    for place, queue in queues.items():
        at: int | None = 0
        while at is not None:
            described, at = _piece(queue, at, MAX_RECORD_RUNS)
            record = GroupRecord(tuple((place, entry) for entry in described), is_piece=True)
            pieces.append(b64encode(records.encode(record)).decode())
    for one in owed.values():
        pieces.append(b64encode(records.encode(GroupRecord((one,), is_piece=True))).decode())
    return {"records": pieces, **more()}
