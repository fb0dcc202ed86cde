"""What a follower tells the log of those who wait for it, and how they wait for what it has."""

import asyncio

import pytest

from stratamq.follow import demand as demand_module
from stratamq.follow.demand import Demand
from stratamq.follow.driver import report_message
from stratamq.follow.protocol import Report

FOREVER_S = 3600.0
A, B, C = ("a", 0), ("a", 1), ("b", 0)


def told(demand: Demand) -> Report:
    return demand.tell(Report(applied=0, durable=0, durable_store_timestamp_ms=0, released=0))


def is_hurried(demand: Demand) -> bool:
    return not told(demand).unhurried


class Sees:
    """What a log makes of the reports of one connection."""

    def __init__(self, demand: Demand) -> None:
        self._demand = demand
        demand.connected()
        self.queues: set[tuple[str, int]] = set()
        self.reports: list[Report] = []

    def hears(self) -> "Sees":
        report = told(self._demand)
        self.reports.append(report)
        assert self.queues.isdisjoint(report.began) and self.queues.issuperset(report.ended)
        self.queues = self.queues.union(report.began).difference(report.ended)
        self.everything = not report.unhurried and not report.by_queue
        return self


async def turns(count: int = 10) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_the_log_is_told_at_once_when_a_caller_begins_to_wait_and_only_then():
    waiting: list[str] = []
    demand = Demand(lambda: bool(waiting))
    assert not is_hurried(demand)
    await demand.begun(0)  # ends by its time
    hurried = asyncio.create_task(demand.begun(FOREVER_S))
    await turns()
    assert not hurried.done()
    waiting.append("a consumer")
    demand.begin()
    await hurried
    assert is_hurried(demand)
    again = asyncio.create_task(demand.begun(FOREVER_S))
    demand.begin()  # the log knows
    await turns()
    assert not again.done()
    again.cancel()
    waiting.clear()
    assert not is_hurried(demand)


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


async def test_callers_that_catch_up_hurry_the_log_until_what_it_had_is_applied(patient):
    log = Log(confirmed=100, applied=60)
    assert not is_hurried(log.demand)
    hurried = asyncio.create_task(log.demand.begun(FOREVER_S))
    first = log.catch_up()
    await turns()
    log.end = 120
    second = log.catch_up()
    await hurried
    assert is_hurried(log.demand)
    log.apply(99)
    await turns()
    assert not first.done()
    log.apply(100)
    await first
    await turns()
    assert not second.done() and is_hurried(log.demand)
    log.apply(120)
    await second
    assert not is_hurried(log.demand)


async def test_the_log_learns_soon_that_the_last_one_has_caught_up(patient, monkeypatch):
    """Otherwise it would make an event of each message until the next regular report."""
    monkeypatch.setattr(demand_module, "CAUGHT_UP_S", 0)
    log = Log(confirmed=100, applied=60)
    first, second = log.catch_up(), log.catch_up()
    await turns()
    assert is_hurried(log.demand)
    told_again = asyncio.create_task(log.demand.begun(FOREVER_S))
    first.cancel()
    await asyncio.wait([first])
    await turns()
    assert not told_again.done()
    log.apply(100)
    await second
    await told_again
    assert not is_hurried(log.demand)


async def test_a_follower_that_has_everything_is_not_hurried():
    log = Log(confirmed=100, applied=100)
    hurried = asyncio.create_task(log.demand.begun(FOREVER_S))
    await log.catch_up()
    await turns()
    assert not hurried.done()
    hurried.cancel()


async def test_catching_up_ends_in_time_when_the_log_sends_nothing(monkeypatch):
    monkeypatch.setattr(demand_module, "CATCH_UP_S", 0.01)
    log = Log(confirmed=100, applied=0)
    await log.catch_up()
    assert not is_hurried(log.demand)


async def test_a_caller_that_gives_up_hurries_the_log_no_more(patient):
    log = Log(confirmed=100, applied=0)
    caller = log.catch_up()
    await turns()
    assert is_hurried(log.demand)
    caller.cancel()
    await asyncio.wait([caller])
    assert not is_hurried(log.demand)


async def test_a_follower_that_failed_is_not_waited_for(patient):
    log = Log(confirmed=100, applied=0)
    caller = log.catch_up()
    await turns()
    log.demand.stop()
    await caller
    await log.catch_up()
    assert log.asked == 1


async def test_the_log_is_told_at_once_of_a_queue_that_a_caller_waits_for_and_of_no_other():
    demand = Demand()
    log = Sees(demand).hears()
    assert log.reports[-1].unhurried
    demand.wait_for(A, True)
    await demand.begun(FOREVER_S)
    log.hears()
    assert (log.queues, log.everything) == ({A}, False)
    demand.wait_for(B, True)
    await demand.begun(FOREVER_S)
    assert (log.hears().reports[-1].began, log.queues) == ((B,), {A, B})
    assert (log.hears().reports[-1].began, log.queues) == ((), {A, B})


async def test_a_caller_that_waits_again_and_again_for_one_queue_makes_no_reports():
    demand = Demand()
    log = Sees(demand)
    demand.wait_for(A, True)
    log.hears()
    for _ in range(3):
        demand.wait_for(A, False)
        demand.wait_for(A, True)
    again = asyncio.create_task(demand.begun(FOREVER_S))
    await turns()
    assert not again.done()
    again.cancel()
    assert log.hears().queues == {A}
    demand.wait_for(A, False)
    assert log.hears().queues == set()
    assert log.reports[-1].ended == (A,)
    assert log.reports[-1].unhurried


async def test_who_waits_and_gives_up_between_two_reports_is_not_told_of():
    demand = Demand()
    log = Sees(demand)
    demand.wait_for(A, True)
    demand.wait_for(A, False)
    assert log.hears().reports[-1].unhurried
    assert not log.queues


async def test_a_caller_that_waits_for_whatever_comes_hurries_all_queues():
    waiting = ["a caller"]
    demand = Demand(lambda: bool(waiting))
    log = Sees(demand)
    demand.wait_for(A, True)
    assert log.hears().everything
    waiting.clear()
    log.hears()
    assert (log.queues, log.everything) == ({A}, False)


async def test_a_log_that_knows_nothing_of_queues_is_told_whether_any_caller_waits():
    demand = Demand()
    assert report_message(told(demand)).unhurried
    demand.wait_for(A, True)
    assert not report_message(told(demand)).unhurried
    demand.wait_for(A, False)
    assert report_message(told(demand)).unhurried


async def test_the_log_of_a_new_connection_is_told_of_all_queues_again():
    demand = Demand()
    for queue in (A, B):
        demand.wait_for(queue, True)
    assert Sees(demand).hears().queues == {A, B}
    demand.wait_for(A, False)
    demand.wait_for(C, True)
    assert Sees(demand).hears().queues == {B, C}


async def test_more_queues_than_a_report_names_hurry_all_until_the_log_knows_them(monkeypatch):
    monkeypatch.setattr(demand_module, "QUEUES_AT_ONCE", 2)
    demand = Demand()
    log = Sees(demand)
    queues = {("t", number) for number in range(5)}
    for queue in queues:
        demand.wait_for(queue, True)
    assert [log.hears().everything for _ in range(3)] == [True, True, False]
    assert log.queues == queues
    for queue in queues:
        demand.wait_for(queue, False)
    assert [len(log.hears().queues) for _ in range(3)] == [3, 1, 0]


async def test_more_queues_than_the_log_is_to_know_hurry_all_until_they_are_fewer(monkeypatch):
    monkeypatch.setattr(demand_module, "MAX_QUEUES", 3)
    demand = Demand()
    log = Sees(demand)
    queues = [("t", number) for number in range(5)]
    for queue in queues:
        demand.wait_for(queue, True)
    for _ in range(3):
        assert log.hears().everything
        assert len(log.queues) == 3
    for queue in queues[:2]:
        demand.wait_for(queue, False)
    assert not log.hears().everything
    assert log.queues == set(queues[2:])


async def test_what_is_expected_hurries_the_log_for_a_while(monkeypatch):
    demand = Demand()
    hurried = asyncio.create_task(demand.begun(FOREVER_S))
    await turns()
    demand.expect()
    await hurried
    assert is_hurried(demand)
    again = asyncio.create_task(demand.begun(FOREVER_S))
    demand.expect()  # the log knows
    await turns()
    assert not again.done()
    again.cancel()
    monkeypatch.setattr(demand_module, "CATCH_UP_S", 0.0)
    demand.expect()
    assert not is_hurried(demand)
