"""A shard of three members, a container each with an agent, over etcd: a member is lost, and nobody
has to act."""

import pytest

from tests.compose.load import Load
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
from tests.compose.stack import Stack

pytestmark = pytest.mark.compose


def test_the_configured_master_is_the_first_that_leads(shard: Stack):
    assert leader_of(shard) == "a1"
    all_follow(shard, "a1")


@pytest.mark.parametrize("fault", [kill, stop, pause, cut_off, lose_volume])
def test_a_lost_master_is_replaced_and_comes_back_as_a_slave(shard: Stack, fault):
    old = leader_of(shard)
    all_follow(shard, old)
    with Load(shard, f"before-{fault.__name__}", old) as before:
        before.goes_on()
        end = fault(shard, [old])
    try:
        new = leader_of(shard, others_of(old))
        with Load(shard, f"after-{fault.__name__}", new) as after:
            after.goes_on()
        for load in (before, after):
            each_is_read_once(shard, load, new)
    finally:
        end()
    assert leader_of(shard) == new
    all_follow(shard, new)
    for load in (before, after):
        each_is_read_once(shard, load, old)
    assert shard.segments(old) == shard.segments(new)
