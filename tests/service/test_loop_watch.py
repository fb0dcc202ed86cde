"""The thread that detects a blocked event loop."""

import asyncio
import logging
import threading

from prometheus_client import generate_latest

from stratamq.files.clock import SystemClock
from stratamq.service import metrics
from stratamq.service.loop_watch import LoopWatch

LIMIT_S = 1.5
"""The loop shows twice a second that it runs."""


class Seen(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []
        self.stalled, self.runs = threading.Event(), threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)
        (self.stalled if "stalled" in record.getMessage() else self.runs).set()


def shown() -> float:
    text = generate_latest(metrics.REGISTRY).decode()
    (line,) = (one for one in text.splitlines() if one.startswith("service_loop_stalled_seconds"))
    return float(line.split()[-1])


def test_a_loop_that_one_call_blocks_is_reported_with_the_place_and_again_when_it_runs():
    seen = Seen()
    log = logging.getLogger("stratamq.service.loop_watch")
    log.addHandler(seen)

    async def scenario() -> None:
        watch = LoopWatch(SystemClock(), stands_still_s=LIMIT_S)
        watch.start()
        assert seen.stalled.wait(60), "this call blocks the loop until that is logged"
        assert shown() >= LIMIT_S
        assert await asyncio.to_thread(seen.runs.wait, 60)
        watch.close()

    try:
        asyncio.run(scenario())
    finally:
        log.removeHandler(seen)
    first, second = (record.getMessage() for record in seen.records)
    assert (first, second) == ("event loop stalled", "event loop stall ended")
    assert "test_loop_watch.py" in seen.records[0].__dict__["in"]
    assert shown() == 0
