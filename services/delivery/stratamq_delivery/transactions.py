"""Transactions: half messages, until consumers see them, or never will.

    half                 in RMQ_SYS_TRANS_HALF_TOPIC, where consumers do not see it
      ├► checked         a record of ours counts a check; then the producers are asked
      └► decided         a record of ours: committed, rolled back or given up. The first one stands
           ├► shown      a copy of a committed one is in the target topic, of one that was given
           │             up in TRANS_CHECK_MAX_TIME_TOPIC
           └► closed     an op message names the half, so that RocketMQ asks about it no more either

The state is a fold over the log: these records, copies and op messages, and what RocketMQ wrote of
its own (a copy that names the half in PREPAREDTRANSACTIONOFFSET, op messages). What was taken to be
appended is a mark in memory, until the log shows it or `begin` takes the mark away.

What holds:

1. *A decision that was answered is final.* It is answered once its record is as safe as PUT_OK
   promises. A later one that says the same is answered too; one that says otherwise is refused.
2. *All or nothing.* The halves of one decision are in one record. Their copies may follow in
   several batches, behind it.
3. *Shown once.* The copy is the proof (`follow/own_appends.py`). A half is decided before it is
   shown, in the order of one stream, and closed once the copy was seen in the log: whatever a crash
   or a cut takes away is an end of that order.
4. *A decided transaction is not checked.* A check is counted in the log before it is sent, and only
   if a producer of its group is there to be asked.

RocketMQ appends a half again for each check (spec 13.2). We do not: its place never changes.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

import numpy as np

from stratamq.errors import (
    DecidedTransactionError,
    InvalidRequestError,
    NotFoundError,
    StrataError,
    UnavailableError,
)
from stratamq.files.metadata import JsonObject
from stratamq.follow.fold import FoldPlace
from stratamq.follow.log_rows import NEVER, UNDO_BYTES
from stratamq.follow.own_appends import OwnRecord, copy_of
from stratamq.formats import sysflag
from stratamq.formats.properties import REAL_QID, REAL_TOPIC, TAGS, UNIQ_KEY, encode_properties
from stratamq.formats.source_item import MessageSource
from stratamq.formats.topics import (
    ANY_QUEUE,
    OP_HALF_TOPIC,
    TRANSACTION_CHECK_MAX_TIME_TOPIC,
    is_system_topic,
)
from stratamq.store.log_pieces import LogPiece
from stratamq_delivery.half_messages import (
    FINAL,
    CheckRules,
    HalfMessages,
    Producers,
    TransactionCheck,
)
from stratamq_delivery.records import RECORDS
from stratamq_delivery.taken_over import TakenOver
from stratamq_delivery.transaction_records import MAX_ENTRIES, Outcome, encode_entries

OP_TAG = "d"
MAX_HALVES = 1_000
"""The most half messages that are decided together."""
MAX_COPIES = 32
"""The most copies that are read at once: the largest ones have 4 MiB."""
MAX_OP_MARKS = 8_192
"""Op messages that are remembered: more than can be in flight."""
RETRY_MS = 60_000
"""Until a copy is appended again that its topic did not take."""
_SHOWN = (Outcome.COMMITTED, Outcome.GIVEN_UP)


Done = Callable[[StrataError | None], None]


class _Waiting:
    """A caller that waits for the decisions about several halves."""

    def __init__(self, halves: int, done: Done) -> None:
        self.left = halves
        self._done = done

    def settle(self, error: StrataError | None = None) -> None:
        if self.left > 0:
            self.left = 0 if error is not None else self.left - 1
            if self.left == 0:
                self._done(error)


@dataclass(slots=True)
class _Promise:
    """A decision that was taken, and is not known to be stored."""

    outcome: Outcome
    waiting: list[_Waiting]


@dataclass(slots=True)
class _Sent:
    """A record in flight."""

    decisions: list[tuple[Outcome, tuple[int, ...]]] = field(default_factory=list)
    checked: dict[int, int] = field(default_factory=dict)
    """Halves, and which check of each it is."""


class Transactions:
    """All half messages of one log. Implements `SmallState` and `Author`. Single-threaded."""

    name, version = "transactions", "2"

    def __init__(
        self,
        followed: FoldPlace,
        rules: CheckRules,
        producers: Producers,
        taken_over: TakenOver,
        *,
        undo_bytes: int = UNDO_BYTES,
    ) -> None:
        self._producers = producers
        self._halves = HalfMessages(followed, rules, taken_over, undo_bytes)
        self._rows = self._halves.rows
        self._promises: dict[int, _Promise] = {}
        self._pending: deque[tuple[Outcome, tuple[int, ...]]] = deque()
        self._sent: deque[_Sent] = deque()
        self._to_show: deque[int] = deque()
        self._to_close: deque[int] = deque()
        self._copied: set[int] = set()
        """Halves whose copy was appended on this stream."""
        self._closing: set[int] = set()
        """Halves whose op message was."""
        self._held: dict[int, int] = {}
        """Halves whose topic did not take the copy, and when it is tried again."""
        self._anywhere: set[int] = set()
        """Those of them whose queue their topic has no more."""
        self._now_ms = 0

    def __len__(self) -> int:
        """Half messages that are not closed."""
        return self._rows.open_count

    def needed(self) -> int | None:
        return self._rows.first_open

    @property
    def held(self) -> int:
        """Committed messages whose topic does not take them for now."""
        return len(self._held)

    @property
    def halves(self) -> HalfMessages:
        """What the log says of half messages. Not to be changed."""
        return self._halves

    # --- what callers decide ---

    def find(self, topic: str, offset: int, unique_key: str) -> MessageSource:
        """The half message that a producer means. Its unique key tells it from another one at the
        same place, in a log that was cut. NotFoundError."""
        row = self._rows.row_of(offset)
        frame = self._halves.frame(row) if row is not None else None
        if frame is None:
            raise NotFoundError(
                f"no half message at offset {offset}: it was decided long ago, or never stored"
            )
        found = frame.properties.get(REAL_TOPIC), frame.properties.get(UNIQ_KEY)
        if found != (topic, unique_key):
            raise NotFoundError(f"at offset {offset} is another transaction's message")
        return self._halves.source(offset)

    def decide(
        self, group: str, sources: Sequence[MessageSource], outcome: Outcome, done: Done
    ) -> None:
        """Commit or roll back half messages, all or none. `done`: once it is as safe as PUT_OK
        promises, or with the error that it came to.

        `group`: the producers' group; empty: not checked.
        NotFoundError for what is no half message, or was decided long ago. InvalidRequestError for
        another group's, and for more than `MAX_HALVES`. DecidedTransactionError if one was decided
        otherwise. UnavailableError while another decision about one is being stored.
        """
        offsets = [self._checked_offset(group, source) for source in sources]
        if not 0 < len(offsets) <= MAX_HALVES or len({*offsets}) != len(offsets):
            raise InvalidRequestError(f"a transaction has 1 to {MAX_HALVES} different messages")
        open_ones = [offset for offset in offsets if not self._is_decided(offset, outcome)]
        if not open_ones:
            done(None)
            return
        waiting = _Waiting(len(open_ones), done)
        fresh = []
        for offset in open_ones:
            if offset not in self._promises:
                self._promises[offset] = _Promise(outcome, [])
                fresh.append(offset)
            self._promises[offset].waiting.append(waiting)
        if fresh:
            self._pending.append((outcome, tuple(fresh)))

    def give_way(self) -> None:
        """The log is no master's any more: callers have to ask the one that is."""
        for offset in [*self._promises]:
            self._settle(offset, UnavailableError("the log has another master: ask there"))
        self._pending.clear()
        for sent in self._sent:
            sent.decisions.clear()

    def _checked_offset(self, group: str, source: MessageSource) -> int:
        row = self._halves.row(source)
        if row is None or self._halves.is_over(row):
            raise NotFoundError(
                f"no half message at offset {source.offset} of generation {source.generation}: it "
                "was decided long ago, or never stored"
            )
        owner = self._halves.party(row).group
        if group and group != owner:
            raise InvalidRequestError(f"the transaction is of the producer group {owner!r}")
        return source.offset

    def _is_decided(self, offset: int, outcome: Outcome) -> bool:
        row = self._rows.row_of(offset)
        assert row is not None
        known = self._halves.outcome(row)
        if known is None and (promise := self._promises.get(offset)) is not None:
            if promise.outcome is not outcome:
                raise UnavailableError("another decision about this transaction is being stored")
        elif known is not None and known is not outcome:
            text = known.name.lower().replace("_", " ")
            raise DecidedTransactionError(f"the transaction was {text} before")
        return known is not None

    # --- what the log holds ---

    def apply(self, piece: LogPiece) -> None:
        for offset in self._halves.apply(piece):
            row = self._rows.row_of(offset)
            assert row is not None
            self._settle_as_decided(offset, row)
            if offset in self._copied and self._rows["shown_at"][row] != NEVER:
                self._copied.remove(offset)
                self._to_close.append(offset)
        while self._sent and self._is_stored(self._sent[0]):
            for offset, number in self._sent.popleft().checked.items():
                self._ask(offset, number)
        if len(self._closing) > MAX_OP_MARKS:
            self._closing = {one for one in self._closing if self._halves.is_open(one)}

    def cut(self, offset: int) -> int:
        position = self._halves.cut(offset)
        self.begin()
        return position

    def forget_below(self, minimum: int) -> None:
        if self._halves.forget_below(minimum):
            self._forget_gone()

    def snapshot(self) -> Callable[[], JsonObject]:
        return self._halves.snapshot()

    def restore(self, document: JsonObject) -> None:
        self._halves.restore(document)
        self.begin()

    # --- what is appended ---

    def begin(self) -> None:
        self._pending.extendleft(
            one for sent in reversed(self._sent) for one in reversed(sent.decisions)
        )
        self._sent.clear()
        self._copied.clear()
        self._closing.clear()
        self._forget_gone()
        halves = self._rows
        undone = (halves["closed_at"] == NEVER) & (halves["decided_at"] != NEVER)
        shown = halves["shown_at"] != NEVER
        to_show = undone & ~shown & np.isin(halves["outcome"], _SHOWN)
        waiting = halves["source"][to_show].tolist()
        self._to_show = deque(offset for offset in waiting if offset not in self._held)
        self._to_close = deque(halves["source"][undone & ~to_show].tolist())
        self._halves.look_at_ms = 0

    def _forget_gone(self) -> None:
        """What was kept in memory about halves that the log has no more, or has decided."""
        for offset in [*self._promises]:
            row = self._rows.row_of(offset)
            if row is None:
                self._settle(offset, NotFoundError("the log has lost the half message"))
            else:
                self._settle_as_decided(offset, row)
        self._pending = deque(
            (outcome, left)
            for outcome, offsets in self._pending
            if (left := tuple(offset for offset in offsets if offset in self._promises))
        )
        held = self._held
        self._held = {one: held[one] for one in held if self._rows.row_of(one) is not None}
        self._anywhere = {one for one in self._anywhere if self._rows.row_of(one) is not None}

    def take(self, now_ms: int, most: int) -> Sequence[OwnRecord]:
        records = []
        if (record := self._take_record(now_ms)) is not None:
            records.append(record)
        for offset in [one for one, retry_ms in self._held.items() if retry_ms <= now_ms]:
            del self._held[offset]
            self._to_show.append(offset)
        copies = min(most - len(records), MAX_COPIES)
        while self._to_show and copies > 0:
            offset = self._to_show.popleft()
            if (copy := self._copy(offset)) is not None:
                records.append(copy)
                copies -= 1
        while self._to_close and len(records) < most:
            if (op := self._op(self._to_close.popleft())) is not None:
                records.append(op)
        return records

    def due_ms(self) -> int | None:
        if self._pending or self._to_show or self._to_close:
            return 0
        if not self._rows.open_count:
            return None
        return min([self._halves.look_at_ms, *self._held.values()])

    def acknowledged(self, records: Sequence[OwnRecord], *, is_flushed: bool) -> None:
        """The fold says the same, also of what the log answered with a timeout. A decision that was
        answered before it is folded could be followed by another one."""

    def refused(self, record: OwnRecord, error: StrataError) -> None:
        """The topic has fewer queues now: another one takes the copy. Or it is gone, or may not be
        written: the copy waits, and is tried again."""
        assert record.source is not None, error
        offset = record.source.offset
        self._copied.discard(offset)
        other_queue = isinstance(error, InvalidRequestError) and record.queue_id != ANY_QUEUE
        if other_queue:
            self._anywhere.add(offset)
        self._held[offset] = self._now_ms + (0 if other_queue else RETRY_MS)

    def _take_record(self, now_ms: int) -> OwnRecord | None:
        self._now_ms = now_ms
        entries: list[tuple[Outcome, int]] = []
        sent = _Sent()
        while self._pending and len(entries) + len(self._pending[0][1]) <= MAX_ENTRIES:
            outcome, offsets = self._pending.popleft()
            sent.decisions.append((outcome, offsets))
            entries += ((outcome, offset) for offset in offsets)
        if now_ms >= self._halves.look_at_ms and self._rows.open_count:
            for offset, outcome in islice(self._to_check(now_ms), MAX_ENTRIES - len(entries)):
                entries.append((outcome, offset))
                if outcome is Outcome.CHECKED:
                    row = self._rows.row_of(offset)
                    assert row is not None
                    sent.checked[offset] = int(self._rows["checks"][row]) + 1
                else:
                    self._promises[offset] = _Promise(outcome, [])
                    sent.decisions.append((outcome, (offset,)))
        if not entries:
            return None
        source_of = self._halves.source
        body = encode_entries((outcome, source_of(offset)) for outcome, offset in entries)
        self._sent.append(sent)
        for outcome, offset in entries:
            if outcome in _SHOWN:
                self._to_show.append(offset)
            elif outcome is Outcome.ROLLED_BACK:
                self._to_close.append(offset)
        return OwnRecord(RECORDS, body)

    def _to_check(self, now_ms: int) -> Iterator[tuple[int, Outcome]]:
        in_flight = {offset for sent in self._sent for offset in sent.checked}
        for offset, outcome in self._halves.to_check(now_ms, self._producers.parties()):
            if offset not in self._promises and offset not in in_flight:
                yield offset, outcome

    def _copy(self, offset: int) -> OwnRecord | None:
        """None: nothing is left to show."""
        row = self._rows.row_of(offset)
        if row is None or offset in self._copied or self._rows["shown_at"][row] != NEVER:
            return None
        frame = self._halves.frame(row)
        if frame is None:
            return None
        promise = self._promises.get(offset)
        outcome = self._halves.outcome(row) or (promise.outcome if promise is not None else None)
        assert outcome in _SHOWN
        self._copied.add(offset)
        source = self._halves.source(offset)
        if outcome is Outcome.GIVEN_UP:
            return copy_of(frame, TRANSACTION_CHECK_MAX_TIME_TOPIC, source)
        target, queue = frame.properties.get(REAL_TOPIC, ""), frame.properties.get(REAL_QID, "")
        if is_system_topic(target):
            target = ""  # which the log refuses: what this service may write, its callers may not
        record = copy_of(frame, target, source)
        known = queue.isascii() and queue.isdigit() and len(queue) < 10
        known = known and offset not in self._anywhere
        return replace(
            record,
            queue_id=int(queue) if known else ANY_QUEUE,
            sys_flag=record.sys_flag | sysflag.TRANSACTION_COMMIT,
            prepared_offset=offset,
        )

    def _op(self, offset: int) -> OwnRecord | None:
        """None: the half is closed, or will be."""
        row = self._rows.row_of(offset)
        if row is None or offset in self._closing or not self._rows.is_open(row):
            return None
        self._closing.add(offset)
        body = b"%d" % self._rows["queue_offset"][row]
        return OwnRecord(OP_HALF_TOPIC, body, encode_properties({TAGS: OP_TAG}), queue_id=0)

    def _ask(self, offset: int, number: int) -> None:
        row = self._rows.row_of(offset)
        if row is None or self._halves.outcome(row) is not None or offset in self._promises:
            return
        frame = self._halves.raw(row)
        if frame is not None:
            queue_offset = int(self._rows["queue_offset"][row])
            check = TransactionCheck(self._halves.source(offset), queue_offset, number, frame)
            self._producers.ask(self._halves.party(row), check)

    def _is_stored(self, sent: _Sent) -> bool:
        """Whether the fold has seen the record."""
        decided = {offset: FINAL for _, offsets in sent.decisions for offset in offsets}
        return all(self._halves.has_come_to(*one) for one in (decided | sent.checked).items())

    def _settle_as_decided(self, offset: int, row: int) -> None:
        """By the first decision in the log, if there is one."""
        outcome, promise = self._halves.outcome(row), self._promises.get(offset)
        if promise is not None and outcome is promise.outcome:
            self._settle(offset)
        elif promise is not None and outcome is not None:
            self._settle(offset, DecidedTransactionError("the transaction was decided before"))

    def _settle(self, offset: int, error: StrataError | None = None) -> None:
        promise = self._promises.pop(offset, None)
        for waiting in promise.waiting if promise is not None else ():
            waiting.settle(error)
