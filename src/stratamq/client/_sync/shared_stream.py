# Generated from _async/shared_stream.py by scripts/gen_sync_client.py (`make client`).
"""Messages sent one by one, each by a caller that waits for it: all of a client go over one append
stream, those that wait at the same moment in one batch."""

from collections.abc import Callable

from stratamq.client._sync.append_stream import AppendStream
from stratamq.client.batching import LARGEST_BATCH_BYTES, Outbox, size_bound
from stratamq.client.connections import Connections
from stratamq.client.intake import LARGEST_BATCH_MESSAGES, Intake, ProducerSettings, check_place
from stratamq.client.numbering import Numbering
from stratamq.client.primitives import Event, Guard
from stratamq.client.units import Batch, Run
from stratamq.client.values import Message, SendResult
from stratamq.errors import UnavailableError
from stratamq.files.port import Clock, Random
from stratamq.formats.message_status import SendStatus
from stratamq.formats.sysflag import TAKEN_FLAGS
from stratamq.rpc.backoff import FIRST_DELAY_S, Backoff

_WINDOW = 16
"""Batches in flight."""
_FEW_MESSAGES, _LINGER_NS = 8, 5_000_000
"""While fewer messages than that are in flight the next ones leave at once: a few callers do not
wait for each other. Behind more they leave together, when an answer comes or after this time."""


class SharedStream:
    """One client's stream, opened at the first message. `limit_s`: how long an answer is waited
    for, and how long what was lost is sent again; `unreached_s`: how long a connection is tried
    for."""

    def __init__(
        self,
        connections: Connections,
        clock: Clock,
        random: Random,
        *,
        limit_s: float,
        unreached_s: float,
        elsewhere: Callable[[], bool],
    ) -> None:
        """`elsewhere`: see `Sending`."""
        self._connections = connections
        self._clock = clock
        self._limit_s = limit_s
        self._guard = Guard()
        settings = ProducerSettings(retry_delay_ms=FIRST_DELAY_S * 1000)
        self._intake = Intake(settings, clock, random)
        self._outbox = Outbox(
            batch_bytes=LARGEST_BATCH_BYTES,
            batch_messages=LARGEST_BATCH_MESSAGES,
            window=_WINDOW,
            linger_ns=_LINGER_NS,
            linger_behind=_FEW_MESSAGES,
            numbering=Numbering(random),
            delivery_ns=int(limit_s * 1e9),
            single_sends=True,
            unreached_ns=int(unreached_s * 1e9),
        )
        self._stream = AppendStream(
            connections, settings, self._outbox, self._guard, None, clock, random,
            Backoff(unreached_s, clock, random), elsewhere=elsewhere, remembered_failures=0,
        )  # fmt: skip

    def send(self, message: Message) -> SendResult | None:
        """The message's outcome. None, and nothing is sent: it is to go by a call of its own.

        UnavailableError when no connection can be made, or without an answer in time: perhaps
        stored. InvalidRequestError for what no log would take.
        """
        self._connections.require_open()
        stream, outbox = self._stream, self._outbox
        if not stream.opened:
            stream.open()
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
        return self._result(settled, batch, run, index)

    def _result(self, settled: Event, batch: Batch, run: Run, index: int) -> SendResult:
        """`settled`: the batch's event."""
        waiters = self._stream.waiters
        answered = settled.wait(self._limit_s)
        while True:
            if not answered:
                self._stream.interrupt(batch)
                if not waiters.wait(batch, self._limit_s):
                    raise UnavailableError(
                        f"no answer within {2 * self._limit_s:g} s: perhaps stored",
                        perhaps_stored=True,
                    )
            if batch.halves is None:
                break
            batch, run, index = batch.now_in(run, index)
            answered = waiters.wait(batch, self._limit_s)
        result = batch.result_of(run, index, with_id=True)
        if result.status is SendStatus.UNKNOWN_ERROR:  # the log has not answered
            result.check()
        return result

    def close(self) -> None:
        """What is not answered fails: perhaps stored."""
        self._stream.close(at_once=True)
