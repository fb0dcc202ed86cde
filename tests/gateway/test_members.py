"""The clients of the classic protocol that a gateway knows: those of which it has heard lately."""

from unittest.mock import Mock

import pytest
from stratamq_gateway.members import EXPIRY_S, ConnectedClients, Heartbeat, subscription

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


def beat(members, client_id, *groups):
    consumers = tuple((group, {}, (subscription("t", "*"),)) for group in groups)
    members.beat(Channel(), Heartbeat(client_id, (), consumers))


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
