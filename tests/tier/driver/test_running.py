"""Procedures: one call at a time, or over threads, with the same results and errors."""

import asyncio
import threading

import pytest

from stratamq.tier.driver.calls import AbsentError, Create, Load, Read, Size, Together, ask
from stratamq.tier.driver.memory import MemoryStorage
from stratamq.tier.driver.running import Runner
from stratamq.tier.driver.storage import run


@pytest.fixture
def memory():
    return MemoryStorage(positions=False)


def by_loop(procedure, storage):
    return run(procedure, storage)


def by_threads(procedure, storage):
    runner = Runner(storage, 2)
    try:
        return runner.run(procedure)
    finally:
        runner.close()


def by_event_loop(procedure, storage):
    runner = Runner(storage, 2)
    try:
        return asyncio.run(runner.start(procedure))
    finally:
        runner.close()


every_way = pytest.mark.parametrize("way", [by_loop, by_threads, by_event_loop])


def copy(source, target):
    data, _ = yield from ask(Load(source))
    yield from ask(Create(target, data))
    return len(data)


@every_way
def test_a_procedure_receives_results_and_returns_its_own(way, memory):
    memory.perform(Create("a", b"1234"))
    assert way(copy("a", "b"), memory) == 4
    assert memory.perform(Read("b", 0, 4)) == b"1234"


@every_way
def test_an_error_of_a_call_is_raised_where_it_was_asked(way, memory):
    def size_or_none():
        try:
            yield from ask(Load("absent"))
        except AbsentError as error:
            return str(error)

    assert "absent" in way(size_or_none(), memory)


@every_way
def test_an_error_that_the_procedure_does_not_catch_is_the_callers(way, memory):
    with pytest.raises(AbsentError):
        way(copy("absent", "b"), memory)


@every_way
def test_results_of_calls_together_are_in_their_order(way, memory):
    def write_and_measure():
        creates = tuple(Create(f"q/{number}", bytes(number)) for number in range(20))
        yield from ask(Together(creates))
        return (yield from ask(Together(tuple(Size(call.path) for call in creates))))

    assert way(write_and_measure(), memory) == list(range(20))


@every_way
def test_calls_together_all_come_to_their_end_before_the_first_error_is_raised(way, memory):
    def fails():
        absent = Load("first absent"), Load("second absent")
        calls = (Create("a", b"1"), *absent, Create("b", b"2"))
        yield from ask(Together(calls))

    with pytest.raises(AbsentError, match="first"):
        way(fails(), memory)
    assert memory.perform(Size("a")) == memory.perform(Size("b")) == 1


@every_way
def test_no_calls_together_are_no_results(way, memory):
    assert way(ask(Together(())), memory) == []


class Meeting:
    """A storage whose calls end when `count` of them are under way at once."""

    positions = False

    def __init__(self, count):
        self.barrier = threading.Barrier(count)
        self.lock = threading.Lock()
        self.under_way = self.most = 0

    def perform(self, call):
        with self.lock:
            self.under_way += 1
            self.most = max(self.most, self.under_way)
        self.barrier.wait(timeout=30)
        with self.lock:
            self.under_way -= 1
        return 1


@pytest.mark.parametrize("way", [by_threads, by_event_loop])
def test_calls_together_are_done_at_once_and_not_more_than_there_are_threads(way):
    meeting = Meeting(2)
    assert way(ask(Together((Size("a"),) * 6)), meeting) == [1] * 6
    assert meeting.most == 2


async def test_more_procedures_than_threads_all_come_to_their_end(memory):
    def nested(number):
        yield from ask(Together((Create(f"{number}/a", b""), Create(f"{number}/b", b""))))
        yield from ask(Together((Size(f"{number}/a"), Size(f"{number}/b"))))
        return number

    runner = Runner(memory, 2)
    assert await asyncio.gather(*(runner.start(nested(number)) for number in range(50))) == list(
        range(50)
    )
    runner.close()


def test_a_procedures_own_code_runs_beside_the_event_loop(memory):
    def where():
        yield from ask(Size("a"))
        return threading.current_thread()

    assert by_event_loop(where(), memory) is not threading.current_thread()


async def test_a_cancelled_procedure_makes_no_further_call_and_is_closed():
    class Waiting:
        positions = False

        def __init__(self):
            self.calls, self.started, self.go_on = [], threading.Event(), threading.Event()

        def perform(self, call):
            self.calls.append(call)
            self.started.set()
            assert self.go_on.wait(30)

    closed = threading.Event()
    storage = Waiting()

    def two_calls():
        try:
            yield from ask(Size("first"))
            yield from ask(Size("second"))
        finally:
            closed.set()

    runner = Runner(storage, 1)
    task = asyncio.create_task(runner.start(two_calls()))
    await asyncio.to_thread(storage.started.wait)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    storage.go_on.set()
    assert await asyncio.to_thread(closed.wait, 30)
    runner.close()
    assert storage.calls == [Size("first")]


async def test_a_call_that_does_not_end_holds_the_close_up_no_longer_than_it_may(memory):
    begun, may_end = threading.Event(), threading.Event()

    class Stopped:
        positions = False

        def perform(self, call):
            begun.set()
            may_end.wait()

        def close(self):
            """Nothing to close."""

    runner = Runner(Stopped(), 1)
    copying = asyncio.ensure_future(runner.start(copy("a", "b")))
    while not begun.is_set():
        await asyncio.sleep(0)
    assert not runner.close(0.01)
    may_end.set()
    assert runner.close()
    copying.cancel()
