"""The parts of an append whose trace is recorded: what each took, and for whom a pass works."""

import asyncio

from stratamq_commitlog.driver import Driver
from stratamq_commitlog.messages import LogListener
from stratamq_commitlog.write.append_times import MOST, AppendStages

from stratamq.files.simulated import SimulatedClock
from stratamq.rpc.request_ids import current, one_request
from tests.support.logs import Store, batch

MS = 1_000_000


class Recorded:
    """A span that remembers its parts, in ms from the clock's beginning."""

    traceparent = ""

    def __init__(self, clock: SimulatedClock) -> None:
        self.begin_ns = clock.monotonic_ns()
        self.parts: list[tuple[str, int, int]] = []

    def past_part(self, name: str, begin_ns: int, end_ns: int) -> None:
        begin, end = ((at - self.begin_ns) // MS for at in (begin_ns, end_ns))
        self.parts.append((name, begin, end))


class Log:
    """Passes and flushes at chosen times."""

    def __init__(self) -> None:
        self.clock = SimulatedClock()
        self.stages = AppendStages(self.clock)
        self.began_ns = self.clock.monotonic_ns()

    def later(self, ms: int) -> None:
        self.clock.advance_ms(ms)

    def write(self, end: int, ms: int) -> None:
        began_ns = self.clock.monotonic_ns()
        self.later(ms)
        self.stages.written(began_ns, end)

    def parts(self, span: Recorded, offset: int, replicated: bool = False):
        self.stages.record(span, self.began_ns, offset, replicated=replicated)
        return span.parts


def test_an_append_waits_is_written_flushed_and_replicated():
    log = Log()
    span = Recorded(log.clock)
    log.write(100, 0)  # an earlier one
    log.later(1)
    log.write(200, 2)
    log.later(3)
    log.stages.flushed(100)
    log.later(4)
    log.stages.flushed(300)
    log.later(5)
    log.stages.flushed(400)
    assert log.parts(span, 150, replicated=True) == [
        ("append wait", 0, 1),
        ("pass write", 1, 3),
        ("flush wait", 3, 10),
        ("replica wait", 10, 15),
    ]


def test_under_asynchronous_flush_no_flush_is_waited_for():
    log = Log()
    span = Recorded(log.clock)
    log.write(100, 0)
    log.write(200, 2)
    assert log.parts(span, 199) == [("append wait", 0, 0), ("pass write", 0, 2)]


def test_the_first_pass_and_a_forgotten_one_have_no_parts():
    log = Log()
    log.write(100, 1)
    assert log.parts(Recorded(log.clock), 50) == []
    for number in range(MOST + 1):
        log.write(200 + number, 1)
    assert log.parts(Recorded(log.clock), 150) == []


async def test_a_pass_works_for_no_request_however_it_was_woken():
    store = Store(flush_disk_type="ASYNC_FLUSH")
    driver = Driver()
    store.listener = LogListener(wake=driver.wake, idle=driver.resume)
    log = store.start()
    store.put()  # the segment is there
    driver.start(log, lambda: None)
    answered = asyncio.Event()
    seen: list[object] = []

    def done(result) -> None:
        seen.append(current())
        answered.set()

    with one_request() as request:
        assert current() is request
        store.log.puts.batch(batch([b"x"]), done)
        await asyncio.wait_for(answered.wait(), 60)
    await driver.stop()
    assert seen == [None]
