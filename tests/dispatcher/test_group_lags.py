"""Lags of groups for Prometheus: the largest by name, the rest summed, a bounded step at a time."""

from itertools import count

from stratamq_dispatcher.group_lags import NAMED_GROUPS, STEP_QUEUES, GroupLags, Lags
from stratamq_dispatcher.group_listing import GroupQueue

from stratamq.rpc.paging import nested_page


class Groups:
    """A listing of groups that read one topic each, by their lags in its queues."""

    def __init__(self, lags: dict[str, list[int]]) -> None:
        self.lags = lags
        self.incarnation = 1
        self.most_taken = 0

    def page(self, place, most):
        found, following = nested_page(
            list(self.lags), lambda group: range(len(self.lags[group])), place, most=most
        )
        self.most_taken = max(self.most_taken, len(found))
        queues = [
            GroupQueue(group, "t", queue, 0, 0, self.lags[group][queue]) for group, queue in found
        ]
        return queues, following

    def walk(self) -> tuple[Lags, int]:
        """What a walk came to, and how many steps it took."""
        walk = GroupLags(self.page, lambda: self.incarnation)
        steps = next(number for number in count(1) if walk.step())
        return walk.lags(), steps


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
    assert not walk.step()
    groups.incarnation, groups.lags = 2, {"other": [5]}
    assert walk.step()
    assert walk.lags() == Lags(groups=1, behind=1, named={"other": 5}, others=0)


def test_no_groups_are_no_lag():
    assert Groups({}).walk()[0] == Lags(groups=0, behind=0, named={}, others=0)
