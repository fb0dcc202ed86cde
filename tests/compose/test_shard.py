"""Three members with an agent each, over etcd: a whole broker is lost, and nobody has to act."""

import pytest

from tests.compose.load import Load
from tests.compose.shard import (
    SIDE_OF,
    all_follow,
    containers_of,
    cut_off,
    each_is_read_once,
    kill,
    leader_of,
    lose_volume,
    pause,
    stop,
)
from tests.compose.stack import SIDES, Stack

pytestmark = pytest.mark.compose


def test_the_configured_master_is_the_first_that_leads(shard: Stack):
    assert leader_of(shard) == SIDE_OF["broker"]
    all_follow(shard, SIDE_OF["broker"])


@pytest.mark.parametrize("fault", [kill, stop, pause, cut_off, lose_volume])
def test_a_lost_master_is_replaced_and_comes_back_as_a_slave(shard: Stack, fault):
    old = leader_of(shard)
    all_follow(shard, old)
    others = [side for side in SIDES if side != old]
    with Load(shard, f"before-{fault.__name__}", old) as before:
        before.goes_on()
        end = fault(shard, containers_of(shard, old))
    try:
        new = leader_of(shard, others)
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
