"""The producer of a client of several addresses: one for each broker name."""

import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from stratamq.client._async.delivery import AsyncDelivery
from stratamq.client._async.producer import AsyncProducer
from stratamq.client._async.shards import AsyncShards
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


class AsyncShardDelivery(AsyncDelivery):
    """A delivery of one of several brokers."""

    __slots__ = ("_broker",)

    def __init__(self, broker: str, of: AsyncDelivery) -> None:
        super().__init__(of._waiters, of._unit, of._run, of._index)
        self._broker = broker

    def _outcome(self) -> SendResult:
        try:
            return replace(super()._outcome(), broker=self._broker)
        except StrataError as error:
            raise of_broker(error, self._broker) from error


class AsyncShardedProducer(AsyncProducer):
    """As `AsyncProducer`; of brokers of several names each message goes to one of them: in turn, or
    by its ordering key, or by its queue if one broker alone has it. A broker that is not connected
    is passed over, but not for an ordering key; what was given up for sending to it before stays
    there, and is sent when it is back within the delivery's time.

    `max_pending_bytes` is of each broker. When all have one name at the first message, and no host
    name is to be resolved again, it is a producer of that name, and stays one.
    """

    def __init__(
        self,
        shards: AsyncShards,
        *of_one_name: Any,
        settings: ProducerSettings,
        on_result: Callable[[SendResult], None] | None,
        on_interruption: Callable[[StrataError | None], None] | None,
        clock: Clock,
        **more: Any,
    ) -> None:
        """`of_one_name` and the rest are those of `AsyncProducer`."""
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
        self._producers: dict[str, AsyncProducer] = {}
        self._only: tuple[str, AsyncProducer] | None = None
        """Of the only broker name behind a host name: no message has to choose."""
        self._all_results = on_result
        self._all_interruptions = on_interruption
        self._interrupted: set[str] = set()

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
        **fields: Any,
    ) -> AsyncDelivery:
        if self._only is not None and self._shards.only():
            name, producer = self._only
            delivery = await producer.send(
                topic, body, tag=tag, keys=keys, properties=properties, queue_id=queue_id,
                ordering_key=ordering_key, **fields,
            )  # fmt: skip
            return AsyncShardDelivery(name, delivery)
        brokers = await self._routed(topic)
        if not brokers:
            if not self._shards.changing:
                self.send = super().send  # type: ignore[method-assign] # the quick way from now on
            return await super().send(
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

        async def send(producer: AsyncProducer) -> AsyncDelivery:
            return await producer.send(
                topic, body, tag=tag, keys=keys, properties=properties, queue_id=queue_id,
                **fields,
            )  # fmt: skip

        name, delivery = await self._in_turn(order, send)
        self._only = (name, self._producers[name]) if len(brokers) == 1 else None
        return AsyncShardDelivery(name, delivery)

    @checked_call
    async def send_message(
        self, message: Message, *, alone: bool = False, ordering_key: str | None = None
    ) -> AsyncDelivery:
        brokers = await self._routed(message.topic)
        if not brokers or not (alone or message.alone):
            return await super().send_message(message, alone=alone, ordering_key=ordering_key)
        order = self._order(message.topic, message.queue_id, brokers)

        async def send(producer: AsyncProducer) -> AsyncDelivery:
            return await producer.send_message(message, alone=True)

        name, delivery = await self._in_turn(order, send)
        return AsyncShardDelivery(name, delivery)

    async def send_rows(
        self, topic: str, rows: Iterable[Row], *, queue_id: int | None = None, **fields: Any
    ) -> Deliveries[AsyncDelivery]:
        """As `AsyncProducer.send_rows`, to one of the brokers."""
        brokers = await self._routed(topic)
        if not brokers:
            return await super().send_rows(topic, rows, queue_id=queue_id, **fields)
        rows = rows if isinstance(rows, list) else list(rows)

        async def send(producer: AsyncProducer) -> Deliveries[AsyncDelivery]:
            return await producer.send_rows(topic, rows, queue_id=queue_id, **fields)

        name, found = await self._in_turn(self._order(topic, queue_id, brokers), send)
        producer = self._producers[name]

        def delivery(unit: Unit, run: Run, index: int) -> AsyncDelivery:
            return AsyncShardDelivery(name, producer._delivery(unit, run, index))

        return Deliveries(delivery, found._chunks)

    async def largest_body_bytes(self) -> int:
        """That every broker takes which answers."""
        clients = await self._shards.clients()
        if not clients:
            return await super().largest_body_bytes()
        sizes: list[int] = []
        failure: StrataError | None = None
        for name in clients:
            try:
                sizes.append(await (await self._producer(name)).largest_body_bytes())
            except UnavailableError as error:
                failure = of_broker(error, name)
        if not sizes and failure is not None:
            raise failure
        return min(sizes)

    # --- which broker ---

    async def _routed(self, topic: str) -> dict[str, Any]:
        return await self._shards.routed(self._routes, topic, self._clock.monotonic_ns())

    def _order(self, topic: str, queue_id: int | None, brokers: Collection[str]) -> list[str]:
        if queue_id is not None:
            return [self._routes.of_queue(topic, queue_id, brokers)]
        return self._routes.in_turn(topic, brokers, self._clock.monotonic_ns())

    async def _in_turn(
        self, order: list[str], send: Callable[[AsyncProducer], Awaitable[Any]]
    ) -> tuple[str, Any]:
        """By the first producer that takes it up."""
        for name in order:
            try:
                return name, await send(await self._producer(name))
            except StrataError as error:
                failure = of_broker(error, name)
                closed = "perhaps_stored" in error.fields  # this producer, with some of it given up
                if closed or not took_nothing(error) or name == order[-1]:
                    raise failure from error
            self._shards.pass_over(self._routes, name, failure)
        raise AssertionError("a message has a broker")

    async def _producer(self, name: str) -> AsyncProducer:
        producer = self._producers.get(name)
        if producer is None:
            client = (await self._shards.clients())[name]
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
    async def flush(self, timeout_s: float | None = None) -> None:
        """Of every broker; raises the first error afterwards."""
        await self._everywhere(super().flush, lambda one, left_s: one.flush(left_s), timeout_s)

    @checked_call
    async def close(self, timeout_s: float | None = None) -> None:
        await self._everywhere(super().close, lambda one, left_s: one.close(left_s), timeout_s)

    async def _everywhere(
        self,
        here: Callable[[float | None], Awaitable[None]],
        there: Callable[[AsyncProducer, float | None], Awaitable[None]],
        timeout_s: float | None,
    ) -> None:
        began_ns = self._clock.monotonic_ns()
        failure: StrataError | None = None
        for name, producer in list(self._producers.items()):
            spent_s = (self._clock.monotonic_ns() - began_ns) / 1e9
            try:
                await there(producer, None if timeout_s is None else max(0.0, timeout_s - spent_s))
            except StrataError as error:
                failure = failure or of_broker(error, name)
        await here(timeout_s)
        if failure is not None:
            raise failure
