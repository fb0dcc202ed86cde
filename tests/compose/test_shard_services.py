"""Three members with an agent each, over etcd: one container is lost, or the lead is moved."""

import pytest

from stratamq.client import SendStatus
from stratamq.errors import StrataError
from tests.compose.load import Load
from tests.compose.shard import (
    CALL_S,
    MEMBERS,
    all_follow,
    each_is_read_once,
    election,
    kill,
    leader_of,
    term_of,
)
from tests.compose.stack import SIDES, Stack, until

pytestmark = pytest.mark.compose

TTLS = 3


def stored(stack: Stack, side: str) -> SendStatus | None:
    """How an append was answered; None: it was refused."""
    try:
        with stack.client(side, timeout_s=CALL_S, patience_s=CALL_S) as client:
            return client.send("one-by-one", b"?").status
    except StrataError:
        return None


def a_message_is_stored(stack: Stack, side: str) -> None:
    until(lambda: stored(stack, side) is SendStatus.PUT_OK, "an append that is answered PUT_OK")


@pytest.mark.parametrize("room", ["commitlog", "dispatcher", "index", "ha", "janitor", "agent"])
def test_a_service_of_the_master_that_dies_is_started_again_and_the_shard_goes_on(
    shard: Stack, room: str
):
    old = leader_of(shard)
    with Load(shard, f"crash-{room}", old) as load:
        load.goes_on()
        shard.crash(f"{old}{room}")
    shard.until_healthy(f"{old}{room}")
    leader = leader_of(shard)
    a_message_is_stored(shard, leader)
    all_follow(shard, leader)
    for side in SIDES:
        each_is_read_once(shard, load, side)


@pytest.mark.parametrize("room", ["commitlog", "ha"])
def test_a_master_without_its_log_or_its_replication_is_replaced(shard: Stack, room: str):
    old = leader_of(shard)
    all_follow(shard, old)
    others = [side for side in SIDES if side != old]
    with Load(shard, f"without-{room}", old) as load:
        load.goes_on()
        end = kill(shard, [f"{old}{room}"])
    try:
        new = leader_of(shard, others)
        a_message_is_stored(shard, new)
        each_is_read_once(shard, load, new)
    finally:
        end()
    assert leader_of(shard) == new
    all_follow(shard, new)
    each_is_read_once(shard, load, old)


def test_messages_go_on_while_etcd_is_away_and_nobody_is_promoted(shard: Stack):
    leader = leader_of(shard)
    all_follow(shard, leader)
    term = term_of(shard, leader)
    end = kill(shard, ["etcd"])
    try:

        def long_away() -> bool:
            states = [election(shard, side) for side in SIDES]
            return all(
                state is not None
                and bool(state.store_problem)
                and state.unchanged_ms > TTLS * state.ttl_ms
                for state in states
            )

        with Load(shard, "without-etcd", leader) as load:
            load.goes_on()
            until(long_away, f"{TTLS} ttls without etcd")
            load.goes_on()
        assert not load.failed and not load.unconfirmed
    finally:
        end()
    assert leader_of(shard) == leader
    assert term_of(shard, leader) == term
    each_is_read_once(shard, load, leader)


def test_an_empty_etcd_is_told_who_leads(shard: Stack):
    leader = leader_of(shard)
    term = term_of(shard, leader)
    kill(shard, ["etcd"])
    shard.run("rm", "--force", "etcd")
    shard.remove_volume("etcd-data")
    shard.up()
    assert leader_of(shard) == leader
    all_follow(shard, leader)
    assert term_of(shard, leader) == term


def test_a_dead_agent_of_a_master_that_takes_messages_changes_nothing(shard: Stack):
    leader = leader_of(shard)
    others = [side for side in SIDES if side != leader]
    end = kill(shard, [f"{leader}agent"])
    try:

        def seen() -> bool:
            states = [election(shard, side) for side in others]
            return all(
                state is not None
                and state.unchanged_ms > TTLS * state.ttl_ms
                and "is a master that takes messages" in state.last_action
                for state in states
            )

        until(seen, "the others to see a silent agent and its master")
        assert stored(shard, leader) is SendStatus.PUT_OK
    finally:
        end()
    assert leader_of(shard) == leader


def test_the_lead_goes_to_the_member_that_an_operator_names(shard: Stack):
    old = leader_of(shard)
    all_follow(shard, old)
    new, asked = (side for side in SIDES if side != old)
    with Load(shard, "switchover", old) as load:
        load.goes_on()
        told = shard.execute(
            f"{asked}agent", "stratamq", "cluster", "switchover", "--to", MEMBERS[new]
        )
    assert f"{MEMBERS[new]} leads after" in told
    assert leader_of(shard) == new
    all_follow(shard, new)
    each_is_read_once(shard, load, new)
    for side in SIDES:
        told = shard.execute(f"{side}agent", "stratamq", "cluster", "status")
        assert f"{MEMBERS[new]} leads, in term" in told


def test_a_client_of_all_three_addresses_finds_whoever_leads(shard: Stack):
    leader_of(shard)
    addresses = ",".join(f"{side}commitlog:10911" for side in SIDES)
    script = f"echo found | stratamq produce three --queue 0 --address {addresses}"
    shard.execute("replica-index", "sh", "-c", script)
    told = shard.execute("index", "stratamq", "consume", "three", "--address", addresses)
    assert told.split().count("found") == 1
