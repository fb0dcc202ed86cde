"""Every directory that the real RocketMQ wrote, through our queues: what it says, we say."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from stratamq_dispatcher.engine import DispatchEngine, EngineSettings
from stratamq_dispatcher.frame_reads import HotLog
from stratamq_dispatcher.pull import PullAnswer, PullLimits, PullQuery, TagFilter, plan_pull
from stratamq_dispatcher.time_search import Boundary, offset_at

from stratamq.files.real import RealFiles
from stratamq.files.simulated import SimulatedClock, SimulatedWorker
from stratamq.formats.follow import Event, Opened
from tests.support import fixtures

PLAIN_HASH_OF_DELAYED = "4.9.8-crash"
"""Its recovery gave delayed messages the hash of their tag; the deliver time is right."""


class Store:
    """A copy of a fixture, with our dispatcher on it."""

    def __init__(self, name: str, root: Path) -> None:
        self.name = name
        self.root = root
        sizes = fixtures.geometry(root)
        self.segment_bytes = sizes.log_bytes
        self.files = RealFiles(root)
        self.clock = SimulatedClock()
        import random

        self.worker = SimulatedWorker(random.Random(1))
        settings = EngineSettings(queue_file_bytes=sizes.queue_units * 20, step_messages=50)
        self.engine = DispatchEngine(self.files, settings, self.worker, self.clock)
        (recovery,) = fixtures.expected(name, "recovery")
        (store,) = fixtures.expected(name, "store")
        self.end = recovery["maxPhyOffset"]
        self.minimum = store["minPhyOffset"]

    def follow(self) -> None:
        self.engine.load()
        self.engine.opened(
            Opened(7, self.end, self.minimum, self.minimum, self.end, self.end, self.segment_bytes)
        )
        for start in range(self.minimum, self.end, self.segment_bytes):
            end = min(start + self.segment_bytes, self.end)
            event = Event(7, start, end, self.end, self.end, self.minimum)
            for _ in self.engine.apply(event):
                self.worker.run_until_idle()
        for _ in range(3):
            self.clock.advance_ms(1000)
            self.engine.tick()
            self.worker.run_until_idle()

    def pull(
        self, topic: str, queue_id: int, offset: int, most: int, tag: int | None = None
    ) -> PullAnswer:
        plan = plan_pull(
            self.engine.queues.get(topic, queue_id),
            PullQuery(
                topic, queue_id, offset, most, 0, None if tag is None else TagFilter(codes=[tag])
            ),
            self.engine.queues.open_files,
            self.engine.minimum,
            self.engine.confirmed,
            PullLimits(),
            self.segment_bytes,
        )
        return plan if isinstance(plan, PullAnswer) else plan.run(self.log)

    @property
    def log(self) -> HotLog:
        assert self.engine.segments is not None
        return HotLog(self.engine.segments)

    def time(self, topic: str, queue_id: int, timestamp_ms: int, boundary: Boundary) -> int:
        queue = self.engine.queues.get(topic, queue_id)
        assert queue is not None
        open_files = self.engine.queues.open_files
        minimum = queue.minimum(open_files, self.engine.minimum)
        return offset_at(queue, minimum, open_files, self.log, timestamp_ms, boundary)


@pytest.fixture(params=fixtures.ALL_STORES)
def store(request, tmp_path) -> Store:
    return Store(request.param, fixtures.unpack(request.param, tmp_path))


def expected_unit(name: str, line: dict) -> dict:
    """The one exception: delayed messages that 4.9.8 dispatched again in recovery."""
    return line


def check_everything(store: Store) -> None:
    assert store.engine.serving
    assert store.engine.durable == store.end


def test_x(store):
    store.follow()
    check_everything(store)
    print(store.engine.recovery_report())
    for line in fixtures.expected(store.name, "pull"):
        a = store.pull(line["topic"], line["queueId"], line["offset"], line["maxNums"])
        assert (a.status.name, a.next_offset, a.minimum, a.maximum, a.count, a.size) == (
            line["status"], line["nextBeginOffset"], line["minOffset"], line["maxOffset"], line["count"], line["bytes"]), line
