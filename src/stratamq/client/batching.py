"""What a producer has to send and has sent, without a wire: batches, window, acknowledgements.

    add ──▶ current batch ──▶ ready ──▶ in flight ──▶ settled
                 │ full, or nothing else is under way, or it has lingered long enough

Batches are sent and acknowledged in order. Of a batch the log leaves out the messages that it does
not take, unless they are to be stored together or not at all. Within a batch messages are grouped
by queue, and within a queue in the order in which they were added.
"""

import math
from bisect import bisect
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

from stratamq.client.numbering import LogPlace, Numbering
from stratamq.client.units import Batch, BatchOutcome, BatchRun, Chunk, Fields, Single
from stratamq.client.values import SendResult, Topic
from stratamq.errors import BusyError, InvalidRequestError, StrataError, UnavailableError
from stratamq.formats.batch_frames import Row
from stratamq.formats.message_status import SendStatus
from stratamq.formats.producer_item import PRODUCER_ITEM_BYTES
from stratamq.formats.property_crc import PROPERTY_CRC_BYTES
from stratamq.formats.topics import ANY_QUEUE, MAX_TOPIC_BYTES
from stratamq.rpc.refusals import holds_up

LARGEST_BATCH_BYTES = 4 * 1024 * 1024
"""What the contract of the append stream allows."""
_OVERHEAD_BYTES = 91 + 2 * 12 + 1 + PRODUCER_ITEM_BYTES + 1 + PROPERTY_CRC_BYTES + 1
"""The overhead of a frame with IPv6 hosts, a version 2 topic length, the producer's item, and room
for the checksum."""


def size_bound(topic: str, row: Row) -> int:
    """At least the bytes of the message's frame, whatever the broker asks for."""
    return _OVERHEAD_BYTES + 3 * len(topic) + len(row[0]) + len(row[1])


@dataclass(frozen=True, slots=True)
class Batching:
    """When batches leave, and how long they are sent again."""

    batch_bytes: int
    batch_messages: int
    window: int
    """Batches in flight, at most."""
    linger_ns: int
    linger_behind: int = 1
    """A batch that is not full lingers while at least so many messages are in flight."""
    delivery_ns: int = 0
    unreached_ns: int | None = None
    """How long a message waits for a stream that is not there; None: for `delivery_ns`."""
    retry_delay_ns: int = 0
    single_sends: bool = False


def _first_sent(batch: Batch) -> float:
    """What orders batches by their first attempts: those that had none come last."""
    return batch.sequence if batch.sequence >= 0 else math.inf


class Outbox:
    """The state of one producer. Not thread-safe: the producer's lock or loop guards it.

    With `numbering` a batch is sent again until `delivery_ns` have passed since its first message
    was added; without, never. Sent again it has the same sequences, so that the log, which has
    `place`s, knows it; a log that has none gets nothing again that it may have stored.

    Of `single_sends` each message has a caller that waits for it alone. The log chooses a queue for
    what names none. Only a batch whose answer was lost, from then on for `delivery_ns`, or that
    another broker, or the same one later, may take is sent again; what no stream was there for is
    given up after `unreached_ns`.
    """

    def __init__(self, batching: Batching, numbering: Numbering | None = None) -> None:
        self.numbering = numbering
        self.place: LogPlace | None = None
        """Where the log is known to be, at least, while a stream is open. None: no stream is, or
        the log has no generation, or nothing is numbered."""
        self.batching = batching
        self._batch_bytes = batching.batch_bytes
        self._batch_messages = batching.batch_messages
        self._largest_bytes = LARGEST_BATCH_BYTES
        self.pending_bytes = 0
        """The size of everything that was added and is not settled."""
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
        self._refused = False
        """In order: the log has refused a batch for now, and stores nothing that was sent behind
        it. Nothing is sent until all of that is answered."""
        self._singles = 0

    @property
    def in_order(self) -> bool:
        """Whether what is sent again must not be stored behind later batches. A single send has a
        caller that waits for it."""
        return self.numbering is not None and not self.batching.single_sends

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
    ) -> tuple[Batch, BatchRun, int]:
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

    @property
    def most_messages(self) -> int:
        """How many messages a batch takes."""
        return self._batch_messages

    def add_whole(
        self,
        topic: str,
        queue_id: int | None,
        fields: Fields,
        rows: list[Row],
        size: int,
        now_ns: int,
    ) -> tuple[Batch, BatchRun, int]:
        """Rows that are stored together or not at all: a batch of their own. As many as one
        carries."""
        self._seal()
        batch, run = self._place(topic, queue_id, now_ns)
        batch.whole = True
        run.extend(fields, rows)
        batch.size, batch.count = size, len(rows)
        self.pending_bytes += size
        self._seal()
        return batch, run, 0

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

    def _place(self, topic: str, queue_id: int | None, now_ns: int) -> tuple[Batch, BatchRun]:
        """The current batch, and the queue's run in it."""
        batch = self._current
        if batch is None:
            batch = self._current = Batch(now_ns)
        if queue_id is None and self.batching.single_sends:
            queue_id = ANY_QUEUE
        if queue_id is None:
            queue_id = batch.queue_of.get(topic)
            if queue_id is None:
                queue_id = batch.queue_of[topic] = self._next_queue(topic)
        run = batch.runs.get((topic, queue_id))
        if run is None:
            run = batch.runs[topic, queue_id] = BatchRun(topic, queue_id, len(batch.runs))
        return batch, run

    def _next_queue(self, topic: str) -> int:
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

    def unsettled(self) -> list[Batch]:
        """The batches of what was added."""
        return [*self._in_flight, *self._ready, *filter(None, [self._current])]

    @property
    def pending_messages(self) -> int:
        """Added and not settled."""
        return sum(batch.count for batch in self.unsettled()) + self._singles

    def next_batch(self, now_ns: int) -> Batch | None:
        """The batch that goes out now, in flight from now on."""
        if self._is_full or now_ns < self._not_before_ns:
            return None
        if not self._ready and self._current is not None:
            waited = now_ns - self._current.opened_ns >= self.batching.linger_ns
            if waited or not self._waits_for_more():
                self._seal()
        if not self._ready:
            return None
        batch = self._ready.popleft()
        if batch.sequence < 0:
            batch.sequence = self._take_sequences(batch.count)
        # The log searches for an earlier copy from `sent_from` on. Had the place moved between two
        # attempts, a copy of the first one could lie before it, and be stored a second time.
        if not batch.unanswered:
            batch.sent_from = self.place
        batch.resumes, self._refused = self._refused, False
        self._in_flight.append(batch)
        return batch

    @property
    def _is_full(self) -> bool:
        """Nothing goes out before something is answered."""
        in_flight = len(self._in_flight)
        return in_flight >= self.batching.window or (self._refused and in_flight > 0)

    def _waits_for_more(self) -> bool:
        in_flight = sum(batch.count for batch in self._in_flight)
        return not self.flushes and in_flight >= self.batching.linger_behind

    def _take_sequences(self, count: int) -> int:
        if self.numbering is not None:
            return self.numbering.take(count)
        self._sequence += 1
        return self._sequence

    def due_in_ns(self, now_ns: int) -> int | None:
        """How long until `next_batch` gives something without a further event; None: never."""
        if self._is_full or not self.has_unsent:
            return None
        due_ns = self._not_before_ns
        if not self._ready and self._current is not None and self._waits_for_more():
            due_ns = max(due_ns, self._current.opened_ns + self.batching.linger_ns)
        return max(0, due_ns - now_ns)

    # --- settled ---

    def acknowledge(
        self, sequence: int, outcome: BatchOutcome, now_ns: int, elsewhere: bool = False
    ) -> Batch | None:
        """Settle the oldest batch in flight and return it; None when it is to be sent again,
        `elsewhere`: to another broker, which is no further attempt.

        UnavailableError when the answer is to another batch: answers come in order.
        """
        if not self._in_flight or self._in_flight[0].sequence != sequence:
            raise UnavailableError(f"the log acknowledged batch {sequence} out of order")
        batch = self._in_flight.popleft()
        if self.place is not None:
            self.place = self.place.reached(outcome.physical_offset)
        # Also behind one that is given up: the log waits until one resumes the stream.
        self._refused = self.in_order and (self._refused or holds_up(outcome.error))
        if self._goes_again(batch, outcome, now_ns, elsewhere):
            self._put_back(batch)
            return None
        self.pending_bytes -= batch.size
        batch.settle(outcome.after_unanswered() if batch.unanswered else outcome)
        return batch

    def _goes_again(
        self, batch: Batch, outcome: BatchOutcome, now_ns: int, elsewhere: bool
    ) -> bool:
        """Whether a batch that was answered is to be sent again; not before its time."""
        error = outcome.error
        if elsewhere:
            return not self._is_overdue(batch, now_ns)
        if self.batching.single_sends:
            return False
        if not isinstance(error, BusyError | UnavailableError) or outcome.beyond_window:
            return False
        if self._is_overdue(batch, now_ns):
            return False
        busy = isinstance(error, BusyError)
        delay_ns = error.retry_after_ms * 1_000_000 if busy else self.batching.retry_delay_ns
        if outcome.perhaps_stored:
            if batch.sent_from is None:
                return False
            batch.unanswered = True
        self._not_before_ns = now_ns + delay_ns
        return True

    def _is_overdue(self, batch: Batch, now_ns: int, reached: bool = True) -> bool:
        """`reached`: there was a stream for it."""
        limit_ns, unreached_ns = self.batching.delivery_ns, self.batching.unreached_ns
        if unreached_ns is not None and not (reached or batch.unanswered):
            limit_ns = unreached_ns
        return self.numbering is None or now_ns - batch.opened_ns >= limit_ns

    def _put_back(self, batch: Batch) -> None:
        """Before everything that was sent after it for the first time.

        For example 5, 6 and 7 are in flight, and 8 is ready. The log answers 5 with "busy": 5 8.
        The stream breaks: 6 goes behind 5, 7 behind 6, and the next stream sends 5 6 7 8."""
        self._ready.insert(bisect(self._ready, batch.sequence, key=_first_sent), batch)

    def lost(self, now_ns: int) -> list[Batch]:
        """The stream broke: what may be tried again stands in front once more, the batches that
        may not are no longer in flight and are returned."""
        spent: list[Batch] = []
        for batch in self._in_flight:
            if self.batching.single_sends and not batch.unanswered:
                batch.opened_ns = now_ns
            batch.unanswered = True
            if batch.sent_from is None or self._is_overdue(batch, now_ns):
                spent.append(batch)
            else:
                self._put_back(batch)
        self._in_flight.clear()
        self.place, self._refused = None, False
        return spent

    def take_overdue(self, now_ns: int, reached: bool = True) -> list[Batch]:
        """What has waited for its delivery too long, to be given up. `reached`: there was a stream
        for it."""
        if self._current is not None and self._is_overdue(self._current, now_ns, reached):
            self._seal()
        overdue = [batch for batch in self._ready if self._is_overdue(batch, now_ns, reached)]
        if overdue:
            gone = set(overdue)
            self._ready = deque(batch for batch in self._ready if batch not in gone)
        return overdue

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
            self._refused = self._refused or batch.resumes

    def give_up(self, batch: Batch, error: StrataError) -> None:
        """Settle a batch that has left this object."""
        self.pending_bytes -= batch.size
        batch.settle(BatchOutcome(SendStatus.UNKNOWN_ERROR, error=error))

    def begin_single(self, size: int) -> Single:
        self.pending_bytes += size
        self._singles += 1
        return Single(size)

    def end_single(self, single: Single, result: SendResult) -> None:
        self.pending_bytes -= single.size
        self._singles -= 1
        single.settle(result)
