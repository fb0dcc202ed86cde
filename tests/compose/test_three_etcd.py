"""Three members with an agent each, over three members of etcd: one of these is lost."""

import pytest

from tests.compose.load import Load
from tests.compose.shard import (
    all_follow,
    containers_of,
    each_is_read_once,
    election,
    kill,
    leader_of,
)
from tests.compose.stack import ETCD3, SIDES, Stack, until

pytestmark = pytest.mark.compose


@pytest.mark.parametrize("lost", ETCD3.others)
def test_with_one_etcd_lost_the_lead_is_renewed_and_a_lost_master_replaced(etcd3: Stack, lost: str):
    old = leader_of(etcd3)
    all_follow(etcd3, old)
    others = [side for side in SIDES if side != old]
    etcd_is_back = kill(etcd3, [lost])
    try:

        def all_read_it() -> bool:
            states = [election(etcd3, side) for side in SIDES]
            return all(state is not None and not state.store_problem for state in states)

        until(all_read_it, "every agent to read the store")
        assert leader_of(etcd3) == old
        with Load(etcd3, f"without-{lost}", old) as load:
            load.goes_on()
            end = kill(etcd3, containers_of(etcd3, old))
        try:
            new = leader_of(etcd3, others)
            each_is_read_once(etcd3, load, new)
        finally:
            end()
    finally:
        etcd_is_back()
    assert leader_of(etcd3) == new
    all_follow(etcd3, new)
