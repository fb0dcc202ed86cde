"""The clients of the classic protocol that a gateway knows: those of which it has heard lately."""

from unittest.mock import Mock

import pytest
from stratamq_gateway.grouping import Leaving, Unregister
from stratamq_gateway.members import (
    EXPIRY_S,
    MAX_GROUPS_OF_CLIENT,
    ConnectedClients,
    Heartbeat,
    subscription,
)

from stratamq.errors import InvalidRequestError
from stratamq.files.simulated_time import SimulatedClock

CHANGED = 40


class Channel(Mock):
    language, version, address = "JAVA", 399, "h:1"


@pytest.fixture
def clock():
    return SimulatedClock()


@pytest.fixture
def members(clock):
    return ConnectedClients(clock, CHANGED)


def beat(members, client_id, *groups, producers=(), topics=("t",), channel=None):
    subscriptions = tuple(subscription(topic, "*") for topic in topics)
    consumers = tuple((group, {}, subscriptions) for group in groups)
    channel = channel or Channel()
    members.beat(channel, Heartbeat(client_id, producers, consumers))
    return channel


async def test_a_consumer_without_a_heartbeat_for_two_minutes_is_forgotten(clock, members):
    beat(members, "silent", "g")
    clock.advance_ms(EXPIRY_S * 1_000)
    members.expire()
    assert [*members.groups["g"].members] == ["silent"]
    clock.advance_ms(1)
    members.expire()
    assert members.groups == {}


async def test_a_consumer_that_joined_first_and_still_beats_hides_no_silent_one(clock, members):
    for client_id in ("beats", "silent"):
        beat(members, client_id, "g", "other")
    clock.advance_ms(EXPIRY_S * 1_000)
    beat(members, "beats", "g")
    clock.advance_ms(1)
    members.expire()
    assert [*members.groups["g"].members] == ["beats"]
    assert "other" not in members.groups


async def test_a_producer_without_a_heartbeat_for_two_minutes_is_forgotten(clock, members):
    beats = beat(members, "beats", producers=("p", "q"))
    beat(members, "silent", producers=("p",))
    clock.advance_ms(EXPIRY_S * 1_000)
    beat(members, "beats", producers=("p",), channel=beats)
    members.expire()
    assert [*members.producers["p"]] == ["beats", "silent"]
    clock.advance_ms(1)
    members.expire()
    assert members.producers == {"p": {"beats": beats}}


async def test_a_connection_has_no_more_groups_than_a_client(clock, members):
    names = [f"g{number}" for number in range(MAX_GROUPS_OF_CLIENT)]
    channel = beat(members, "one", *names[:600], producers=names[600:])
    for client_id, groups, producers in (("one", ["h"], ()), ("two", [], ["g0"])):
        with pytest.raises(InvalidRequestError):
            beat(members, client_id, *groups, producers=producers, channel=channel)
    beat(members, "one", *names[:600], channel=channel)
    assert len(members.groups) == 600 and len(members.producers) == 400
    clock.advance_ms(EXPIRY_S * 1_000 + 1)
    members.expire()
    beat(members, "two", *names, channel=channel)


async def test_a_client_that_stops_producing_goes_on_consuming_for_a_group_of_that_name(members):
    channel = beat(members, "one", "app", producers=("app",))
    stop = Unregister(members)
    await stop.answer(None, channel, Leaving("one", "app", ""))
    assert not members.producers and members.consumers("app") == ["one"]
    beat(members, "one", "app", producers=("app",), channel=channel)
    await stop.answer(None, channel, Leaving("one", "", "app"))
    assert [*members.producers["app"]] == ["one"] and not members.groups
    members.closed(channel)
    assert not members.producers


async def test_a_group_has_the_topics_of_its_members(members):
    first = beat(members, "one", "g", topics=("a", "b"))
    second = beat(members, "two", "g", topics=("b", "b", "c"))
    for number in range(3):
        beat(members, "one", "g", topics=("b", f"new-{number}"), channel=first)
    assert {*members.groups["g"].subscriptions} == {"b", "c", "new-2"}
    members.closed(second)
    assert {*members.groups["g"].subscriptions} == {"b", "new-2"}
