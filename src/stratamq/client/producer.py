"""The synchronous producer: many messages, few batches, one append stream.

Callers add messages under a lock. One thread of ours owns the stream and reads the answers; a
thread of gRPC's pulls batches out of the generator that it was given.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import grpc

from stratamq.client import operations
from stratamq.client.append_stream import opening, outcome_of, request_of, shape_of
from stratamq.client.batching import Chunk, Fields, Outbox, Run, Single, Unit, size_bound
from stratamq.client.delivery import Deliveries, Delivery
from stratamq.client.intake import (
    Intake,
    ProducerSettings,
    check_place,
    perhaps_stored,
)
from stratamq.client.streams import Stream, Streams
from stratamq.client.values import Message, SendResult, SendStatus
from stratamq.errors import StrataError, UnavailableError
from stratamq.files.port import Clock, Random
from stratamq.formats.batch_frames import FrameShape, Row
from stratamq.rpc.endpoints import Channels
from stratamq.rpc.methods import COMMITLOG, METHODS
from stratamq.rpc.stream_errors import stream_error

log = logging.getLogger(__name__)

_NO_PROPERTIES: Mapping[str, str] = {}
_REMEMBERED_FAILURES = 1000
_GOODBYE_S = 5.0
"""How long a closing producer waits for the log to end the stream."""


class _Stream:
    """One connection's state, under the producer's lock."""

    def __init__(self) -> None:
        self.shape: FrameShape | None = None
        self.broken = False


class Producer:
    """Made by `Client.producer`; thread-safe; to be closed, best by `with`.

    `on_result` is called with the result of every message, in the order of the answers, from
    another thread; it may send, and must not wait for an answer. Without it `flush` raises the
    first failure that no delivery has told.
    """

    def __init__(
        self,
        channels: Channels,
        streams: Streams,
        settings: ProducerSettings,
        on_result: Callable[[SendResult], None] | None,
        clock: Clock,
        random: Random,
    ) -> None:
        self._channels = channels
        self._streams = streams
        self._settings = settings
        self._on_result = on_result
        self._clock = clock
        self._random = random
        self._changed = threading.Condition(threading.Lock())
        self._outbox: Outbox = settings.outbox()
        self._intake = Intake(settings, clock, random)
        self._failed: list[Unit] = []
        self._failures = 0  # attempts to open a stream, since one was opened
        self._flushes = 0
        self._closing = False
        self._wanted = False  # a caller waits for the first stream
        self._opened = False  # once: the broker's limits are known
        self._refusal: StrataError | None = None  # why the first stream could not be opened
        self._thread: threading.Thread | None = None
        self._stream: Stream | None = None

    # --- sending ---

    def send(
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
    ) -> Delivery:
        """Give a message up for sending. Waits while too much is unanswered, and at first for the
        connection.

        InvalidRequestError when the message can never be stored, UnavailableError when no
        connection can be made at first. Everything else is in the delivery.
        """
        introduce = self._prepare(topic, queue_id)
        with self._changed:
            row, born_timestamp_ms = self._intake.row(
                body, tag, keys, properties, unique_key, born_timestamp_ms
            )
            fields = (flag, sys_flag, born_timestamp_ms, reconsume_times)
            check_place(topic, queue_id, fields)
            if self._outbox.carries(topic, row):
                delivery = self._add(topic, queue_id, fields, row)
                if introduce:
                    self._introduce(topic, delivery)
                return delivery
        return self.send_message(
            Message(
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
            ),
            alone=True,
        )

    def send_message(self, message: Message, *, alone: bool = False) -> Delivery:
        """The same for a `Message`. Those that do not wait for the disk, and whatever is sent
        `alone`, go by a call of their own beside the stream. InvalidRequestError for delayed and
        half messages."""
        if not (alone or message.alone):
            return self.send(
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
        with self._changed:
            message = self._intake.message(message)
        operation = operations.send([message], require_replicas=self._settings.require_replicas)
        append = self._channels.callable(operation.method)
        with self._changed:
            self._wait_for_room()
            single = self._outbox.begin_single(max(1, len(message.body)))
        call = append.future(operation.request, timeout=self._settings.timeout_s)
        call.add_done_callback(lambda done: self._single_done(single, operation, done))
        return Delivery(self._changed, single)

    def send_all(self, messages: Iterable[Message]) -> list[Delivery]:
        return [self.send_message(message) for message in messages]

    def send_rows(
        self,
        topic: str,
        rows: Iterable[Row],
        *,
        queue_id: int | None = None,
        flag: int = 0,
        sys_flag: int = 0,
        born_timestamp_ms: int = 0,
    ) -> Deliveries[Delivery]:
        """Bodies with properties that are encoded already: the quick way for many. No unique keys
        are made; InvalidRequestError leaves the rows before the bad one given up for sending."""
        introduce = self._prepare(topic, queue_id)
        fields = (flag, sys_flag, born_timestamp_ms or self._clock.wall_ms(), 0)
        check_place(topic, queue_id, fields)
        rows = rows if isinstance(rows, list) else list(rows)
        chunks: list[Chunk] = []
        done = 0
        with self._changed:
            while done < len(rows):
                self._wait_for_room()
                among = rows[:1] if introduce else rows
                now_ns = self._clock.monotonic_ns()
                chunk = self._outbox.add_rows(topic, queue_id, fields, among, done, now_ns)
                chunks.append(chunk)
                done += chunk[3]
                self._changed.notify_all()
                if introduce:
                    introduce = False
                    self._introduce(topic, self._delivery(*chunk[:3]))
        return Deliveries(self._delivery, chunks)

    def _delivery(self, unit: Unit, run: Run, index: int) -> Delivery:
        return Delivery(self._changed, unit, run, index)

    def flush(self, timeout_s: float | None = None) -> None:
        """Return when everything sent so far is answered.

        Raises the first failure that neither a delivery nor `on_result` has told, and
        UnavailableError when `timeout_s` passes.
        """
        with self._changed:
            self._flushes += 1
            self._outbox.flushing = True
            self._changed.notify_all()
            try:
                done = self._changed.wait_for(lambda: self._outbox.idle, timeout_s)
            finally:
                self._flushes -= 1
                self._outbox.flushing = self._flushes > 0
            untold = [unit for unit in self._failed if not unit.seen]
            self._failed.clear()
        if not done:
            raise UnavailableError(
                f"not everything was answered within {timeout_s} s: perhaps stored",
                perhaps_stored=True,
            )
        for unit in untold:
            error = unit.error()
            if error is not None:
                raise error

    def close(self, timeout_s: float | None = None) -> None:
        """Flush, then end the stream. Everything is answered or failed afterwards."""
        with self._changed:
            if self._closing:
                return
        try:
            self.flush(timeout_s)
        finally:
            with self._changed:
                self._closing = True
                self._changed.notify_all()
                thread, open_stream, idle = self._thread, self._stream, self._outbox.idle
            if open_stream is not None and not idle:
                _end(open_stream)
            # An interrupt can have come before the thread was started.
            if thread is not None and thread.is_alive():
                thread.join(_GOODBYE_S)
                if thread.is_alive() and open_stream is not None:
                    _end(open_stream)

    def __enter__(self) -> "Producer":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- under the lock ---

    def _add(self, topic: str, queue_id: int | None, fields: Fields, row: Row) -> Delivery:
        self._wait_for_room()
        outbox = self._outbox
        size = size_bound(topic, row)
        batch, run, index = outbox.add(
            topic, queue_id, fields, row, size, self._clock.monotonic_ns()
        )
        if batch.count == 1 or not outbox.is_open(batch):
            self._changed.notify_all()
        return Delivery(self._changed, batch, run, index)

    def _wait_for_room(self) -> None:
        while self._outbox.pending_bytes >= self._settings.max_pending_bytes:
            # A callback that sends must not wait for the thread that it runs on.
            if self._closing or threading.current_thread() is self._thread:
                break
            self._changed.wait()
        if self._closing:
            raise UnavailableError("the producer is closed", perhaps_stored=False)

    # --- the stream's thread ---

    def _run(self) -> None:
        while self._wait_for_work():
            stream = _Stream()
            try:
                self._exchange(stream)
                error: StrataError = UnavailableError("the log service ended the append stream")
            except StrataError as failure:
                error = failure
            self._broken(stream, error)

    def _wait_for_work(self) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._outbox.has_unsent or self._wanted or self._closing)
            return self._outbox.has_unsent or not self._closing

    def _exchange(self, stream: _Stream) -> None:
        """One stream from its opening to its end."""
        self._stream = opened = self._streams.open(METHODS["AppendStream"], self._requests(stream))
        try:
            for response in opened:
                settled = []
                if response.HasField("opened"):
                    with self._changed:
                        stream.shape = shape_of(response.opened)
                        self._outbox.limit(
                            response.opened.max_batch_bytes, response.opened.max_batch_messages
                        )
                        self._opened, self._wanted, self._failures = True, False, 0
                        self._changed.notify_all()
                if response.results:
                    outcomes = [(one.sequence, outcome_of(one)) for one in response.results]
                    with self._changed:
                        now_ns = self._clock.monotonic_ns()
                        for sequence, outcome in outcomes:
                            batch = self._outbox.acknowledge(sequence, outcome, now_ns)
                            if batch is not None:
                                settled.append(batch)
                        self._changed.notify_all()
                    self._tell(settled)
        finally:
            with self._changed:
                stream.broken = True
                self._changed.notify_all()
            opened.end()

    def _requests(self, stream: _Stream) -> Iterator[bytes]:
        yield opening(self._settings.client_name, self._settings.require_replicas)
        outbox = self._outbox
        while True:
            with self._changed:
                while True:
                    if stream.broken:
                        return
                    now_ns = self._clock.monotonic_ns()
                    shape = stream.shape
                    batch = outbox.next_batch(now_ns) if shape else None
                    if shape and batch:
                        break
                    if self._closing and not outbox.has_unsent:
                        return
                    due_ns = outbox.due_in_ns(now_ns) if shape else None
                    self._changed.wait(None if due_ns is None else due_ns / 1e9)
            try:
                request = request_of(batch, shape)
            except StrataError as error:  # this batch alone cannot be sent
                with self._changed:
                    outbox.withdraw(batch)
                    outbox.give_up(batch, error)
                    self._changed.notify_all()
                self._tell([batch])
                continue
            yield request

    def _broken(self, stream: _Stream, error: StrataError) -> None:
        with self._changed:
            spent = self._outbox.lost()
            unsent = []
            passing = isinstance(error, UnavailableError) and not self._closing
            if stream.shape is None and passing:
                self._failures += 1
                passing = self._failures <= self._settings.retry
            if not passing:
                self._failures = 0
                unsent = self._outbox.take_unsent()
                if not self._opened:
                    self._refusal, self._wanted = error, False
            for batch in spent:
                self._outbox.give_up(batch, perhaps_stored(error))
            for batch in unsent:
                tried = batch.attempts > 0
                self._outbox.give_up(batch, perhaps_stored(error) if tried else error)
            failures = self._failures
            self._changed.notify_all()
        self._tell([*spent, *unsent])
        self._channels.renew(COMMITLOG)
        with self._changed:
            if self._outbox.has_unsent or self._wanted:
                self._changed.wait_for(
                    lambda: self._closing, self._settings.delay_s(failures, self._random)
                )

    def _tell(self, units: Sequence[Unit]) -> None:
        for unit in units:
            if self._on_result is None:
                if unit.error() is not None:
                    with self._changed:
                        if len(self._failed) < _REMEMBERED_FAILURES:
                            self._failed.append(unit)
                continue
            unit.seen = True
            for result in unit.results():
                try:
                    self._on_result(result)
                except Exception:
                    # The stream is shared: one caller's fault must not end it.
                    log.exception("on_result failed")

    # --- beside the stream ---

    def _single_done(
        self, single: Single, operation: operations.Operation[list[SendResult]], call: Any
    ) -> None:
        """On a thread of gRPC's."""
        try:
            (result,) = operation.result(call.result())
        except grpc.FutureCancelledError:
            error = perhaps_stored(UnavailableError("the call was cancelled"))
            result = SendResult(SendStatus.UNKNOWN_ERROR, error=error)
        except grpc.RpcError as failure:
            error = stream_error(failure)
            if isinstance(error, UnavailableError):
                error = perhaps_stored(error)
            result = SendResult(SendStatus.UNKNOWN_ERROR, error=error)
        with self._changed:
            self._outbox.end_single(single, result)
            self._changed.notify_all()
        self._tell([single])

    def _prepare(self, topic: str, queue_id: int | None) -> bool:
        """Before a message is added: a stream has been opened once, the topic has been asked
        about. True when the broker does not have the topic yet."""
        if not self._opened:
            with self._changed:
                if self._thread is None:
                    self._thread = threading.Thread(
                        target=self._run, name="stratamq-producer", daemon=True
                    )
                    self._thread.start()
                self._refusal = None
                self._wanted = True
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._opened or self._refusal or self._closing)
                if self._refusal is not None:
                    raise self._refusal
        if queue_id is not None or topic in self._outbox.queue_counts:
            return False
        self._ask(topic)
        # A callback that sends must not wait for the thread that it runs on.
        waits = threading.current_thread() is not self._thread
        return waits and topic not in self._outbox.queue_counts

    def _introduce(self, topic: str, delivery: Delivery) -> None:
        """Wait for the message that makes a topic, under the lock, and learn its queues: or all
        that follow would pile up in its first queue."""
        self._flushes += 1
        self._outbox.flushing = True
        self._changed.notify_all()
        self._changed.wait_for(lambda: delivery.done)
        self._flushes -= 1
        self._outbox.flushing = self._flushes > 0
        self._changed.release()
        try:
            self._ask(topic)
        finally:
            self._changed.acquire()

    def _ask(self, topic: str) -> None:
        """Learn the queues of a topic. Without an answer queue 0 takes what has no queue."""
        operation = operations.topics(topic)
        try:
            call = self._channels.callable(operation.method)
            topics = operation.result(call(operation.request, timeout=self._settings.timeout_s))
        except (grpc.RpcError, UnavailableError):
            return
        with self._changed:
            self._outbox.learn(topics)


def _end(stream: Stream) -> None:
    """From a thread of its own: after an interrupt gRPC has been seen to wait for ever for the
    call's lock, and whoever closes a producer wants to go."""
    threading.Thread(target=stream.end, name="stratamq-end", daemon=True).start()
