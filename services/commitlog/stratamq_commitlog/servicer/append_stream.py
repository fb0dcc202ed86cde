"""The fast append stream: batches of ready frames in, acknowledgements in their order out.

One task reads batches and hands them to the engine; the answers are collected while the last
response is being written, so that many batches share one response. A bad batch is refused in band,
and the stream continues. What a stream has in flight is bounded: reading waits, and so does the
peer.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from stratamq.api.v1 import commitlog_pb2 as pb
from stratamq.errors import (
    BusyError,
    InvalidRequestError,
    NotPermittedError,
    StrataError,
    UnavailableError,
)
from stratamq.formats.broker_role import Role
from stratamq.formats.hosts import Host, encode_host
from stratamq.formats.message_status import SendStatus
from stratamq.formats.property_crc import PROPERTY_CRC_BYTES
from stratamq.rpc.framing import APPEND_STREAM_REQUEST
from stratamq.rpc.request_ids import current
from stratamq.rpc.status import encode_fields, error_name
from stratamq.service.caller import Caller
from stratamq.service.entrance import Call
from stratamq.service.recorder import Recorder
from stratamq_commitlog.engine import CommitLog
from stratamq_commitlog.messages import BatchResult, FrameBatch, Numbers, PutResult, Run, StoredPart
from stratamq_commitlog.servicer.values import born_host, check_sequences, place_of
from stratamq_commitlog.write.append_times import AppendStages
from stratamq_commitlog.write.fence import Fence

MAX_OWNERS = 65_536


def require_service(writer: str, caller: Caller) -> None:
    """Whether the caller may write from inside the broker as `writer`. Raises NotPermittedError."""
    if caller.name and not caller.trusted:
        raise NotPermittedError(
            f"{caller.name} may not append as the service {writer!r}: only this broker's services "
            "and members may"
        )


class ProducerOwners:
    """Whose a producer's number is. It lies in every message, so that those who read them know it;
    who sent with another's number would end that producer's stream, and have its next messages
    taken for ones that were sent before.

    The users of the numbers that were used last. Belongs to the event loop.
    """

    def __init__(self) -> None:
        self._users: dict[int, str] = {}
        """The longest unused first."""

    def require(self, producer: int, caller: Caller) -> None:
        """Give the number to the caller unless it has an owner. Services of the broker and members
        may use any number. Raises NotPermittedError if another user owns it."""
        if not producer or not caller.name:
            return
        user = self._users.pop(producer, caller.name)
        if caller.trusted:
            user = caller.name
        self._users[producer] = user
        if len(self._users) > MAX_OWNERS:
            del self._users[next(iter(self._users))]
        if user != caller.name:
            raise NotPermittedError(
                f"{caller.name} may not send with this producer's number: another user does"
            )


BATCH = "append batch"

BatchAnswered = Callable[[BatchResult], None]


class AppendSpans:
    """Traces of appends: the parts of a call that is recorded, and a span for each batch of a
    producer that records it.

    A batch comes with its trace context, since a stream has one for its life.

    `replicated`: whether appends wait for slaves now.
    """

    def __init__(
        self, recorder: Recorder, stages: AppendStages, replicated: Callable[[], bool]
    ) -> None:
        self._recorder = recorder
        self._stages = stages
        self._replicated = replicated

    def call(self, answer: Awaitable[list[PutResult]]) -> Awaitable[list[PutResult]]:
        """The answer of the current request's append; its parts are recorded if it is."""
        request = current()
        if request is None or request.span is None:
            return answer
        return self._recorded(answer)

    async def _recorded(self, answer: Awaitable[list[PutResult]]) -> list[PutResult]:
        taken_ns = self._stages.now_ns()
        results = await answer
        self._record(taken_ns, [one.physical_offset for one in results])
        return results

    def _record(self, taken_ns: int, offsets: Sequence[int]) -> None:
        request = current()
        if request is not None and request.span is not None and max(offsets, default=-1) >= 0:
            self._stages.record(request.span, taken_ns, max(offsets), replicated=self._replicated())

    def batch(self, traceparent: str) -> BatchAnswered | None:
        """To be called with the batch's result; None: it is not recorded."""
        span = self._recorder.continued(traceparent, BATCH)
        if span is None:
            return None
        taken_ns = self._stages.now_ns()

        def answered(result: BatchResult) -> None:
            if result.physical_offset >= 0:
                self._stages.record(
                    span, taken_ns, result.physical_offset, replicated=self._replicated()
                )
            span.end(result.error)

        return answered


def append_spans(
    recorder: Recorder | None, stages: AppendStages | None, engine: CommitLog
) -> AppendSpans | None:
    if recorder is None or stages is None:
        return None
    return AppendSpans(recorder, stages, lambda: engine.role is Role.SYNC_MASTER)


MAX_IN_FLIGHT_BYTES = 32 << 20
"""Requests whose batches are not stored yet."""
MAX_IN_FLIGHT_BATCHES = 1_024
"""Batches whose answers the client has not been given."""
MAX_RESPONSE_RUNS = 16_384
"""Queue offsets that one response holds, or those of a single batch."""


@dataclass(slots=True)
class _Slot:
    """A batch's place in the order of answers."""

    sequence: int
    size: int
    result: BatchResult | None = None


class AppendStream:
    """One open stream."""

    def __init__(
        self,
        engine: CommitLog,
        born: Host,
        on_open: Callable[["AppendStream", pb.AppendOpen], None] = lambda stream, opening: None,
        spans: AppendSpans | None = None,
        require_topics: Callable[[Iterable[str]], None] = lambda topics: None,
    ) -> None:
        """`on_open` gets the stream and what it was opened with, before it takes a batch. `spans`:
        where traces are recorded. `require_topics` raises NotPermittedError."""
        self._require_topics = require_topics
        self._engine = engine
        self._spans = spans
        self._on_open = on_open
        self._born = born
        self._slots: deque[_Slot] = deque()
        self._in_flight = 0
        self._answered = asyncio.Event()
        self._room = asyncio.Event()
        self._stopped = ""
        self._reader: asyncio.Task[None] | None = None
        self._reader_done = False
        self._failure: BaseException | None = None
        self._require_replicas = False
        self._fence: Fence | None = None
        self._obstacle: Callable[[], StrataError | None] | None = None
        self.producer = 0
        self.writer = ""
        """The service of the broker that sends; "": a producer does."""

    def supersede(self) -> None:
        """The one who sends has opened another stream: also what waits is not stored any more, of a
        service. Of a producer it is, and the newer stream recognises it."""
        reason = f"its {'writer' if self.writer else 'producer'} opened another append stream"
        if self._fence is not None:
            self._fence.end(reason)
        self.stop(reason)

    def stop(self, reason: str = "the log is stopping") -> None:
        """Take no more batches; what is in flight is still answered."""
        self._stopped = self._stopped or reason
        if self._reader is not None:
            self._reader.cancel()

    async def run(self, requests: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """The responses, serialised."""
        first = await anext(aiter(requests), None)
        if first is None:
            return
        head, _ = APPEND_STREAM_REQUEST.decode(first)
        if not head.HasField("open"):
            raise InvalidRequestError("the first message of an append stream must be `open`")
        self._require_replicas = head.open.require_replicas
        self.producer = head.open.producer_id
        self._on_open(self, head.open)
        yield pb.AppendStreamResponse(opened=self._opened()).SerializeToString()
        self._reader = asyncio.create_task(self._read(requests))
        self._reader.add_done_callback(self._reading_ended)
        try:
            while True:
                results = self._take_results()
                if results:
                    yield pb.AppendStreamResponse(results=results).SerializeToString()
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

    def begin_fence(self, opening: pb.AppendOpen) -> None:
        """A service of the broker opens it. Raises InvalidRequestError, or NotWritableError when
        the log is in another generation."""
        if opening.producer_id:
            raise InvalidRequestError("a service of the broker does not number its messages")
        self.writer = opening.writer
        self._fence = Fence(self._engine.states, opening.generation)
        self._obstacle = self._fence.obstacle
        obstacle = self._obstacle()
        if obstacle is not None:
            raise obstacle

    def _opened(self) -> pb.AppendOpened:
        engine = self._engine
        return pb.AppendOpened(
            store_address_bytes=len(engine.store_host) - 4,
            born_address=encode_host(self._born)[:-4],
            born_port=self._born.port,
            property_checksum_bytes=PROPERTY_CRC_BYTES if engine.config.property_checksum else 0,
            max_batch_bytes=engine.puts.max_batch_bytes,
            max_batch_messages=engine.config.max_batch_messages,
            max_message_bytes=engine.config.max_message_bytes,
            role=engine.role.value,
            generation=engine.generation,
            version2_frames=engine.config.write_v2,
            appended_offset=engine.offsets.appended,
            window_offset=engine.window.complete_from,
            store_host=engine.store_host,
            store_time_ms=engine.store_clock.wall_ms(),
        )

    async def _read(self, requests: AsyncIterator[bytes]) -> None:
        async for data in requests:
            self._take(data)
            while (
                self._in_flight > MAX_IN_FLIGHT_BYTES or len(self._slots) >= MAX_IN_FLIGHT_BATCHES
            ):
                self._room.clear()
                await self._room.wait()

    def _reading_ended(self, task: asyncio.Task[None]) -> None:
        self._reader_done = True
        if not task.cancelled():
            self._failure = task.exception()
        self._answered.set()

    def _take(self, data: bytes) -> None:
        head, (lengths, frames) = APPEND_STREAM_REQUEST.decode(data)
        slot = _Slot(head.sequence, len(data))
        recorded: BatchAnswered | None = None
        if self._spans is not None and head.traceparent:
            recorded = self._spans.batch(head.traceparent)
        self._slots.append(slot)
        self._in_flight += slot.size

        def done(result: BatchResult) -> None:
            slot.result = result
            if self._fence is not None and result.error is not None:
                self._fence.end("an earlier batch of the stream was refused")
            self._in_flight -= slot.size
            if recorded is not None:
                recorded(result)
            self._answered.set()
            self._room.set()

        try:
            if head.HasField("open"):
                raise InvalidRequestError("a stream is opened once")
            if len(lengths) % 4:
                raise InvalidRequestError("packed_lengths must hold four bytes for each frame")
            most = self._engine.config.max_batch_messages
            if len(head.runs) > most:
                raise InvalidRequestError(
                    f"a batch has at most {most} messages, and runs no more, not {len(head.runs)}"
                )
            runs = [Run(run.topic, run.queue_id, run.count) for run in head.runs]
            self._require_topics({run.topic for run in runs})
            packed = np.frombuffer(lengths, ">u4").astype(np.uint32)
            numbers = self._numbers(head, len(packed))
            batch = FrameBatch(runs, packed, frames, numbers, self._obstacle)
            self._engine.puts.batch(batch, done, self._require_replicas)
        except StrataError as error:
            done(BatchResult(SendStatus.MESSAGE_ILLEGAL, error=error))

    def _numbers(self, head: pb.AppendStreamRequest, count: int) -> Numbers | None:
        if not self.producer:
            return None
        check_sequences(head.sequence, count)
        sent_from = place_of(head.sent_from) if head.HasField("sent_from") else None
        return Numbers(self.producer, head.sequence, sent_from)

    def _take_results(self) -> list[pb.AppendBatchResult]:
        slots, runs = self._slots, 0
        results: list[pb.AppendBatchResult] = []
        while slots and (result := slots[0].result) is not None:
            runs += len(result.first_queue_offsets) + sum(
                len(part.first_queue_offsets) + len(part.lengths) for part in result.parts
            )
            if results and runs > MAX_RESPONSE_RUNS:
                break
            results.append(_message(slots.popleft().sequence, result))
        if results:
            self._room.set()
        return results


def _message(sequence: int, result: BatchResult) -> pb.AppendBatchResult:
    error = result.error
    message = pb.AppendBatchResult(
        sequence=sequence,
        status=result.status.value,
        physical_offset=result.physical_offset,
        first_queue_offsets=result.first_queue_offsets,
        store_timestamp_ms=result.store_timestamp_ms,
        parts=[_part(part) for part in result.parts],
        queue_ids=result.queue_ids,
    )
    if error is not None:
        message.beyond_window = bool(error.fields.get("beyond_window"))
        message.error_name = error_name(error)
        message.error = str(error)
        message.error_fields = encode_fields(error.fields)
        frame = error.fields.get("frame", -1)
        message.bad_frame = frame if isinstance(frame, int) else -1
        if isinstance(error, BusyError):
            message.retry_after_ms = error.retry_after_ms
    return message


def _part(part: StoredPart) -> pb.AppendedPart:
    return pb.AppendedPart(
        physical_offset=part.physical_offset,
        packed_lengths=part.lengths.astype(">u4").tobytes(),
        first_queue_offsets=part.first_queue_offsets,
        store_timestamp_ms=part.store_timestamp_ms,
        queue_ids=part.queue_ids,
    )


class AppendStreams:
    """All open streams of the service. A numbered producer has one, and so has a writer: what still
    comes in on an older one, a producer has sent again on the newer, and a writer decides again."""

    def __init__(
        self, engine: CommitLog, owners: ProducerOwners, spans: AppendSpans | None = None
    ) -> None:
        self._engine = engine
        self._owners = owners
        self._spans = spans
        self._streams: set[AppendStream] = set()
        self._of_senders: dict[int | str, AppendStream] = {}
        """By a producer's number, or a writer's name."""

    async def run(self, requests: AsyncIterator[bytes], call: Call) -> AsyncIterator[bytes]:
        stream = AppendStream(
            self._engine,
            born_host(call.caller),
            partial(self._opened, call.caller),
            self._spans,
            call.require_topics,
        )
        self._streams.add(stream)
        try:
            async with contextlib.aclosing(stream.run(requests)) as responses:
                async for response in responses:
                    yield response
        finally:
            self._streams.discard(stream)
            sender = stream.writer or stream.producer
            if self._of_senders.get(sender) is stream:
                del self._of_senders[sender]

    def _opened(self, caller: Caller, stream: AppendStream, opening: pb.AppendOpen) -> None:
        self._owners.require(stream.producer, caller)
        if opening.writer:
            # First: one that may not write, or decides in another generation, ends no stream.
            require_service(opening.writer, caller)
            stream.begin_fence(opening)
        sender = stream.writer or stream.producer
        if sender:
            older = self._of_senders.get(sender)
            if older is not None:
                older.supersede()
            self._of_senders[sender] = stream

    def stop(self) -> None:
        for stream in list(self._streams):
            stream.stop()
