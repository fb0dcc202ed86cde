"""Lags of groups for Prometheus: the largest by name, the rest summed, a bounded step at a time."""

import asyncio
import math

import pytest
from stratamq_dispatcher.group_lags import (
    LOOKED_UP_QUEUES,
    NAMED_GROUPS,
    STEP_QUEUES,
    GroupLags,
    Lags,
    ages_s,
)
from stratamq_dispatcher.group_listing import GroupQueue

from stratamq.rpc.paging import nested_page
from tests.dispatcher.running_service import RunningService


class Groups:
    """A listing of groups that read one topic each, by their lags in its queues."""

    def __init__(self, lags: dict[str, list[int]]) -> None:
        self.lags = lags
        self.incarnation = 1
        self.most_taken = 0

    async def page(self, place, most):
        found, following = nested_page(
            list(self.lags), lambda group: range(len(self.lags[group])), place, most=most
        )
        self.most_taken = max(self.most_taken, len(found))
        queues = [
            GroupQueue(group, "t", queue, 0, 0, self.lags[group][queue]) for group, queue in found
        ]
        return queues, following

    def walk(self, looked_at=()) -> tuple[Lags, int]:
        """What a walk came to, and how many steps it took."""

        async def whole() -> tuple[Lags, int]:
            walk = GroupLags(self.page, lambda: self.incarnation, looked_at)
            steps = 1
            while not await walk.step():
                steps += 1
            return walk.lags(), steps

        return asyncio.run(whole())


def test_a_groups_lag_is_the_sum_of_its_queues():
    lags, steps = Groups({"late": [3, 4, 0], "none": [0, 0]}).walk()
    assert lags == Lags(groups=2, behind=1, named={"late": 7}, others=0)
    assert steps == 1


def test_of_a_hundred_thousand_groups_the_largest_are_named_and_nothing_is_lost_of_the_others():
    groups = Groups({f"g{number}": [number, 1] for number in range(100_000)})
    lags, steps = groups.walk()
    assert list(lags.named) == [f"g{number}" for number in range(99_999, 99_979, -1)]
    assert len(lags.named) == NAMED_GROUPS
    assert sum(lags.named.values()) + lags.others == sum(range(100_000)) + 100_000
    assert (lags.groups, lags.behind) == (100_000, 100_000)
    assert groups.most_taken <= STEP_QUEUES
    assert steps == 200_000 // STEP_QUEUES


def test_a_table_that_was_loaded_anew_is_walked_from_its_beginning():
    groups = Groups({f"g{number}": [1] for number in range(STEP_QUEUES + 1)})
    walk = GroupLags(groups.page, lambda: groups.incarnation)
    assert not asyncio.run(walk.step())
    groups.incarnation, groups.lags = 2, {"other": [5]}
    assert asyncio.run(walk.step())
    assert walk.lags() == Lags(groups=1, behind=1, named={"other": 5}, others=0)


def test_no_groups_are_no_lag():
    assert Groups({}).walk()[0] == Lags(groups=0, behind=0, named={}, others=0)


def test_a_walk_keeps_where_the_groups_that_are_looked_at_have_yet_to_read():
    lags, _ = Groups({"late": [3, 0, 4], "other": [9]}).walk(looked_at={"late", "gone"})
    # The listing's queues end at 0: a position is the end less the lag.
    assert {group: sorted(found) for group, found in lags.first_unread.items()} == {
        "late": [("t", 0, -3), ("t", 2, -4)]
    }


def test_of_a_group_with_very_many_queues_those_with_the_most_are_looked_up():
    lags, _ = Groups({"late": list(range(1_000))}).walk(looked_at={"late"})
    found = {queue for _, queue, _ in lags.first_unread["late"]}
    assert found == set(range(1_000 - LOOKED_UP_QUEUES, 1_000))


@pytest.mark.parametrize(
    ("times", "age_s"),
    [([7_000, 4_000, 9_000], 6.0), ([12_000, 12_000, 12_000], 0.0), ([7_000, None, 9_000], None)],
    ids=["the oldest", "a clock that went back", "not in the log"],
)
def test_a_groups_lag_in_seconds_is_the_age_of_its_oldest_unread_message(times, age_s):
    async def store_times(positions):
        assert len(positions) == len(times)
        return times

    positions = [("t", queue, 0) for queue in range(3)]
    ages = asyncio.run(ages_s({"late": positions}, store_times, lambda: 10_000))
    assert math.isnan(ages["late"]) if age_s is None else ages == {"late": age_s}


async def test_store_times_are_those_of_the_log_and_none_of_what_it_deleted(tmp_path):
    async with RunningService(tmp_path) as service:
        log = service.log
        stored = [log.put("t", body=bytes(300_000)) for _ in range(6)]
        service.follow()
        asked = [("t", 0, index) for index in range(7)] + [("none", 0, 0)]
        times: list[int | None] = [one.store_ms for one in stored]
        assert await service.puller.store_times(asked) == [*times, None, None]
        log.delete_below(1 << 20)
        log.put("other")
        service.follow()
        gone = sum(one.offset < 1 << 20 for one in stored)
        assert 0 < gone < len(stored)
        left = await service.puller.store_times(asked)
        assert left == [*[None] * gone, *times[gone:], None, None]
