"""What groups have yet to read, for Prometheus: those with the most by name, all others as a sum.

All groups are walked in steps of a millisecond, with pauses, so that 100 000 groups with four
queues each take minutes and 3 % of a processor, and no label is made for each. What `stratamq
groups` shows of one group is asked of the same listing, at once.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from heapq import nlargest

from stratamq.files.port import Clock
from stratamq.rpc.paging import NestedPlace
from stratamq_dispatcher import metrics
from stratamq_dispatcher.consumer_offsets import ConsumerOffsets
from stratamq_dispatcher.group_listing import GroupQueue

NAMED_GROUPS = 20
STEP_QUEUES = 200
STEP_PAUSE_S = 0.05
WALK_PAUSE_S = 10.0

Page = Callable[[NestedPlace, int], tuple[list[GroupQueue], NestedPlace | None]]
"""At most so many queues of groups from a place, and where the next page begins."""


@dataclass(frozen=True, slots=True)
class Lags:
    """In messages. `named`: of the groups that have most."""

    groups: int
    behind: int
    named: dict[str, int]
    others: int


class GroupLags:
    """One walk: `step` until it is True, then `lags`. `page` of GroupListing; `incarnation` of the
    offsets: another one means that places are of another order, and the walk begins anew."""

    def __init__(self, page: Page, incarnation: Callable[[], int]) -> None:
        self._page = page
        self._incarnation = incarnation
        self._began_in = incarnation()
        self._place = NestedPlace()
        self._lags: dict[str, int] = {}

    def step(self) -> bool:
        """The next STEP_QUEUES queues. True: there are no more."""
        if self._incarnation() != self._began_in:
            self._began_in, self._place, self._lags = self._incarnation(), NestedPlace(), {}
        found, following = self._page(self._place, STEP_QUEUES)
        for one in found:
            self._lags[one.group] = self._lags.get(one.group, 0) + one.lag
        if following is not None:
            self._place = following
        return following is None

    def lags(self, named: int = NAMED_GROUPS) -> Lags:
        """May run in another thread once the walk has ended."""
        behind = {group: lag for group, lag in self._lags.items() if lag}
        largest = dict(nlargest(named, behind.items(), key=lambda one: one[1]))
        others = sum(behind.values()) - sum(largest.values())
        return Lags(len(self._lags), len(behind), largest, others)


async def watch_groups(
    page: Page, offsets: ConsumerOffsets, serving: asyncio.Event, clock: Clock
) -> None:
    """Walk after walk, from when `serving` is set until it is cancelled."""
    await serving.wait()
    shown: set[str] = set()
    while True:
        began_ns = clock.monotonic_ns()
        walk = GroupLags(page, lambda: offsets.incarnation)
        while not walk.step():
            await asyncio.sleep(STEP_PAUSE_S)
        lags = await asyncio.to_thread(walk.lags)
        shown = _show(lags, shown)
        metrics.GROUPS_WALK.set((clock.monotonic_ns() - began_ns) / 1e9)
        await asyncio.sleep(WALK_PAUSE_S)


def _show(lags: Lags, shown: set[str]) -> set[str]:
    """A scrape meanwhile may see a group of the walk before as well, and misses none."""
    metrics.GROUPS.set(lags.groups)
    metrics.GROUPS_BEHIND.set(lags.behind)
    metrics.OTHERS_LAG.set(lags.others)
    for group, lag in lags.named.items():
        metrics.GROUP_LAG.labels(group).set(lag)
    for group in shown - lags.named.keys():
        metrics.GROUP_LAG.remove(group)
    return set(lags.named)
