"""The thread worker: order, delivery on the loop, draining."""

import asyncio
import threading

import pytest

from stratamq.files.clock import SystemClock
from stratamq.service.worker import ThreadWorker


async def test_results_arrive_in_order_on_the_loop_from_a_named_thread():
    worker = ThreadWorker(asyncio.get_running_loop(), "flush")
    done = []

    def task(number: int) -> tuple[int, str]:
        return number, threading.current_thread().name

    for number in range(100):
        worker.submit(
            lambda number=number: task(number),
            lambda result, error: done.append((result, error, threading.current_thread())),
        )
    assert done == []  # never inside submit
    await worker.close()
    assert [result[0] for result, _, _ in done] == list(range(100))
    assert {result[1] for result, _, _ in done} == {"flush_0"}
    assert {(error, thread) for _, error, thread in done} == {(None, threading.main_thread())}


async def test_an_error_of_the_task_is_delivered_and_the_next_task_runs():
    worker = ThreadWorker(asyncio.get_running_loop(), "flush")
    done = []
    failure = OSError(5, "Input/output error")

    def fail() -> None:
        raise failure

    worker.submit(fail, lambda *outcome: done.append(outcome))
    worker.submit(lambda: 7, lambda *outcome: done.append(outcome))
    await worker.close()
    assert done == [(None, failure), (7, None)]


async def test_what_an_answer_submits_while_the_worker_closes_is_carried_out():
    worker = ThreadWorker(asyncio.get_running_loop(), "flush")
    done = []

    def on_done(left: int) -> None:
        done.append(left)
        if left:
            worker.submit(lambda: left - 1, lambda result, error: on_done(result))

    worker.submit(lambda: 3, lambda result, error: on_done(result))
    await worker.close()
    assert done == [3, 2, 1, 0]


async def test_close_drains_twice_over_and_then_refuses():
    worker = ThreadWorker(asyncio.get_running_loop(), "flush")
    await worker.close()
    await worker.close()
    with pytest.raises(RuntimeError, match="worker flush is closed"):
        worker.submit(lambda: None, lambda *_: None)


async def test_a_raising_on_done_does_not_stop_the_worker():
    loop = asyncio.get_running_loop()
    reported = []
    loop.set_exception_handler(lambda _, context: reported.append(context["exception"]))
    worker = ThreadWorker(loop, "flush")
    done = []
    worker.submit(lambda: 1, lambda *_: 1 / 0)
    worker.submit(lambda: 2, lambda result, _: done.append(result))
    await worker.close()
    assert done == [2]
    assert isinstance(reported[0], ZeroDivisionError)


def test_the_system_clock_gives_milliseconds_and_nanoseconds():
    clock = SystemClock()
    assert clock.wall_ms() > 1_700_000_000_000
    first = clock.monotonic_ns()
    assert clock.monotonic_ns() >= first


async def test_what_is_run_comes_to_its_end_although_its_caller_is_gone():
    worker = ThreadWorker(asyncio.get_running_loop(), "look")
    begun, may_end = threading.Event(), threading.Event()
    ended = []

    def task() -> None:
        begun.set()
        may_end.wait(60)
        ended.append(True)

    caller = asyncio.ensure_future(worker.run(task))
    following = asyncio.ensure_future(worker.run(lambda: len(ended)))
    while not begun.is_set():
        await asyncio.sleep(0)
    caller.cancel()
    await asyncio.wait([caller])
    assert caller.cancelled() and not ended
    may_end.set()
    assert await following == 1, "one at a time, in order"
    with pytest.raises(OSError, match="full"):
        await worker.run(fail_with(OSError("full")))
    await worker.close()


def fail_with(error: Exception):
    def fail() -> None:
        raise error

    return fail
