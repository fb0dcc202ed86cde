"""What a service of the broker appends to its own log: records of its own, and copies of messages.

    the fold serves, on a master ──► a stream is opened in the fold's generation; the log ends at E
            ▲                                  │
            │                                  ▼   the state has all that earlier streams stored
            │                        the fold is at E ──► `begin`
            │                                  │
            │                                  ▼
            │                        `take` ──► batches ──► answers ──► the fold reads them
            │                                  │
            └── something was refused, the stream broke, or the log is in another generation

The service's state is a fold over the log (`follow/fold.py`); an `Author` decides by it what is
appended next. What holds:

1. **One author.** A broker's log takes one stream of each writer. It stores nothing of an older one
   after it has answered the opening of a newer.
2. **In its term alone.** A stream names the generation in which its author decides. The log refuses
   the rest of the stream in another generation, at the moment at which it would give the batch its
   place (`stratamq_commitlog/use_cases/append_stream.py`): a demoted master's service stores
   nothing late.
3. **In order.** Batches are stored in the order in which they were taken, each whole or not at all.
   Behind a batch that was refused nothing of the stream is stored. A cut or a loss of power takes
   the end of what was stored, never a part in the middle.
4. **Nothing is sent again.** What has no answer when a stream breaks may be stored or not. The next
   stream waits until the fold has come to where the log was at its opening: then the state says
   which it was, and the author decides again.

A copy names its source in its properties (`formats/source_item.py`). A fold that takes the copy as
the proof of the delivery delivers each message once, wherever a process is killed: the copy is in
the log, and the fold sees it before `begin`; or it is not, and the message is still to be
delivered.

`OwnAppends` waits for nothing and touches nothing: the simulator drives it as `own_stream` does.
"""

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Protocol

from stratamq.errors import (
    InvalidRequestError,
    NotFoundError,
    NotWritableError,
    StrataError,
    UnavailableError,
)
from stratamq.files.port import Clock
from stratamq.follow.fold import FoldPlace
from stratamq.formats.batch_frames import BatchEncoder, FrameShape
from stratamq.formats.frame import Frame
from stratamq.formats.message_status import SendStatus
from stratamq.formats.producer_item import PRODUCER_ITEM
from stratamq.formats.properties import ITEM_SEPARATOR, PROPERTY_CRC, encode_properties
from stratamq.formats.source_item import SOURCE_ITEM, MessageSource, encode_source
from stratamq.formats.sysflag import TAKEN_FLAGS
from stratamq.formats.topics import ANY_QUEUE

MAX_BATCH_RECORDS = 256
MAX_BATCH_BYTES = 1 << 20
MAX_SUSPECTS = 1_000
MAX_BATCHES = 8
"""In flight. With `MAX_BATCH_BYTES` the bound of the memory that appends take."""
LOOK_S = 2.0
"""How often the store's clock is compared, and the longest sleep between two looks at timers."""


@dataclass(frozen=True, slots=True)
class OwnRecord:
    """A message that the service appends."""

    topic: str
    body: bytes = b""
    properties: bytes = b""
    """Encoded, without an item for the source."""
    queue_id: int = ANY_QUEUE
    source: MessageSource | None = None
    """The message that this copies, or about which it is a record: the properties end in it."""
    flag: int = 0
    sys_flag: int = 0
    born_timestamp_ms: int = 0
    born_host: bytes = b""
    """The host's bytes in a frame; empty: this service's."""
    reconsume_times: int = 0
    part: str = ""
    """Which part of its author it is from; not stored."""
    prepared_offset: int = 0
    """In the committed copy of a half message: where the half is in the log."""

    @property
    def all_properties(self) -> bytes:
        if self.source is None:
            return self.properties
        item = encode_source(self.source)
        between = ITEM_SEPARATOR if self.properties[-1:] not in (b"", ITEM_SEPARATOR) else b""
        return self.properties + between + item


def copy_of(
    frame: Frame,
    topic: str,
    source: MessageSource,
    *,
    without: Collection[str] = (),
    more: Mapping[str, str] = MappingProxyType({}),
) -> OwnRecord:
    """The copy that delivers a message to `topic`: the same body and properties, but those that
    name the delivery (`without`) and those that belong to a frame, and with `more`."""
    left_out = {*without, PRODUCER_ITEM, SOURCE_ITEM, PROPERTY_CRC}
    kept = {name: value for name, value in frame.properties.items() if name not in left_out}
    kept |= more
    return OwnRecord(
        topic=topic,
        body=frame.body,
        properties=encode_properties(kept),
        source=source,
        flag=frame.flag,
        sys_flag=frame.sys_flag & TAKEN_FLAGS,
        born_timestamp_ms=frame.born_timestamp_ms,
        born_host=frame.born_host,
        reconsume_times=frame.reconsume_times,
    )


class Author(Protocol):
    """The service's side, on the event loop. No call may take more than about 2 ms. What it raises
    ends the process."""

    def begin(self) -> None:
        """The state has all that the log has of this writer, and nothing is in flight: what was
        taken and is not in the state was not stored. Take it again."""

    def take(self, now_ms: int, most: int) -> Sequence[OwnRecord]:
        """What is appended next, at most so many, in order; each once between two `begin`.
        `now_ms`: the store's clock."""

    def due_ms(self) -> int | None:
        """When there will be something to take, by the store's clock. None: not before the state
        changes."""

    def acknowledged(self, records: Sequence[OwnRecord], *, is_flushed: bool) -> None:
        """They are as safe as PUT_OK promises: on k slaves, and `is_flushed` if the log flushes
        before it answers. All that was taken before them is as safe."""

    def refused(self, record: OwnRecord, error: StrataError) -> None:
        """The log does not take this record, now and later: InvalidRequestError, NotFoundError (no
        such topic) or NotWritableError (the topic has no write permission). Do not take it
        again."""


class StoreTime:
    """The store's clock as a service knows it: what the log said last, and the time that has passed
    since. A wall clock that jumps moves it only if the log believes the jump
    (`stratamq_commitlog/write/store_clock.py`)."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: tuple[int, int] | None = None

    def learn(self, store_ms: int) -> None:
        self._known = store_ms, self._clock.monotonic_ns()

    def now_ms(self) -> int | None:
        """None: the log has said nothing yet."""
        if self._known is None:
            return None
        store_ms, then_ns = self._known
        return store_ms + (self._clock.monotonic_ns() - then_ns) // 1_000_000


@dataclass(frozen=True, slots=True)
class AppendLimits:
    """What the log takes on one stream."""

    shape: FrameShape
    batch_bytes: int = MAX_BATCH_BYTES
    batch_records: int = MAX_BATCH_RECORDS
    body_bytes: int = MAX_BATCH_BYTES
    sync_flush: bool = False
    """PUT_OK says that a batch is flushed."""


@dataclass(slots=True)
class OwnBatch:
    """Records that are stored together. `runs`: topic, queue id, count."""

    records: list[OwnRecord] = field(default_factory=list)
    runs: list[tuple[str, int, int]] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    pieces: list[bytes] = field(default_factory=list)

    def add(self, record: OwnRecord, encoder: BatchEncoder) -> None:
        place = record.topic, record.queue_id
        if self.runs and self.runs[-1][:2] == place:
            self.runs[-1] = (*place, self.runs[-1][2] + 1)
        else:
            self.runs.append((*place, 1))
        self.records.append(record)
        self.lengths += encoder.lengths
        self.pieces += encoder.pieces()[1]


class OwnAppends:
    """One writer's appends. Of one event loop, or one simulation."""

    def __init__(self, writer: str, author: Author, followed: FoldPlace, clock: Clock) -> None:
        """`writer`: the service's name, the same at each start and on each broker."""
        self.writer = writer
        self.time = StoreTime(clock)
        self.refusal: StrataError | None = None
        """Why the stream takes nothing more."""
        self.generation = 0
        """In which the stream was opened."""
        self._author = author
        self._followed = followed
        self._limits: AppendLimits | None = None
        self._begins_at = 0
        self._begun = False
        self._most = MAX_BATCH_RECORDS
        """Records of a batch: fewer after a refusal, until the one is found that is refused."""
        self._suspects: set[str] = set()
        """Topics of a batch of which the log has refused one. Each goes in batches of its own, so
        that the next refusal names its topic: a stream that ends holds up all records."""
        self._waiting: deque[OwnRecord] = deque()
        self._in_flight: deque[list[OwnRecord]] = deque()

    @property
    def may_open(self) -> bool:
        """The fold serves, and its log is a master's, as far as it knows."""
        followed = self._followed
        return followed.serving and not followed.is_slave and followed.generation > 0

    @property
    def is_over(self) -> bool:
        """Nothing more goes out on this stream."""
        followed = self._followed
        is_other = followed.is_slave or followed.generation != self.generation
        return self.refusal is not None or is_other

    @property
    def is_active(self) -> bool:
        """The author decides: this is the master's service, and its state is the log's."""
        return self._begun and not self.is_over

    def require_active(self, service: str) -> None:
        """NotWritableError on a slave, whose master answers the call; UnavailableError before
        `begin`."""
        if self.is_active:
            return
        if self._followed.is_slave:
            raise NotWritableError("this broker is a slave: ask its master", "role")
        self._followed.require_serving(service)
        raise UnavailableError(f"the {service} service is about to take over: try again")

    def begin_again(self) -> None:
        """End this stream: the author begins once more on the next one."""
        if not self.is_over:
            self.refusal = UnavailableError("the service begins again")

    def opening(self) -> int:
        """A stream is about to be opened. Returns the generation to name."""
        self.refusal, self.generation = None, self._followed.generation
        return self.generation

    def opened(self, limits: AppendLimits, appended: int, store_ms: int) -> None:
        """The log has opened the stream, and ended at `appended`. What earlier streams stored lies
        below."""
        self._limits, self._begins_at, self._begun = limits, appended, False
        self.time.learn(store_ms)

    def next(self) -> OwnBatch | None:
        """What goes out next; None: nothing now."""
        limits, followed = self._limits, self._followed
        if limits is None or self.is_over or not followed.serving:
            return None
        if not self._begun:
            if followed.applied < self._begins_at:
                return None
            self._author.begin()
            self._begun = True
        if len(self._in_flight) >= MAX_BATCHES:
            return None
        if not self._waiting:
            now_ms = self.time.now_ms()
            if now_ms is not None:
                self._waiting += self._author.take(now_ms, min(self._most, limits.batch_records))
        batch = self._batch(limits)
        if not batch.records:
            return None
        self._in_flight.append(batch.records)
        return batch

    def pause_s(self) -> float:
        """How long there is nothing to do, unless something moves."""
        now_ms = self.time.now_ms()
        if not self._begun or now_ms is None or len(self._in_flight) >= MAX_BATCHES:
            return LOOK_S
        due_ms = self._author.due_ms()
        return LOOK_S if due_ms is None else min(LOOK_S, max(1, due_ms - now_ms) / 1000)

    def answered(self, status: SendStatus, error: StrataError | None) -> None:
        """The log has answered the oldest batch in flight. A status that says stored, and is not
        PUT_OK, is no end: the fold sees the records when they are confirmed, or a cut takes them
        away and another generation begins."""
        records = self._in_flight.popleft()
        if error is None:
            self._most = min(2 * self._most, MAX_BATCH_RECORDS)
            if self._suspects:
                self._suspects.difference_update([record.topic for record in records])
            if status is SendStatus.PUT_OK:
                is_flushed = self._limits is not None and self._limits.sync_flush
                self._author.acknowledged(records, is_flushed=is_flushed)
            return
        # The log may have refused a batch while an earlier one waited, which fails for that.
        if self.refusal is None or is_final(error):
            self.refusal = error
        if not is_final(error):
            return
        topics = {record.topic for record in records}
        is_topics = not isinstance(error, InvalidRequestError)
        if len(records) == 1 or (is_topics and len(topics) == 1):
            for record in records:
                self._author.refused(record, error)
        if is_topics:
            if len(topics) == 1:
                self._refuse_waiting(topics, error)
            self._suspect(topics)
        else:
            self._most = max(1, len(records) // 2)

    def ended(self) -> None:
        """The stream has ended."""
        self._limits, self._begun = None, False
        self._waiting.clear()
        self._in_flight.clear()

    def _refuse_waiting(self, topics: set[str], error: StrataError) -> None:
        """Others keep their order: a decision is in the log before what it decides."""
        waiting, self._waiting = self._waiting, deque()
        for record in waiting:
            if record.topic in topics:
                self._author.refused(record, error)
            else:
                self._waiting.append(record)

    def _suspect(self, topics: set[str]) -> None:
        if len(self._suspects) > MAX_SUSPECTS:
            self._suspects.clear()
        self._suspects |= topics

    def _suspected(self, record: OwnRecord) -> str:
        """Its topic, if it is a suspect."""
        return record.topic if record.topic in self._suspects else ""

    def _batch(self, limits: AppendLimits) -> OwnBatch:
        batch, size, most = OwnBatch(), 0, min(self._most, limits.batch_records)
        while self._waiting and len(batch.records) < most:
            record = self._waiting[0]
            if batch.records and self._suspected(batch.records[0]) != self._suspected(record):
                break
            try:
                encoder = _encoded(record, limits)
            except InvalidRequestError as error:
                self._waiting.popleft()
                self._author.refused(record, error)
                continue
            size += encoder.lengths[0]
            if batch.records and size > min(limits.batch_bytes, MAX_BATCH_BYTES):
                break
            batch.add(self._waiting.popleft(), encoder)
        return batch


def is_final(error: StrataError) -> bool:
    """Whether the log refuses the same record later, too. Everything else passes: a full disk, a
    slave, a master that is held or has no lease, a log that is too busy or gone."""
    if isinstance(error, NotWritableError):
        return error.reason == "permission"
    return isinstance(error, InvalidRequestError | NotFoundError)


def _encoded(record: OwnRecord, limits: AppendLimits) -> BatchEncoder:
    """The record's frame. InvalidRequestError for one that the log does not take."""
    shape = limits.shape
    if record.born_host:
        shape = replace(shape, born_host=record.born_host)
    encoder = BatchEncoder(shape)
    encoder.add(
        record.topic,
        [(record.body, record.all_properties)],
        flag=record.flag,
        sys_flag=record.sys_flag,
        born_timestamp_ms=record.born_timestamp_ms,
        reconsume_times=record.reconsume_times,
        prepared_offset=record.prepared_offset,
    )
    size = encoder.lengths[0]
    if len(record.body) > limits.body_bytes or size > limits.batch_bytes:
        raise InvalidRequestError(f"the log takes no message of {size} bytes")
    return encoder
