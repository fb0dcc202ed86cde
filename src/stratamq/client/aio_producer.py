"""The asyncio producer: the same outbox as the synchronous one, two tasks instead of threads."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import grpc

from stratamq.client import operations
from stratamq.client.append_stream import opening, outcome_of, request_of, shape_of
from stratamq.client.batching import Batch, Chunk, Fields, Outbox, Run, Single, Unit, size_bound
from stratamq.client.delivery import AsyncDelivery, Deliveries
from stratamq.client.intake import (
    Intake,
    ProducerSettings,
    check_place,
    perhaps_stored,
)
from stratamq.client.values import Message, SendResult, SendStatus
from stratamq.errors import StrataError, UnavailableError
from stratamq.files.port import Clock, Random
from stratamq.formats.batch_frames import FrameShape, Row
from stratamq.rpc.endpoints import Channels
from stratamq.rpc.methods import COMMITLOG, METHODS
from stratamq.rpc.stream_errors import stream_error, write

log = logging.getLogger(__name__)

_NO_PROPERTIES: Mapping[str, str] = {}
_REMEMBERED_FAILURES = 1000


class AsyncProducer:
    """Made by `AsyncClient.producer`; of one event loop; to be closed, best by `async with`.

    `on_result` is called with the result of every message, in the order of the answers. Without it
    `flush` raises the first failure that no delivery has told.
    """

    def __init__(
        self,
        channels: Channels,
        settings: ProducerSettings,
        on_result: Callable[[SendResult], None] | None,
        clock: Clock,
        random: Random,
    ) -> None:
        self._channels = channels
        self._settings = settings
        self._on_result = on_result
        self._clock = clock
        self._random = random
        self._outbox: Outbox = settings.outbox()
        self._intake = Intake(settings, clock, random)
        self._waiters: dict[Unit, asyncio.Future[None]] = {}
        self._singles: set[asyncio.Task[None]] = set()
        self._failed: list[Unit] = []
        self._failures = 0
        self._flushes = 0
        self._closing = False
        self._wanted = False  # a caller waits for the first stream
        self._opened = False  # once: the broker's limits are known
        self._refusal: StrataError | None = None  # why the first stream could not be opened
        self._runner: asyncio.Task[None] | None = None
        self._work = asyncio.Event()  # set: the writer has something to look at
        self._answered = asyncio.Event()  # replaced at each change

    async def send(
        self,
        topic: str,
        body: bytes,
        *,
        tag: str = "",
        keys: Sequence[str] = (),
        properties: Mapping[str, str] = _NO_PROPERTIES,
        queue_id: int | None = None,
        unique_key: str | None = None,
        flag: int = 0,
        sys_flag: int = 0,
        born_timestamp_ms: int = 0,
        reconsume_times: int = 0,
    ) -> AsyncDelivery:
        """Give a message up for sending. Waits while too much is unanswered, and at first for the
        connection; await the delivery for the answer.

        InvalidRequestError when the message can never be stored, UnavailableError when no
        connection can be made at first. Everything else is in the delivery.
        """
        introduce = False
        if not self._opened or (queue_id is None and topic not in self._outbox.queue_counts):
            introduce = await self._prepare(topic, queue_id)
        row, born_timestamp_ms = self._intake.row(
            body, tag, keys, properties, unique_key, born_timestamp_ms
        )
        fields = (flag, sys_flag, born_timestamp_ms, reconsume_times)
        check_place(topic, queue_id, fields)
        if self._outbox.carries(topic, row):
            delivery = await self._add(topic, queue_id, fields, row)
            if introduce:
                await self._introduce(topic, delivery)
            return delivery
        message = Message(
            topic,
            body,
            tag,
            keys,
            properties,
            queue_id,
            unique_key,
            flag,
            sys_flag,
            born_timestamp_ms,
            reconsume_times=reconsume_times,
        )
        return await self.send_message(message, alone=True)

    async def send_message(self, message: Message, *, alone: bool = False) -> AsyncDelivery:
        """The same for a `Message`. Those that do not wait for the disk, and whatever is sent
        `alone`, go by a call of their own beside the stream. InvalidRequestError for delayed and
        half messages."""
        if not (alone or message.alone):
            return await self.send(
                message.topic,
                message.body,
                tag=message.tag,
                keys=message.keys,
                properties=message.properties,
                queue_id=message.queue_id,
                unique_key=message.unique_key,
                flag=message.flag,
                sys_flag=message.sys_flag,
                born_timestamp_ms=message.born_timestamp_ms,
                reconsume_times=message.reconsume_times,
            )
        operation = operations.send(
            [self._intake.message(message)], require_replicas=self._settings.require_replicas
        )
        await self._wait_for_room()
        single = self._outbox.begin_single(max(1, len(message.body)))
        task = asyncio.ensure_future(self._send_single(single, operation))
        self._singles.add(task)
        task.add_done_callback(self._singles.discard)
        return AsyncDelivery(self._waiters, single)

    async def send_all(self, messages: Iterable[Message]) -> list[AsyncDelivery]:
        return [await self.send_message(message) for message in messages]

    async def send_rows(
        self,
        topic: str,
        rows: Iterable[Row],
        *,
        queue_id: int | None = None,
        flag: int = 0,
        sys_flag: int = 0,
        born_timestamp_ms: int = 0,
    ) -> Deliveries[AsyncDelivery]:
        """Bodies with properties that are encoded already: the quick way for many. No unique keys
        are made; InvalidRequestError leaves the rows before the bad one given up for sending."""
        introduce = await self._prepare(topic, queue_id)
        fields = (flag, sys_flag, born_timestamp_ms or self._clock.wall_ms(), 0)
        check_place(topic, queue_id, fields)
        rows = rows if isinstance(rows, list) else list(rows)
        outbox = self._outbox
        chunks: list[Chunk] = []
        done = 0
        while done < len(rows):
            if outbox.pending_bytes >= self._settings.max_pending_bytes or self._closing:
                await self._wait_for_room()
            among = rows[:1] if introduce else rows
            now_ns = self._clock.monotonic_ns()
            chunk = outbox.add_rows(topic, queue_id, fields, among, done, now_ns)
            chunks.append(chunk)
            done += chunk[3]
            self._work.set()
            if introduce:
                introduce = False
                await self._introduce(topic, self._delivery(*chunk[:3]))
            elif not outbox.is_open(chunk[0]):
                await asyncio.sleep(0)  # the writer's turn
        return Deliveries(self._delivery, chunks)

    def _delivery(self, unit: Unit, run: Run, index: int) -> AsyncDelivery:
        return AsyncDelivery(self._waiters, unit, run, index)

    async def flush(self) -> None:
        """Return when everything sent so far is answered. Raises the first failure that neither a
        delivery nor `on_result` has told."""
        self._flushes += 1
        self._outbox.flushing = True
        self._work.set()
        try:
            while not self._outbox.idle:
                await self._answered.wait()
        finally:
            self._flushes -= 1
            self._outbox.flushing = self._flushes > 0
        untold = [unit for unit in self._failed if not unit.seen]
        self._failed.clear()
        for unit in untold:
            error = unit.error()
            if error is not None:
                raise error

    async def close(self) -> None:
        """Flush, then end the stream. Everything is answered or failed afterwards."""
        if self._closing:
            return
        try:
            await self.flush()
        finally:
            self._closing = True
            self._work.set()
            self._changed()
            if self._runner is not None:
                if not self._outbox.idle:
                    self._runner.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await self._runner

    async def __aenter__(self) -> "AsyncProducer":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # --- adding ---

    async def _add(
        self, topic: str, queue_id: int | None, fields: Fields, row: Row
    ) -> AsyncDelivery:
        outbox = self._outbox
        if outbox.pending_bytes >= self._settings.max_pending_bytes or self._closing:
            await self._wait_for_room()
        size = size_bound(topic, row)
        batch, run, index = outbox.add(
            topic, queue_id, fields, row, size, self._clock.monotonic_ns()
        )
        if not outbox.is_open(batch):
            self._work.set()
            await asyncio.sleep(0)  # a caller that never waits must not keep the writer waiting
        elif batch.count == 1:
            self._work.set()
        return AsyncDelivery(self._waiters, batch, run, index)

    async def _prepare(self, topic: str, queue_id: int | None) -> bool:
        """Before a message is added: a stream has been opened once, the topic has been asked
        about. True when the broker does not have the topic yet."""
        if not self._opened:
            if self._runner is None:
                self._runner = asyncio.ensure_future(self._run())
            self._refusal = None
            self._wanted = True
            self._work.set()
            while not (self._opened or self._refusal or self._closing):
                await self._answered.wait()
            if self._refusal is not None:
                raise self._refusal
        if queue_id is not None or topic in self._outbox.queue_counts:
            return False
        await self._ask(topic)
        return topic not in self._outbox.queue_counts

    async def _introduce(self, topic: str, delivery: AsyncDelivery) -> None:
        """Wait for the message that makes a topic, and learn its queues: or all that follow would
        pile up in its first queue."""
        self._flushes += 1
        self._outbox.flushing = True
        self._work.set()
        try:
            while not delivery.done:
                await self._answered.wait()
        finally:
            self._flushes -= 1
            self._outbox.flushing = self._flushes > 0
        await self._ask(topic)

    async def _wait_for_room(self) -> None:
        while self._outbox.pending_bytes >= self._settings.max_pending_bytes and not self._closing:
            await self._answered.wait()
        if self._closing:
            raise UnavailableError("the producer is closed", perhaps_stored=False)

    # --- the stream ---

    async def _run(self) -> None:
        try:
            while await self._wait_for_work():
                stream = _Stream()
                try:
                    await self._exchange(stream)
                    error: StrataError = UnavailableError("the log service ended the append stream")
                except grpc.RpcError as failure:
                    error = stream_error(failure)
                except StrataError as failure:
                    error = failure
                await self._broken(stream, error)
        finally:
            # Closed with messages unanswered, or a fault of ours: nobody else will answer them.
            ended = UnavailableError("the producer was closed", perhaps_stored=True)
            self._give_up(self._outbox.lost(), ended)
            self._give_up(self._outbox.take_unsent(), ended)

    async def _wait_for_work(self) -> bool:
        while not (self._outbox.has_unsent or self._wanted or self._closing):
            self._work.clear()
            await self._work.wait()
        return self._outbox.has_unsent or not self._closing

    async def _exchange(self, stream: "_Stream") -> None:
        """One stream from its opening to its end."""
        call = self._channels.callable(METHODS["AppendStream"])()
        tasks: list[asyncio.Task[None]] = []
        try:
            await write(call, opening(self._settings.client_name, self._settings.require_replicas))
            response = await call.read()
            if response is grpc.aio.EOF or not response.HasField("opened"):
                return
            opened = response.opened
            stream.shape = shape_of(opened)
            self._outbox.limit(opened.max_batch_bytes, opened.max_batch_messages)
            self._opened, self._wanted, self._failures = True, False, 0
            self._changed()
            reader = asyncio.ensure_future(self._read(call))
            writer = asyncio.ensure_future(self._write(call, stream.shape))
            tasks = [reader, writer]
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if writer.done():
                writer.result()  # it has written everything, or raises what it met
                await reader
            reader.result()
        finally:
            call.cancel()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _write(self, call: Any, shape: FrameShape) -> None:
        outbox, loop = self._outbox, asyncio.get_running_loop()
        while True:
            now_ns = self._clock.monotonic_ns()
            batch = outbox.next_batch(now_ns)
            if batch is not None:
                try:
                    request = request_of(batch, shape)
                except StrataError as error:  # this batch alone cannot be sent
                    outbox.withdraw(batch)
                    self._give_up([batch], error)
                    continue
                await write(call, request)
                continue
            if self._closing and not outbox.has_unsent:
                await call.done_writing()
                return
            due_ns = outbox.due_in_ns(now_ns)
            alarm = None if due_ns is None else loop.call_later(due_ns / 1e9, self._work.set)
            self._work.clear()
            try:
                await self._work.wait()
            finally:
                if alarm is not None:
                    alarm.cancel()

    async def _read(self, call: Any) -> None:
        while (response := await call.read()) is not grpc.aio.EOF:
            now_ns = self._clock.monotonic_ns()
            settled = []
            for result in response.results:
                batch = self._outbox.acknowledge(result.sequence, outcome_of(result), now_ns)
                if batch is not None:
                    settled.append(batch)
            self._work.set()
            self._tell(settled)

    async def _broken(self, stream: "_Stream", error: StrataError) -> None:
        passing = isinstance(error, UnavailableError) and not self._closing
        self._give_up(self._outbox.lost(), UnavailableError(error.message, **error.fields))
        if stream.shape is None and passing:
            self._failures += 1
            passing = self._failures <= self._settings.retry
        if not passing:
            self._failures = 0
            self._give_up(self._outbox.take_unsent(), error)
            if not self._opened:
                self._refusal, self._wanted = error, False
                self._changed()
        self._channels.renew(COMMITLOG)
        if self._outbox.has_unsent or self._wanted:
            await asyncio.sleep(self._settings.delay_s(self._failures, self._random))

    def _give_up(self, batches: Sequence[Batch], error: StrataError) -> None:
        for batch in batches:
            tried = batch.attempts > 0 and isinstance(error, UnavailableError)
            self._outbox.give_up(batch, perhaps_stored(error) if tried else error)
        if batches:
            self._tell(batches)

    def _tell(self, units: Sequence[Unit]) -> None:
        for unit in units:
            waiter = self._waiters.pop(unit, None)
            if waiter is not None:
                unit.seen = True
                if not waiter.done():
                    waiter.set_result(None)
            if self._on_result is None:
                if unit.error() is not None and len(self._failed) < _REMEMBERED_FAILURES:
                    self._failed.append(unit)
                continue
            unit.seen = True
            for result in unit.results():
                try:
                    self._on_result(result)
                except Exception:
                    # The stream is shared: one caller's fault must not end it.
                    log.exception("on_result failed")
        self._changed()

    def _changed(self) -> None:
        self._answered.set()
        self._answered = asyncio.Event()

    # --- beside the stream ---

    async def _send_single(
        self, single: Single, operation: operations.Operation[list[SendResult]]
    ) -> None:
        error: StrataError
        try:
            append = self._channels.callable(operation.method)
            response = await append(operation.request, timeout=self._settings.timeout_s)
            (result,) = operation.result(response)
        except asyncio.CancelledError:
            error = perhaps_stored(UnavailableError("the call was cancelled"))
            result = SendResult(SendStatus.UNKNOWN_ERROR, error=error)
        except grpc.RpcError as failure:
            error = stream_error(failure)
            if isinstance(error, UnavailableError):
                error = perhaps_stored(error)
            result = SendResult(SendStatus.UNKNOWN_ERROR, error=error)
        except StrataError as failure:
            result = SendResult(SendStatus.UNKNOWN_ERROR, error=failure)
        self._outbox.end_single(single, result)
        self._tell([single])

    async def _ask(self, topic: str) -> None:
        """Learn the queues of a topic. Without an answer queue 0 takes what has no queue."""
        operation = operations.topics(topic)
        try:
            call = self._channels.callable(operation.method)
            response = await call(operation.request, timeout=self._settings.timeout_s)
        except (grpc.RpcError, UnavailableError):
            return
        self._outbox.learn(operation.result(response))


class _Stream:
    """One connection's state."""

    def __init__(self) -> None:
        self.shape: FrameShape | None = None
