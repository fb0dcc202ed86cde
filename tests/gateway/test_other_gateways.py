"""What a gateway makes of the members of others, and how it tells its own: over a stream that is
played."""

import asyncio
import json
import random
from contextlib import asynccontextmanager
from dataclasses import replace
from unittest.mock import Mock

import pytest
from stratamq_gateway import admin_groups, elsewhere, other_gateways
from stratamq_gateway import members as of_members
from stratamq_gateway.grouping import ListConsumers, OfGroup
from stratamq_gateway.members import ConnectedClients, Heartbeat, subscription
from stratamq_gateway.other_gateways import BATCH, OtherGateways

from stratamq.api.v1 import delivery_pb2 as pb
from stratamq.errors import InvalidRequestError, UnavailableError
from stratamq.files.simulated_time import SimulatedClock
from stratamq.service import classic_calls
from stratamq.service.classic_calls import ClassicMember, ClassicSubscription, MemberChange

CHANGED = 40
SAID = ClassicMember("h:1", "JAVA", 395, "CONSUME_PASSIVELY", "CLUSTERING", "", 5)


class Channel(Mock):
    language, version, address = "GO", 399, "h:2"


def heartbeat(client_id, *groups, version=1):
    one = (subscription("t", "a", version=version),)
    return Heartbeat(client_id, (), tuple((group, {"consumeType": 0}, one) for group in groups))


def change(client_id, member=SAID, gateway=9):
    return MemberChange(gateway, "g", client_id, member)


class Played:
    """The delivery service's end of the streams, one after the other."""

    told_all = False

    def __init__(self):
        self.said, self.beats = [], 0
        self.answers = asyncio.Queue()

    async def begin(self, channels):
        return self

    async def say(self, changes):
        self.beats += not changes
        assert len(changes) <= BATCH
        self.said += changes

    async def read(self):
        answer = await self.answers.get()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def end(self):
        pass

    def ends(self):
        self.answers.put_nowait(UnavailableError("gone"))

    def tells(self, *changes):
        self.answers.put_nowait(list(changes))


def linked_to(members):
    return OtherGateways(Mock(), Mock(), members, SimulatedClock(), random.Random(1))


@asynccontextmanager
async def linked(monkeypatch, members):
    played = Played()
    monkeypatch.setattr(other_gateways, "SharedMembers", played)
    others = linked_to(members)
    played.number, played.others = others.number, others
    running = asyncio.create_task(others.run())
    played.tells()
    yield played
    assert not running.done()
    running.cancel()
    await asyncio.wait([running])


async def until(condition):
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.001)


@pytest.fixture
def members():
    return ConnectedClients(SimulatedClock(), CHANGED)


def play(scene):
    asyncio.run(scene())


def test_what_is_here_is_said_once_and_then_what_changes(monkeypatch, members):
    async def scene():
        channel = Channel()
        members.beat(channel, heartbeat("one", "g", "h"))
        async with linked(monkeypatch, members) as played:
            await until(lambda: len(played.said) == 2)
            members.beat(channel, heartbeat("one", "g", "h"))
            assert not members.unsaid, "it is what the last one said"
            members.beat(channel, heartbeat("one", "g", "h", version=2))
            await until(lambda: len(played.said) == 4)
            members.stop_consuming(channel, "g", "one")
            await until(lambda: len(played.said) == 5)
            assert played.said[-1] == MemberChange(played.number, "g", "one", None)
            said = {one.group: one.member for one in played.said[2:4]}
            assert set(said) == {"g", "h"}
            assert said["h"] == ClassicMember(
                "h:2", "GO", 399, "CONSUME_ACTIVELY", "", "", said["h"].since_ms,
                (ClassicSubscription("t", "a", "TAG", 2),),
            )  # fmt: skip

    play(scene)


def test_a_gateway_without_news_says_that_it_is_there(monkeypatch, members):
    monkeypatch.setattr(other_gateways, "BEAT_S", 0.001)

    async def scene():
        async with linked(monkeypatch, members) as played:
            await until(lambda: played.beats > 2)

    play(scene)


@pytest.mark.parametrize("there", [True, False])
def test_no_client_is_told_a_list_before_the_consumers_at_other_gateways_are_known(
    monkeypatch, members, there
):
    async def scene():
        async with linked(monkeypatch, members) as played:
            played.others.clients.others = lambda: ["gateway"] if there else []
            handler = ListConsumers(members, played.others.clients)
            listed = asyncio.create_task(handler.answer(None, None, OfGroup("g")))
            played.tells(change("one"))
            await until(lambda: members.consumers("g") == ["one"])
            assert listed.done() is not there
            played.told_all = True
            played.tells(change("two"))
            body = (await listed).body
            assert (b"two" in body) is there

    play(scene)


def test_clients_are_told_a_list_after_a_while_without_the_delivery_service(monkeypatch, members):
    monkeypatch.setattr(elsewhere, "START_S", 0.01)

    async def scene():
        async with linked(monkeypatch, members) as played:
            played.others.clients.others = lambda: ["gateway"]
            await played.others.clients.known()

    play(scene)


def test_members_stay_while_the_stream_is_gone_and_go_if_they_are_not_said_again(
    monkeypatch, members
):
    monkeypatch.setattr(other_gateways, "KEPT_S", 600)

    async def scene():
        channel = Channel()
        members.beat(channel, heartbeat("here", "g"))
        async with linked(monkeypatch, members) as played:
            played.tells(change("one"), change("two"))
            await until(lambda: set(members.consumers("g")) == {"here", "one", "two"})
            await until(lambda: channel.notify.call_count == 2)  # itself, and both at once
            played.ends()
            monkeypatch.setattr(other_gateways, "RETURN_S", 0.01)
            played.tells(change("one"))
            await until(lambda: set(members.consumers("g")) == {"here", "one"})
            await until(lambda: channel.notify.call_count == 3)

    play(scene)


def test_what_no_gateway_can_be_told_of_is_not_kept(monkeypatch, members):
    async def scene():
        async with linked(monkeypatch, members) as played:
            await until(lambda: members.says_news)
            played.others._backoff = Mock(next_delay_s=lambda: 600)
            played.ends()
            await until(lambda: not members.says_news)
            for number in range(9):
                channel = Channel()
                members.beat(channel, heartbeat(f"gone-{number}", "g"))
                members.closed(channel)
            assert not members.unsaid

    play(scene)


def test_members_do_not_stay_for_ever_without_a_stream(monkeypatch, members):
    monkeypatch.setattr(other_gateways, "KEPT_S", 0.01)

    async def scene():
        async with linked(monkeypatch, members) as played:
            played.tells(change("one"))
            await until(lambda: members.consumers("g") == ["one"])
            played.ends()
            await until(lambda: not members.groups)

    play(scene)


def test_a_client_that_moves_is_a_member_all_the_time(monkeypatch, members):
    async def scene():
        channel = Channel()
        members.beat(channel, heartbeat("one", "g"))
        async with linked(monkeypatch, members) as played:
            played.tells(change("one"), change("two"))
            await until(lambda: len(members.consumers("g")) == 2)
            members.closed(channel)
            assert set(members.consumers("g")) == {"one", "two"}
            played.tells(change("one", None), change("one", None, gateway=played.number))
            await until(lambda: members.consumers("g") == ["two"])

    play(scene)


def test_the_newest_subscription_counts_wherever_it_was_said(members):
    async def scene():
        newer = replace(SAID, subscriptions=(ClassicSubscription("t", "b", "TAG", 5),))
        others = linked_to(members)
        members.beat(Channel(), heartbeat("here", "g", version=3))
        others.take([change("one", newer)])
        assert members.subscription("g", "t") == subscription("t", "b", version=5)
        assert not members.lacks("g", "t", 5)

    play(scene)


def test_changes_of_a_large_group_are_told_a_few_at_a_time_and_once_for_many(monkeypatch, members):
    monkeypatch.setattr(of_members, "TOLD_AT_ONCE", 10)

    async def scene():
        channels = [Channel() for _ in range(100)]
        for number, channel in enumerate(channels):
            members.beat(channel, heartbeat(f"c{number}", "g"))
        others = linked_to(members)
        others.take([change(f"e{number}") for number in range(BATCH)])
        before = calls(channels)
        await asyncio.sleep(0)
        assert calls(channels) - before <= 10
        await until(lambda: min(one.notify.call_count for one in channels) >= 1)
        for _ in range(99):
            await asyncio.sleep(0)
        assert calls(channels) < 300, "and not 132 changes times 100 members"

    play(scene)


def test_a_large_group_is_listed_beside_other_work(monkeypatch, members):
    monkeypatch.setattr(admin_groups, "LISTED_AT_ONCE", 10)

    async def scene():
        linked_to(members).take([change(f"é{number}") for number in range(95)])
        turns = 0

        async def others():
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        beside = asyncio.create_task(others())
        listed = await admin_groups.ConnectedConsumers(members).answer(None, None, OfGroup("g"))
        beside.cancel()
        assert turns >= 10
        found = json.loads(listed.body)
        assert [one["clientId"] for one in found["connectionSet"]] == members.consumers("g")
        assert found["messageModel"] == "CLUSTERING" and found["subscriptionTable"] == {}

    play(scene)


def calls(channels):
    return sum(one.notify.call_count for one in channels)


def test_a_member_that_says_very_much_is_told_without_its_subscriptions():
    long = tuple(ClassicSubscription("t" * 99, "x" * 99, "TAG", 1) for _ in range(1_000))
    data = classic_calls.encoded(replace(SAID, subscriptions=long))
    assert len(data) < classic_calls.MAX_MEMBER_BYTES
    assert classic_calls.member_of(pb.ClassicMember.FromString(data)) == SAID


def test_a_version_of_a_subscription_fits_what_gateways_tell_each_other():
    for version in ("9" * 30, -(1 << 64)):
        said = {"topic": "t", "subString": "*", "subVersion": version}
        body = {"clientID": "c", "consumerDataSet": [{"groupName": "g"}]}
        body["consumerDataSet"][0]["subscriptionDataSet"] = [said]
        with pytest.raises(InvalidRequestError):
            of_members.decode_heartbeat(json.dumps(body).encode())
