"""What groups have yet to read, for Prometheus: those with the most by name, all others as a sum.

All groups are walked in steps of a millisecond, with pauses, so that 100 000 groups with four
queues each take minutes and 3 % of a processor, and no label is made for each. What `stratamq
groups` shows of one group is asked of the same listing, at once.

The lag in seconds is the age of the oldest message that a group has yet to read. It is looked up
for the groups that the walk before has named: at most LOOKED_UP_QUEUES of each, by a read of the
log in the lane of cold reads, so that a walk costs at most NAMED_GROUPS * LOOKED_UP_QUEUES reads.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field
from heapq import heappush, heappushpop, nlargest

from stratamq.files.port import Clock
from stratamq.rpc.paging import NestedPlace
from stratamq_dispatcher import metrics
from stratamq_dispatcher.consumer_offsets import ConsumerOffsets
from stratamq_dispatcher.group_listing import GroupQueue

NAMED_GROUPS = 20
STEP_QUEUES = 200
STEP_PAUSE_S = 0.05
WALK_PAUSE_S = 10.0
LOOKED_UP_QUEUES = 32
"""The most queues that are looked up for one group: those with the largest lag."""

Page = Callable[[NestedPlace, int], Awaitable[tuple[list[GroupQueue], NestedPlace | None]]]
"""At most so many queues of groups from a place, and where the next page begins."""
Position = tuple[str, int, int]
"""Topic, queue number, queue offset."""
StoreTimes = Callable[[Sequence[Position]], Awaitable[list[int | None]]]
"""Store times in ms since 1970; None where the log has no message that can be read."""
LOOKED_UP_AT_ONCE = 32
LOOK_UP_MS = 250


@dataclass(frozen=True, slots=True)
class Lags:
    """In messages. `named`: of the groups that have most. `first_unread`: of the groups that were
    to be looked at."""

    groups: int
    behind: int
    named: dict[str, int]
    others: int
    first_unread: dict[str, list[Position]] = field(default_factory=dict)


class GroupLags:
    """One walk: `step` until it is True, then `lags`. `page` of GroupListing; `incarnation` of the
    offsets: another one means that places are of another order, and the walk begins again.
    `looked_at`: the groups of which the walk keeps where they have yet to read."""

    def __init__(
        self, page: Page, incarnation: Callable[[], int], looked_at: Collection[str] = ()
    ) -> None:
        self._page = page
        self._looked_at = looked_at
        self._unread: dict[str, list[tuple[int, Position]]] = {}
        self._incarnation = incarnation
        self._began_in = incarnation()
        self._place = NestedPlace()
        self._lags: dict[str, int] = {}

    async def step(self) -> bool:
        """The next STEP_QUEUES queues. True: there are no more."""
        if self._incarnation() != self._began_in:
            self._began_in, self._place, self._lags = self._incarnation(), NestedPlace(), {}
            self._unread = {}
        found, following = await self._page(self._place, STEP_QUEUES)
        for one in found:
            self._lags[one.group] = self._lags.get(one.group, 0) + one.lag
            if one.lag and one.group in self._looked_at:
                self._keep(one)
        if following is not None:
            self._place = following
        return following is None

    def _keep(self, one: GroupQueue) -> None:
        kept = self._unread.setdefault(one.group, [])
        entry = one.lag, one.first_unread
        if len(kept) < LOOKED_UP_QUEUES:
            heappush(kept, entry)
        else:
            heappushpop(kept, entry)

    def lags(self, named: int = NAMED_GROUPS) -> Lags:
        """May run in another thread once the walk has ended."""
        behind = {group: lag for group, lag in self._lags.items() if lag}
        largest = dict(nlargest(named, behind.items(), key=lambda one: one[1]))
        others = sum(behind.values()) - sum(largest.values())
        unread = {
            group: [position for _, position in kept]
            for group, kept in self._unread.items()
            if group in largest
        }
        return Lags(len(self._lags), len(behind), largest, others, unread)


async def ages_s(
    first_unread: dict[str, list[Position]], store_times: StoreTimes, now_ms: Callable[[], int]
) -> dict[str, float]:
    """How old the oldest message is that each group has yet to read. NaN: the log does not have it
    (any more): it is in the tier, or gone."""
    ages = {}
    for group, positions in first_unread.items():
        times = [one for one in await store_times(positions) if one is not None]
        known = len(times) == len(positions)
        ages[group] = max(0, now_ms() - min(times)) / 1000 if known else math.nan
    return ages


async def watch_groups(
    page: Page,
    offsets: ConsumerOffsets,
    store_times: StoreTimes,
    serving: asyncio.Event,
    clock: Clock,
) -> None:
    """Walk after walk, from when `serving` is set until it is cancelled."""
    await serving.wait()
    shown: set[str] = set()
    aged: set[str] = set()
    while True:
        began_ns = clock.monotonic_ns()
        walk = GroupLags(page, lambda: offsets.incarnation, shown)
        while not await walk.step():
            await asyncio.sleep(STEP_PAUSE_S)
        lags = await asyncio.to_thread(walk.lags)
        shown = _show(lags, shown)
        aged = _show_ages(await ages_s(lags.first_unread, store_times, clock.wall_ms), aged)
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


def _show_ages(ages: dict[str, float], shown: set[str]) -> set[str]:
    for group, age_s in ages.items():
        metrics.GROUP_LAG_SECONDS.labels(group).set(age_s)
    for group in shown - ages.keys():
        metrics.GROUP_LAG_SECONDS.remove(group)
    return set(ages)


class LagTimes:
    """How old the oldest message is that a group has yet to read in a queue, for a page of a
    listing. Belongs to the event loop.

    Store times are read from the log in the lane of cold reads, LOOKED_UP_AT_ONCE messages at a
    time: callers take turns, and pulls come between, however many pages are requested at once. The
    queues of a page that are furthest behind come first. Once LOOK_UP_MS have passed no more reads
    begin, and the rest of the page is not known: a slow disk or other callers delay a page by
    hardly more than that. A listing of all groups costs one read for each queue that is behind,
    and the next page is requested when this one is there.
    """

    def __init__(self, store_times: StoreTimes, clock: Clock) -> None:
        self._store_times = store_times
        self._clock = clock
        self._turn = asyncio.Lock()
        """Whose turn it is to ask for a read: who has waited longest is next."""

    async def of(self, queues: Sequence[GroupQueue]) -> list[int | None]:
        """In ms, one for each queue; 0: nothing is to be read. None: not known: the log does not
        have the message, or it is damaged, or there was no time to look."""
        until_ns = self._clock.monotonic_ns() + LOOK_UP_MS * 1_000_000
        found: list[int | None] = [None if one.lag else 0 for one in queues]
        behind = [number for number, one in enumerate(queues) if one.lag]
        behind.sort(key=lambda number: queues[number].lag, reverse=True)
        for first in range(0, len(behind), LOOKED_UP_AT_ONCE):
            some = behind[first : first + LOOKED_UP_AT_ONCE]
            async with self._turn:
                if self._clock.monotonic_ns() >= until_ns:
                    break
                times = await self._store_times([queues[number].first_unread for number in some])
            now_ms = self._clock.wall_ms()
            for number, time_ms in zip(some, times, strict=True):
                found[number] = None if time_ms is None else max(0, now_ms - time_ms)
        return found
