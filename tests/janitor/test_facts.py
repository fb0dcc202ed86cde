"""How far slaves, the tier and groups have come in the log, and who of them is furthest back."""

from dataclasses import replace

import pytest
from stratamq_janitor.facts import Reach, consumed_up_to, replicated_up_to, tiered_up_to

from stratamq.client.values import GroupQueue, Unit
from stratamq.formats.log_state import FollowerState, ReplicaState
from tests.janitor.watched_log import WatchedLog


@pytest.fixture
def state():
    return WatchedLog("2026-06-01T12:00").log_state()


def test_what_every_slave_has_is_replicated_connected_or_not(state):
    assert replicated_up_to(state) == Reach(0, "the log has no slave in its status")
    fast = ReplicaState("10.0.0.1:1", 900, True, 0, 0)
    slow = ReplicaState("10.0.0.2:2", 300, False, 600, 0)
    both = replace(state, replicas=(fast, slow))
    assert replicated_up_to(both) == Reach(300, "slave 10.0.0.2:2, which is not connected")
    assert replicated_up_to(replace(state, replicas=(fast,))).offset == 900


def test_what_the_tier_has_made_durable_is_tiered(state):
    assert tiered_up_to(state) == Reach(0, "there is no tier")
    tier = FollowerState("tier", True, 800, 700, 100)
    assert tiered_up_to(replace(state, followers=(tier,))) == Reach(700)


class Groups:
    """Two groups over one queue whose messages are 100 bytes apart."""

    def __init__(self, **offsets: int) -> None:
        self.offsets = offsets

    def groups(self) -> list[GroupQueue]:
        return [GroupQueue(name, "t", 3, at, 10, 10 - at) for name, at in self.offsets.items()]

    def units(self, topic: str, queue_id: int, offset: int, count: int = 32) -> list[Unit]:
        assert (topic, queue_id, count) == ("t", 3, 1)
        return [Unit(offset, offset * 100, 100, 0)] if offset < 10 else []


def test_the_group_that_is_furthest_back_holds():
    groups = Groups(billing=4, audit=7, other=1)
    held = Reach(400, "group billing in topic t queue 3, at offset 4")
    assert consumed_up_to(groups, ["billing", "audit"], 1000) == held
    assert consumed_up_to(groups, ["audit"], 1000).offset == 700


def test_groups_that_are_at_the_end_hold_nothing():
    assert consumed_up_to(Groups(billing=10), ["billing"], 1000) == Reach(1000)


def test_a_group_that_never_committed_holds_everything():
    held = Reach(0, "group unknown has never committed an offset")
    assert consumed_up_to(Groups(billing=4), ["billing", "unknown"], 1000) == held


def test_a_queue_of_which_a_group_has_committed_nothing_is_held_from_its_first_message():
    held = Reach(0, "group billing in topic t queue 3, with nothing committed")
    assert consumed_up_to(Groups(billing=-1), ["billing"], 1000) == held
