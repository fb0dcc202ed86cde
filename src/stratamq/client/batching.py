"""What a producer has to send and has sent, without a wire: batches, window, acknowledgements.

    add ──▶ current batch ──▶ ready ──▶ in flight ──▶ settled
                 │ full, or nothing else is under way, or it has lingered long enough

A batch goes over the append stream whole and is stored whole or not at all. Batches are sent and
acknowledged in order. Within a batch messages lie queue by queue, in each queue in the order in
which they were added.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice

from stratamq.client.values import SendResult, SendStatus, Topic
from stratamq.errors import BusyError, InvalidRequestError, StrataError, UnavailableError
from stratamq.formats.batch_frames import BatchEncoder, FrameShape, Row
from stratamq.formats.producer_item import PRODUCER_ITEM_BYTES
from stratamq.formats.properties import find_property
from stratamq.formats.property_crc import PROPERTY_CRC_BYTES
from stratamq.formats.topics import MAX_TOPIC_BYTES

LARGEST_BATCH_BYTES = 4 * 1024 * 1024
"""What the contract of the append stream allows."""
_OVERHEAD_BYTES = 91 + 2 * 12 + 1 + PRODUCER_ITEM_BYTES + 1 + PROPERTY_CRC_BYTES + 1
"""Of a frame with IPv6 hosts, a version 2 topic length, the producer's item, and room for the
checksum."""

Fields = tuple[int, int, int, int]
"""flag, sys_flag, born_timestamp_ms, reconsume_times."""


def size_bound(topic: str, row: Row) -> int:
    """At least the bytes of the message's frame, whatever the broker asks for."""
    return _OVERHEAD_BYTES + 3 * len(topic) + len(row[0]) + len(row[1])


@dataclass(frozen=True, slots=True)
class BatchOutcome:
    """How a batch ended. `error` None: stored, at these offsets."""

    status: SendStatus
    physical_offset: int = -1
    first_queue_offsets: tuple[int, ...] = ()
    store_timestamp_ms: int = 0
    error: StrataError | None = None


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


class Unit:
    """What is settled at once: a batch, or a message that goes alone."""

    __slots__ = ("seen", "settled", "size")

    def __init__(self) -> None:
        self.size = 0
        self.settled = False
        self.seen = False
        """The outcome has been delivered to a caller."""

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
        "_ends", "attempts", "count", "lengths", "opened_ns", "outcome", "queue_of", "runs",
        "sequence",
    )  # fmt: skip

    def __init__(self, opened_ns: int) -> None:
        super().__init__()
        self.opened_ns = opened_ns
        self.sequence = 0
        self.runs: dict[tuple[str, int], Run] = {}
        self.queue_of: dict[str, int] = {}
        self.count = 0
        self.attempts = 0
        self.lengths: list[int] = []
        self.outcome: BatchOutcome | None = None
        self._ends: list[int] = []

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


class Outbox:
    """The state of one producer. Not thread-safe: the producer's lock or loop guards it.

    `tries` bounds how often one batch is sent; 1 is once.
    """

    def __init__(
        self, *, batch_bytes: int, batch_messages: int, window: int, linger_ns: int, tries: int
    ) -> None:
        self._batch_bytes = batch_bytes
        self._batch_messages = batch_messages
        self._largest_bytes = LARGEST_BATCH_BYTES
        self._window = window
        self._linger_ns = linger_ns
        self._tries = tries
        self.pending_bytes = 0
        """Of everything added and not settled."""
        self.flushes = 0
        """Callers that wait until everything is answered: batches do not linger."""
        self.queue_counts: dict[str, int] = {}
        """Write queues of the topics that the broker is known to have."""
        self._turns: dict[str, int] = {}
        self._current: Batch | None = None
        self._ready: deque[Batch] = deque()
        self._in_flight: deque[Batch] = deque()
        self._sequence = 0
        self._not_before_ns = 0

    def limit(self, batch_bytes: int, batch_messages: int) -> None:
        """What the broker takes: batches begun from now on keep to it."""
        self._batch_bytes = min(self._batch_bytes, batch_bytes)
        self._batch_messages = max(1, min(self._batch_messages, batch_messages))
        self._largest_bytes = batch_bytes

    def learn(self, topics: Iterable[Topic]) -> None:
        """What topics the broker has, and how many queues each has for writing."""
        for topic in topics:
            self.queue_counts[topic.name] = max(1, topic.write_queue_count)

    # --- in ---

    def carries(self, topic: str, size: int) -> bool:
        """False for what is too large for any batch, or has a name only the broker can judge.
        `size` is the message's `size_bound`."""
        return size <= self._largest_bytes and (
            3 * len(topic) <= MAX_TOPIC_BYTES
            or len(topic.encode("utf-8", "replace")) <= MAX_TOPIC_BYTES
        )

    def add(
        self, topic: str, queue_id: int | None, fields: Fields, row: Row, size: int, now_ns: int
    ) -> tuple[Batch, Run, int]:
        """Where the message went: its batch, its run, its place in the run."""
        if self._current is not None and self._current.size + size > self._batch_bytes:
            self._seal()
        batch, run = self._place(topic, queue_id, now_ns)
        index = run.add(fields, row)
        batch.size += size
        batch.count += 1
        self.pending_bytes += size
        if batch.count >= self._batch_messages or batch.size >= self._batch_bytes:
            self._seal()
        return batch, run, index

    def add_rows(
        self,
        topic: str,
        queue_id: int | None,
        fields: Fields,
        rows: Sequence[Row],
        start: int,
        now_ns: int,
    ) -> Chunk:
        """Add rows from number `start` on until the batch is full: where they went, and how many.

        InvalidRequestError for a row that no batch can carry; those before it are added.
        """
        limit, overhead = self._batch_bytes, size_bound(topic, (b"", b""))
        first_size = overhead + len(rows[start][0]) + len(rows[start][1])
        if first_size > self._largest_bytes:
            raise InvalidRequestError(
                f"row {start} has {len(rows[start][0])} bytes, too many for a batch: send it alone"
            )
        if self._current is not None and self._current.size + first_size > limit:
            self._seal()
        batch, run = self._place(topic, queue_id, now_ns)
        first, size = run.count, batch.size
        taken: list[Row] = []
        for row in islice(rows, start, start + self._batch_messages - batch.count):
            row_size = overhead + len(row[0]) + len(row[1])
            if size and size + row_size > limit:
                break
            taken.append(row)
            size += row_size
        run.extend(fields, taken)
        self.pending_bytes += size - batch.size
        batch.size = size
        batch.count += len(taken)
        full = batch.count >= self._batch_messages or batch.size >= limit
        if full or start + len(taken) < len(rows):
            self._seal()
        return batch, run, first, len(taken)

    def _place(self, topic: str, queue_id: int | None, now_ns: int) -> tuple[Batch, Run]:
        """The current batch, and the queue's run in it."""
        batch = self._current
        if batch is None:
            batch = self._current = Batch(now_ns)
        if queue_id is None:
            queue_id = batch.queue_of.get(topic)
            if queue_id is None:
                queue_id = batch.queue_of[topic] = self._take_turn(topic)
        run = batch.runs.get((topic, queue_id))
        if run is None:
            run = batch.runs[topic, queue_id] = Run(topic, queue_id, len(batch.runs))
        return batch, run

    def _take_turn(self, topic: str) -> int:
        """One queue of the topic for a whole batch, the next for the next; queue 0 while the
        broker is not known to have the topic."""
        turn = self._turns.get(topic, -1) + 1
        self._turns[topic] = turn = turn % self.queue_counts.get(topic, 1)
        return turn

    def _seal(self) -> None:
        """Nothing more goes into the current batch."""
        if self._current is not None:
            self._ready.append(self._current)
            self._current = None

    # --- out ---

    def is_open(self, batch: Batch) -> bool:
        """More messages may go into it."""
        return batch is self._current

    @property
    def has_unsent(self) -> bool:
        return bool(self._ready) or self._current is not None

    @property
    def in_flight(self) -> int:
        return len(self._in_flight)

    @property
    def idle(self) -> bool:
        return not self.pending_bytes

    def next_batch(self, now_ns: int) -> Batch | None:
        """The batch that goes out now, in flight from now on."""
        if len(self._in_flight) >= self._window or now_ns < self._not_before_ns:
            return None
        if not self._ready and self._current is not None:
            waited = now_ns - self._current.opened_ns >= self._linger_ns
            if self.flushes or waited or not self._in_flight:
                self._seal()
        if not self._ready:
            return None
        batch = self._ready.popleft()
        self._sequence += 1
        batch.sequence = self._sequence
        batch.attempts += 1
        self._in_flight.append(batch)
        return batch

    def due_in_ns(self, now_ns: int) -> int | None:
        """How long until `next_batch` gives something without a further event; None: never."""
        if len(self._in_flight) >= self._window or not self.has_unsent:
            return None
        due_ns = self._not_before_ns
        if not self._ready and self._current is not None and self._in_flight and not self.flushes:
            due_ns = max(due_ns, self._current.opened_ns + self._linger_ns)
        return max(0, due_ns - now_ns)

    # --- settled ---

    def acknowledge(self, sequence: int, outcome: BatchOutcome, now_ns: int) -> Batch | None:
        """Settle the oldest batch in flight and return it; None when it is to be sent again.

        UnavailableError when the answer is to another batch: answers come in order.
        """
        if not self._in_flight or self._in_flight[0].sequence != sequence:
            raise UnavailableError(f"the log acknowledged batch {sequence} out of order")
        batch = self._in_flight.popleft()
        if isinstance(outcome.error, BusyError) and batch.attempts < self._tries:
            self._not_before_ns = now_ns + outcome.error.retry_after_ms * 1_000_000
            self._ready.appendleft(batch)
            return None
        self.pending_bytes -= batch.size
        batch.settle(outcome)
        return batch

    def lost(self) -> list[Batch]:
        """The stream broke: what may be tried again stands in front once more, the batches that
        have had their tries are returned, to be given up."""
        spent = [batch for batch in self._in_flight if batch.attempts >= self._tries]
        again = [batch for batch in self._in_flight if batch.attempts < self._tries]
        self._in_flight.clear()
        self._ready.extendleft(reversed(again))
        return spent

    def take_unsent(self) -> list[Batch]:
        """Everything that is not in flight, to be given up."""
        self._seal()
        batches = list(self._ready)
        self._ready.clear()
        return batches

    def withdraw(self, batch: Batch) -> None:
        """The batch that `next_batch` gave last was not sent after all; it is to be given up."""
        if self._in_flight and self._in_flight[-1] is batch:
            self._in_flight.pop()
            batch.attempts -= 1

    def give_up(self, batch: Batch, error: StrataError) -> None:
        """Settle a batch that has left this object."""
        self.pending_bytes -= batch.size
        batch.settle(BatchOutcome(SendStatus.UNKNOWN_ERROR, error=error))

    def begin_single(self, size: int) -> Single:
        self.pending_bytes += size
        return Single(size)

    def end_single(self, single: Single, result: SendResult) -> None:
        self.pending_bytes -= single.size
        single.settle(result)
