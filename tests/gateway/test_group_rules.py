"""Settings of groups as the gateway learns them: by heartbeats, from a service that may be away."""

import asyncio

import pytest
from stratamq_gateway.group_rules import ASKED_EVERY_S, KEPT_S, GroupRules

from stratamq.client import GroupSettings
from stratamq.errors import NotFoundError, UnavailableError
from stratamq.files.simulated_time import SimulatedClock


class Delivery:
    """Answers with what `said` has: settings, or an error."""

    def __init__(self):
        self.said, self.asked = {}, []

    async def group_settings(self, group):
        self.asked.append(group)
        answer = self.said.get(group, NotFoundError("no settings"))
        await asyncio.sleep(0)
        if isinstance(answer, Exception):
            raise answer
        return [answer]

    def disable(self, group):
        self.said[group] = GroupSettings(group, False, 3, False)


@pytest.fixture
def clock():
    return SimulatedClock()


@pytest.fixture
def delivery():
    return Delivery()


@pytest.fixture
def rules(delivery, clock):
    return GroupRules(delivery, clock)


async def beat(rules, group):
    rules.beat(group)
    await settled()


async def settled():
    for _ in range(3):
        await asyncio.sleep(0)


async def test_a_change_elsewhere_is_known_with_a_later_heartbeat(rules, delivery, clock):
    await beat(rules, "g")
    delivery.disable("g")
    await beat(rules, "g")
    assert (delivery.asked, rules.may_consume("g")) == (["g"], True)
    clock.advance_ms(ASKED_EVERY_S * 1_000 + 1)
    await beat(rules, "g")
    assert (delivery.asked, rules.may_consume("g")) == (["g", "g"], False)
    clock.advance_ms(ASKED_EVERY_S * 1_000 + 1)
    delivery.said["g"] = UnavailableError("away")
    await beat(rules, "g")
    assert not rules.may_consume("g"), "what is known stays"
    clock.advance_ms(ASKED_EVERY_S * 1_000 + 1)
    del delivery.said["g"]
    await beat(rules, "g")
    assert rules.may_consume("g"), "a group without settings may"


async def test_an_answer_from_before_a_tools_change_is_not_believed(rules, delivery):
    rules.beat("g")
    await asyncio.sleep(0)
    assert delivery.asked == ["g"]
    rules.change(GroupSettings("g", False, 3, False))
    await settled()
    assert not rules.may_consume("g")


async def test_a_change_of_another_group_does_not_hide_what_was_asked(rules, delivery):
    delivery.disable("g")
    rules.beat("g")
    await asyncio.sleep(0)
    rules.change(GroupSettings("other", True, 3, True))
    await settled()
    assert not rules.may_consume("g")


async def test_a_group_without_consumers_is_forgotten(rules, delivery, clock):
    for group in ("gone", "here"):
        delivery.disable(group)
        await beat(rules, group)
    clock.advance_ms(KEPT_S * 500)
    await beat(rules, "here")
    clock.advance_ms(KEPT_S * 500 + 1)
    await beat(rules, "another")
    assert rules.may_consume("gone")
    assert not rules.may_consume("here")


async def test_a_group_has_its_own_number_of_retries_or_rocketmqs(rules, delivery):
    delivery.disable("g")
    assert (await rules.retries("g"), await rules.retries("unknown")) == (3, 16)
