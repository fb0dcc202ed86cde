"""The part of DeliveryService that is for gateways: classic members, and locks of queues."""

import asyncio
from collections.abc import AsyncIterator, Iterable

from stratamq.api.v1 import delivery_pb2 as pb
from stratamq.errors import InvalidRequestError, NotWritableError, UnavailableError
from stratamq.files.port import Clock
from stratamq.follow.own_log import OwnLog
from stratamq.formats.text import LONGEST_NAME_BYTES
from stratamq.service.classic_calls import BEAT_S, MAX_LOCKED
from stratamq.service.entrance import Call
from stratamq.service.queue_locks import QueueLocks, QueueName
from stratamq_delivery.classic_members import BATCH, ClassicMembers, GatewayStream, MemberKey

MAX_LISTED = 10_000
SETTLED_S = 2.0
"""So long after the service's start all gateways that run have a stream."""
SILENT_BEATS = 3
"""A time in which this service itself stood still counts as one."""


class ForGateways:
    """Belongs to the event loop."""

    def __init__(self, log: OwnLog, clock: Clock) -> None:
        self._members = ClassicMembers()
        self._locks = QueueLocks(clock)
        self._log = log
        self._clock = clock
        self._began_ns = clock.monotonic_ns()

    async def drain(self) -> None:
        """End the gateways' streams: the service stops."""
        self._members.end()

    async def ShareMembers(
        self, requests: AsyncIterator[pb.ShareMembersRequest], call: Call
    ) -> AsyncIterator[pb.ShareMembersResponse]:
        stream = self._members.open()
        reading = asyncio.create_task(self._hear(requests, stream))
        reading.add_done_callback(lambda _: stream.end())
        watching = asyncio.create_task(self._watch(stream, reading))
        age_s = (self._clock.monotonic_ns() - self._began_ns) / 1e9
        asyncio.get_running_loop().call_later(max(0.0, SETTLED_S - age_s), stream.settle)
        try:
            yield pb.ShareMembersResponse()  # the gateway is heard
            while not stream.ended:
                stream.moved.clear()
                while changes := stream.next():
                    yield pb.ShareMembersResponse(
                        changes=[
                            pb.MemberChange(
                                gateway=key.gateway,
                                group=key.group,
                                client_id=key.client_id,
                                member=member,
                            )
                            for key, member in changes.items()
                        ]
                    )
                    await asyncio.sleep(0)
                if stream.is_settled:
                    stream.is_settled = False
                    yield pb.ShareMembersResponse(told_all=True)
                await stream.moved.wait()
            if reading.cancelled():
                raise UnavailableError("the gateway has said nothing for too long")
            if reading.done():
                reading.result()
        finally:
            watching.cancel()
            reading.cancel()
            await self._forget(stream)

    async def _hear(
        self, requests: AsyncIterator[pb.ShareMembersRequest], stream: GatewayStream
    ) -> None:
        async for request in requests:
            stream.silent = 0
            for one in request.changes:
                key = MemberKey(one.gateway, one.group, one.client_id)
                self._members.say(stream, key, one.member)
            await asyncio.sleep(0)

    async def _watch(self, stream: GatewayStream, reading: "asyncio.Task[None]") -> None:
        """A gateway that hangs has no members. It may not even read that its stream has ended."""
        while stream.silent < SILENT_BEATS:
            stream.silent += 1
            await asyncio.sleep(BEAT_S)
        reading.cancel()
        await self._forget(stream)

    async def _forget(self, stream: GatewayStream) -> None:
        while self._members.close(stream):
            await asyncio.sleep(0)

    async def ListClassicMembers(
        self, request: pb.ListClassicMembersRequest, call: Call
    ) -> pb.ListClassicMembersResponse:
        response = pb.ListClassicMembersResponse(now_ms=self._clock.wall_ms())
        for client_id, member in list(self._members.of_group(request.group)):
            if len(response.members) == MAX_LISTED:
                response.truncated = True
                break
            said = pb.ClassicMember.FromString(member)
            response.members.add(client_id=client_id, member=said)
            if len(response.members) % BATCH == 0:
                await asyncio.sleep(0)
        return response

    async def LockQueues(self, request: pb.LockQueuesRequest, call: Call) -> pb.LockQueuesResponse:
        if len(request.queues) > MAX_LOCKED:
            raise InvalidRequestError(f"a request is for at most {MAX_LOCKED} queues")
        names = {one.broker for one in request.queues} | {one.topic for one in request.queues}
        for name in (request.group, request.client_id, *names):
            if len(name.encode()) > LONGEST_NAME_BYTES:
                raise InvalidRequestError(f"a name has at most {LONGEST_NAME_BYTES} bytes")
        asked = [QueueName(one.broker, one.topic, one.queue_id) for one in request.queues]
        if request.unlock:
            self._locks.unlock(request.group, request.client_id, asked)
            return pb.LockQueuesResponse()
        state = await self._log.facts()
        if not state.is_master:
            raise NotWritableError("queues are locked at the master", "role")
        self._locks.settle(state)
        locked = self._locks.lock(request.group, request.client_id, asked, kept=request.kept)
        return pb.LockQueuesResponse(
            queues=_messages(locked.granted), unknown=_messages(locked.unknown)
        )


def _messages(queues: Iterable[QueueName]) -> list[pb.LockedQueue]:
    return [
        pb.LockedQueue(broker=one.broker, topic=one.topic, queue_id=one.queue_id) for one in queues
    ]
