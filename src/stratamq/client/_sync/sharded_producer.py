# Generated from _async/sharded_producer.py by scripts/gen_sync_client.py (`make client`).
"""The producer of a client of several addresses: one for each broker name."""

import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from stratamq.client._sync.delivery import Delivery
from stratamq.client._sync.producer import Producer
from stratamq.client._sync.shards import Shards
from stratamq.client.checking import checked_call
from stratamq.client.deliveries import Deliveries
from stratamq.client.intake import ProducerSettings
from stratamq.client.ordering import ordered_place
from stratamq.client.shard_routes import ShardRoutes, of_broker, took_nothing
from stratamq.client.units import Run, Unit
from stratamq.client.values import Message, SendResult
from stratamq.errors import StrataError, UnavailableError
from stratamq.files.port import Clock
from stratamq.formats.batch_frames import Row

log = logging.getLogger(__name__)

_NO_PROPERTIES: Mapping[str, str] = {}


class ShardDelivery(Delivery):
    """A delivery of one of several brokers."""

    __slots__ = ("_broker",)

    def __init__(self, broker: str, of: Delivery) -> None:
        super().__init__(of._waiters, of._unit, of._run, of._index)
        self._broker = broker

    def _outcome(self) -> SendResult:
        try:
            return replace(super()._outcome(), broker=self._broker)
        except StrataError as error:
            raise of_broker(error, self._broker) from error


class ShardedProducer(Producer):
    """As `Producer`; of brokers of several names each message goes to one of them: in turn, or
    by its ordering key, or by its queue if one broker alone has it. A broker that is not connected
    is passed over, but not for an ordering key; what was given up for sending to it before stays
    there, and is sent when it is back within the delivery's time.

    `max_pending_bytes` is of each broker. When all have one name at the first message, and no host
    name is to be resolved again, it is a producer of that name, and stays one.
    """

    def __init__(
        self,
        shards: Shards,
        *of_one_name: Any,
        settings: ProducerSettings,
        on_result: Callable[[SendResult], None] | None,
        on_interruption: Callable[[StrataError | None], None] | None,
        clock: Clock,
        **more: Any,
    ) -> None:
        """`of_one_name` and the rest are those of `Producer`."""
        super().__init__(
            *of_one_name,
            settings=settings,
            on_result=on_result,
            on_interruption=on_interruption,
            clock=clock,
            **more,
        )
        self._shards = shards
        self._routes = ShardRoutes()
        self._producers: dict[str, Producer] = {}
        self._only: tuple[str, Producer] | None = None
        """Of the only broker name behind a host name: no message has to choose."""
        self._all_results = on_result
        self._all_interruptions = on_interruption
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
        **fields: Any,
    ) -> Delivery:
        if self._only is not None and self._shards.only():
            name, producer = self._only
            delivery = producer.send(
                topic, body, tag=tag, keys=keys, properties=properties, queue_id=queue_id,
                ordering_key=ordering_key, **fields,
            )  # fmt: skip
            return ShardDelivery(name, delivery)
        brokers = self._routed(topic)
        if not brokers:
            if not self._shards.changing:
                self.send = super().send  # type: ignore[method-assign] # the quick way from now on
            return super().send(
                topic, body, tag=tag, keys=keys, properties=properties, queue_id=queue_id,
                ordering_key=ordering_key, **fields,
            )  # fmt: skip
        if ordering_key is not None:
            slots = self._routes.slots(topic, brokers)
            counts = {topic: len(slots)}
            number, keys = ordered_place(topic, ordering_key, queue_id, keys, counts)
            name, queue_id = slots[number]
            order = [name]
        else:
            order = self._order(topic, queue_id, brokers)

        def send(producer: Producer) -> Delivery:
            return producer.send(
                topic, body, tag=tag, keys=keys, properties=properties, queue_id=queue_id,
                **fields,
            )  # fmt: skip

        name, delivery = self._in_turn(order, send)
        self._only = (name, self._producers[name]) if len(brokers) == 1 else None
        return ShardDelivery(name, delivery)

    @checked_call
    def send_message(
        self, message: Message, *, alone: bool = False, ordering_key: str | None = None
    ) -> Delivery:
        brokers = self._routed(message.topic)
        if not brokers or not (alone or message.alone):
            return super().send_message(message, alone=alone, ordering_key=ordering_key)
        order = self._order(message.topic, message.queue_id, brokers)

        def send(producer: Producer) -> Delivery:
            return producer.send_message(message, alone=True)

        name, delivery = self._in_turn(order, send)
        return ShardDelivery(name, delivery)

    def send_rows(
        self, topic: str, rows: Iterable[Row], *, queue_id: int | None = None, **fields: Any
    ) -> Deliveries[Delivery]:
        """As `Producer.send_rows`, to one of the brokers."""
        brokers = self._routed(topic)
        if not brokers:
            return super().send_rows(topic, rows, queue_id=queue_id, **fields)
        rows = rows if isinstance(rows, list) else list(rows)

        def send(producer: Producer) -> Deliveries[Delivery]:
            return producer.send_rows(topic, rows, queue_id=queue_id, **fields)

        name, found = self._in_turn(self._order(topic, queue_id, brokers), send)
        producer = self._producers[name]

        def delivery(unit: Unit, run: Run, index: int) -> Delivery:
            return ShardDelivery(name, producer._delivery(unit, run, index))

        return Deliveries(delivery, found._chunks)

    def largest_body_bytes(self) -> int:
        """That every broker takes which answers."""
        clients = self._shards.clients()
        if not clients:
            return super().largest_body_bytes()
        sizes: list[int] = []
        failure: StrataError | None = None
        for name in clients:
            try:
                sizes.append((self._producer(name)).largest_body_bytes())
            except UnavailableError as error:
                failure = of_broker(error, name)
        if not sizes and failure is not None:
            raise failure
        return min(sizes)

    # --- which broker ---

    def _routed(self, topic: str) -> dict[str, Any]:
        return self._shards.routed(self._routes, topic, self._clock.monotonic_ns())

    def _order(self, topic: str, queue_id: int | None, brokers: Collection[str]) -> list[str]:
        if queue_id is not None:
            return [self._routes.of_queue(topic, queue_id, brokers)]
        return self._routes.in_turn(topic, brokers, self._clock.monotonic_ns())

    def _in_turn(
        self, order: list[str], send: Callable[[Producer], Awaitable[Any]]
    ) -> tuple[str, Any]:
        """By the first producer that takes it up."""
        for name in order:
            try:
                return name, send(self._producer(name))
            except StrataError as error:
                failure = of_broker(error, name)
                closed = "perhaps_stored" in error.fields  # this producer, with some of it given up
                if closed or not took_nothing(error) or name == order[-1]:
                    raise failure from error
            self._shards.pass_over(self._routes, name, failure)
        raise AssertionError("a message has a broker")

    def _producer(self, name: str) -> Producer:
        producer = self._producers.get(name)
        if producer is None:
            client = (self._shards.clients())[name]
            made = client.producer(
                settings=self._settings,
                on_result=None if self._all_results is None else partial(self._settled, name),
                on_interruption=partial(self._set_interrupted_at, name),
            )
            with self._guard:
                producer = self._producers.setdefault(name, made)
        return producer

    def _settled(self, name: str, result: SendResult) -> None:
        assert self._all_results is not None
        if result.error is not None:
            of_broker(result.error, name)
        self._all_results(replace(result, broker=name))

    def _set_interrupted_at(self, name: str, error: StrataError | None) -> None:
        """By the producer of that broker."""
        if error is None:
            self._routes.back(name)
            self._interrupted.discard(name)
        else:
            error = of_broker(error, name)
            new = self._routes.away(name, 0, until_back=True)
            self._interrupted.add(name)
            if new and self._all_interruptions is None:
                log.warning("nothing is sent there for now: %s", error.message)
        if self._all_interruptions is not None and (error is not None or not self._interrupted):
            self._all_interruptions(error)

    # --- the end ---

    @checked_call
    def flush(self, timeout_s: float | None = None) -> None:
        """Of every broker; raises the first error afterwards."""
        self._everywhere(super().flush, lambda one, left_s: one.flush(left_s), timeout_s)

    @checked_call
    def close(self, timeout_s: float | None = None) -> None:
        self._everywhere(super().close, lambda one, left_s: one.close(left_s), timeout_s)

    def _everywhere(
        self,
        here: Callable[[float | None], Awaitable[None]],
        there: Callable[[Producer, float | None], Awaitable[None]],
        timeout_s: float | None,
    ) -> None:
        began_ns = self._clock.monotonic_ns()
        failure: StrataError | None = None
        for name, producer in list(self._producers.items()):
            spent_s = (self._clock.monotonic_ns() - began_ns) / 1e9
            try:
                there(producer, None if timeout_s is None else max(0.0, timeout_s - spent_s))
            except StrataError as error:
                failure = failure or of_broker(error, name)
        here(timeout_s)
        if failure is not None:
            raise failure
