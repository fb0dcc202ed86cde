"""What operators change at all brokers of several names: topics and groups."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from stratamq.client._async.admin import AsyncAdminClient
from stratamq.client._async.shards import AsyncShards
from stratamq.client.checking import checked
from stratamq.client.consuming import Start
from stratamq.client.group_reset import GroupReset
from stratamq.client.operations import AsyncRunOperation
from stratamq.client.topic_purge import QueuePurge
from stratamq.client.values import Topic
from stratamq.errors import InvalidRequestError, NotFoundError, NotWritableError
from stratamq.formats.topics import Drain


@checked
class AsyncShardedAdmin(AsyncAdminClient):
    """See `AsyncAdminClient`."""

    def __init__(self, run: AsyncRunOperation, shards: AsyncShards) -> None:
        super().__init__(run)
        self._shards = shards

    async def put_topic(self, topic: Topic) -> Topic:
        names = list(await self._shards.clients())
        if not names:
            return await super().put_topic(topic)
        names = await self._of_topic(names, await self._that_have(topic.name))
        made = await self._shards.change(names, lambda client, _: client.admin.put_topic(topic))
        return made[0]

    async def create_topic(self, topic: Topic, *, if_not_exists: bool = False) -> Topic:
        """At all brokers but those that are drained; with `if_not_exists` at those that have none
        of this name."""
        names = list(await self._shards.clients())
        if not names:
            return await super().create_topic(topic, if_not_exists=if_not_exists)
        have = await self._that_have(topic.name)
        if have and not if_not_exists:
            raise InvalidRequestError(
                f"there is a topic {topic.name} at {', '.join(have)}: nothing was changed"
            )
        made = await self._shards.change(
            [name for name in await self._of_topic(names, have) if name not in have],
            lambda client, _: client.admin.create_topic(topic),
        )
        return made[0] if made else topic

    async def alter_topic(self, name: str, **changes: Any) -> Topic:
        if not await self._shards.clients():
            return await super().alter_topic(name, **changes)
        have = await self._that_have(name)
        if not have:
            raise NotFoundError(f"there is no topic {name}")
        made = await self._shards.change(
            have, lambda client, _: client.admin.alter_topic(name, **changes)
        )
        return made[0]

    async def _of_topic(self, names: list[str], have: list[str]) -> list[str]:
        """The brokers where a topic is put: where it is, and where messages are taken.
        NotWritableError when there is none."""
        found = await self._shards.read(lambda client: client.admin.drain(), whole=True)
        drained = {name for name, drain in found if drain is not Drain.OPEN}
        chosen = [name for name in names if name in have or name not in drained]
        if not chosen:
            raise NotWritableError(
                f"all brokers are drained ({', '.join(names)}): let one take messages again "
                "(`stratamq cluster drain-shard NAME --undo`)",
                "drained",
            )
        return chosen

    async def _that_have(self, topic: str) -> list[str]:
        found = await self._shards.read(lambda client: client.topics(topic), whole=True)
        return [name for name, some in found if some]

    async def plan_group_reset(self, group: str, to: Start, topic: str = "") -> list[GroupReset]:
        if not await self._shards.clients():
            return await super().plan_group_reset(group, to, topic)
        found = await self._shards.read(
            lambda client: client.admin.plan_group_reset(group, to, topic), whole=True
        )
        return [replace(one, broker=name) for name, some in found for one in some]

    async def reset_group(self, group: str, resets: Sequence[GroupReset]) -> None:
        if not await self._shards.clients():
            return await super().reset_group(group, resets)
        by_broker: dict[str, list[GroupReset]] = {}
        for one in resets:
            by_broker.setdefault(one.broker, []).append(one)
        if unknown := set(by_broker) - set(await self._shards.clients()):
            raise InvalidRequestError(f"there is no broker {min(unknown)!r}: plan the reset anew")
        await self._shards.change(
            list(by_broker),
            lambda client, name: client.admin.reset_group(group, by_broker[name]),
        )
        return None

    async def delete_topic(self, name: str) -> None:
        if not await self._shards.clients():
            return await super().delete_topic(name)
        have = await self._that_have(name)
        if not have:
            raise NotFoundError(f"there is no topic {name}")
        await self._shards.change(have, lambda client, _: client.admin.delete_topic(name))
        return None

    async def plan_purge(
        self, topic: str, before: Start, queue_id: int | None = None
    ) -> list[QueuePurge]:
        if not await self._shards.clients():
            return await super().plan_purge(topic, before, queue_id)
        found = await self._shards.read(
            lambda client: client.admin.plan_purge(topic, before, queue_id), whole=True
        )
        return [replace(one, broker=name) for name, some in found for one in some]

    async def purge_topic(self, topic: str, purges: Sequence[QueuePurge]) -> None:
        if not await self._shards.clients():
            return await super().purge_topic(topic, purges)
        by_broker: dict[str, list[QueuePurge]] = {}
        for one in purges:
            by_broker.setdefault(one.broker, []).append(one)
        if unknown := set(by_broker) - set(await self._shards.clients()):
            raise InvalidRequestError(f"there is no broker {min(unknown)!r}: plan the purge anew")
        await self._shards.change(
            list(by_broker),
            lambda client, name: client.admin.purge_topic(topic, by_broker[name]),
        )
        return None

    async def delete_group(self, group: str, topic: str = "") -> int:
        names = list(await self._shards.clients())
        if not names:
            return await super().delete_group(group, topic)
        counts = await self._shards.change(
            names, lambda client, _: client.admin.delete_group(group, topic)
        )
        return sum(counts)
