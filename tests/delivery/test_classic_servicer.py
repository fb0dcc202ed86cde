"""The streams of gateways: one that says nothing any more has no members."""

import asyncio

import pytest
from stratamq_delivery import classic_servicer
from stratamq_delivery.classic_servicer import ForGateways

from stratamq.api.v1 import delivery_pb2 as pb
from stratamq.errors import UnavailableError
from stratamq.files.simulated_time import SimulatedClock


@pytest.fixture
def service(monkeypatch):
    monkeypatch.setattr(classic_servicer, "BEAT_S", 0.01)
    return ForGateways(None, SimulatedClock())


def said(client_id, member=b""):
    change = pb.MemberChange(gateway=1, group="g", client_id=client_id, member=member)
    return pb.ShareMembersRequest(changes=[change])


async def hanging(*requests):
    for one in requests:
        yield one
    await asyncio.Event().wait()


async def test_a_gateway_knows_when_it_has_been_told_of_all_members(service, monkeypatch):
    """Others may say theirs a little after the service's start."""
    monkeypatch.setattr(classic_servicer, "SETTLED_S", 0.2)
    async with asyncio.timeout(60):
        first = service.ShareMembers(living(), None)
        await anext(first)
        second = service.ShareMembers(living(said("one", b"a")), None)
        await anext(second)
        heard = []
        while not heard or not heard[-1].told_all:
            heard.append(await anext(first))
        assert [one.client_id for each in heard for one in each.changes] == ["one"]
        for stream in (first, second):
            await stream.aclose()


async def living(*requests):
    for one in requests:
        yield one
    while True:
        yield pb.ShareMembersRequest()
        await asyncio.sleep(0.001)


async def told(stream, *names):
    """What the gateway is told next of these clients, in any order."""
    found = {}
    async for response in stream:
        found |= {one.client_id: one.member for one in response.changes}
        if set(found) == set(names):
            return found
    raise AssertionError("the stream has ended")


async def test_a_gateway_that_hangs_has_no_members_and_is_told_so_when_it_goes_on(service):
    async with asyncio.timeout(60):
        hangs = service.ShareMembers(hanging(said("one", b"a"), said("two", b"b")), None)
        await anext(hangs)  # and it reads no more for now
        lives = service.ShareMembers(living(), None)
        assert await told(lives, "one", "two") == {"one": b"a", "two": b"b"}
        assert await told(lives, "one", "two") == {"one": b"", "two": b""}
        with pytest.raises(UnavailableError, match="nothing for too long"):
            await anext(hangs)
        more = service.ShareMembers(hanging(said("three", b"c")), None)
        await anext(more)
        assert await told(lives, "three") == {"three": b"c"}
        for stream in (lives, more):
            await stream.aclose()
