"""The producer: callers add messages to an outbox, and wait; an append stream empties it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import grpc

from stratamq.client import forks, operations
from stratamq.client._async.append_stream import AsyncAppendStream
from stratamq.client._async.delivery import AsyncDelivery
from stratamq.client.batching import size_bound
from stratamq.client.checking import checked_call
from stratamq.client.connections import AsyncConnections
from stratamq.client.deliveries import Deliveries
from stratamq.client.hooks import Hooks
from stratamq.client.intake import Intake, ProducerSettings, check_body, check_place
from stratamq.client.operations import Operation
from stratamq.client.ordering import ordered_place
from stratamq.client.primitives import AsyncGuard
from stratamq.client.spans import unary
from stratamq.client.units import Batch, Chunk, Run, Single, Unit, perhaps_stored
from stratamq.client.values import Message, SendResult
from stratamq.errors import StrataError, UnavailableError
from stratamq.files.port import Clock, Random
from stratamq.formats.batch_frames import Row
from stratamq.formats.message_status import SendStatus
from stratamq.rpc.backoff import Backoff
from stratamq.rpc.request_ids import within

_NO_PROPERTIES: Mapping[str, str] = {}


class AsyncProducer:
    """Made by `AsyncClient.producer`; of one event loop; to be closed, best by `async with`.
    What one that was not closed has not stored when its event loop or the interpreter ends is an
    error in the log `stratamq.client.exits`, with the number of messages, and a ResourceWarning.

    `on_result` is called with the result of every message, in the order of the answers; it must
    not wait for an answer. Without it `flush` raises the first failure that no delivery has given
    to its caller.
    """

    def __init__(
        self,
        connections: AsyncConnections,
        settings: ProducerSettings,
        hooks: Hooks,
        on_result: Callable[[SendResult], None] | None,
        clock: Clock,
        random: Random,
        retry_timeout_s: float = 0.0,
        on_interruption: Callable[[StrataError | None], None] | None = None,
    ) -> None:
        """`retry_timeout_s`: how long the first connection is tried for."""
        forks.watch(self)
        self._connections = connections
        self._settings = settings
        self._clock = clock
        self._hooks = hooks
        self._changes_sent = hooks.change_sent
        self._spans = hooks.spans
        self._intake = Intake(settings, clock, random)
        self._outbox = settings.outbox(random)
        self._guard = AsyncGuard()
        """Of the outbox and of the stream's state."""
        self._stream = AsyncAppendStream(
            connections, settings, self._outbox, self._guard, on_result, clock, random,
            Backoff(retry_timeout_s, clock, random), on_interruption, hooks.spans,
        )  # fmt: skip
        self._work = self._stream.work
        self._answered = self._stream.answered
        self._waiters = self._stream.waiters

    # --- sending ---

    async def send(
        self,
        topic: str,
        body: Any,
        *,
        tag: str = "",
        keys: Sequence[str] = (),
        properties: Mapping[str, str] = _NO_PROPERTIES,
        queue_id: int | None = None,
        ordering_key: str | None = None,
        unique_key: str | None = None,
        flag: int = 0,
        sys_flag: int = 0,
        born_timestamp_ms: int = 0,
        reconsume_times: int = 0,
    ) -> AsyncDelivery:
        """Give a message up for sending. Waits while too much is unanswered, and at first for the
        connection; the delivery waits for the answer. `body` is bytes, or what the client's
        serializer takes. Messages of one `ordering_key` go to one queue, in order; it is stored as
        their first key.

        InvalidRequestError when the message can never be stored, UnavailableError when no
        connection can be made at first. Everything else is in the delivery.
        """
        if self._changes_sent or type(body) is not bytes:
            body, properties = self._hooks.outgoing(topic, body, properties)
        if ordering_key is not None:
            queue_id, keys = await self._ordered(topic, ordering_key, queue_id, keys)
        outbox = self._outbox
        introduce = False
        if not self._stream.opened or (queue_id is None and topic not in outbox.queue_counts):
            introduce = await self._prepare(topic, queue_id)
        with self._guard:
            check_body(len(body), self._stream.largest_body_bytes)
            row, born_timestamp_ms = self._intake.row(
                body, tag, keys, properties, unique_key, born_timestamp_ms
            )
            fields = (flag, sys_flag, born_timestamp_ms, reconsume_times)
            check_place(topic, queue_id, fields)
            carried = outbox.carries(topic, size := size_bound(topic, row))
            if carried:
                if outbox.pending_bytes >= self._settings.max_pending_bytes or self._stream.closing:
                    await self._wait_for_room()
                now_ns = self._clock.monotonic_ns()
                batch, run, index = outbox.add(topic, queue_id, fields, row, size, now_ns)
                if properties and self._spans is not None:
                    batch.link(properties)
                sealed = not outbox.is_open(batch)
                if sealed or batch.count == 1:
                    self._work.notify_all()
        if not carried:
            place = (topic, body, tag, keys, properties, queue_id, unique_key)
            message = Message(*place, *fields[:3], reconsume_times=reconsume_times)
            return await self._send_alone(message)
        if introduce:
            await self._introduce(topic, batch)
        elif sealed:  # a caller that never waits must not keep the generator waiting
            await self._work.give_turn()
        return AsyncDelivery(self._waiters, batch, run, index)

    @checked_call
    async def send_message(
        self, message: Message, *, alone: bool = False, ordering_key: str | None = None
    ) -> AsyncDelivery:
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
                ordering_key=ordering_key,
                unique_key=message.unique_key,
                flag=message.flag,
                sys_flag=message.sys_flag,
                born_timestamp_ms=message.born_timestamp_ms,
                reconsume_times=message.reconsume_times,
            )
        body, properties = self._hooks.outgoing(message.topic, message.body, message.properties)
        return await self._send_alone(replace(message, body=body, properties=properties))

    async def _send_alone(self, message: Message) -> AsyncDelivery:
        with self._guard:
            message = self._intake.message(message)
        operation = operations.send([message], require_replicas=self._settings.require_replicas)
        call = await self._connections.callable(operation.method)  # or UnavailableError
        with self._guard:
            await self._wait_for_room()
            single = self._outbox.begin_single(max(1, len(message.body)))
        if self._spans is not None:
            single.span = self._spans.begin(unary(operation.method, operation.request))
        with nullcontext() if single.span is None else within(single.span.request):
            self._connections.start(
                call,
                operation.request,
                self._settings.timeout_s,
                lambda answer, error: self._single_done(single, operation, answer, error),
            )
        return AsyncDelivery(self._waiters, single)

    async def largest_body_bytes(self) -> int:
        """That the broker takes. Waits for the connection at first; UnavailableError when none can
        be made."""
        if not self._stream.opened:
            await self._stream.open()
        return self._stream.largest_body_bytes

    @checked_call
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
        outbox = self._outbox
        introduce = False
        if not self._stream.opened or (queue_id is None and topic not in outbox.queue_counts):
            introduce = await self._prepare(topic, queue_id)
        fields = (flag, sys_flag, born_timestamp_ms or self._clock.wall_ms(), 0)
        check_place(topic, queue_id, fields)
        rows = rows if isinstance(rows, list) else list(rows)
        chunks: list[Chunk] = []
        done = 0
        while done < len(rows):
            with self._guard:
                if outbox.pending_bytes >= self._settings.max_pending_bytes or self._stream.closing:
                    await self._wait_for_room()
                among = rows[:1] if introduce else rows
                now_ns = self._clock.monotonic_ns()
                chunk = outbox.add_rows(topic, queue_id, fields, among, done, now_ns)
                batch, _, _, added = chunk
                sealed = not outbox.is_open(batch)
                if sealed or batch.count == added:
                    self._work.notify_all()
            chunks.append(chunk)
            done += added
            if introduce:
                introduce = False
                await self._introduce(topic, batch)
            elif sealed:
                await self._work.give_turn()
        return Deliveries(self._delivery, chunks)

    def _delivery(self, unit: Unit, run: Run, index: int) -> AsyncDelivery:
        return AsyncDelivery(self._waiters, unit, run, index)

    @checked_call
    async def flush(self, timeout_s: float | None = None) -> None:
        """Return when everything sent so far is answered, and `on_result` has been called.

        Raises the first failure that neither a delivery nor `on_result` has given to its caller,
        and UnavailableError when `timeout_s` passes.
        """
        with self._guard:
            done = await self._stream.flushed(self._stream.idle, timeout_s)
            untold = self._stream.take_failed() if done else []
        if not done:
            raise UnavailableError(
                f"not everything was answered within {timeout_s} s: perhaps stored",
                perhaps_stored=True,
            )
        for unit in untold:
            error = unit.error()
            if error is not None:
                raise error

    @checked_call
    async def close(self, timeout_s: float | None = None) -> None:
        """Flush, then end the stream. Everything is answered or failed afterwards."""
        if self._stream.closing:
            return
        try:
            await self.flush(timeout_s)
        finally:
            await self._stream.close()

    async def __aenter__(self) -> "AsyncProducer":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # --- waiting, under the guard ---

    async def _wait_for_room(self) -> None:
        stream, most = self._stream, self._settings.max_pending_bytes
        while self._outbox.pending_bytes >= most and not stream.closing:
            if stream.in_callback():
                break
            await self._answered.wait()
        if stream.closing:
            raise UnavailableError("the producer is closed", perhaps_stored=False)

    # --- a topic's first message ---

    async def _prepare(self, topic: str, queue_id: int | None) -> bool:
        """Before a message is added: a stream has been opened once, the broker has been asked
        about the topic. True when the topic is new, and its first message is to be waited for."""
        if not self._stream.opened:
            await self._stream.open()
        if queue_id is not None or topic in self._outbox.queue_counts:
            return False
        await self._ask(topic)
        return topic not in self._outbox.queue_counts and not self._stream.in_callback()

    async def _ordered(
        self, topic: str, key: str, queue_id: int | None, keys: Sequence[str]
    ) -> tuple[int, Sequence[str]]:
        counts = self._outbox.queue_counts
        if topic not in counts:
            await self._prepare(topic, None)
        return ordered_place(topic, key, queue_id, keys, counts)

    async def _introduce(self, topic: str, batch: Batch) -> None:
        """Wait for the message that makes a topic, and learn its queues: or all that follow would
        pile up in its first queue."""
        with self._guard:
            await self._stream.flushed(lambda: batch.settled, None)
        await self._ask(topic)

    async def _ask(self, topic: str) -> None:
        """Learn the queues of a topic. Without an answer queue 0 takes what has no queue."""
        operation = operations.topics(topic)
        try:
            call = await self._connections.callable(operation.method)
            answer = await call(operation.request, timeout=self._settings.timeout_s)
        except (grpc.RpcError, UnavailableError):
            return
        with self._guard:
            self._outbox.learn(operation.result(answer))

    # --- beside the stream ---

    def _single_done(
        self,
        single: Single,
        operation: Operation[list[SendResult]],
        answer: Any,
        error: StrataError | None,
    ) -> None:
        try:
            if error is not None:
                raise perhaps_stored(error) if isinstance(error, UnavailableError) else error
            (result,) = operation.result(answer)
        except StrataError as failure:
            result = SendResult(SendStatus.UNKNOWN_ERROR, error=failure)
        with self._guard:
            self._outbox.end_single(single, result)
            self._stream.settle([single])
        self._stream.report([single])
