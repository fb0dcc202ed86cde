"""The fast append stream: batches of ready frames in, acknowledgements in their order out.

One task reads batches and hands them to the engine; the answers are collected while the last ones
are being written, so that many batches share one response. A bad batch is refused in band, and the
stream continues. What a stream has in flight is bounded: reading waits, and so does the peer.

A producer's stream is in order. For example 5, 6 and 7 are on their way, and the log is busy when 5
comes: 6 and 7 are refused, too, though it has room for them, until 5 comes again and `resumes`.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from stratamq.errors import InvalidRequestError, NotWritableError, StrataError, UnavailableError
from stratamq.formats.hosts import Host
from stratamq.formats.log_state import Role
from stratamq.formats.message_status import SendStatus
from stratamq.formats.producer_item import LARGEST_SEQUENCE
from stratamq.formats.property_crc import PROPERTY_CRC_BYTES
from stratamq.rpc.refusals import holds_up
from stratamq_commitlog.engine import CommitLog
from stratamq_commitlog.log_state import StateCell
from stratamq_commitlog.messages import BatchResult, FrameBatch, FrameRun, KnownPlace, Numbers
from stratamq_commitlog.use_cases.append_spans import AppendSpans, BatchAnswered

Request = TypeVar("Request")

MAX_IN_FLIGHT_BYTES = 32 << 20
"""Requests whose batches are not stored yet."""
MAX_IN_FLIGHT_BATCHES = 1_024
"""Batches whose answers the client has not been given."""
MAX_RESPONSE_RUNS = 16_384
"""Queue offsets that are answered together, or those of a single batch."""
MAX_WAITING_RUNS = 65_536
"""Queue offsets, parts and refusals of answers that the client has not been given: about 1 KB
each."""


@dataclass(slots=True)
class Fence:
    """Whether what a service of the broker has decided may still be stored: one append stream.

    A service decides what it appends from the log that it has followed, as that log was in one
    generation. Its batch may arrive late: the broker may have been demoted meanwhile, or promoted
    again, and another start of the service may have decided the same. A check before sending cannot
    see that. Each batch of a service therefore names its fence, and the appender asks it when it
    gives the batch its place: nothing comes between that check and the bytes.

        open ──► a batch of the stream was refused        a batch relies on those before it
             ──► the writer has opened another stream     that one decides from now on
             ──► the log is in another generation         it was demoted or started again
                    └──► ended: everything that follows on the stream is refused, nothing is stored
    """

    states: StateCell
    generation: int
    """In which the service has decided."""
    ended: str = ""
    """Why the stream takes nothing more; "": it does."""

    def end(self, reason: str) -> None:
        """Take nothing more."""
        self.ended = self.ended or reason

    def obstacle(self) -> NotWritableError | None:
        """Why nothing of the stream is stored; None: it is."""
        state = self.states.now
        if not self.ended and (state.is_slave or state.generation != self.generation):
            self.end(
                f"decided in generation {self.generation}, and the log is in {state.generation} as "
                f"{state.role.name}: follow the log again, and decide again"
            )
        return NotWritableError(self.ended, "fenced") if self.ended else None


class AppendOpening(NamedTuple):
    """What a stream is opened with."""

    producer: int = 0
    """0: its messages are not numbered."""
    require_replicas: bool = False
    writer: str = ""
    """The service of the broker that sends; "": a producer does."""
    generation: int = 0
    """In which a writer decides what it appends."""
    in_order: bool = False
    """Behind a batch that is refused for now nothing is stored until one that resumes the
    stream."""


@dataclass(frozen=True, slots=True)
class AppendOpened:
    """What a producer builds its frames by."""

    born: Host
    store_host: bytes
    property_checksum_bytes: int
    max_batch_bytes: int
    max_batch_messages: int
    max_message_bytes: int
    version2_frames: bool
    role: Role
    generation: int
    appended_offset: int
    window_offset: int | None
    store_time_ms: int
    sync_flush: bool


class SentBatch(NamedTuple):
    """A batch as its producer numbers it."""

    sequence: int
    size: int
    """Bytes of the request."""
    runs: Sequence[FrameRun] = ()
    lengths: NDArray[np.uint32] = np.zeros(0, np.uint32)
    frames: bytes | memoryview = b""
    sent_from: KnownPlace | None = None
    traceparent: str = ""
    error: StrataError | None = None
    """Why the codec cannot read it: the answer in its place."""
    resumes: bool = False
    partial: bool = False
    """Messages that the log does not take are left out."""


class Answered(NamedTuple):
    sequence: int
    result: BatchResult


@dataclass(slots=True)
class _Slot:
    """A batch's place in the order of answers."""

    sequence: int
    size: int
    result: BatchResult | None = None
    runs: int = 0
    """The size of the result."""


class AppendStream:
    """One open stream. It takes batches while `run` is read."""

    def __init__(
        self,
        log: CommitLog,
        born: Host,
        opening: AppendOpening = AppendOpening(),  # noqa: B008 # it is frozen
        spans: AppendSpans | None = None,
        permit: Callable[[str], None] = lambda topic: None,
    ) -> None:
        """`spans`: where traces are recorded. `permit` raises NotPermittedError for a topic. Raises
        InvalidRequestError, and NotWritableError for a writer when the log is in another
        generation."""
        self._permit = permit
        self._log = log
        self._spans = spans
        self._born = born
        self._slots: deque[_Slot] = deque()
        self._in_flight = self._waiting_runs = 0
        self._answered = asyncio.Event()
        self._room = asyncio.Event()
        self._stopped = ""
        self._reader: asyncio.Task[None] | None = None
        self._reader_done = False
        self._failure: BaseException | None = None
        self._require_replicas = opening.require_replicas
        self._producer = opening.producer
        self.sender: int | str = opening.writer or opening.producer
        """A producer's number, or a writer's name; 0: a producer without a number."""
        self._refused: StrataError | None = None
        """In order: why an earlier batch was refused, which its producer sends again."""
        self._behind = (lambda: self._refused) if opening.in_order else None
        self._fence: Fence | None = None
        self._obstacle: Callable[[], StrataError | None] | None = None
        if opening.writer:
            self._begin_fence(opening)

    def supersede(self) -> None:
        """The one who sends has opened another stream: also what waits is not stored any more, of a
        service. Of a producer it is, and the newer stream recognises it."""
        reason = f"its {'writer' if self._fence else 'producer'} opened another append stream"
        if self._fence is not None:
            self._fence.end(reason)
        self.stop(reason)

    def stop(self, reason: str = "the log is stopping") -> None:
        """Take no more batches; what is in flight is still answered."""
        self._stopped = self._stopped or reason
        if self._reader is not None:
            self._reader.cancel()

    async def run(
        self, requests: AsyncIterator[Request], decode: Callable[[Request], SentBatch]
    ) -> AsyncGenerator[list[Answered], None]:
        """Store the batches; the answers that are ready, each time. UnavailableError: the stream
        was stopped, and what it had in flight is answered."""
        self._reader = asyncio.create_task(self._read(requests, decode))
        self._reader.add_done_callback(self._reading_ended)
        if self._stopped:  # while its opening was being answered
            self._reader.cancel()
        try:
            while True:
                results = self._take_results()
                if results:
                    yield results
                elif self._reader_done and not self._slots:
                    break
                else:
                    await self._answered.wait()
                    self._answered.clear()
        finally:
            self._reader.cancel()
        if self._failure is not None:
            raise self._failure
        if self._stopped:
            raise UnavailableError(self._stopped)

    def _begin_fence(self, opening: AppendOpening) -> None:
        if opening.producer:
            raise InvalidRequestError("a service of the broker does not number its messages")
        self._fence = Fence(self._log.states, opening.generation)
        self._obstacle = self._fence.obstacle
        obstacle = self._obstacle()
        if obstacle is not None:
            raise obstacle

    def opened(self) -> AppendOpened:
        log, config = self._log, self._log.config
        return AppendOpened(
            born=self._born,
            store_host=log.store_host,
            property_checksum_bytes=PROPERTY_CRC_BYTES if config.property_checksum else 0,
            max_batch_bytes=log.puts.max_batch_bytes,
            max_batch_messages=config.max_batch_messages,
            max_message_bytes=config.max_message_bytes,
            version2_frames=config.write_v2,
            role=log.role,
            generation=log.generation,
            appended_offset=log.offsets.appended,
            window_offset=log.window.complete_from,
            store_time_ms=log.store_clock.wall_ms(),
            sync_flush=log.sync_flush,
        )

    async def _read(
        self, requests: AsyncIterator[Request], decode: Callable[[Request], SentBatch]
    ) -> None:
        async for request in requests:
            self._take(decode(request))
            while (
                self._in_flight > MAX_IN_FLIGHT_BYTES
                or len(self._slots) >= MAX_IN_FLIGHT_BATCHES
                or self._waiting_runs > MAX_WAITING_RUNS
            ):
                self._room.clear()
                await self._room.wait()

    def _reading_ended(self, task: asyncio.Task[None]) -> None:
        self._reader_done = True
        if not task.cancelled():
            self._failure = task.exception()
        self._answered.set()

    def _take(self, sent: SentBatch) -> None:
        slot = _Slot(sent.sequence, sent.size)
        recorded: BatchAnswered | None = None
        if self._spans is not None and sent.traceparent:
            recorded = self._spans.batch(sent.traceparent)
        self._slots.append(slot)
        self._in_flight += slot.size
        if sent.resumes:
            self._refused = None

        def done(result: BatchResult) -> None:
            slot.result, slot.runs = result, _runs_of(result)
            self._waiting_runs += slot.runs
            if self._fence is not None and result.error is not None:
                self._fence.end("an earlier batch of the stream was refused")
            if self._behind is not None and holds_up(result.error):
                self._refused = self._refused or result.error
            self._in_flight -= slot.size
            if recorded is not None:
                recorded(result)
            self._answered.set()
            self._room.set()

        try:
            if sent.error is not None:
                raise sent.error
            if self._refused is not None:
                done(BatchResult(SendStatus.SERVICE_NOT_AVAILABLE, error=self._refused))
                return
            numbers, columns = self._numbers(sent), (sent.runs, sent.lengths, sent.frames)
            batch = FrameBatch(*columns, numbers, self._obstacle, self._behind, sent.partial)
            self._log.puts.batch(batch, done, self._require_replicas, self._permit)
        except StrataError as error:
            done(BatchResult(SendStatus.MESSAGE_ILLEGAL, error=error))

    def _numbers(self, sent: SentBatch) -> Numbers | None:
        if not self._producer:
            return None
        check_sequences(sent.sequence, len(sent.lengths))
        return Numbers(self._producer, sent.sequence, sent.sent_from)

    def _take_results(self) -> list[Answered]:
        slots, runs = self._slots, 0
        results: list[Answered] = []
        while slots and (result := slots[0].result) is not None:
            runs += slots[0].runs
            if results and runs > MAX_RESPONSE_RUNS:
                break
            slot = slots.popleft()
            self._waiting_runs -= slot.runs
            results.append(Answered(slot.sequence, result))
        if results:
            self._room.set()
        return results


def _runs_of(result: BatchResult) -> int:
    """What the answer holds."""
    runs = len(result.first_queue_offsets) + len(result.refusals)
    return runs + sum(len(one.first_queue_offsets) + len(one.lengths) for one in result.parts)


def check_sequences(first: int, count: int) -> None:
    """InvalidRequestError for sequences that cannot be those of `count` messages."""
    if not 0 <= first <= LARGEST_SEQUENCE - count:
        raise InvalidRequestError(f"a sequence is from 0 to {LARGEST_SEQUENCE}, and not {first}")
