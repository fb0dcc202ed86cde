"""What a follower tells the log of those who wait for it, and how they wait for what it has."""

import asyncio

import pytest

from stratamq.follow import demand as demand_module
from stratamq.follow.demand import Demand

FOREVER_S = 3600.0


async def turns(count: int = 10) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def test_the_log_is_told_at_once_when_a_caller_begins_to_wait_and_only_then():
    async def scenario():
        waiting: list[str] = []
        demand = Demand(lambda: bool(waiting))
        assert not demand.tell()
        await demand.begun(0)  # ends by its time
        told = asyncio.create_task(demand.begun(FOREVER_S))
        await turns()
        assert not told.done()
        waiting.append("a consumer")
        demand.begin()
        await told
        assert demand.tell()
        again = asyncio.create_task(demand.begun(FOREVER_S))
        demand.begin()  # the log knows
        await turns()
        assert not again.done()
        again.cancel()
        waiting.clear()
        assert not demand.tell()

    asyncio.run(scenario())


class Log:
    """How far it has confirmed, and how far the follower has applied that."""

    def __init__(self, confirmed: int, applied: int) -> None:
        self.end, self.applied = confirmed, applied
        self.asked = 0
        self.demand = Demand()

    async def confirmed(self) -> int:
        self.asked += 1
        return self.end

    def catch_up(self) -> "asyncio.Task[None]":
        return asyncio.create_task(self.demand.catch_up(lambda: self.applied, self.confirmed))

    def apply(self, end: int) -> None:
        self.applied = end
        self.demand.moved()


@pytest.fixture
def patient(monkeypatch):
    monkeypatch.setattr(demand_module, "CATCH_UP_S", FOREVER_S)


def test_callers_that_catch_up_hurry_the_log_until_what_it_had_is_applied(patient):
    async def scenario():
        log = Log(confirmed=100, applied=60)
        assert not log.demand.tell()
        hurried = asyncio.create_task(log.demand.begun(FOREVER_S))
        first = log.catch_up()
        await turns()
        log.end = 120
        second = log.catch_up()
        await hurried
        assert log.demand.tell()
        log.apply(99)
        await turns()
        assert not first.done()
        log.apply(100)
        await first
        await turns()
        assert not second.done() and log.demand.tell()
        log.apply(120)
        await second
        assert not log.demand.tell()

    asyncio.run(scenario())


def test_a_follower_that_has_everything_is_not_hurried():
    async def scenario():
        log = Log(confirmed=100, applied=100)
        hurried = asyncio.create_task(log.demand.begun(FOREVER_S))
        await log.catch_up()
        await turns()
        assert not hurried.done()
        hurried.cancel()

    asyncio.run(scenario())


def test_catching_up_ends_in_time_when_the_log_sends_nothing(monkeypatch):
    monkeypatch.setattr(demand_module, "CATCH_UP_S", 0.01)

    async def scenario():
        log = Log(confirmed=100, applied=0)
        await log.catch_up()
        assert not log.demand.tell()

    asyncio.run(scenario())


def test_a_caller_that_gives_up_hurries_the_log_no_more(patient):
    async def scenario():
        log = Log(confirmed=100, applied=0)
        caller = log.catch_up()
        await turns()
        assert log.demand.tell()
        caller.cancel()
        await asyncio.wait([caller])
        assert not log.demand.tell()

    asyncio.run(scenario())


def test_a_follower_that_failed_is_not_waited_for(patient):
    async def scenario():
        log = Log(confirmed=100, applied=0)
        caller = log.catch_up()
        await turns()
        log.demand.stop()
        await caller
        await log.catch_up()
        assert log.asked == 1

    asyncio.run(scenario())
