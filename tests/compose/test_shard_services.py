"""Three members with an agent each, over etcd: a service, or a container, is lost, or the lead is
moved."""

import re

import pytest

from stratamq.client import SendStatus
from stratamq.errors import StrataError
from tests.compose.load import Load
from tests.compose.shard import (
    CALL_S,
    all_follow,
    each_is_read_once,
    election,
    kill,
    leader_of,
    lose_volume,
    others_of,
    term_of,
)
from tests.compose.stack import ETCDS, A, Stack, until

pytestmark = pytest.mark.compose

TTLS = 3


def stored(stack: Stack, member: str) -> SendStatus | None:
    """How an append was answered; None: it was refused."""
    try:
        with stack.client(member, timeout_s=CALL_S, retry_timeout_s=CALL_S) as client:
            return client.send("one-by-one", b"?").status
    except StrataError:
        return None


def a_message_is_stored(stack: Stack, member: str) -> None:
    until(lambda: stored(stack, member) is SendStatus.PUT_OK, "an append that is answered PUT_OK")


@pytest.mark.parametrize(
    "room", ["commitlog", "dispatcher", "index", "ha", "janitor", "delivery", "agent"]
)
def test_a_service_of_the_master_that_dies_is_started_again_and_the_shard_continues(
    shard: Stack, room: str
):
    old = leader_of(shard)
    with Load(shard, f"crash-{room}", old) as load:
        load.continues()
        shard.signal_room(old, room, "KILL")
        until(
            lambda: re.search(rf"{room}\b.* died", shard.run("logs", "--tail", "40", old).stdout),
            "the end of the service in the log",
        )
    shard.until_healthy(old)
    leader = leader_of(shard)
    a_message_is_stored(shard, leader)
    all_follow(shard, leader)
    for member in A:
        each_is_read_once(shard, load, member)


@pytest.mark.parametrize("container", [*A, *ETCDS])
def test_a_container_that_dies_is_started_again_and_the_shard_continues(
    shard: Stack, container: str
):
    leader = leader_of(shard)
    with Load(shard, f"crash-{container}", leader) as load:
        load.continues()
        shard.crash(container)
    shard.until_healthy(container)
    leader = leader_of(shard)
    a_message_is_stored(shard, leader)
    all_follow(shard, leader)
    each_is_read_once(shard, load, leader)


@pytest.mark.parametrize("room", ["commitlog", "ha"])
def test_a_master_whose_log_or_replication_hangs_is_replaced(shard: Stack, room: str):
    old = leader_of(shard)
    all_follow(shard, old)
    with Load(shard, f"without-{room}", old) as load:
        load.continues()
        shard.signal_room(old, room, "STOP")
    try:
        new = leader_of(shard, others_of(old))
        a_message_is_stored(shard, new)
        each_is_read_once(shard, load, new)
    finally:
        shard.signal_room(old, room, "CONT")
    shard.until_healthy(old)
    assert leader_of(shard) == new
    all_follow(shard, new)
    each_is_read_once(shard, load, old)


def test_messages_continue_while_etcd_is_away_and_no_slave_is_promoted(shard: Stack):
    leader = leader_of(shard)
    all_follow(shard, leader)
    term = term_of(shard, leader)
    end = kill(shard, list(ETCDS))
    try:

        def long_away() -> bool:
            states = [election(shard, member) for member in A]
            return all(
                state is not None
                and bool(state.store_problem)
                and state.unchanged_ms > TTLS * state.ttl_ms
                for state in states
            )

        with Load(shard, "without-etcd", leader) as load:
            load.continues()
            until(long_away, f"{TTLS} ttls without etcd")
            load.continues()
        assert not load.failed and not load.unconfirmed
    finally:
        end()
    assert leader_of(shard) == leader
    assert term_of(shard, leader) == term
    each_is_read_once(shard, load, leader)


def all_read_the_store(shard: Stack) -> bool:
    states = [election(shard, member) for member in A]
    return all(state is not None and not state.store_problem for state in states)


def test_the_leader_is_written_to_an_empty_etcd(shard: Stack):
    leader = leader_of(shard)
    term = term_of(shard, leader)
    kill(shard, list(ETCDS))
    shard.run("rm", "--force", *ETCDS)
    for one in ETCDS:
        shard.remove_volume(one)
    shard.up()
    assert leader_of(shard) == leader
    all_follow(shard, leader)
    assert term_of(shard, leader) == term


def test_an_etcd_without_its_volume_joins_the_others_again_and_counts(shard: Stack):
    leader = leader_of(shard)
    lose_volume(shard, ["etcd1"])()
    other_is_back = kill(shard, ["etcd2"])
    try:
        # Of three, the two that are left are the majority only with the one that joined.
        until(lambda: all_read_the_store(shard), "every agent to read the store")
        assert leader_of(shard) == leader
    finally:
        other_is_back()
    all_follow(shard, leader)


@pytest.mark.parametrize("lost", ETCDS)
def test_with_one_etcd_lost_the_lead_is_renewed_and_a_lost_master_replaced(shard: Stack, lost: str):
    old = leader_of(shard)
    all_follow(shard, old)
    etcd_is_back = kill(shard, [lost])
    try:
        until(lambda: all_read_the_store(shard), "every agent to read the store")
        assert leader_of(shard) == old
        with Load(shard, f"without-{lost}", old) as load:
            load.continues()
            end = kill(shard, [old])
        try:
            new = leader_of(shard, others_of(old))
            each_is_read_once(shard, load, new)
        finally:
            end()
    finally:
        etcd_is_back()
    assert leader_of(shard) == new
    all_follow(shard, new)


def test_a_hanging_agent_of_a_master_that_takes_messages_changes_nothing(shard: Stack):
    leader = leader_of(shard)
    shard.signal_room(leader, "agent", "STOP")
    try:

        def seen() -> bool:
            states = [election(shard, member) for member in others_of(leader)]
            return all(
                state is not None
                and state.unchanged_ms > TTLS * state.ttl_ms
                and "is a master that takes messages" in state.last_action
                for state in states
            )

        until(seen, "the others to see a silent agent and its master")
        assert stored(shard, leader) is SendStatus.PUT_OK
    finally:
        shard.signal_room(leader, "agent", "CONT")
    assert leader_of(shard) == leader


def test_the_lead_goes_to_the_member_that_an_operator_names(shard: Stack):
    old = leader_of(shard)
    all_follow(shard, old)
    new, asked = others_of(old)
    with Load(shard, "switchover", old) as load:
        load.continues()
        output = shard.execute(asked, "stratamq", "cluster", "switchover", "--to", new)
    assert f"{new} leads after" in output
    assert leader_of(shard) == new
    all_follow(shard, new)
    each_is_read_once(shard, load, new)
    for member in A:
        output = shard.execute(member, "stratamq", "cluster", "status")
        assert f"{new} leads, in term" in output


def test_a_client_of_one_name_finds_the_current_leader(shard: Stack):
    leader_of(shard)
    name = ("--address", "cluster:10911")
    produce = f"echo found | stratamq produce three --queue 0 {' '.join(name)}"
    shard.execute("a1", "sh", "-c", produce)
    output = shard.execute("a3", "stratamq", "consume", "three", *name)
    assert output.split().count("found") == 1
