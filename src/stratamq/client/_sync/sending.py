# Generated from _async/sending.py by scripts/gen_sync_client.py (`make client`).
"""Messages that a client sends without a producer: a single one over the stream that all share,
others by a call of their own, numbered, and sent again after a lost answer."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from stratamq.client import operations
from stratamq.client._sync.shared_stream import SharedStream
from stratamq.client.append_messages import refused
from stratamq.client.connections import Connections
from stratamq.client.hooks import Hooks
from stratamq.client.intake import Intake, ProducerSettings
from stratamq.client.numbering import LogPlace, Numbering, Numbers
from stratamq.client.operations import Operation, RunOperation
from stratamq.client.primitives import Guard
from stratamq.client.units import perhaps_stored
from stratamq.client.values import Message, SendResult
from stratamq.errors import BusyError, UnavailableError
from stratamq.files.port import Clock, Random
from stratamq.rpc.backoff import Backoff
from stratamq.rpc.status import never_sent

_FRESH_NS = 1_000_000_000
"""A place of the log that is older is asked for again. A fresh one is more likely to lie in the
log's window when an answer is lost."""


class Sending:
    """Send single messages of one client. `limit_s`: how long they are sent again, from the first
    lost answer on."""

    def __init__(
        self,
        run: RunOperation,
        connections: Connections,
        hooks: Hooks,
        clock: Clock,
        random: Random,
        *,
        limit_s: float,
        unreached_s: float = 0.0,
        elsewhere: Callable[[], bool] = lambda: False,
    ) -> None:
        """`unreached_s`: how long a connection is tried for. `elsewhere`: whether the caller has
        other clusters, so that what was never sent, or was refused for want of a master, is an
        error at once."""
        self._run = run
        self._leads = connections.leads
        self._elsewhere = elsewhere
        self._closed = connections.closed
        self._hooks = hooks
        self._changes_sent = hooks.change_sent
        self._intake = Intake(ProducerSettings(), clock, random)
        self._shared = SharedStream(
            connections, clock, random, limit_s=limit_s, unreached_s=unreached_s,
            elsewhere=elsewhere,
        )  # fmt: skip
        self._guard = Guard()
        self._clock = clock
        self._random = random
        self._limit_s = limit_s
        self._numbering = Numbering(random)
        self._place: LogPlace | None = None
        self._place_ns = 0

    def send_one(self, message: Message, require_replicas: bool) -> SendResult:
        """Over the shared stream, or, where that cannot be, by a call."""
        message = self._hooked(message)
        recorded = self._hooks.spans is not None  # one trace, from the caller down to the flush
        if not (require_replicas or message.alone or recorded):
            result = self._shared.send(message)
            if result is not None:
                return result
        return (self._call([message], False, require_replicas))[0]

    def send_all(
        self, messages: Sequence[Message], all_or_nothing: bool, require_replicas: bool
    ) -> list[SendResult]:
        """By one call."""
        messages = [self._hooked(message) for message in messages]
        return self._call(messages, all_or_nothing, require_replicas)

    def close(self) -> None:
        self._shared.close()

    def _hooked(self, message: Message) -> Message:
        if not self._changes_sent and type(message.body) is bytes:
            return message
        body, properties = self._hooks.outgoing(message.topic, message.body, message.properties)
        return replace(message, body=body, properties=properties)

    def _call(
        self, messages: list[Message], all_or_nothing: bool, require_replicas: bool
    ) -> list[SendResult]:
        with self._guard:
            messages = [self._intake.message(message) for message in messages]
        operation = operations.send(messages, all_or_nothing, require_replicas)
        return self._send(operation, len(messages))

    def _send(self, operation: Operation[list[SendResult]], count: int) -> list[SendResult]:
        """The outcomes of `count` messages. UnavailableError with `perhaps_stored` when the last
        answer was lost, and without it when nothing was sent."""
        numbers: Numbers | None = None
        backoff = Backoff(self._limit_s, self._clock, self._random)
        unanswered = False
        while True:
            numbers = self._numbers(count, numbers, unanswered)
            if numbers is not None:
                operations.number(operation, numbers)
            try:
                results = self._run(operation)
            except UnavailableError as error:
                if self._elsewhere() and never_sent(error) and not unanswered:
                    raise
                delay_s = backoff.next_delay_s() if numbers is not None else None
                if delay_s is None or self._closed.wait(delay_s):
                    raise perhaps_stored(error, "no answer") from error
                unanswered = True
                continue
            # Until the cluster has a master, or the log has room.
            refusal = refused(results)
            led = not self._elsewhere() and self._leads(refusal)
            if led or (isinstance(refusal, BusyError) and not operation.request.require_replicas):
                delay_s = backoff.next_delay_s()
                if delay_s is not None and not self._closed.wait(delay_s):
                    continue
            if unanswered:
                return [_behind_unanswered(result) for result in results]
            if any(_is_beyond_window(result) for result in results):
                delay_s = backoff.next_delay_s()  # this attempt was overtaken on its way
                if delay_s is not None:
                    continue
            self._heard(results)
            return results

    def _numbers(self, count: int, known: Numbers | None, unanswered: bool) -> Numbers | None:
        """Return the numbers of the next attempt. None: the log does not recognise what is sent
        again, so that this attempt is the only one."""
        if known is not None and unanswered:
            return known
        now_ns = self._clock.monotonic_ns()
        if known is not None or self._place is None or now_ns - self._place_ns > _FRESH_NS:
            place = self._run(operations.log_place())
            with self._guard:
                self._place, self._place_ns = place, now_ns
        with self._guard:
            if self._place is None:
                return None
            if known is not None:
                return replace(known, sent_from=self._place)
            producer = self._numbering.producer
            return Numbers(producer, self._numbering.take(count), self._place)

    def _heard(self, results: Sequence[SendResult]) -> None:
        with self._guard:
            if self._place is not None and results:
                furthest = max(result.physical_offset for result in results)
                self._place = self._place.reached(furthest)
                self._place_ns = self._clock.monotonic_ns()


def _is_beyond_window(result: SendResult) -> bool:
    return result.error is not None and bool(result.error.fields.get("beyond_window"))


def _behind_unanswered(result: SendResult) -> SendResult:
    """Behind an attempt that was not answered what is refused may be stored."""
    if result.error is None:
        return result
    return replace(result, error=perhaps_stored(result.error, "no answer at first"))
