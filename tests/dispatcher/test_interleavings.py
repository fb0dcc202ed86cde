"""A pull stream under a deterministic scheduler: every order in which its steps, the arrival of
messages and the reading lane can run.

The stream's coroutine is driven by hand inside a loop that runs nothing else, so that all that can
happen at any point is one of a few named steps. The tree of choices is walked to its end.
"""

import asyncio
import random
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from stratamq_dispatcher.cold_reads import ColdReads
from stratamq_dispatcher.cursors import Cursor
from stratamq_dispatcher.long_poll import Watch
from stratamq_dispatcher.pull import PullLimits, TagFilter
from stratamq_dispatcher.pulling import Puller

from stratamq.files.simulated import SimulatedWorker
from tests.dispatcher.followed_log import WrittenLog, start
from tests.dispatcher.queue_checks import frames_of
from tests.support.disks import simulated_place

Arrival = tuple[int, str]
"""queue id, tag."""
Choose = Callable[[int], int]


class Stalled(AssertionError):
    """Nothing can run any more, and messages were not delivered."""


class Scenario:
    """A log, a dispatcher, and a reader of a stream over queues 0 and 1 of one topic."""

    def __init__(
        self, before: list[Arrival], arrivals: list[Arrival], tags: list[str], limits: PullLimits
    ) -> None:
        place = simulated_place()
        log = WrittenLog(place.files)
        for queue_id, tag in before:
            log.put("t", queue_id, tags=tag)
        self._broker = start(place.files, log)
        self._broker.send()
        self._arrivals = list(reversed(arrivals))
        self._lane = SimulatedWorker(random.Random(0))
        self._wanted = tags
        self.received: dict[int, list[bytes]] = {0: [], 1: []}
        self.next_offsets = {0: 0, 1: 0}
        puller = Puller(self._broker.engine, limits, ColdReads(place.files), self._lane)
        cursors = [Cursor("t", queue_id, 0) for queue_id in (0, 1)]
        self._stream = puller.stream(cursors, TagFilter(tags) if tags else None, 1 << 16, 1 << 16)
        self._reader = self._read()
        self._blocked_on: asyncio.Future[Any] | None = None

    async def _read(self) -> None:
        async for number, answer in self._stream:
            self.next_offsets[number] = answer.next_offset
            self.received[number] += frames_of(answer)
            await asyncio.sleep(0)  # a write to a slow connection

    def run(self, choose: Choose) -> None:
        """Until nothing can run. Raises Stalled if messages are missing then."""
        while steps := list(self._steps()):
            steps[choose(len(steps))]()
        self._check()

    def _steps(self) -> Iterator[Callable[[], None]]:
        if self._blocked_on is None or self._blocked_on.done():
            yield self._advance
        yield from self._lane.steps()
        if self._arrivals:
            yield self._arrive

    def _advance(self) -> None:
        self._blocked_on = self._reader.send(None)

    def _arrive(self) -> None:
        queue_id, tag = self._arrivals.pop()
        self._broker.log.put("t", queue_id, tags=tag)
        self._broker.send()

    def _check(self) -> None:
        for queue_id in (0, 1):
            there = self._broker.log.of_queue("t", queue_id)
            wanted = [m.frame for m in there if not self._wanted or m.tags in self._wanted]
            if self.received[queue_id] != wanted or self.next_offsets[queue_id] != len(there):
                raise Stalled(
                    f"queue {queue_id}: {len(self.received[queue_id])} of {len(wanted)} messages, "
                    f"next_offsets {self.next_offsets[queue_id]} of {len(there)}"
                )

    def close(self) -> None:
        self._reader.close()


def every_interleaving(make: Callable[[], Scenario]) -> Iterator[Scenario]:
    """One scenario after another, each with the next path through the tree of choices."""
    path: list[tuple[int, int]] = []
    """(choice, number of choices) at each step."""
    while True:
        depth = 0

        def choose(count: int) -> int:
            nonlocal depth
            if depth == len(path):
                path.append((0, count))
            choice, expected = path[depth]
            assert count == expected, "a replay took another way"
            depth += 1
            return choice

        scenario = make()
        try:
            scenario.run(choose)
        finally:
            scenario.close()
        yield scenario
        while path and path[-1][0] + 1 == path[-1][1]:
            path.pop()
        if not path:
            return
        path[-1] = (path[-1][0] + 1, path[-1][1])


def walk(make: Callable[[], Scenario]) -> int:
    """Run all interleavings; how many there were."""

    async def main() -> int:
        return sum(1 for _ in every_interleaving(make))

    return asyncio.run(main())


IN_MEMORY, ON_DISK = PullLimits(), PullLimits(hot_bytes=0)


@pytest.mark.parametrize(
    ("before", "arrivals", "tags", "limits", "at_least"),
    [
        pytest.param([], [(0, "A"), (1, "A")] * 2, [], IN_MEMORY, 50, id="two queues"),
        pytest.param(
            [(0, "B"), (1, "B")],
            [(0, "A"), (1, "A"), (0, "B"), (0, "A"), (1, "B")],
            ["A"],
            IN_MEMORY,
            300,
            id="a tag filter",
        ),
        pytest.param(
            [(1, "A")], [(0, "A"), (1, "A"), (0, "A")], [], ON_DISK, 100, id="read on the lane"
        ),
    ],
)
def test_a_stream_gives_every_message_whatever_runs_between_its_steps(
    before, arrivals, tags, limits, at_least
):
    assert walk(lambda: Scenario(before, arrivals, tags, limits)) >= at_least


def test_growth_noted_only_while_the_stream_sleeps_loses_a_message(monkeypatch):
    grown = Watch.grown

    def only_while_asleep(self: Watch, numbers: list[int]) -> None:
        if not self._ready:
            grown(self, numbers)

    monkeypatch.setattr(Watch, "grown", only_while_asleep)
    with pytest.raises(Stalled):
        walk(lambda: Scenario([(0, "B"), (1, "B")], [(0, "A"), (1, "A")], ["A"], IN_MEMORY))


# --- what a message costs ---


async def calls_for_a_message(queue_count: int) -> int:
    """Function calls from a message's arrival at an idle stream of many queues to its delivery."""
    place = simulated_place()
    log = WrittenLog(place.files)
    broker = start(place.files, log)
    broker.send()
    puller = Puller(
        broker.engine, IN_MEMORY, ColdReads(place.files), SimulatedWorker(random.Random(0))
    )
    stream = puller.stream(
        [Cursor("t", number, 0) for number in range(queue_count)], None, 1 << 16, 1 << 16
    )
    for queue_id in (queue_count // 2, queue_count - 1):
        calls = 0

        def count(frame: object, event: str, argument: object) -> None:
            nonlocal calls
            calls += event.endswith("call")

        reading = asyncio.ensure_future(anext(stream))
        for _ in range(2 * queue_count):
            await asyncio.sleep(0)
        assert not reading.done()
        log.put("t", queue_id)
        sys.setprofile(count)
        broker.send()
        number, answer = await reading
        sys.setprofile(None)
        assert (number, frames_of(answer)) == (queue_id, [log.messages[-1].frame])
    await stream.aclose()
    assert len(broker.engine.waiting) == 0
    while not broker.engine.waiting.is_empty:
        broker.engine.tick()
    return calls


def test_the_work_for_a_message_does_not_grow_with_the_queues_of_the_stream():
    few, many = asyncio.run(calls_for_a_message(10)), asyncio.run(calls_for_a_message(10_000))
    assert many <= few + 20
