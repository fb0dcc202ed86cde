"""Messages that a client sends without a producer: a single one over one append stream that all
share, those that wait at the same moment in one batch; others by a call of their own, numbered, and
sent again after a lost answer."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from stratamq.client import operations
from stratamq.client._async.append_stream import AsyncAppendStream
from stratamq.client.append_messages import behind_unanswered, is_beyond_window, refused
from stratamq.client.batching import LARGEST_BATCH_BYTES, Batching, Outbox, size_bound
from stratamq.client.client_settings import ClientSettings
from stratamq.client.connections import AsyncConnections
from stratamq.client.intake import (
    LARGEST_BATCH_MESSAGES,
    MessageIntake,
    ProducerSettings,
    check_place,
)
from stratamq.client.numbering import LogPlace, Numbering, SendNumbers
from stratamq.client.operations import AsyncRunOperation, Operation
from stratamq.client.primitives import AsyncEvent, AsyncGuard
from stratamq.client.units import Batch, BatchRun, Fields, perhaps_stored
from stratamq.client.values import Message, SendResult
from stratamq.errors import UnavailableError
from stratamq.formats.batch_frames import Row
from stratamq.formats.message_status import SendStatus
from stratamq.formats.sysflag import TAKEN_FLAGS
from stratamq.rpc.backoff import FIRST_DELAY_S
from stratamq.rpc.status import never_sent

_WINDOW = 16
"""Batches in flight."""
_FEW_MESSAGES, _LINGER_NS = 8, 5_000_000
"""While fewer messages than that are in flight the next ones leave at once: a few callers do not
wait for each other. Behind more they leave together, when an answer comes or after this time."""
_FRESH_NS = 1_000_000_000
"""A place of the log that is older is asked for again. A fresh one is more likely to lie in the
log's window when an answer is lost."""


class AsyncSharedStream:
    """One client's stream, opened at the first message. An answer is waited for, and what was lost
    is sent again, for the client's `timeout_s`; a connection is tried for its `retry_timeout_s`."""

    def __init__(
        self, connections: AsyncConnections, shared: ClientSettings, elsewhere: Callable[[], bool]
    ) -> None:
        """`elsewhere`: see `AsyncSending`."""
        self._connections = connections
        self._clock = shared.clock
        self._limit_s = 2 * shared.timeout_s
        self._records = shared.hooks.spans is not None
        self._guard = AsyncGuard()
        settings = ProducerSettings(retry_delay_ms=FIRST_DELAY_S * 1000)
        self._intake = MessageIntake(settings, shared.clock, shared.random)
        batching = Batching(
            LARGEST_BATCH_BYTES,
            LARGEST_BATCH_MESSAGES,
            _WINDOW,
            _LINGER_NS,
            linger_behind=_FEW_MESSAGES,
            delivery_ns=int(shared.timeout_s * 1e9),
            unreached_ns=int(shared.retry_timeout_s * 1e9),
            single_sends=True,
        )
        self._outbox = Outbox(batching, Numbering(shared.random))
        self._stream = AsyncAppendStream(
            connections, settings, shared, self._outbox, self._guard, elsewhere=elsewhere
        )

    async def send(self, message: Message) -> SendResult | None:
        """The message's outcome. None, and nothing is sent: it is to go by a call of its own.

        UnavailableError when no connection can be made, or without an answer in time: perhaps
        stored. InvalidRequestError for what no log would take.
        """
        await self.open()
        stream, outbox = self._stream, self._outbox
        topic, body = message.topic, message.body
        with self._guard:
            row, born_timestamp_ms = self._intake.row(
                body, message.tag, message.keys, message.properties, message.unique_key,
                message.born_timestamp_ms,
            )  # fmt: skip
            sys_flag = message.sys_flag & TAKEN_FLAGS
            fields = (message.flag, sys_flag, born_timestamp_ms, message.reconsume_times)
            check_place(topic, message.queue_id, fields)
            size = size_bound(topic, row)
            fits = outbox.carries(topic, size) and len(body) <= stream.largest_body_bytes
            if not (fits and stream.store_host):
                return None
            if stream.closing:
                raise UnavailableError("the client was closed", perhaps_stored=False)
            now_ns = self._clock.monotonic_ns()
            batch, run, index = outbox.add(topic, message.queue_id, fields, row, size, now_ns)
            if batch.count == 1 or not outbox.is_open(batch):
                stream.work.notify_all()
            settled = stream.waiters.event_of(batch)
        return await self._result(settled, batch, run, index)

    async def open(self) -> None:
        """Wait until it can be sent on; raises why it cannot."""
        self._connections.require_open()
        if not self._stream.opened:
            await self._stream.open()

    @property
    def takes_rows(self) -> bool:
        """Whether `add_rows` may take any."""
        stream = self._stream
        return bool(stream.opened and stream.store_host and not (stream.closing or self._records))

    def add_rows(
        self, topic: str, queue_id: int | None, fields: Fields, rows: list[Row]
    ) -> tuple[Batch, BatchRun, int] | None:
        """Where rows went, for a caller that waits with `settled`. Several are stored together or
        not at all. None, and nothing is sent: they are to go by `AsyncClient.send_all`.

        InvalidRequestError for what no log would take.
        """
        check_place(topic, queue_id, fields)
        if len(rows) == 1:
            return self.add_row(topic, queue_id, fields, rows[0])
        stream, outbox = self._stream, self._outbox
        size = len(rows) * size_bound(topic, (b"", b""))
        size += sum([len(body) + len(properties) for body, properties in rows])
        with self._guard:
            fits = outbox.carries(topic, size) and len(rows) <= outbox.most_messages
            largest = max([len(body) for body, _ in rows])
            if not (self.takes_rows and fits and largest <= stream.largest_body_bytes):
                return None
            now_ns = self._clock.monotonic_ns()
            place = outbox.add_whole(topic, queue_id, fields, rows, size, now_ns)
            stream.work.notify_all()
            return place

    def add_row(
        self, topic: str, queue_id: int | None, fields: Fields, row: Row
    ) -> tuple[Batch, BatchRun, int] | None:
        """`add_rows` of a single one, whose place is known to fit a frame (`check_place`)."""
        stream, outbox = self._stream, self._outbox
        size = size_bound(topic, row)
        with self._guard:
            fits = outbox.carries(topic, size) and len(row[0]) <= stream.largest_body_bytes
            if not (self.takes_rows and fits):
                return None
            place = outbox.add(topic, queue_id, fields, row, size, self._clock.monotonic_ns())
            if place[0].count == 1 or not outbox.is_open(place[0]):
                stream.work.notify_all()
            return place

    async def settled(self, batch: Batch) -> None:
        """Wait for the batch's outcome. UnavailableError without an answer in time: perhaps
        stored."""
        if not await self._stream.waiters.wait(batch, self._limit_s):
            raise self._no_answer()

    def _no_answer(self) -> UnavailableError:
        return UnavailableError(
            f"no answer within {self._limit_s:g} s: perhaps stored", perhaps_stored=True
        )

    async def _result(
        self, settled: AsyncEvent, batch: Batch, run: BatchRun, index: int
    ) -> SendResult:
        """`settled`: the batch's event."""
        if not await settled.wait(self._limit_s):
            raise self._no_answer()
        result = batch.result_of(run, index, with_id=True)
        if result.status is SendStatus.UNKNOWN_ERROR:  # the log has not answered
            result.check()
        return result

    async def close(self) -> None:
        """What is not answered fails: perhaps stored."""
        await self._stream.close(at_once=True)


class AsyncSending:
    """Send single messages of one client. From the first lost answer on they are sent again for
    `timeout_s`."""

    def __init__(
        self,
        run: AsyncRunOperation,
        connections: AsyncConnections,
        settings: ClientSettings,
        elsewhere: Callable[[], bool],
    ) -> None:
        """`elsewhere`: whether the caller has other clusters, so that what was never sent, or was
        refused for want of a master, is an error at once."""
        self._run = run
        self._leads = connections.leads
        self._elsewhere = elsewhere
        self._closed = connections.closed
        self._settings = settings
        self._clock = settings.clock
        self._hooks = settings.hooks
        self._changes_sent = settings.hooks.change_sent
        self._intake = MessageIntake(ProducerSettings(), settings.clock, settings.random)
        self.shared = AsyncSharedStream(connections, settings, elsewhere)
        self._guard = AsyncGuard()
        self._numbering = Numbering(settings.random)
        self._place: LogPlace | None = None
        self._place_ns = 0

    async def send_one(self, message: Message, require_replicas: bool) -> SendResult:
        """Over the shared stream, or, where that cannot be, by a call."""
        message = self._hooked(message)
        recorded = self._hooks.spans is not None  # one trace, from the caller down to the flush
        if not (require_replicas or message.alone or recorded):
            result = await self.shared.send(message)
            if result is not None:
                return result
        return (await self._call([message], False, require_replicas))[0]

    async def send_all(
        self, messages: Sequence[Message], all_or_nothing: bool, require_replicas: bool
    ) -> list[SendResult]:
        """By one call."""
        messages = [self._hooked(message) for message in messages]
        return await self._call(messages, all_or_nothing, require_replicas)

    async def close(self) -> None:
        await self.shared.close()

    def _hooked(self, message: Message) -> Message:
        if not self._changes_sent and type(message.body) is bytes:
            return message
        body, properties = self._hooks.outgoing(message.topic, message.body, message.properties)
        return replace(message, body=body, properties=properties)

    async def _call(
        self, messages: list[Message], all_or_nothing: bool, require_replicas: bool
    ) -> list[SendResult]:
        with self._guard:
            messages = [self._intake.message(message) for message in messages]
        operation = operations.send(messages, all_or_nothing, require_replicas)
        return await self._send(operation, len(messages))

    async def _send(self, operation: Operation[list[SendResult]], count: int) -> list[SendResult]:
        """The outcomes of `count` messages. UnavailableError with `perhaps_stored` when the last
        answer was lost, and without it when nothing was sent."""
        numbers: SendNumbers | None = None
        backoff = self._settings.backoff(self._settings.timeout_s)
        unanswered = False
        while True:
            numbers = await self._numbers(count, numbers, unanswered)
            if numbers is not None:
                operations.number(operation, numbers)
            try:
                results = await self._run(operation)
            except UnavailableError as error:
                if self._elsewhere() and never_sent(error) and not unanswered:
                    raise
                delay_s = backoff.next_delay_s() if numbers is not None else None
                if delay_s is None or await self._closed.wait(delay_s):
                    raise perhaps_stored(error, "no answer") from error
                unanswered = True
                continue
            # Until the cluster has a master.
            if not self._elsewhere() and self._leads(refused(results)):
                delay_s = backoff.next_delay_s()
                if delay_s is not None and not await self._closed.wait(delay_s):
                    continue
            if unanswered:
                return [behind_unanswered(result) for result in results]
            if any(is_beyond_window(result) for result in results):
                delay_s = backoff.next_delay_s()  # this attempt was overtaken on its way
                if delay_s is not None:
                    continue
            self._heard(results)
            return results

    async def _numbers(
        self, count: int, known: SendNumbers | None, unanswered: bool
    ) -> SendNumbers | None:
        """Return the numbers of the next attempt. None: the log does not recognise what is sent
        again, so that this attempt is the only one."""
        if known is not None and unanswered:
            return known
        now_ns = self._clock.monotonic_ns()
        if known is not None or self._place is None or now_ns - self._place_ns > _FRESH_NS:
            place = await self._run(operations.log_place())
            with self._guard:
                self._place, self._place_ns = place, now_ns
        with self._guard:
            if self._place is None:
                return None
            if known is not None:
                return replace(known, sent_from=self._place)
            producer = self._numbering.producer
            return SendNumbers(producer, self._numbering.take(count), self._place)

    def _heard(self, results: Sequence[SendResult]) -> None:
        with self._guard:
            if self._place is not None and results:
                furthest = max(result.physical_offset for result in results)
                self._place = self._place.reached(furthest)
                self._place_ns = self._clock.monotonic_ns()
