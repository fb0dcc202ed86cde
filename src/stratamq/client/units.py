"""Units that are settled at once, and their outcome: a batch of messages, or a single one."""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, islice
from typing import NamedTuple

from stratamq.client.numbering import LogPlace
from stratamq.client.spans import MAX_LINKS, Called, CallSpan, batch
from stratamq.client.values import SendResult
from stratamq.errors import StrataError, UnavailableError
from stratamq.formats.batch_frames import BatchEncoder, FrameShape, Row
from stratamq.formats.message_id import encode_message_id, encode_message_ids
from stratamq.formats.message_status import SendStatus
from stratamq.formats.properties import find_property
from stratamq.rpc.refusals import Refusal
from stratamq.rpc.request_ids import KEY, valid

Fields = tuple[int, int, int, int]
"""flag, sys_flag, born_timestamp_ms, reconsume_times."""


def perhaps_stored(error: StrataError, what: str = "the append stream broke") -> UnavailableError:
    """What became of messages that were sent and not answered is not known."""
    fields = {name: error.fields[name] for name in error.fields if name != "never_sent"}
    return UnavailableError(
        f"{what}, perhaps stored: {error.message}", **(fields | {"perhaps_stored": True})
    )


@dataclass(frozen=True, slots=True)
class BatchPart:
    """Consecutive messages of a batch that were stored together."""

    physical_offset: int
    lengths: tuple[int, ...]
    first_queue_offsets: tuple[int, ...]
    """One for each run that has messages in it."""
    store_timestamp_ms: int
    queue_ids: tuple[int, ...] = ()
    """One for each of them, where the log has chosen one."""


class StoredMessage(NamedTuple):
    queue_offset: int
    physical_offset: int
    store_timestamp_ms: int
    size: int
    queue_id: int


class PlacedRun(NamedTuple):
    """Consecutive messages of one queue that were stored together."""

    status: SendStatus
    queue_id: int
    queue_offset: int
    """The first one's."""
    message_ids: list[str]


@dataclass(frozen=True, slots=True)
class BatchOutcome:
    """How a batch ended. `error` None: stored, at these offsets, but for `refusals`."""

    status: SendStatus
    physical_offset: int = -1
    first_queue_offsets: tuple[int, ...] = ()
    store_timestamp_ms: int = 0
    error: StrataError | None = None
    parts: tuple[BatchPart, ...] = ()
    """Some of it was stored by an earlier attempt, or left out: where all that is stored is."""
    queue_ids: tuple[int, ...] = ()
    """One for each run, where the log has chosen one."""
    store_host: bytes = b""
    """The address of the log that stored it, where the log reports it."""
    refusals: tuple[Refusal, ...] = ()
    """What the log has left out, in order."""

    @property
    def beyond_window(self) -> bool:
        """The log refused it because it cannot know whether an earlier attempt was stored."""
        return self.error is not None and bool(self.error.fields.get("beyond_window"))

    @property
    def perhaps_stored(self) -> bool:
        """This attempt may have been stored, although it was not confirmed."""
        return (
            isinstance(self.error, UnavailableError) and self.status is SendStatus.UNKNOWN_ERROR
        ) and not self.beyond_window

    def message_id(self, physical_offset: int) -> str:
        return encode_message_id(self.store_host, physical_offset)

    def after_unanswered(self) -> "BatchOutcome":
        """The same behind an attempt that was not answered: what is refused now may be stored."""
        if self.error is None and not self.refusals:
            return self
        return replace(
            self,
            error=None if self.error is None else perhaps_stored(self.error),
            refusals=tuple(replace(one, error=perhaps_stored(one.error)) for one in self.refusals),
        )


class BatchRun:
    """The messages of one queue within a batch. `first` is the place of its first frame, known
    once the batch is encoded."""

    __slots__ = ("_starts", "count", "first", "number", "pieces", "queue_id", "topic")

    def __init__(self, topic: str, queue_id: int, number: int) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.number = number
        self.count = 0
        self.first = 0
        self.pieces: list[tuple[Fields, list[Row]]] = []
        self._starts: list[int] = []
        """The place of each piece's first message. Messages of one sender differ in their time, so
        that each may be a piece of its own."""

    def add(self, fields: Fields, row: Row) -> int:
        pieces = self.pieces
        if not pieces or pieces[-1][0] != fields:
            self._begin(fields, [])
        pieces[-1][1].append(row)
        self.count += 1
        return self.count - 1

    def extend(self, fields: Fields, rows: list[Row]) -> None:
        pieces = self.pieces
        if pieces and pieces[-1][0] == fields:
            pieces[-1][1].extend(rows)
        else:
            self._begin(fields, rows)
        self.count += len(rows)

    def _begin(self, fields: Fields, rows: list[Row]) -> None:
        self._starts.append(self.count)
        self.pieces.append((fields, rows))

    def properties(self, index: int) -> bytes:
        number = bisect_right(self._starts, index) - 1
        return self.pieces[number][1][index - self._starts[number]][1]


def fates_of(
    parts: Sequence[BatchPart], runs: Sequence[BatchRun], refusals: Sequence[Refusal] = ()
) -> list[StoredMessage | Refusal]:
    """Tell where each message of a batch is stored, or why it is not: the batch has these runs, and
    what is stored of it lies in these parts."""
    stored = _messages_of(parts, runs, refusals)
    fates: list[StoredMessage | Refusal] = []
    for refusal in refusals:
        fates += islice(stored, refusal.first - len(fates))
        fates += [refusal] * refusal.count
    fates += stored
    return fates


def _messages_of(
    parts: Sequence[BatchPart], runs: Sequence[BatchRun], refusals: Sequence[Refusal]
) -> Iterator[StoredMessage]:
    queues = [number for number, run in enumerate(runs) for _ in range(run.count)]
    for refusal in reversed(refusals):
        del queues[refusal.first : refusal.first + refusal.count]
    row = 0
    for part in parts:
        offset, numbers, number = part.physical_offset, iter(part.first_queue_offsets), -1
        chosen, following, queue_id = iter(part.queue_ids), 0, -1
        for size in part.lengths:
            if queues[row] != number:
                number, following = queues[row], next(numbers)
                queue_id = next(chosen, runs[number].queue_id)
            yield StoredMessage(following, offset, part.store_timestamp_ms, size, queue_id)
            offset, following, row = offset + size, following + 1, row + 1


class SendingUnit:
    """What is settled at once: a batch, or a message that goes alone."""

    __slots__ = ("seen", "settled", "size", "span")

    def __init__(self) -> None:
        self.size = 0
        self.settled = False
        self.seen = False
        """The outcome has been delivered to a caller."""
        self.span: CallSpan | None = None
        """Begun with the first attempt, where traces are recorded."""

    def error(self) -> StrataError | None:
        """Return the error of a settled unit; None: it is stored."""
        raise NotImplementedError

    def untold(self) -> StrataError | None:
        """Return an error of a settled unit that no caller was given."""
        return None if self.seen else self.error()

    def results(self) -> Iterator[SendResult]:
        """Return the results of a settled unit, one for each message."""
        raise NotImplementedError


class Single(SendingUnit):
    """A message that cannot travel in a batch."""

    __slots__ = ("result",)

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size
        self.result: SendResult | None = None

    def settle(self, result: SendResult) -> None:
        self.result = result
        self.settled = True

    def error(self) -> StrataError | None:
        assert self.result is not None
        return self.result.error

    def results(self) -> Iterator[SendResult]:
        assert self.result is not None
        yield self.result


class Batch(SendingUnit):
    """Messages that go together."""

    __slots__ = (
        "_ends", "_fates", "contexts", "count", "lengths", "opened_ns", "outcome",
        "queue_of", "resumes", "runs", "sent_from", "sequence", "told", "unanswered", "whole",
    )  # fmt: skip

    def __init__(self, opened_ns: int) -> None:
        super().__init__()
        self.opened_ns = opened_ns
        self.sequence = -1
        """The first message's sequence, for a numbered producer; assigned at the first attempt, and
        kept."""
        self.resumes = False
        """In its last attempt: it is the first one behind those that the log has refused."""
        self.sent_from: LogPlace | None = None
        """Where the log was, at least, before the first attempt that is unanswered, or the present
        one; None: the log would not recognise it."""
        self.unanswered = False
        """An attempt is over, and what became of it is not known."""
        self.whole = False
        """It is stored whole or not at all."""
        self.runs: dict[tuple[str, int], BatchRun] = {}
        self.queue_of: dict[str, int] = {}
        self.count = 0
        self.contexts: dict[str, None] | None = None
        """Trace contexts of its messages, where traces are recorded: some, each once."""
        self.lengths: list[int] = []
        self.outcome: BatchOutcome | None = None
        self.told: set[int] = set()
        """Messages that were left out, and whose caller was given the error."""
        self._ends: list[int] = []
        self._fates: list[StoredMessage | Refusal] = []

    def link(self, properties: Mapping[str, str]) -> None:
        """A message of these properties is in it."""
        context = valid(properties.get(KEY))
        if context:
            if self.contexts is None:
                self.contexts = {}
            if len(self.contexts) < MAX_LINKS:
                self.contexts[context] = None

    def called(self) -> Called:
        """Describe the batch for traces."""
        return batch({topic for topic, _ in self.runs}, self.count)

    def encode(self, shape: FrameShape) -> tuple[bytes, list[bytes]]:
        """Packed lengths, and the frames in pieces."""
        encoder = BatchEncoder(shape)
        for run in self.runs.values():
            run.first = len(encoder.lengths)
            for (flag, sys_flag, born_timestamp_ms, reconsume_times), rows in run.pieces:
                encoder.add(
                    run.topic,
                    rows,
                    flag=flag,
                    sys_flag=sys_flag,
                    born_timestamp_ms=born_timestamp_ms,
                    reconsume_times=reconsume_times,
                )
        self.lengths = encoder.lengths
        return encoder.pieces()

    def settle(self, outcome: BatchOutcome) -> None:
        self.outcome = outcome
        self.settled = True

    def error(self) -> StrataError | None:
        outcome = self.outcome
        assert outcome is not None
        if outcome.error is None and outcome.refusals:
            return outcome.refusals[0].error
        return outcome.error

    def untold(self) -> StrataError | None:
        outcome = self.outcome
        assert outcome is not None
        if outcome.error is not None or not outcome.refusals:
            return super().untold()
        left_out = ((row, one.error) for one in outcome.refusals for row in one.rows)
        return next((error for row, error in left_out if row not in self.told), None)

    def results(self) -> Iterator[SendResult]:
        """Queue by queue."""
        for run in self.runs.values():
            for index in range(run.count):
                yield self.result_of(run, index)

    def places_of(self, run: BatchRun, first: int, count: int) -> "PlacedRun | None":
        """Where these messages of a run are. None: ask `result_of` for each; the batch was not
        stored as a whole by a single attempt."""
        outcome = self.outcome
        assert outcome is not None
        if outcome.error is not None or outcome.parts:
            return None
        if not self._ends:
            self._ends = list(accumulate(self.lengths))
        at = run.first + first
        # The first one begins where the one before it ends.
        begin = outcome.physical_offset + self._ends[at] - self.lengths[at]
        begins = accumulate(self.lengths[at : at + count - 1], initial=begin)
        return PlacedRun(
            outcome.status,
            outcome.queue_ids[run.number] if outcome.queue_ids else run.queue_id,
            outcome.first_queue_offsets[run.number] + first,
            encode_message_ids(outcome.store_host, begins),
        )

    def first_queue_offsets(self) -> tuple[int, ...] | None:
        """Those of its runs, by their numbers. None: ask `result_of` for each message; the batch
        was not stored as a whole by a single attempt, or not as its topics want it."""
        outcome = self.outcome
        if outcome is None or outcome.error is not None or outcome.parts:
            return None
        if outcome.status is not SendStatus.PUT_OK:
            return None
        return outcome.first_queue_offsets

    def result_of(self, run: BatchRun, index: int, *, with_id: bool = False) -> SendResult:
        """`with_id`: with the offset message id."""
        outcome = self.outcome
        assert outcome is not None
        unique_key = (find_property(run.properties(index), b"UNIQ_KEY") or b"").decode()
        place = run.first + index
        fate: StoredMessage | Refusal | BatchOutcome = outcome
        if outcome.parts or outcome.refusals:
            if not self._fates:
                runs = list(self.runs.values())
                self._fates = fates_of(outcome.parts, runs, outcome.refusals)
            fate = self._fates[place]
        refused = fate if isinstance(fate, Refusal) else outcome
        if refused.error is not None:
            return SendResult(
                refused.status, run.topic, run.queue_id, unique_key=unique_key, error=refused.error
            )
        if isinstance(fate, StoredMessage):
            return SendResult(
                status=outcome.status,
                topic=run.topic,
                unique_key=unique_key,
                message_id=outcome.message_id(fate.physical_offset) if with_id else "",
                **fate._asdict(),
            )
        if not self._ends:
            self._ends = list(accumulate(self.lengths))
        physical_offset = outcome.physical_offset + self._ends[place] - self.lengths[place]
        return SendResult(
            status=outcome.status,
            topic=run.topic,
            queue_id=outcome.queue_ids[run.number] if outcome.queue_ids else run.queue_id,
            queue_offset=outcome.first_queue_offsets[run.number] + index,
            physical_offset=physical_offset,
            store_timestamp_ms=outcome.store_timestamp_ms,
            size=self.lengths[place],
            message_id=outcome.message_id(physical_offset) if with_id else "",
            unique_key=unique_key,
        )


Chunk = tuple[Batch, BatchRun, int, int]
"""Messages that were added together: their batch and run, the first one's place, how many."""
