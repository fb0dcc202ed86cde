"""What is settled at once: a batch and its messages, or a message that goes alone; its outcome."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import NamedTuple

from stratamq.client.numbering import LogPlace
from stratamq.client.spans import MOST_LINKS, Called, CallSpan, batch
from stratamq.client.values import SendResult, SendStatus
from stratamq.errors import StrataError, UnavailableError
from stratamq.formats.batch_frames import BatchEncoder, FrameShape, Row
from stratamq.formats.properties import find_property
from stratamq.rpc.request_ids import KEY
from stratamq.rpc.trace_context import valid

Fields = tuple[int, int, int, int]
"""flag, sys_flag, born_timestamp_ms, reconsume_times."""


def perhaps_stored(error: StrataError, what: str = "the append stream broke") -> UnavailableError:
    """What became of messages that were sent and not answered is not known."""
    fields = {name: error.fields[name] for name in error.fields if name != "never_sent"}
    return UnavailableError(
        f"{what}, perhaps stored: {error.message}", **(fields | {"perhaps_stored": True})
    )


@dataclass(frozen=True, slots=True)
class StoredPart:
    """Consecutive messages of a batch that were stored together."""

    physical_offset: int
    lengths: tuple[int, ...]
    first_queue_offsets: tuple[int, ...]
    """One for each run that has messages in it."""
    store_timestamp_ms: int


class StoredMessage(NamedTuple):
    queue_offset: int
    physical_offset: int
    store_timestamp_ms: int
    size: int


@dataclass(frozen=True, slots=True)
class BatchOutcome:
    """How a batch ended. `error` None: stored, at these offsets."""

    status: SendStatus
    physical_offset: int = -1
    first_queue_offsets: tuple[int, ...] = ()
    store_timestamp_ms: int = 0
    error: StrataError | None = None
    parts: tuple[StoredPart, ...] = ()
    """Some of it was stored by an earlier attempt: where all of it is."""

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

    def after_unanswered(self) -> "BatchOutcome":
        """The same behind an attempt that was not answered: what is refused now may be stored."""
        if self.error is None:
            return self
        return replace(self, error=perhaps_stored(self.error))


class Run:
    """The messages of one queue within a batch. `first` is the place of its first frame, known
    once the batch is encoded."""

    __slots__ = ("count", "first", "number", "pieces", "queue_id", "topic")

    def __init__(self, topic: str, queue_id: int, number: int) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.number = number
        self.count = 0
        self.first = 0
        self.pieces: list[tuple[Fields, list[Row]]] = []

    def add(self, fields: Fields, row: Row) -> int:
        pieces = self.pieces
        if not pieces or pieces[-1][0] != fields:
            pieces.append((fields, []))
        pieces[-1][1].append(row)
        self.count += 1
        return self.count - 1

    def extend(self, fields: Fields, rows: list[Row]) -> None:
        pieces = self.pieces
        if pieces and pieces[-1][0] == fields:
            pieces[-1][1].extend(rows)
        else:
            pieces.append((fields, rows))
        self.count += len(rows)

    def properties(self, index: int) -> bytes:
        for _, rows in self.pieces:
            if index < len(rows):
                return rows[index][1]
            index -= len(rows)
        raise IndexError(index)


def messages_of(parts: Sequence[StoredPart], runs: Sequence[Run]) -> Iterator[StoredMessage]:
    """Of a batch with these runs that is stored in these parts, message by message."""
    queues = [number for number, run in enumerate(runs) for _ in range(run.count)]
    row = 0
    for part in parts:
        offset, numbers, number = part.physical_offset, iter(part.first_queue_offsets), -1
        following = 0
        for size in part.lengths:
            if queues[row] != number:
                number, following = queues[row], next(numbers)
            yield StoredMessage(following, offset, part.store_timestamp_ms, size)
            offset, following, row = offset + size, following + 1, row + 1


class Unit:
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
        """Of a settled unit."""
        raise NotImplementedError

    def results(self) -> Iterator[SendResult]:
        """Of a settled unit, one for each message."""
        raise NotImplementedError


class Single(Unit):
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


class Batch(Unit):
    """Messages that go together."""

    __slots__ = (
        "_ends", "_stored", "contexts", "count", "lengths", "opened_ns", "outcome", "queue_of",
        "runs", "sent_from", "sequence", "unanswered",
    )  # fmt: skip

    def __init__(self, opened_ns: int) -> None:
        super().__init__()
        self.opened_ns = opened_ns
        self.sequence = -1
        """Of a numbered producer, the first message's; given at the first attempt, and kept."""
        self.sent_from: LogPlace | None = None
        """Where the log was, at least, before the first attempt that is unanswered, or the present
        one; None: the log would not recognise it."""
        self.unanswered = False
        """An attempt is over, and what became of it is not known."""
        self.runs: dict[tuple[str, int], Run] = {}
        self.queue_of: dict[str, int] = {}
        self.count = 0
        self.contexts: dict[str, None] | None = None
        """Trace contexts of its messages, where traces are recorded: some, each once."""
        self.lengths: list[int] = []
        self.outcome: BatchOutcome | None = None
        self._ends: list[int] = []
        self._stored: list[StoredMessage] = []

    def link(self, properties: Mapping[str, str]) -> None:
        """A message of these properties is in it."""
        context = valid(properties.get(KEY))
        if context:
            if self.contexts is None:
                self.contexts = {}
            if len(self.contexts) < MOST_LINKS:
                self.contexts[context] = None

    def called(self) -> Called:
        """As traces show it."""
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
        assert self.outcome is not None
        return self.outcome.error

    def results(self) -> Iterator[SendResult]:
        """Queue by queue."""
        for run in self.runs.values():
            for index in range(run.count):
                yield self.result_of(run, index)

    def result_of(self, run: Run, index: int) -> SendResult:
        outcome = self.outcome
        assert outcome is not None
        unique_key = (find_property(run.properties(index), b"UNIQ_KEY") or b"").decode()
        if outcome.error is not None:
            return SendResult(
                outcome.status, run.topic, run.queue_id, unique_key=unique_key, error=outcome.error
            )
        place = run.first + index
        if outcome.parts:
            if not self._stored:
                self._stored = list(messages_of(outcome.parts, list(self.runs.values())))
            stored = self._stored[place]
            return SendResult(
                status=outcome.status,
                topic=run.topic,
                queue_id=run.queue_id,
                unique_key=unique_key,
                **stored._asdict(),
            )
        if not self._ends:
            self._ends = list(accumulate(self.lengths))
        return SendResult(
            status=outcome.status,
            topic=run.topic,
            queue_id=run.queue_id,
            queue_offset=outcome.first_queue_offsets[run.number] + index,
            physical_offset=outcome.physical_offset + self._ends[place] - self.lengths[place],
            store_timestamp_ms=outcome.store_timestamp_ms,
            size=self.lengths[place],
            unique_key=unique_key,
        )


Chunk = tuple[Batch, Run, int, int]
"""Messages that were added together: their batch and run, the first one's place, how many."""
