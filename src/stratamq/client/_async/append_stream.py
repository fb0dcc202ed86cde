"""The append stream of a producer: one worker opens it, reads its answers, and opens the next.

gRPC takes the batches out of the generator that it was given, in a task of its own.
"""

import logging
from collections.abc import AsyncIterator, Callable, Sequence

from stratamq.client import exits
from stratamq.client._async.delivery import AsyncWaiters
from stratamq.client.append_messages import Exchange, opening, outcome_of, place_of, request_of
from stratamq.client.batching import Outbox
from stratamq.client.checking import Callback, Interruption
from stratamq.client.client_settings import ClientSettings
from stratamq.client.connections import AsyncConnections, AsyncStream
from stratamq.client.intake import ProducerSettings
from stratamq.client.primitives import AsyncBackground, AsyncCondition, AsyncEvent, AsyncGuard
from stratamq.client.units import Batch, BatchOutcome, SendingUnit, perhaps_stored
from stratamq.client.values import SendResult
from stratamq.errors import InvalidRequestError, StrataError, UnavailableError
from stratamq.formats.batch_frames import FrameShape
from stratamq.formats.message_status import SendStatus
from stratamq.formats.numbers import INT32_MAX
from stratamq.rpc.appending import shape_of
from stratamq.rpc.methods import METHODS
from stratamq.rpc.rooms import COMMITLOG

log = logging.getLogger(__name__)

_REMEMBERED_FAILURES = 1000
_UNCONFIRMED = (SendStatus.FLUSH_SLAVE_TIMEOUT, SendStatus.SLAVE_NOT_AVAILABLE)
_UNCONFIRMED_LOOK_NS = 5_000_000_000
"""How often a client whose messages reach no slave looks for another master."""
_GOODBYE_S = 5.0
"""How long a closing producer waits for the log to end the stream."""


class AsyncAppendStream:
    """Sends what is in an outbox, and settles it. `guard` guards the outbox, and every attribute
    here."""

    def __init__(
        self,
        connections: AsyncConnections,
        settings: ProducerSettings,
        shared: ClientSettings,
        outbox: Outbox,
        guard: AsyncGuard,
        on_result: Callable[[SendResult], None] | None = None,
        on_interruption: Callable[[StrataError | None], None] | None = None,
        elsewhere: Callable[[], bool] = lambda: False,
        broker: str = "",
    ) -> None:
        """The first stream is tried for `retry_timeout_s`. One that brings no answer for
        `timeout_s` is ended. `on_interruption`: see `AsyncClient.producer`. `elsewhere`: the
        callers have other clusters, so that what this one has no master for fails at once.
        `broker`: see `AsyncWaiters`."""
        self._connections = connections
        self._settings = settings
        self._outbox = outbox
        self._guard = guard
        self._on_result = None if on_result is None else Callback("on_result", on_result)
        self._clock = shared.clock
        self._random = shared.random
        self._backoff = shared.backoff(shared.retry_timeout_s)
        self._set_interrupted = Interruption(
            None if on_interruption is None else Callback("on_interruption", on_interruption)
        )
        self._spans = shared.hooks.spans
        self._elsewhere = elsewhere
        self._patience_s = shared.timeout_s
        self._waiting_since_ns = 0  # for the stream's next answer
        # Callers of single sends have their failures already.
        self._remembered_failures = 0 if outbox.batching.single_sends else _REMEMBERED_FAILURES
        self.work = AsyncCondition(guard)
        """Notified when the worker, or the generator of batches, may have something to do."""
        self.answered = AsyncCondition(guard)
        """Notified when something is settled, opened, refused or closed."""
        self.waiters = AsyncWaiters(guard, broker)
        self.opened = False
        """Once: the broker's limits are known."""
        self.largest_body_bytes = INT32_MAX
        """That the broker takes; known once `opened`."""
        self.store_host = b""
        """The log's, once `opened`; empty: an older log, which chooses no queues."""
        self.closing = False
        self._wanted = False  # a caller waits for the first stream
        self._refusal: StrataError | None = None  # why the first stream could not be opened
        self._failures = 0  # attempts to open a stream, since one was opened
        self._refusals = 0  # by brokers that are no masters, since one has taken something
        self._failed: list[SendingUnit] = []
        self._failed_bytes = 0
        self._next_look_ns = 0  # for another master, while slaves do not have what is stored
        self._reporting = 0  # units that are settled, and `on_result` has not received all of them
        self._reporters: set[object] = set()  # those that run `on_result`
        self._worker: AsyncBackground | None = None
        self._watcher = AsyncBackground("stratamq-watch", self._watch)
        self._ended = AsyncEvent()  # the worker has
        self._exchange = Exchange(0)
        self._stream: AsyncStream | None = None
        exits.watch(self)

    async def open(self) -> None:
        """Wait for the first stream; raises why it could not be opened."""
        with self._guard:
            if self._worker is None:
                self._worker = AsyncBackground("stratamq-producer", self._run)
                self._worker.start()
                self._watcher.start()
            self._refusal = None
            self._wanted = True
            self.work.notify_all()
            await self.answered.wait_for(lambda: self.opened or self._refusal or self.closing)
            if self._refusal is not None:
                raise self._refusal

    async def close(self, *, at_once: bool = False) -> None:
        """Everything is answered or failed afterwards. `at_once`: the log is not waited for."""
        exits.forget(self)
        with self._guard:
            self.closing = True
            self.work.notify_all()
            self.answered.notify_all()
            waits = self._outbox.idle and not at_once
        if self._stream is not None and not waits:
            self._stream.abandon()
        # An interrupt can have come before the worker was made.
        if self._worker is not None and not await self._worker.join(_GOODBYE_S):
            if self._stream is not None:
                self._stream.abandon()
            await self._worker.join(_GOODBYE_S)
        if self._ended.is_set():
            await self._watcher.join(_GOODBYE_S)

    def idle(self) -> bool:
        """Everything is answered, and `on_result` has been called for it."""
        return self._outbox.idle and not self._reporting

    @property
    def unanswered_messages(self) -> int:
        return self._outbox.pending_messages

    async def flushed(self, done: Callable[[], bool], timeout_s: float | None) -> bool:
        """Under the guard: wait until `done`, meanwhile sending batches that are not full; False:
        in vain."""
        self._outbox.flushes += 1
        self.work.notify_all()
        try:
            return await self.answered.wait_for(done, timeout_s)
        finally:
            self._outbox.flushes -= 1

    def in_callback(self) -> bool:
        """The caller runs `on_result`: it must not wait for what it holds up."""
        return AsyncBackground.current() in self._reporters

    def take_failures(self) -> list[StrataError]:
        """Those that neither a delivery nor `on_result` has given to a caller."""
        failed, self._failed, self._failed_bytes = self._failed, [], 0
        return [error for unit in failed if (error := unit.untold()) is not None]

    # --- the worker ---

    async def _run(self) -> None:
        try:
            while await self._wait_for_work():
                numbering = self._outbox.numbering
                exchange = Exchange(0 if numbering is None else numbering.producer)
                self._exchange = exchange
                error: StrataError = UnavailableError("the log service ended the append stream")
                try:
                    await self._answers(exchange)
                except StrataError as failure:
                    error = failure
                if exchange.silent:
                    error = UnavailableError(f"no answer within {self._patience_s:g} s")
                await self._broken(exchange, error)
        finally:
            self._ended.set()
            # After a cancellation or a defect nothing else answers what is left.
            now_ns = self._clock.monotonic_ns()
            with self._guard:
                unclosed = 0 if self.closing else self.unanswered_messages
                self.closing = True
                left = [*self._outbox.lost(now_ns), *self._outbox.take_unsent()]
                self._give_up(left, UnavailableError("the producer was closed"))
            exits.report_unclosed(unclosed)
            self.report(left)

    async def _wait_for_work(self) -> bool:
        with self._guard:
            await self.work.wait_for(
                lambda: self._outbox.has_unsent or self._wanted or self.closing
            )
            return self._outbox.has_unsent or not self.closing

    async def _answers(self, exchange: Exchange) -> None:
        """One stream from its opening to its end."""
        stream = await self._connections.open(METHODS["AppendStream"], self._requests(exchange))
        with self._guard:
            self._stream, self._waiting_since_ns = stream, self._clock.monotonic_ns()
        try:
            while (response := await stream.read()) is not None:
                self._waiting_since_ns = self._clock.monotonic_ns()
                if response.HasField("opened"):
                    opened = response.opened
                    with self._guard:
                        exchange.shape = shape_of(opened, exchange.producer)
                        self._outbox.place = place_of(opened, exchange.producer)
                        self.store_host = opened.store_host
                        self.largest_body_bytes = opened.max_message_bytes or INT32_MAX
                        self._outbox.limit(opened.max_batch_bytes, opened.max_batch_messages)
                        self.opened, self._wanted, self._failures = True, False, 0
                        self.work.notify_all()
                        self.answered.notify_all()
                    self._set_interrupted(None)
                if response.results:
                    outcomes = [
                        (one.sequence, outcome_of(one, self.store_host)) for one in response.results
                    ]
                    self._acknowledge(exchange, outcomes)
                    if exchange.unconfirmed and exchange.refusal is None:
                        await self._look_for_another_master(exchange)
                if exchange.refusal is not None and not self._outbox.in_flight:
                    raise exchange.refusal
        finally:
            with self._guard:
                exchange.broken = True
                self._stream = None
                self.work.notify_all()
            stream.end()

    async def _watch(self) -> None:
        """End streams of a log that stands still: gRPC's threads may keep its connections alive
        while its event loop hangs in the disk."""
        left_s = self._patience_s
        while not await self._ended.wait(left_s):
            left_s = self._patience_s
            with self._guard:
                stream, exchange = self._stream, self._exchange
                if stream is None or (exchange.shape is not None and not self._outbox.in_flight):
                    continue
                waited_ns = self._clock.monotonic_ns() - self._waiting_since_ns
                left_s -= waited_ns / 1e9
                if left_s > 0:
                    continue
                exchange.silent, left_s = True, self._patience_s
            stream.end()

    async def _look_for_another_master(self, exchange: Exchange) -> None:
        """A master that is cut off from its slaves, and whose clients reach it, does not know that
        another one was promoted: nothing that it stores is ever acknowledged."""
        now_ns = self._clock.monotonic_ns()
        if now_ns < self._next_look_ns:
            return
        moved = await self._connections.refresh()
        with self._guard:
            self._next_look_ns = self._clock.monotonic_ns() + _UNCONFIRMED_LOOK_NS
            if moved:
                exchange.refusal = UnavailableError("another broker has become the master")

    async def _requests(self, exchange: Exchange) -> AsyncIterator[bytes]:
        """What gRPC sends, taken by gRPC as fast as the stream takes it."""
        settings = self._settings
        try:
            in_order = self._outbox.in_order
            yield opening(
                settings.client_name, settings.require_replicas, exchange.producer, in_order
            )
            while (next_one := await self._next_batch(exchange)) is not None:
                batch, shape = next_one
                try:
                    request = request_of(batch, shape)
                except Exception as error:  # noqa: BLE001 - this batch alone cannot be sent
                    if not isinstance(error, StrataError):
                        error = InvalidRequestError(f"a batch that cannot be encoded: {error!r}")
                    with self._guard:
                        self._outbox.withdraw(batch)
                        self._give_up([batch], error)
                    self.report([batch])
                    continue
                yield request
        except Exception:
            log.exception("append stream ended by a defect")  # gRPC drops the error
            raise

    async def _next_batch(self, exchange: Exchange) -> tuple[Batch, FrameShape] | None:
        """What goes out next; None when the stream is broken, or nothing more will come."""
        outbox = self._outbox
        with self._guard:
            while not exchange.broken:
                due_ns = None
                if exchange.shape is not None and exchange.refusal is None:
                    now_ns = self._clock.monotonic_ns()
                    batch = outbox.next_batch(now_ns)
                    if batch is not None:
                        if outbox.in_flight == 1:
                            self._waiting_since_ns = now_ns
                        if self._spans is not None and batch.span is None:
                            batch.span = self._spans.begin(batch.called(), batch.contexts or ())
                        return batch, exchange.shape
                    due_ns = outbox.due_in_ns(now_ns)
                if self.closing and not outbox.has_unsent:
                    break
                await self.work.wait(None if due_ns is None else due_ns / 1e9)
        return None

    async def _broken(self, exchange: Exchange, error: StrataError) -> None:
        leads = self._connections.leads(error)
        moved = leads and await self._connections.follow(error)
        nowhere = leads and not moved and self._elsewhere()
        with self._guard:
            now_ns = self._clock.monotonic_ns()
            failed = self._outbox.lost(now_ns)
            passing = (isinstance(error, UnavailableError) or leads) and not self.closing
            passing = passing and not nowhere
            self._refusals += leads
            delay_s: float | None = None
            if exchange.shape is None:
                self._failures += 1
                if self.opened:
                    passing = passing and self._settings.retry
                elif passing:
                    delay_s = self._backoff.next_delay_s()
                    passing = delay_s is not None
            if passing:
                if self._settings.retry:
                    failed += self._outbox.take_overdue(now_ns, exchange.shape is not None)
            else:
                self._failures = self._refusals = 0
                failed += self._outbox.take_unsent()
                if not self.opened:
                    self._refusal, self._wanted = error, False
                    self._backoff.reset()
            self._give_up(failed, error)
            again = self.opened and self._outbox.has_unsent
        self.report(failed)
        if again:
            self._set_interrupted(error)
        if not leads:
            await self._connections.renew(COMMITLOG)
        with self._guard:
            if self._outbox.has_unsent or self._wanted:
                if delay_s is None:
                    delay_s = self._settings.delay_s(self._failures + self._refusals, self._random)
                await self.work.wait_for(lambda: self.closing, delay_s)

    # --- settled ---

    def _acknowledge(
        self, exchange: Exchange, outcomes: Sequence[tuple[int, BatchOutcome]]
    ) -> None:
        settled: list[SendingUnit] = []
        try:
            with self._guard:
                now_ns = self._clock.monotonic_ns()
                for sequence, outcome in outcomes:
                    exchange.unconfirmed = outcome.status in _UNCONFIRMED
                    elsewhere = self._connections.leads(outcome.error)
                    if elsewhere:
                        exchange.refusal = outcome.error
                    batch = self._outbox.acknowledge(sequence, outcome, now_ns, elsewhere)
                    if batch is not None:
                        # One by one: should the next answer be out of order, this one still holds.
                        self._refusals = 0
                        settled.append(batch)
                        self.settle([batch])
                self.work.notify_all()  # a batch that is to be sent again
        finally:
            self.report(settled)

    def _give_up(self, batches: Sequence[Batch], error: StrataError) -> None:
        """Under the guard: settle batches that have left the outbox."""
        for batch in batches:
            self._outbox.give_up(batch, perhaps_stored(error) if batch.unanswered else error)
        self.settle(batches)

    def settle(self, units: Sequence[SendingUnit]) -> None:
        """Under the guard: wake those who wait for units that are settled now. `report` follows,
        without the guard."""
        for unit in units:
            if unit.span is not None:
                unit.span.end(unit.error())
            self.waiters.wake(unit)
            if self._on_result is not None:
                unit.seen = True
            elif unit.error() is not None:
                self._remember(unit)
        if self._on_result is not None:
            self._reporting += len(units)
        self.work.notify_all()
        self.answered.notify_all()

    def _remember(self, unit: SendingUnit) -> None:
        """Under the guard: keep a failure for the next flush, which raises the first that no caller
        has seen. What is kept has its messages: no more of them than may wait to be answered."""
        if not self._has_memory:
            self._failed = [one for one in self._failed if one.untold() is not None]
            self._failed_bytes = sum(one.size for one in self._failed)
        if self._has_memory:
            self._failed.append(unit)
            self._failed_bytes += unit.size

    @property
    def _has_memory(self) -> bool:
        is_little = self._failed_bytes < self._settings.max_pending_bytes
        return is_little and len(self._failed) < self._remembered_failures

    def report(self, units: Sequence[SendingUnit]) -> None:
        """Call `on_result` for units that were settled."""
        if self._on_result is None:
            return
        # Without the guard: `on_result` may send, and may take long. Until it returns the units
        # count as `_reporting`, and `flush` waits for them.
        current = AsyncBackground.current()
        nested = current in self._reporters
        self._reporters.add(current)
        for unit in units:
            for result in unit.results():
                self._on_result(result)
        if not nested:
            self._reporters.discard(current)
        with self._guard:
            self._reporting -= len(units)
            self.answered.notify_all()
