"""An audit of a whole store by the log's frames: delayed messages, transactions, shared groups.

It shares the encoding of records with the machines that write them, and no other code, so that it
does not repeat their mistakes. It reads the log once, from its beginning, and reports

* a delayed message that was delivered before its time, twice, changed, or in another topic;
* a half message that was shown without a commit, after a rollback, or twice, or closed unseen;
* a message of a shared group that was finished twice, or handed out although it was finished, or
  while another worker had it; and a dead letter that is there twice, or without a burial, or was
  replayed to another group;
* with `settled`, what is still owed: all that was due when the log ended must have been done.

Messages that another program stored, and those that the log has deleted, are not judged.
*Memory*: a small object for each delayed message and half message of the log, and for each group
what is finished above its floor.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from stratamq.errors import NotFoundError
from stratamq.formats import topics
from stratamq.formats.delay import DEFAULT_DELAY_LEVELS_MS, timer_due_ms
from stratamq.formats.frame import Frame, decode
from stratamq.formats.properties import DELIVERED_NOW, REAL_TOPIC
from stratamq.store.log_pieces import LogPiece, read_pieces
from stratamq.table.log_files import open_log
from stratamq_delivery import delayed_copies, records, transaction_records
from stratamq_delivery.entries import Bounds, Buried, Completed, HandedOut, Moved, Started, Stopped
from stratamq_delivery.past import PIECE_MESSAGES, followed_of
from stratamq_delivery.records import GroupPlace
from stratamq_delivery.transaction_records import Outcome

_READ = {
    topics.SCHEDULE_TOPIC,
    topics.TIMER_TOPIC,
    topics.HALF_TOPIC,
    topics.OP_HALF_TOPIC,
    records.RECORDS,
    delayed_copies.RECORDS,
}
_FINAL = {Outcome.COMMITTED, Outcome.ROLLED_BACK, Outcome.GIVEN_UP}


@dataclass(slots=True)
class _Message:
    """One that waits, or waited."""

    topic: str
    body_crc: int
    due_ms: int = 0
    copies: int = 0
    is_closed: bool = False
    outcome: Outcome | None = None


@dataclass(slots=True)
class _Queue:
    """What a group has of a queue. `held`: until when, by offset."""

    floor: int
    finished: set[int] = field(default_factory=set)
    held: dict[int, int] = field(default_factory=dict)

    def has_finished(self, offset: int) -> bool:
        return offset < self.floor or offset in self.finished

    def finish(self, runs: Sequence[Bounds]) -> None:
        for start, end in runs:
            self.finished.update(range(max(start, self.floor), end))
            for offset in range(start, end):
                self.held.pop(offset, None)
        while self.floor in self.finished:
            self.finished.discard(self.floor)
            self.floor += 1


class Audit:
    """`read` every piece of the log in order, then look at `counts` and `faults`."""

    def __init__(self, begins: int, levels_ms: Sequence[int] = DEFAULT_DELAY_LEVELS_MS) -> None:
        """`begins`: what lies below was stored by another program."""
        self.counts: Counter[str] = Counter()
        self.faults: list[str] = []
        self._begins = begins
        self._levels_ms = levels_ms
        self._delayed: dict[int, _Message] = {}
        self._wanted: set[int] = set()
        """Delayed messages of which a record says that an operator wants them before their time."""
        self._halves: dict[int, _Message] = {}
        self._half_offsets: dict[int, int] = {}
        """By their queue offsets."""
        self._queues: dict[GroupPlace, _Queue] = {}
        self._learning: set[GroupPlace] = set()
        """Queues whose first record the log has no more: a whole state says what they have."""
        self._buried: dict[tuple[int, str], int] = {}
        """By source and dead-letter topic: how many copies the log has."""
        self._burials: Counter[tuple[int, str]] = Counter()
        """How often each was buried: a group that was stopped begins again at its floor."""
        self._letters: dict[int, str] = {}
        """By the place of a dead letter: its group."""
        self._newest_ms = 0

    def read(self, piece: LogPiece) -> None:
        columns, copies = piece.columns, piece.copies
        self._newest_ms = max(self._newest_ms, int(columns.store_timestamp_ms.max(initial=0)))
        rows = np.flatnonzero(columns.of_topics(_READ) & columns.in_queue)
        for row in sorted({*rows.tolist(), *copies}):
            frame, place = decode(piece.frame(row)), int(columns.physical_offset[row])
            assert isinstance(frame, Frame)
            if row in copies and copies[row].offset >= self._begins:
                self._copy(frame, copies[row].offset, place)
            topic = columns.topics[columns.topic_index[row]]
            if topic in (topics.SCHEDULE_TOPIC, topics.TIMER_TOPIC, topics.HALF_TOPIC):
                self._waits(frame, topic, place)
            elif topic == topics.OP_HALF_TOPIC:
                self._closed(frame, place)
            elif frame.body.startswith(delayed_copies.WISH_MAGIC):
                self._wanted.add(delayed_copies.decode_wish(frame.body).offset)
            elif frame.body.startswith(records.MAGIC):
                self._group_record(frame, place)
            elif frame.body.startswith(transaction_records.MAGIC):
                self._decisions(frame)

    def end(self) -> None:
        """The log has settled: what is owed now is lost."""
        for offset, one in self._delayed.items():
            if one.due_ms <= self._newest_ms and not one.copies and not one.is_closed:
                self._fault(offset, "was due and is not delivered: lost")
        for offset, one in self._halves.items():
            if one.outcome in (Outcome.COMMITTED, Outcome.GIVEN_UP) and not one.copies:
                self._fault(offset, f"was {one.outcome.name.lower()} and is in no topic: lost")
        for (offset, topic), copies in self._buried.items():
            if not copies:
                self._fault(offset, f"was buried and is not in {topic}: lost")

    def _fault(self, place: int, sentence: str) -> None:
        self.faults.append(f"the message at {place} {sentence}")

    # --- delayed messages and transactions ---

    def _waits(self, frame: Frame, topic: str, place: int) -> None:
        if place < self._begins:
            return
        one = _Message(frame.properties.get(REAL_TOPIC, ""), frame.body_crc)
        if topic == topics.HALF_TOPIC:
            self.counts["halves"] += 1
            self._halves[place] = one
            self._half_offsets[frame.queue_offset] = place
            return
        self.counts["delayed"] += 1
        one.due_ms = timer_due_ms(frame.properties) or 0
        if topic == topics.SCHEDULE_TOPIC:
            level = min(frame.queue_id, len(self._levels_ms) - 1)
            one.due_ms = frame.store_timestamp_ms + self._levels_ms[level]
        self._delayed[place] = one

    def _decisions(self, frame: Frame) -> None:
        for outcome, source in transaction_records.decode_entries(frame.body):
            one = self._halves.get(source.offset)
            if one is not None and one.outcome is None and outcome in _FINAL:
                one.outcome = outcome
                self.counts[outcome.name.lower()] += 1

    def _closed(self, frame: Frame, place: int) -> None:
        for text in frame.body.split(b","):
            offset = (
                self._half_offsets.get(int(text)) if len(text) < 19 and text.isdigit() else None
            )
            if offset is None or (one := self._halves[offset]).is_closed:
                continue
            one.is_closed = True
            if one.outcome is not Outcome.ROLLED_BACK and not one.copies:
                self._fault(offset, f"was closed at {place} and is in no topic: lost")

    def _copy(self, frame: Frame, offset: int, place: int) -> None:
        if (offset, frame.topic) in self._buried:
            self.counts["dead letters"] += 1
            self._buried[offset, frame.topic] += 1
            self._letters[place] = frame.topic.removeprefix(topics.DEAD_LETTER_PREFIX)
            if self._buried[offset, frame.topic] > max(1, self._burials[offset, frame.topic]):
                self._fault(offset, f"is in {frame.topic} twice, again at {place}")
        elif (one := self._halves.get(offset)) is not None:
            self._shown(one, frame, offset, place)
        elif (one := self._delayed.get(offset)) is not None:
            self._delivered(one, frame, offset, place)
        elif (group := self._letters.get(offset)) is not None:
            self.counts["replayed"] += 1
            if not frame.topic.startswith(topics.retry_topic(group, "")):
                self._fault(offset, f"is a dead letter of {group}, and is in {frame.topic}")
        elif frame.topic.startswith(topics.DEAD_LETTER_PREFIX):
            self._fault(offset, f"is in {frame.topic} at {place} and was not buried")

    def _shown(self, one: _Message, frame: Frame, offset: int, place: int) -> None:
        one.copies += 1
        topic = one.topic
        if one.outcome is Outcome.GIVEN_UP:
            topic = topics.TRANSACTION_CHECK_MAX_TIME_TOPIC
        if one.outcome is None:
            self._fault(offset, f"was shown at {place} and nothing had decided it")
        elif one.outcome is Outcome.ROLLED_BACK:
            self._fault(offset, f"was shown at {place} after its rollback")
        self._same(one, frame, offset, place, topic)

    def _delivered(self, one: _Message, frame: Frame, offset: int, place: int) -> None:
        if frame.topic == delayed_copies.RECORDS:
            is_cancelled = frame.body == delayed_copies.CANCELLED
            self.counts["cancelled" if is_cancelled else "given up"] += 1
            one.is_closed = True
            return
        one.copies += 1
        if frame.topic == topics.TIMER_TOPIC:
            self.counts["rolled"] += 1
            if timer_due_ms(frame.properties) != one.due_ms:
                self._fault(offset, f"was appended again at {place} with another time")
            return
        self.counts["delivered"] += 1
        if offset in self._wanted and frame.properties.get(DELIVERED_NOW) == str(one.due_ms):
            self.counts["delivered now"] += 1
        elif frame.store_timestamp_ms < one.due_ms:
            early_ms = one.due_ms - frame.store_timestamp_ms
            self._fault(offset, f"was delivered at {place}, {early_ms} ms early")
        self._same(one, frame, offset, place, one.topic)

    def _same(self, one: _Message, frame: Frame, offset: int, place: int, topic: str) -> None:
        if one.copies > 1 or one.is_closed:
            self._fault(offset, f"was delivered twice, again at {place}")
        if frame.topic != topic or frame.body_crc != one.body_crc:
            self._fault(offset, f"has another topic or body in its copy at {place}")

    # --- shared groups ---

    def _group_record(self, frame: Frame, place: int) -> None:
        record = records.decode(frame.body)
        for where, entry in record.entries:
            queue = self._queues.get(where)
            if isinstance(entry, Buried):
                key = entry.source, topics.DEAD_LETTER_PREFIX + where.group
                self._buried.setdefault(key, 0)
                self._burials[key] += not record.is_piece
            if isinstance(entry, Started) and queue is None:
                self._queues[where] = _Queue(entry.floor)
                self._learning |= {where} if record.is_piece else set()
            elif isinstance(entry, Stopped):
                self._queues.pop(where, None)
            elif queue is None:
                continue
            elif record.is_piece:
                if where in self._learning and isinstance(entry, Completed):
                    queue.finish(entry.runs)
            elif isinstance(entry, HandedOut):
                self._handed_out(queue, entry, where, frame.store_timestamp_ms, place)
            elif isinstance(entry, Moved):
                self._hold(queue, entry.new)
            elif isinstance(entry, Completed | Buried):
                self._finished(queue, entry, where, place)
        if record.is_last:
            self._learning.clear()

    def _handed_out(
        self, queue: _Queue, entry: HandedOut, where: GroupPlace, now_ms: int, place: int
    ) -> None:
        for start, end in entry.runs:
            self.counts["handed out"] += end - start
            for offset in range(start, end):
                if queue.has_finished(offset):
                    self._group_fault(where, offset, place, "was handed out after it was finished")
                elif not entry.leased and queue.held.get(offset, 0) > now_ms:
                    self._group_fault(where, offset, place, "was handed out to two workers at once")
        self._hold(queue, entry)

    def _hold(self, queue: _Queue, entry: HandedOut) -> None:
        for start, end in entry.runs:
            queue.held.update(dict.fromkeys(range(start, end), entry.until_ms))

    def _finished(
        self, queue: _Queue, entry: Completed | Buried, where: GroupPlace, place: int
    ) -> None:
        what = "buried" if isinstance(entry, Buried) else "acknowledged"
        for start, end in entry.runs:
            self.counts[what] += end - start
            for offset in range(start, end):
                if queue.has_finished(offset):
                    self._group_fault(where, offset, place, "was finished twice")
        queue.finish(entry.runs)

    def _group_fault(self, where: GroupPlace, offset: int, place: int, sentence: str) -> None:
        name = f"group {where.group}: offset {offset} of {where.topic} {where.queue_id}"
        self.faults.append(f"{name} {sentence}: the record at {place}")


def audit(
    root: Path, *, settled: bool = False, levels_ms: Sequence[int] = DEFAULT_DELAY_LEVELS_MS
) -> Audit:
    """A directory's store. NotFoundError without a log, CorruptionError where it is damaged."""
    log = open_log(root)
    if not log.segments or log.root is None:
        raise NotFoundError(f"{root} is no store directory with a log")
    followed = followed_of(log)
    assert followed.segments is not None
    found = Audit(followed.begins, levels_ms)
    pieces = read_pieces(
        followed.segments.window,
        followed.segment_bytes,
        PIECE_MESSAGES,
        log.minimum,
        log.end,
        delay_levels_ms=levels_ms,
    )
    for piece in pieces:
        found.read(piece)
    if settled:
        found.end()
    return found
