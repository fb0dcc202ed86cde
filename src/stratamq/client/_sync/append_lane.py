# Generated from _async/append_lane.py by scripts/gen_sync_client.py (`make client`).
"""One broker's part of a producer: what waits to be sent there, and the stream that takes it."""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import grpc

from stratamq.client import operations
from stratamq.client._sync.append_stream import AppendStream
from stratamq.client._sync.brokers import Broker
from stratamq.client._sync.delivery import Delivery
from stratamq.client.client_settings import ClientSettings
from stratamq.client.intake import ProducerSettings
from stratamq.client.operations import Operation
from stratamq.client.primitives import Guard
from stratamq.client.spans import unary
from stratamq.client.units import Batch, BatchRun, SendingUnit, Single, perhaps_stored
from stratamq.client.values import Message, SendResult
from stratamq.errors import StrataError, UnavailableError
from stratamq.formats.message_status import SendStatus
from stratamq.rpc.request_ids import within


class AppendLane:
    """`guard` is the producer's, and guards the outbox and the stream's state."""

    def __init__(
        self,
        broker: Broker,
        settings: ProducerSettings,
        shared: ClientSettings,
        guard: Guard,
        on_result: Callable[[SendResult], None] | None,
        on_interruption: Callable[[StrataError | None], None] | None,
    ) -> None:
        self.broker = broker
        self.outbox = settings.outbox(shared.random)
        self.stream = AppendStream(
            broker.connections, settings, shared, self.outbox, guard, on_result, on_interruption,
            broker=broker.name,
        )  # fmt: skip
        self.work = self.stream.work
        self.waiters = self.stream.waiters
        self._connections = broker.connections
        self._settings = settings
        self._spans = shared.hooks.spans
        self._guard = guard

    def delivery(self, unit: SendingUnit, run: BatchRun, index: int) -> Delivery:
        return Delivery(self.waiters, unit, run, index)

    # --- waiting, under the guard ---

    def wait_for_room(self) -> None:
        stream, most = self.stream, self._settings.max_pending_bytes
        while self.outbox.pending_bytes >= most and not stream.closing:
            if stream.in_callback():
                break
            stream.answered.wait()
        if stream.closing:
            raise UnavailableError("the producer is closed", perhaps_stored=False)

    # --- a topic's first message ---

    def prepare(self, topic: str, queue_id: int | None) -> bool:
        """Before a message is added: a stream has been opened once, the broker has been asked
        about the topic. True when the topic is new, and its first message is to be waited for."""
        if not self.stream.opened:
            self.stream.open()
        if queue_id is not None or topic in self.outbox.queue_counts:
            return False
        self._ask(topic)
        return topic not in self.outbox.queue_counts and not self.stream.in_callback()

    def introduce(self, topic: str, batch: Batch) -> None:
        """Wait for the message that makes a topic, and learn its queues: or all that follow would
        pile up in its first queue."""
        with self._guard:
            self.stream.flushed(lambda: batch.settled, None)
        self._ask(topic)

    def _ask(self, topic: str) -> None:
        """Learn the queues of a topic. Without an answer queue 0 takes what has no queue."""
        operation = operations.topics(topic)
        try:
            call = self._connections.callable(operation.method)
            answer = call(operation.request, timeout=self._settings.timeout_s)
        except (grpc.RpcError, UnavailableError):
            return
        with self._guard:
            self.outbox.learn(operation.result(answer))

    # --- beside the stream ---

    def send_alone(self, message: Message) -> Delivery:
        """By a call of its own."""
        return Delivery(self.waiters, self._begin_alone(message))

    def send_in_turn(self, message: Message) -> Delivery:
        """By a call of its own, behind all that was queued before and before what its caller queues
        next: all of that is waited for, and so is the call. In `on_result` nothing can be."""
        stream = self.stream
        if stream.in_callback():
            return self.send_alone(message)
        with self._guard:
            before = self.outbox.unsettled()
            stream.flushed(lambda: all(one.settled for one in before), None)
        single = self._begin_alone(message)
        self.waiters.wait(single, None)
        return Delivery(self.waiters, single)

    def _begin_alone(self, message: Message) -> Single:
        operation = operations.send([message], require_replicas=self._settings.require_replicas)
        call = self._connections.callable(operation.method)  # or UnavailableError
        with self._guard:
            self.wait_for_room()
            single = self.outbox.begin_single(max(1, len(message.body)))
        if self._spans is not None:
            single.span = self._spans.begin(unary(operation.method, operation.request))
        with nullcontext() if single.span is None else within(single.span.request):
            self._connections.start(
                call,
                operation.request,
                self._settings.timeout_s,
                lambda answer, error: self._single_done(single, operation, answer, error),
            )
        return single

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
            self.outbox.end_single(single, result)
            self.stream.settle([single])
        self.stream.report([single])

    # --- the end ---

    def flush(self, timeout_s: float | None) -> None:
        """See `Producer.flush`."""
        with self._guard:
            done = self.stream.flushed(self.stream.idle, timeout_s)
            untold = self.stream.take_failures() if done else []
        if not done:
            raise UnavailableError(
                f"not everything was answered within {timeout_s} s: perhaps stored",
                perhaps_stored=True,
            )
        if untold:
            raise untold[0]

    def close(self, timeout_s: float | None) -> None:
        """See `Producer.close`."""
        if self.stream.closing:
            return
        try:
            self.flush(timeout_s)
        finally:
            self.stream.close()
