"""A shard of three members, a container each with an agent, over etcd: a member is lost, and no
operator has to act."""

import pytest

from stratamq.client import Topic
from tests.compose.load import Load, lost
from tests.compose.shard import (
    all_follow,
    cut_off,
    each_is_read_once,
    kill,
    leader_of,
    lose_volume,
    others_of,
    pause,
    stop,
)
from tests.compose.stack import ETCDS, SHARDS, A, B, C, Stack, until

pytestmark = pytest.mark.compose


def test_the_configured_master_is_the_first_that_leads(shard: Stack):
    assert leader_of(shard) == "a1"
    all_follow(shard, "a1")


@pytest.mark.parametrize("fault", [kill, stop, pause, cut_off, lose_volume])
def test_a_lost_master_is_replaced_and_comes_back_as_a_slave(shard: Stack, fault):
    old = leader_of(shard)
    all_follow(shard, old)
    with Load(shard, f"before-{fault.__name__}", old) as before:
        before.continues()
        end = fault(shard, [old])
    try:
        new = leader_of(shard, others_of(old))
        with Load(shard, f"after-{fault.__name__}", new) as after:
            after.continues()
        for load in (before, after):
            each_is_read_once(shard, load, new)
    finally:
        end()
    assert leader_of(shard) == new
    all_follow(shard, new)
    for load in (before, after):
        each_is_read_once(shard, load, old)
    assert shard.segments(old) == shard.segments(new)


def test_slaves_that_start_without_their_master_are_led_by_one_that_waits_for_the_other(
    shard: Stack,
):
    old = leader_of(shard)
    with Load(shard, "without-master", old) as load:
        load.continues()
        all_are_back = kill(shard, [*A, *ETCDS])
    try:
        shard.run("start", *ETCDS, *others_of(old))
        # `leader_of` is satisfied with a SYNC_MASTER only.
        new = leader_of(shard, others_of(old))
        # It shows them as soon as its slave has reported what it has.
        until(lambda: not lost(shard, load, new), "what was acknowledged to be read")
    finally:
        all_are_back()
    all_follow(shard, new)
    each_is_read_once(shard, load, new)


def test_a_shard_becomes_three_by_another_profile_and_a_client_uses_them_all(shard: Stack):
    leader_of(shard)
    with shard.client() as client:
        client.admin.create_topic(Topic("grown", 4, 4))
        sent = [client.send("grown", b"before") for _ in range(20)]
    started = [shard.inspect(member)["State"]["StartedAt"] for member in A]
    shard.shape = SHARDS
    shard.up()
    assert [shard.inspect(member)["State"]["StartedAt"] for member in A] == started
    for members in (B, C):
        leader = leader_of(shard, members)
        known = ",".join(f"{member}:10911" for member in A)
        output = shard.execute(
            "a1", "stratamq", "cluster", "add-shard", f"{leader}:10911", "--address", known
        )
        assert f"{leader[0]} is part of the cluster" in output
    with shard.client() as client:
        sent += [client.send("grown", b"after") for _ in range(60)]
        brokers = {one.broker for one in client.queues("grown") if one.max_offset}
        read = [message.unique_key for message in client.consume("grown")]
    assert brokers == {"a", "b", "c"}
    assert sorted(read) == sorted(one.unique_key for one in sent)
