"""The asyncio client: the same calls as the synchronous one. Of one event loop."""

import asyncio
import os
import random as random_module
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import grpc

from stratamq.api.v1 import commitlog_pb2
from stratamq.client import operations
from stratamq.client.aio_consumer import AsyncConsumer, plan_run
from stratamq.client.aio_producer import AsyncProducer
from stratamq.client.consuming import EARLIEST, Plan, Reading, Start, plan_between, plan_consume
from stratamq.client.intake import Intake, ProducerSettings
from stratamq.client.operations import Found, Operation, Pulled, merge_page
from stratamq.client.received import ReceivedMessage
from stratamq.client.replication_state import (
    Demotion,
    Promotion,
    Removal,
    ReplicationState,
    admit_member,
    demote,
    promote,
    remove_member,
    replication_state,
    resync,
)
from stratamq.client.values import (
    CleaningLook,
    FollowerServiceState,
    GroupQueue,
    JanitorState,
    LogState,
    Message,
    Queue,
    Retention,
    Role,
    SendResult,
    TimeBoundary,
    Topic,
    Unit,
)
from stratamq.errors import UnavailableError
from stratamq.files.clock import SystemClock
from stratamq.files.port import Clock, Random
from stratamq.formats.members import Members
from stratamq.rpc.backoff import Backoff
from stratamq.rpc.endpoints import Channels, Endpoints, parse_target
from stratamq.rpc.framing import READ_RANGE_RESPONSE
from stratamq.rpc.methods import METHODS
from stratamq.rpc.status import from_rpc_error

R = TypeVar("R")


class AsyncClient:
    """One broker. `patience_s` is how long calls that change nothing are tried again while their
    service does not answer; appends never are."""

    def __init__(
        self,
        endpoints: Endpoints,
        *,
        timeout_s: float = 30.0,
        patience_s: float = 0.0,
        clock: Clock | None = None,
        random: Random | None = None,
    ) -> None:
        self._channels = Channels(endpoints, grpc.aio.insecure_channel)
        self._timeout_s = timeout_s
        self._patience_s = patience_s
        self._clock = clock or SystemClock()
        self._random = random or random_module.SystemRandom()
        self._intake = Intake(ProducerSettings(), self._clock, self._random)
        self._closed = asyncio.Event()

    # --- storing ---

    async def send(
        self,
        topic: str,
        body: bytes,
        *,
        tag: str = "",
        keys: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        queue_id: int | None = None,
        unique_key: str | None = None,
        delay_level: int = 0,
        half: bool = False,
        wait_store_ok: bool = True,
        require_replicas: bool = False,
    ) -> SendResult:
        """Store one message and wait until it is as safe as the broker promises.

        Raises what kept it from being stored. UnavailableError means *perhaps stored*. A result
        whose status is not PUT_OK is stored, and not confirmed in time. `delay_level` above 0 and
        `half` are refused with InvalidRequestError until such messages are delivered.
        `require_replicas`: BusyError, and nothing is stored, while fewer slaves are connected than
        a SYNC_MASTER requires; NotWritableError of a broker that waits for none.
        """
        return await self.send_message(
            Message(
                topic,
                body,
                tag,
                keys,
                properties or {},
                queue_id,
                unique_key,
                delay_level=delay_level,
                half=half,
                wait_store_ok=wait_store_ok,
            ),
            require_replicas=require_replicas,
        )

    async def send_message(self, message: Message, *, require_replicas: bool = False) -> SendResult:
        return (await self.send_all([message], require_replicas=require_replicas))[0].check()

    async def send_all(
        self,
        messages: Sequence[Message],
        *,
        all_or_nothing: bool = False,
        require_replicas: bool = False,
    ) -> list[SendResult]:
        """Store a few messages by one call. Every result says how its message ended. For many use a
        producer.

        InvalidRequestError, and nothing is sent, when one has a text for a body, or is a delayed or
        a half message.
        """
        messages = [self._intake.message(message) for message in messages]
        return await self._run(operations.send(messages, all_or_nothing, require_replicas))

    def producer(
        self,
        *,
        on_result: Callable[[SendResult], None] | None = None,
        settings: ProducerSettings | None = None,
        **changes: Any,
    ) -> AsyncProducer:
        """For many messages. `changes` are fields of `ProducerSettings`:
        `client.producer(batch_bytes=1 << 20, retry=3)`."""
        settings = settings or ProducerSettings(**changes)
        return AsyncProducer(self._channels, settings, on_result, self._clock, self._random)

    # --- reading ---

    async def pull(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        *,
        max_messages: int = 32,
        max_bytes: int = 0,
        tags: Iterable[str] = (),
        tags_codes: Iterable[int] = (),
        wait_ms: int = 0,
    ) -> Pulled:
        """One answer of one queue, as RocketMQ gives it. Without `max_bytes` RocketMQ's limits
        hold; `wait_ms` waits so long for a first message."""
        return await self._run(
            operations.pull(
                topic,
                queue_id,
                offset,
                max_messages=max_messages,
                max_bytes=max_bytes,
                tags=tags,
                tags_codes=tags_codes,
                wait_ms=wait_ms,
            )
        )

    async def consume(
        self,
        topic: str,
        *,
        queues: Collection[int] | None = None,
        offset: Start = EARLIEST,
        tags: Iterable[str] = (),
        follow: bool = False,
        group: str | None = None,
        max_bytes: int = 0,
        patience_s: float | None = 30.0,
        refresh_s: float = 30.0,
        commit_interval_s: float = 5.0,
    ) -> AsyncConsumer:
        """Iterate over a topic's messages, in each queue in order.

        Without `follow` everything that was acknowledged by now. With `group` from its committed
        offsets, where it has any. A service that is away is waited for `patience_s`, following
        readers wait for ever.
        """

        def make_plan() -> Plan:
            return plan_consume(topic, queues, offset, group, follow)

        ranges = await plan_run(self._run, make_plan())
        patience = Backoff(None if follow else patience_s, self._clock, self._random)
        return AsyncConsumer(
            self._channels,
            self._run,
            make_plan,
            Reading(ranges, tags, max_bytes),
            group=group,
            follow=follow,
            patience=patience,
            refresh_s=refresh_s,
            commit_interval_s=commit_interval_s,
        )

    async def between(
        self, topic: str, begin_ms: int, end_ms: int, *, tags: Iterable[str] = ()
    ) -> AsyncConsumer:
        """Iterate over what was stored from `begin_ms` to `end_ms`, both inclusive."""

        def make_plan() -> Plan:
            return plan_between(topic, begin_ms, end_ms)

        return AsyncConsumer(
            self._channels,
            self._run,
            make_plan,
            Reading(await plan_run(self._run, make_plan()), tags, 0),
            group=None,
            follow=False,
            patience=Backoff(30.0, self._clock, self._random),
            refresh_s=30.0,
            commit_interval_s=5.0,
        )

    async def message_at(self, physical_offset: int) -> ReceivedMessage:
        """By its offset in the log."""
        return await self._run(operations.message_at(physical_offset))

    async def log_frames(self, begin: int, end: int = 0) -> AsyncIterator[tuple[int, memoryview]]:
        """(log offset, whole frames one behind the other), each verified by the log service.

        See the synchronous client's.
        """
        request = commitlog_pb2.ReadRangeRequest(start_offset=begin, end_offset=end, verify=True)
        call = self._channels.callable(METHODS["ReadRange"])(request)
        try:
            async for response in call:
                head, (data,) = READ_RANGE_RESPONSE.decode(response)
                yield head.offset, data
        except grpc.RpcError as failure:
            raise from_rpc_error(failure) from failure
        finally:
            call.cancel()

    async def message_by_id(self, message_id: str) -> ReceivedMessage:
        """By its offset message id."""
        return await self._run(operations.message_by_id(message_id))

    async def query_key(
        self,
        topic: str,
        key: str,
        *,
        max_messages: int = 32,
        begin_ms: int = 0,
        end_ms: int = 0,
        oldest_first: bool = False,
    ) -> Found:
        """By a word of KEYS, or a unique key; newest first."""
        return await self._run(
            operations.query_key(
                topic,
                key,
                max_messages=max_messages,
                begin_ms=begin_ms,
                end_ms=end_ms,
                oldest_first=oldest_first,
            )
        )

    async def query_unique_key(
        self, topic: str, unique_key: str, *, max_messages: int = 32
    ) -> Found:
        return await self._run(
            operations.query_key(topic, unique_key, max_messages=max_messages, unique=True)
        )

    async def offset_at_time(
        self,
        topic: str,
        queue_id: int,
        timestamp_ms: int,
        boundary: TimeBoundary = TimeBoundary.LOWER,
    ) -> int:
        """The queue offset at a moment; 0 for a queue that nobody knows, as in RocketMQ."""
        return await self._run(operations.offset_at_time(topic, queue_id, timestamp_ms, boundary))

    # --- groups ---

    async def commit_offsets(self, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
        """The next offsets a group will read, by (topic, queue id)."""
        await self._run(operations.commit_offsets(group, offsets))

    async def committed_offsets(self, group: str, topic: str = "") -> dict[tuple[str, int], int]:
        return await self._run(operations.committed_offsets(group, topic))

    async def groups(self) -> list[GroupQueue]:
        return await self._run(operations.groups())

    # --- listings and states ---

    async def topics(self) -> list[Topic]:
        return await self._run(operations.topics())

    async def put_topic(self, topic: Topic) -> Topic:
        """Create a topic or change its settings; durable on return."""
        return await self._run(operations.put_topic(topic))

    async def queues(self, topic: str = "") -> list[Queue]:
        """Of one topic, or of all."""
        return await self._run(operations.queues(topic))

    async def units(self, topic: str, queue_id: int, offset: int, count: int = 32) -> list[Unit]:
        return await self._run(operations.units(topic, queue_id, offset, count))

    async def log_state(self) -> LogState:
        return await self._run(operations.log_state())

    async def delete_below(
        self, offset: int, *, max_segments: int = 10, urgent: bool = False
    ) -> tuple[int, tuple[str, ...]]:
        """Let the log delete whole segments below `offset`; see the synchronous client's."""
        return await self._run(
            operations.delete_below(offset, max_segments=max_segments, urgent=urgent)
        )

    async def trust_clock(self) -> None:
        """The wall clock is right, however far it has jumped ahead: messages get its time again."""
        await self._run(operations.trust_clock())

    async def replication_state(self) -> ReplicationState:
        """A master's slaves, or how a slave follows its master."""
        return await self._run(replication_state())

    async def resync(self) -> None:
        """Let a slave begin anew; see the synchronous client's."""
        await self._run(resync())

    async def promote(self, role: Role | None = None, *, force: bool = False) -> Promotion:
        """Make this broker the master: everybody who hears of its higher term stops writing.
        NotWritableError says what speaks against it; `force` does it all the same."""
        return await self._run(promote(role, force))

    async def demote(self, master: str = "", *, force: bool = False) -> Demotion:
        """Make this broker a slave that follows the master whose slaves connect to `master`; "":
        the other members know. NotWritableError if no slave has everything, unless `force`."""
        return await self._run(demote(master, force))

    async def remove_member(self, name: str, *, force: bool = False) -> Removal:
        """Take a member that is dead for good out of its cluster, at the master. NotWritableError
        when it answers, or another one lacks something, unless `force`."""
        return await self._run(remove_member(name, force))

    async def admit_member(self, name: str) -> Members:
        """Take a removed member in again, or add one that is configured at this master. It counts
        when it has what this master had confirmed."""
        return await self._run(admit_member(name))

    async def janitor_state(self) -> JanitorState:
        """What the janitor has done and found."""
        return await self._run(operations.janitor_state())

    async def retention(self) -> Retention:
        """The rule by which log segments are deleted, and what it takes from the log as it is."""
        return await self._run(operations.retention())

    async def set_retention(self, enabled: bool) -> Retention:
        """Enable or disable deletion in this store; durable on return. `disabled` of the answer
        tells if the setting janitor.enabled wins."""
        return await self._run(operations.set_retention(enabled))

    async def plan_cleaning(
        self, *, manual: bool = False, trust_clock: bool = False
    ) -> CleaningLook:
        """What the janitor would delete now, as by itself or as if asked; nothing is changed."""
        return await self._run(operations.plan_cleaning(manual=manual, trust_clock=trust_clock))

    async def run_cleaning(self, *, trust_clock: bool = False) -> CleaningLook:
        """Let the janitor look now, and delete what may go: expired segments at any hour.

        `trust_clock`: the machine's wall clock is right, whatever the janitor makes of it.
        """
        return await self._run(operations.run_cleaning(trust_clock=trust_clock))

    async def dispatch_state(self) -> FollowerServiceState:
        return await self._run(operations.dispatch_state())

    async def index_state(self) -> FollowerServiceState:
        return await self._run(operations.index_state())

    async def rebuild_index(self, start_offset: int = 0, end_offset: int = 0) -> tuple[int, int]:
        """Build the index of a part of the log anew; files and items written."""
        return await self._run(operations.rebuild_index(start_offset, end_offset))

    # --- the end ---

    async def close(self) -> None:
        """Close the connections. Producers and readers are closed by their owners before."""
        self._closed.set()
        for channel in self._channels.close():
            await channel.close()

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _run(self, operation: Operation[R]) -> R:
        patience = Backoff(self._patience_s, self._clock, self._random)
        timeout_s = self._timeout_s + operation.wait_s
        moved_once = False
        while True:
            try:
                call = self._channels.callable(operation.method)
                answer = await call(operation.request, timeout=timeout_s)
                while (request := operation.next_page(answer)) is not None:
                    merge_page(answer, await call(request, timeout=timeout_s))
                return operation.result(answer)
            except grpc.RpcError as failure:
                error = from_rpc_error(failure)
            except UnavailableError as failure:
                error = failure
            if not isinstance(error, UnavailableError) or self._closed.is_set():
                raise error
            moved = self._channels.renew(operation.method.room)
            if not operation.safe:
                raise error
            if moved and not moved_once:
                moved_once = True
                continue
            delay_s = patience.next_delay_s()
            if delay_s is None:
                raise error
            await asyncio.sleep(delay_s)


def connect_async(
    target: str | os.PathLike[str],
    *,
    timeout_s: float = 30.0,
    patience_s: float = 0.0,
    clock: Clock | None = None,
    random: Random | None = None,
) -> AsyncClient:
    """An asyncio client of the broker at `target`: a store directory, `host:port` of the commit
    log, or `commitlog=host:port,dispatcher=host:port,index=host:port`. Nothing is connected yet."""
    return AsyncClient(
        parse_target(target),
        timeout_s=timeout_s,
        patience_s=patience_s,
        clock=clock,
        random=random,
    )
