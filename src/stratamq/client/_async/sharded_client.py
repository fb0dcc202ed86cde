"""A client of several addresses: of one cluster, or of brokers of several names."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from stratamq.client._async.client import AsyncClient
from stratamq.client._async.consumer import AsyncConsumer
from stratamq.client._async.producer import AsyncProducer
from stratamq.client._async.shard_lanes import AsyncShardLanes
from stratamq.client._async.sharded_admin import AsyncShardedAdmin
from stratamq.client._async.sharded_producer import AsyncShardedProducer
from stratamq.client._async.shards import AsyncShards
from stratamq.client.checking import checked
from stratamq.client.consuming import EARLIEST, Start, Subscription, Topics, Until
from stratamq.client.intake import ProducerSettings
from stratamq.client.ordering import ordered_place
from stratamq.client.primitives import AsyncEvent
from stratamq.client.reader_names import reader_name
from stratamq.client.shard_routes import ShardRoutes, of_broker, took_nothing
from stratamq.client.values import GroupMember, GroupQueue, Message, Queue, SendResult, Topic
from stratamq.errors import InvalidRequestError, NotWritableError, StrataError
from stratamq.formats.message_status import SendStatus
from stratamq.rpc.endpoints import Endpoints


@checked
class AsyncShardedClient(AsyncClient):
    """While the addresses lead to brokers of one name it is an `AsyncClient`. What is not here is
    of one broker: of several names it raises InvalidRequestError, by the connections."""

    def __init__(
        self, endpoints: Endpoints, *, retry_timeout_s: float = 0.0, **settings: Any
    ) -> None:
        super().__init__(endpoints, retry_timeout_s=retry_timeout_s, **settings)

        def several() -> bool:
            return self._shards.several()

        def make_client(where: Endpoints) -> AsyncClient:
            return AsyncClient(
                where, retry_timeout_s=retry_timeout_s, elsewhere=several, **settings
            )

        self._shards = AsyncShards(
            endpoints, self._connections, make_client, retry_timeout_s, self._clock, self._random
        )
        self._routes = ShardRoutes()
        self.admin = AsyncShardedAdmin(self._run, self._shards)

    # --- listings ---

    async def topics(self, topic: str = "") -> list[Topic]:
        """By name and broker."""
        if not await self._shards.clients():
            return await super().topics(topic)
        found = await self._shards.read(lambda client: client.topics(topic))
        merged = [replace(one, broker=name) for name, some in found for one in some]
        return sorted(merged, key=lambda one: (one.name, one.broker))

    async def queues(self, topic: str = "") -> list[Queue]:
        """By topic, broker and number."""
        if not await self._shards.clients():
            return await super().queues(topic)
        found = await self._shards.read(lambda client: client.queues(topic))
        merged = [replace(one, broker=name) for name, some in found for one in some]
        return sorted(merged, key=lambda one: (one.topic, one.broker, one.queue_id))

    async def groups(self, group: str = "", *, with_lag_s: bool = False) -> list[GroupQueue]:
        """By group, topic, broker and queue."""
        if not await self._shards.clients():
            return await super().groups(group, with_lag_s=with_lag_s)
        found = await self._shards.read(lambda client: client.groups(group, with_lag_s=with_lag_s))
        merged = [replace(one, broker=name) for name, some in found for one in some]
        return sorted(merged, key=lambda one: (one.group, one.topic, one.broker, one.queue_id))

    async def group_members(self, group: str) -> list[GroupMember]:
        """By client id and broker."""
        if not await self._shards.clients():
            return await super().group_members(group)
        found = await self._shards.read(lambda client: client.group_members(group))
        merged = [replace(one, broker=name) for name, some in found for one in some]
        return sorted(merged, key=lambda one: (one.client_id, one.broker))

    async def topics_of_group(self, group: str) -> set[str]:
        if not await self._shards.clients():
            return await super().topics_of_group(group)
        found = await self._shards.read(lambda client: client.topics_of_group(group))
        return {topic for _, some in found for topic in some}

    # --- storing ---

    async def send(
        self,
        topic: str,
        body: Any,
        *,
        tag: str = "",
        keys: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        queue_id: int | None = None,
        ordering_key: str | None = None,
        unique_key: str | None = None,
        delay_level: int = 0,
        half: bool = False,
        wait_store_ok: bool = True,
        require_replicas: bool = False,
    ) -> SendResult:
        broker: str | None = None
        if ordering_key is not None and await self._shards.clients():
            brokers = await self._routed(topic)
            slots = self._routes.slots(topic, brokers)
            counts = {topic: len(slots)}
            number, keys = ordered_place(topic, ordering_key, queue_id, keys, counts)
            broker, queue_id = slots[number]
            ordering_key = None
        elif ordering_key is not None:
            return await super().send(
                topic, body, tag=tag, keys=keys, properties=properties, queue_id=queue_id,
                ordering_key=ordering_key, unique_key=unique_key, delay_level=delay_level,
                half=half, wait_store_ok=wait_store_ok, require_replicas=require_replicas,
            )  # fmt: skip
        message = Message(
            topic, body, tag, keys, properties or {}, queue_id, unique_key,
            delay_level=delay_level, half=half, wait_store_ok=wait_store_ok,
        )  # fmt: skip
        if broker is None:
            return await self.send_message(message, require_replicas=require_replicas)
        (result,) = await self._send_to(broker, [message], None, require_replicas)
        return result.check()

    async def _send_one(self, message: Message, require_replicas: bool) -> SendResult:
        if not await self._shards.clients():
            return await super()._send_one(message, require_replicas)
        order = await self._order_for(message)
        return (await self._send_in_turn(order, [message], None, require_replicas))[0]

    async def send_all(
        self,
        messages: Sequence[Message],
        *,
        all_or_nothing: bool = False,
        require_replicas: bool = False,
    ) -> list[SendResult]:
        """As `AsyncClient.send_all`. Messages without a queue go together to one broker that can
        take their topics, and to another one when nothing of them is stored there; `all_or_nothing`
        is of one broker."""
        if not await self._shards.clients():
            return await super().send_all(
                messages, all_or_nothing=all_or_nothing, require_replicas=require_replicas
            )
        parts: dict[tuple[str, ...], list[int]] = {}
        for number, message in enumerate(messages):
            order = await self._order_for(message)
            parts.setdefault(tuple(order), []).append(number)
        if all_or_nothing and len(parts) > 1:
            raise InvalidRequestError(
                "all_or_nothing is of one broker: choose it, connect(..., broker=NAME)"
            )
        results: dict[int, SendResult] = {}
        for order, numbers in parts.items():
            some = [messages[number] for number in numbers]
            stored = await self._send_in_turn(order, some, all_or_nothing, require_replicas)
            results.update(zip(numbers, stored, strict=True))
        return [results[number] for number in range(len(messages))]

    async def _order_for(self, message: Message) -> Sequence[str]:
        """The brokers that may take it, in the order in which they are asked."""
        brokers = await self._routed(message.topic)
        if message.queue_id is not None:
            return [self._routes.of_queue(message.topic, message.queue_id, brokers)]
        return self._routes.in_turn(message.topic, brokers, self._clock.monotonic_ns())

    async def _send_in_turn(
        self,
        order: Sequence[str],
        messages: list[Message],
        all_or_nothing: bool | None,
        replicas: bool,
    ) -> list[SendResult]:
        """At the first broker that takes them. `all_or_nothing` None: a single send."""
        failure: StrataError | None = None
        results: list[SendResult] = []
        for name in order:
            try:
                results = await self._send_to(name, messages, all_or_nothing, replicas)
            except StrataError as error:
                if not took_nothing(error):
                    raise
                failure, results = error, []
            if results and not all(_is_refused(one) for one in results):
                self._routes.back(name)
                return results
            why = failure if not results else results[0].error
            assert why is not None
            self._shards.pass_over(self._routes, name, of_broker(why, name))
        if not results and failure is not None:
            raise failure
        return results

    async def _send_to(
        self, name: str, messages: list[Message], all_or_nothing: bool | None, replicas: bool
    ) -> list[SendResult]:
        client = (await self._shards.clients())[name]
        try:
            if all_or_nothing is None:
                results = [await client._send_one(messages[0], replicas)]
            else:
                results = await client.send_all(
                    messages, all_or_nothing=all_or_nothing, require_replicas=replicas
                )
        except StrataError as error:
            raise of_broker(error, name) from error
        for one in results:
            if one.error is not None:
                of_broker(one.error, name)
        return [replace(one, broker=name) for one in results]

    def producer(
        self,
        *,
        on_result: Callable[[SendResult], None] | None = None,
        on_interruption: Callable[[StrataError | None], None] | None = None,
        settings: ProducerSettings | None = None,
        **changes: Any,
    ) -> AsyncProducer:
        return AsyncShardedProducer(
            self._shards,
            self._connections,
            settings=settings or ProducerSettings(**changes),
            hooks=self._hooks,
            on_result=on_result,
            clock=self._clock,
            random=self._random,
            retry_timeout_s=self._retry_timeout_s,
            on_interruption=on_interruption,
        )

    async def _routed(self, topic: str) -> Collection[str]:
        """The brokers, once they were asked about the topic."""
        return await self._shards.routed(self._routes, topic, self._clock.monotonic_ns())

    # --- reading ---

    def consume(
        self,
        topic: Topics,
        *,
        queues: Collection[int] | None = None,
        offset: Start = EARLIEST,
        until: Until | None = None,
        tags: Iterable[str] = (),
        follow: bool = False,
        group: str | None = None,
        max_bytes: int = 0,
        retry_timeout_s: float | None = 30.0,
        refresh_s: float = 30.0,
        commit_interval_s: float = 5.0,
        on_interruption: Callable[[StrataError | None], None] | None = None,
        client_id: str | None = None,
        acknowledged: bool = False,
    ) -> AsyncConsumer:
        """As `AsyncClient.consume`, of all brokers: `queues` are those of each. Each message has
        its `broker`. While one is away the others are read, and `on_interruption` is called, or a
        warning logged; a reader that does not follow raises at its end what kept it from one."""
        Subscription(
            topic, queues, offset, group, follow, until
        )  # refuses what none can be made of
        named: dict[str, Any] = {
            "queues": queues, "offset": offset, "until": until, "tags": tags, "follow": follow,
            "group": group, "max_bytes": max_bytes, "retry_timeout_s": retry_timeout_s,
            "refresh_s": refresh_s, "commit_interval_s": commit_interval_s,
            "client_id": client_id or reader_name(), "acknowledged": acknowledged,
        }  # fmt: skip
        return self._sharded(
            lambda client, **more: client._lane_of_topic(topic, **named, **more),
            follow,
            refresh_s,
            on_interruption,
        )

    def between(
        self, topic: str, begin_ms: int, end_ms: int, *, tags: Iterable[str] = ()
    ) -> AsyncConsumer:
        return self._sharded(
            lambda client, **more: client._lane_between(topic, begin_ms, end_ms, tags, **more)
        )

    def _sharded(
        self,
        make_lane: Callable[..., Any],
        follow: bool = False,
        refresh_s: float = 30.0,
        on_interruption: Callable[[StrataError | None], None] | None = None,
    ) -> AsyncConsumer:
        closed = AsyncEvent()
        lanes = AsyncShardLanes(
            self._shards, self, make_lane, closed, self._clock,
            follow=follow, refresh_s=refresh_s, on_interruption=on_interruption,
        )  # fmt: skip
        return AsyncConsumer(lanes, clock=self._clock, hooks=self._hooks, closed=closed)

    async def services(self) -> dict[str, str]:
        await self._shards.clients()
        return await super().services()

    async def shards(self) -> dict[str, AsyncClient]:
        return dict(await self._shards.clients()) or await super().shards()

    # --- the end ---

    async def close(self) -> None:
        await super().close()
        await self._shards.close()


def _is_refused(result: SendResult) -> bool:
    """For certain nothing is stored: for want of a master, or because the broker takes nothing."""
    error = result.error
    if error is None or error.fields.get("perhaps_stored"):
        return False
    return isinstance(error, NotWritableError) or result.status is SendStatus.SERVICE_NOT_AVAILABLE
