"""A slave's appends without gRPC, to a log in a process of its own: each is done once, whatever
becomes of its connection, and what refuses a call refuses it on a connection that was kept."""

import asyncio

import grpc
import pytest

from stratamq.api.v1 import commitlog_pb2 as pb
from stratamq.errors import InvalidRequestError, NotWritableError, StrataError, UnavailableError
from stratamq.follow.own_log import OwnLog
from stratamq.formats.log_state import Role
from stratamq.rpc.endpoints import Channels, Endpoints
from stratamq.rpc.framing import APPEND_DATA_REQUEST
from stratamq.rpc.methods import METHODS
from stratamq.rpc.rooms import COMMITLOG
from stratamq.rpc.socket_calls import SINGLE, Begin, encode_begin
from tests.support.brokers import Broker, broker_fixture
from tests.support.logs import raw_frame

SETTINGS = ("commitlog.segment_bytes=65536", "commitlog.followers=", "commitlog.role=SLAVE")


class Follower:
    """What the replication service has of its log."""

    def __init__(self, broker: Broker) -> None:
        self.channels = Channels(Endpoints(broker.root), grpc.aio)
        self.own = OwnLog(self.channels)
        self.generation = self.end = 0

    async def __aenter__(self) -> "Follower":
        facts = await self.own.facts()
        self.generation, self.end = facts.generation, facts.appended_offset
        return self

    async def __aexit__(self, *_: object) -> None:
        for channel in self.channels.close():
            await channel.close()

    def frame(self) -> bytes:
        return raw_frame(b"body", physical_offset=self.end)

    async def append(self) -> None:
        end = await self.own.append(self.generation, self.end, [self.frame()])
        self.end = end
        assert (await self.own.facts()).appended_offset == end

    @property
    def kept(self) -> int:
        """Connections on which no call is under way."""
        return len(self.channels.socket_calls(COMMITLOG)._idle)


slave = broker_fixture(*SETTINGS, rooms=[COMMITLOG], scope="function")


async def test_an_append_whose_answer_is_lost_is_done_once(slave):
    async with Follower(slave) as follower:
        head = pb.AppendDataRequest(generation=follower.generation, offset=0)
        request = APPEND_DATA_REQUEST.encode(head, follower.frame())
        path = Endpoints(slave.root).calls(COMMITLOG)
        _, writer = await asyncio.open_unix_connection(path)
        writer.write(encode_begin(Begin(SINGLE, 0, METHODS["AppendData"].path, "", b"", request)))
        while not (end := (await follower.own.facts()).appended_offset):
            await asyncio.sleep(0)
        writer.transport.abort()
        with pytest.raises(InvalidRequestError) as refused:
            await follower.append()
        assert refused.value.fields["appended"] == end == len(follower.frame())
        follower.end = end
        await follower.append()


async def test_half_a_request_appends_nothing(slave):
    async with Follower(slave) as follower:
        head = pb.AppendDataRequest(generation=follower.generation, offset=0)
        request = APPEND_DATA_REQUEST.encode(head, follower.frame())
        whole = encode_begin(Begin(SINGLE, 0, METHODS["AppendData"].path, "", b"", request))
        for size in (3, 60, len(whole) - 1):
            _, writer = await asyncio.open_unix_connection(Endpoints(slave.root).calls(COMMITLOG))
            writer.write(whole[:size])
            await writer.drain()
            writer.close()
            await writer.wait_closed()
        await follower.append()
        assert follower.end == len(follower.frame())


async def test_another_generation_and_role_refuse_appends_on_a_kept_connection(slave):
    async with Follower(slave) as follower:
        await follower.append()
        assert follower.kept == 1
        follower.generation += 1
        with pytest.raises(NotWritableError) as refused:
            await follower.append()
        assert refused.value.fields["reason"] == "generation"
        await follower.own.set_role(Role.ASYNC_MASTER, term=1)
        with pytest.raises(NotWritableError) as refused:
            await follower.append()
        assert refused.value.fields["reason"] == "role"
        assert follower.kept == 1
        with pytest.raises(NotWritableError):
            await follower.own.report(follower.generation, [])
        generation = (await follower.own.facts()).generation
        await follower.own.report(generation, [])
        assert follower.kept == 1


@pytest.mark.parametrize("way", ["stop", "kill"])
async def test_a_log_that_restarts_is_found_again_and_has_each_append_once(slave, way):
    async with Follower(slave) as follower:
        await follower.append()
        if way == "stop":
            slave.stop()
        else:
            slave.kill(COMMITLOG)
        with pytest.raises(UnavailableError):
            await follower.append()
        slave.start([COMMITLOG])
        before = follower.end
        while follower.end == before:  # gRPC waits before it connects again
            try:
                await follower.append()
            except UnavailableError:
                await asyncio.sleep(0)
        assert follower.end == 2 * before
        assert follower.kept == 1


async def test_appends_that_are_cancelled_are_done_once_or_not_at_all(slave):
    async with Follower(slave) as follower:
        for turns in range(12):
            task = asyncio.ensure_future(follower.append())
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
            end = follower.end
            try:
                await follower.append()
            except StrataError:
                follower.end = (await follower.own.facts()).appended_offset
                assert follower.end == end + len(follower.frame())
