# Generated from _async/producer.py by scripts/gen_sync_client.py (`make client`).
"""The producer: callers add messages to a broker's outbox, and an append stream empties it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from stratamq.client import forks
from stratamq.client._sync.append_lane import AppendLane
from stratamq.client._sync.brokers import Broker, Brokers, Routing
from stratamq.client._sync.delivery import Delivery
from stratamq.client.batching import size_bound
from stratamq.client.checking import checked_call
from stratamq.client.deliveries import Deliveries
from stratamq.client.intake import MessageIntake, ProducerSettings, check_body, check_place
from stratamq.client.primitives import Guard
from stratamq.client.shard_routes import of_broker, took_nothing
from stratamq.client.units import Chunk
from stratamq.client.values import Message, SendResult
from stratamq.errors import StrataError
from stratamq.formats.batch_frames import Row

_NO_PROPERTIES: Mapping[str, str] = {}


class Producer:
    """A producer, thread-safe. Made by `Client.producer`; close it, preferably by
    `with`. If it was not closed when its event loop or the interpreter ends, an error in the
    log `stratamq.client.exits` and a ResourceWarning tell how many messages were not stored.

    `on_result` is called with the result of every message, in the order of each broker's answers;
    it must not wait for an answer. Without it `flush` raises the first failure that no delivery has
    given to its caller.

    With several brokers each message goes to one of them: in turn, by its ordering key, or by its
    queue if a single broker has it. A broker that is not connected is passed over, except for
    ordering keys; messages that wait for it already are sent if it is back within their delivery
    time. `max_pending_bytes` holds for each broker.
    """

    def __init__(
        self,
        brokers: Brokers,
        settings: ProducerSettings,
        on_result: Callable[[SendResult], None] | None,
        on_interruption: Callable[[StrataError | None], None] | None,
    ) -> None:
        forks.watch(self)
        self._brokers = brokers
        self._settings = settings
        self._shared = shared = brokers.settings
        self._clock = shared.clock
        self._hooks = shared.hooks
        self._changes_sent = shared.hooks.change_sent
        self._links_spans = shared.hooks.spans is not None
        self._intake = MessageIntake(settings, shared.clock, shared.random)
        self._guard = Guard()
        """Guards the intake and every lane."""
        self._routing = Routing(brokers)
        self._on_result = on_result
        self._on_interruption = on_interruption
        self._lanes: dict[str, AppendLane] = {}
        self._only = self._lane(brokers.whole) if brokers.fixed else None
        """The lane of the only broker there will be: no message has to choose."""
        self._interrupted: set[str] = set()

    # --- sending ---

    def send(
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
    ) -> Delivery:
        """Queue a message for sending; the delivery waits for the answer. Waits while too much is
        unanswered, and at first for the connection. `body` is bytes, or what the client's
        serializer takes. Messages of one `ordering_key`, their first key, go to one queue. A queue
        stores messages in the order of these calls, unless the calls overlap. A message too large
        for a batch waits for all answers. InvalidRequestError when the message can never be stored,
        UnavailableError when no first connection is made; the delivery has every other error.
        """
        if self._changes_sent or type(body) is not bytes:
            body, properties = self._hooks.outgoing(topic, body, properties)
        lane = self._only
        if ordering_key is not None:
            broker, queue_id, keys = self._routing.slot(topic, ordering_key, queue_id, keys)
            lane = self._lane(broker)
        elif lane is None:
            lane = self._lane_for(topic, queue_id)
        stream, outbox = lane.stream, lane.outbox
        ready = stream.opened and (queue_id is not None or topic in outbox.queue_counts)
        introduce = not ready and lane.prepare(topic, queue_id)
        with self._guard:
            check_body(len(body), stream.largest_body_bytes)
            row, born_ms = self._intake.row(
                body, tag, keys, properties, unique_key, born_timestamp_ms
            )
            fields = (flag, sys_flag, born_ms, reconsume_times)
            check_place(topic, queue_id, fields)
            carried = outbox.carries(topic, size := size_bound(topic, row))
            if carried:
                if outbox.pending_bytes >= self._settings.max_pending_bytes or stream.closing:
                    lane.wait_for_room()
                now_ns = self._clock.monotonic_ns()
                batch, run, index = outbox.add(topic, queue_id, fields, row, size, now_ns)
                if properties and self._links_spans:
                    batch.link(properties)
                if (sealed := not outbox.is_open(batch)) or batch.count == 1:
                    lane.work.notify_all()
        if not carried:
            place = (topic, body, tag, keys, properties, queue_id, unique_key)
            message = Message(*place, *fields[:3], reconsume_times=reconsume_times)
            return self._send_alone(lane.send_in_turn, message)
        if introduce:
            lane.introduce(topic, batch)
        elif sealed:  # a caller that never waits must not keep the generator waiting
            lane.work.yield_control()
        return Delivery(lane.waiters, batch, run, index)

    @checked_call
    def send_message(
        self, message: Message, *, alone: bool = False, ordering_key: str | None = None
    ) -> Delivery:
        """Queue a `Message` for sending; see `send`. Delayed messages, those that do not wait for
        the disk and those sent `alone` go by a call of their own beside the stream.
        InvalidRequestError for half messages."""
        if not (alone or message.alone):
            return self.send(
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
        message = replace(message, body=body, properties=properties)
        if ordering_key is None:
            lane = self._only or self._lane_for(message.topic, message.queue_id)
        else:
            broker, queue_id, keys = self._routing.slot(
                message.topic, ordering_key, message.queue_id, message.keys
            )
            lane, message = self._lane(broker), replace(message, queue_id=queue_id, keys=keys)
        return self._send_alone(lane.send_alone, message)

    def _send_alone(self, send: Callable[[Message], Delivery], message: Message) -> Delivery:
        with self._guard:
            message = self._intake.message(message)
        return send(message)

    def largest_body_bytes(self) -> int:
        """Return the largest body that all answering brokers accept. Waits for the connection at
        first; UnavailableError when none can be made."""

        def ask(broker: Broker) -> int:
            stream = self._lane(broker).stream
            if not stream.opened:
                stream.open()
            return stream.largest_body_bytes

        return min(size for _, size in self._brokers.read(ask))

    @checked_call
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
        """Queue bodies whose properties are already encoded: the fast way for many messages, all to
        one broker. They get no unique keys. After InvalidRequestError the rows before the bad one
        are sent all the same."""
        lane = self._only or self._lane_for(topic, queue_id)
        stream, outbox = lane.stream, lane.outbox
        introduce = False
        if not stream.opened or (queue_id is None and topic not in outbox.queue_counts):
            introduce = lane.prepare(topic, queue_id)
        fields = (flag, sys_flag, born_timestamp_ms or self._clock.wall_ms(), 0)
        check_place(topic, queue_id, fields)
        rows = rows if isinstance(rows, list) else list(rows)
        chunks: list[Chunk] = []
        done = 0
        while done < len(rows):
            with self._guard:
                if outbox.pending_bytes >= self._settings.max_pending_bytes or stream.closing:
                    lane.wait_for_room()
                among = rows[:1] if introduce else rows
                now_ns = self._clock.monotonic_ns()
                chunk = outbox.add_rows(topic, queue_id, fields, among, done, now_ns)
                batch, _, _, added = chunk
                sealed = not outbox.is_open(batch)
                if sealed or batch.count == added:
                    lane.work.notify_all()
            chunks.append(chunk)
            done += added
            if introduce:
                introduce = False
                lane.introduce(topic, batch)
            elif sealed:
                lane.work.yield_control()
        return Deliveries(lane.delivery, chunks)

    # --- which broker ---

    def _lane_for(self, topic: str, queue_id: int | None) -> AppendLane:
        """The lane of the first broker in turn whose stream is open, or can be opened."""
        order = self._routing.order(topic, queue_id)
        if self._brokers.fixed:
            self._only = self._lane(order[0])
            return self._only
        for broker in order:
            lane = self._lane(broker)
            try:
                if not lane.stream.opened:
                    lane.stream.open()
                return lane
            except StrataError as error:
                failure = of_broker(error, broker.name)
                if not took_nothing(failure) or broker is order[-1]:
                    raise
            self._routing.pass_over(broker, failure)
        raise AssertionError("a message has a broker")

    def _lane(self, broker: Broker) -> AppendLane:
        lane = self._lanes.get(broker.name)
        if lane is None:
            named, on_result = broker.name, self._on_result
            made = AppendLane(
                broker,
                self._settings,
                self._shared,
                self._guard,
                partial(self._settled, on_result, named) if named and on_result else on_result,
                partial(self._set_interrupted, broker) if named else self._on_interruption,
            )
            with self._guard:
                lane = self._lanes.setdefault(named, made)
        return lane

    def _settled(
        self, on_result: Callable[[SendResult], None], name: str, result: SendResult
    ) -> None:
        if result.error is not None:
            of_broker(result.error, name)
        on_result(replace(result, broker=name))

    def _set_interrupted(self, broker: Broker, error: StrataError | None) -> None:
        """By the stream to that broker."""
        if error is None:
            self._routing.back(broker)
            self._interrupted.discard(broker.name)
        else:
            error = of_broker(error, broker.name)
            self._routing.pass_over(broker, error, until_back=True)
            self._interrupted.add(broker.name)
        if self._on_interruption is not None and (error is not None or not self._interrupted):
            self._on_interruption(error)

    # --- the end ---

    @checked_call
    def flush(self, timeout_s: float | None = None) -> None:
        """Wait until all messages sent so far are answered, and `on_result` has been called.

        Raises the first failure that neither a delivery nor `on_result` has given to its caller,
        and UnavailableError when `timeout_s` passes.
        """
        self._at_each(AppendLane.flush, timeout_s)

    @checked_call
    def close(self, timeout_s: float | None = None) -> None:
        """Flush, then end the streams. Afterwards every message is answered or has failed."""
        self._at_each(AppendLane.close, timeout_s)

    def _at_each(
        self,
        do: Callable[[AppendLane, float | None], None],
        timeout_s: float | None,
    ) -> None:
        """Within `timeout_s`, one lane after the other; raises the first error afterwards."""
        began_ns, left_s = self._clock.monotonic_ns(), timeout_s
        failure: StrataError | None = None
        for name, lane in list(self._lanes.items()):
            try:
                do(lane, left_s)
            except StrataError as error:
                failure = failure or of_broker(error, name)
            if timeout_s is not None:
                spent_s = (self._clock.monotonic_ns() - began_ns) / 1e9
                left_s = max(0.0, timeout_s - spent_s)
        if failure is not None:
            raise failure

    def __enter__(self) -> "Producer":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
