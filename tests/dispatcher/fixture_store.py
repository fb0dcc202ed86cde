"""A copy of a directory that the real RocketMQ wrote, with our dispatcher's engine on it."""

import random
from pathlib import Path
from typing import Any

from stratamq_dispatcher.consume_queue import unit_at
from stratamq_dispatcher.engine import DispatchEngine, EngineSettings
from stratamq_dispatcher.frame_reads import HotLog
from stratamq_dispatcher.pull import PullAnswer, PullLimits, PullQuery, TagFilter, plan_pull
from stratamq_dispatcher.time_search import Boundary, offset_at

from stratamq.files.real import RealFiles
from stratamq.files.simulated import SimulatedClock, SimulatedWorker
from stratamq.follow.protocol import Event, Opened
from stratamq.formats.delay import DEFAULT_DELAY_LEVELS_MS
from stratamq.formats.queue_unit import QueueUnit
from stratamq.formats.topics import SCHEDULE_TOPIC
from tests.support import fixtures

PLAIN_HASHES = "4.9.8-crash"
"""Recovery of 4.9.2 to 4.9.8 gives delayed messages the hash of their tag; we, the deliver time."""
GENERATION = 7

Key = tuple[str, int]


class FixtureStore:
    """RocketMQ's report of it (`expected…`) beside that of our queues."""

    def __init__(self, name: str, root: Path) -> None:
        self.name = name
        self.root = root
        self.geometry = fixtures.geometry(root)
        (recovery,) = fixtures.expected(name, "recovery")
        (store,) = fixtures.expected(name, "store")
        self.end: int = recovery["maxPhyOffset"]
        self.minimum: int = store["minPhyOffset"]
        self.deliver_times = 0
        """How many units differ from RocketMQ's report."""
        self.restart()

    def restart(self) -> None:
        """A new dispatcher process, not yet connected."""
        self.clock = SimulatedClock()
        self.worker = SimulatedWorker(random.Random(1))
        settings = EngineSettings(queue_file_bytes=self.geometry.queue_units * 20, step_messages=50)
        self.engine = DispatchEngine(RealFiles(self.root), settings, self.worker, self.clock)
        self.engine.load()

    def follow(self, cut_to: int | None = None) -> None:
        """The whole log, as bare ranges, until everything is flushed."""
        start = self.minimum if cut_to is None else cut_to
        size = self.geometry.log_bytes
        self.engine.fold.opened(
            Opened(GENERATION, self.end, start, self.minimum, self.end, self.end, size)
        )
        while start < self.end:
            end = min(start - start % size + size, self.end)
            event = Event(GENERATION, start, end, self.end, self.end, self.minimum)
            for _ in self.engine.fold.apply(event):
                self.clock.advance_ms(1000)
                self.engine.tick()
                self.worker.run_until_idle()
            start = end
        for _ in range(3):
            self.clock.advance_ms(1000)
            self.engine.tick()
            self.worker.run_until_idle()

    # --- what our queues report ---

    def pull(self, key: Key, offset: int, most: int, tags_code: int | None = None) -> PullAnswer:
        plan = plan_pull(
            self.engine.queues.get(*key),
            PullQuery(
                *key, offset, most, 0, None if tags_code is None else TagFilter(codes=[tags_code])
            ),
            self.engine.queues.open_files,
            self.engine.followed.minimum,
            self.engine.followed.confirmed,
            PullLimits(),
            self.geometry.log_bytes,
        )
        return plan if isinstance(plan, PullAnswer) else plan.run(self.log)

    def unit(self, key: Key, index: int) -> QueueUnit:
        queue = self.engine.queues.get(*key)
        assert queue is not None
        return unit_at(queue, self.engine.queues.open_files, index)

    def offset_at(self, key: Key, timestamp_ms: int, boundary: Boundary) -> int:
        queue = self.engine.queues.get(*key)
        assert queue is not None
        open_files = self.engine.queues.open_files
        minimum = queue.minimum(open_files, self.engine.followed.minimum)
        return offset_at(queue, minimum, open_files, self.log, timestamp_ms, boundary)

    @property
    def log(self) -> HotLog:
        assert self.engine.followed.segments is not None
        return HotLog(self.engine.followed.segments)

    # --- what RocketMQ reports ---

    def lines(self, kind: str) -> list[dict[str, Any]]:
        return list(fixtures.expected(self.name, kind))

    def messages(self) -> dict[Key, list[dict[str, Any]]]:
        """The `message` lines by queue, tag codes as they must be here."""
        queues: dict[Key, list[dict[str, Any]]] = {}
        for line in self.lines("message"):
            code = self._deliver_time(line)
            if code is not None and code != line["tagsCode"]:
                self.deliver_times += 1
                line = line | {"tagsCode": code, "deliverTimeHere": True}
            queues.setdefault((line["topic"], line["queueId"]), []).append(line)
        return queues

    def _deliver_time(self, line: dict[str, Any]) -> int | None:
        if self.name != PLAIN_HASHES or line["topic"] != SCHEDULE_TOPIC:
            return None
        level = min(int(line["properties"]["DELAY"]), len(DEFAULT_DELAY_LEVELS_MS))
        return line["storeTimestamp"] + DEFAULT_DELAY_LEVELS_MS[level - 1]


def filtered_pages(
    messages: list[dict[str, Any]], tags_code: int, units_per_file: int
) -> tuple[list[str], list[int]]:
    """`pages` and `phyOffsets` of a `filtered` line, by looking at one message after another."""
    pages, found, at = [], [], 0
    while at < len(messages):
        stop = min(at - at % units_per_file + units_per_file, len(messages))
        taken = [m["phyOffset"] for m in messages[at:stop] if m["tagsCode"] == tags_code]
        pages.append(f"{'FOUND' if taken else 'NO_MATCHED_MESSAGE'}@{stop}")
        found += taken
        at = stop
    return pages, found


def linear_offset_at(times: list[int], timestamp_ms: int, boundary: Boundary) -> int:
    """The definition, for a queue that begins at 0."""
    if boundary is Boundary.LOWER:
        return next((i for i, t in enumerate(times) if t >= timestamp_ms), len(times))
    if boundary is Boundary.UPPER:
        return max([i for i, t in enumerate(times) if t <= timestamp_ms], default=0)
    return min(range(len(times)), key=lambda i: abs(times[i] - timestamp_ms), default=0)
