"""How much more the engine of the log costs than the unavoidable work: no process and no gRPC.

The engine runs alone, in this process: real files, async flush, its blocking tasks carried out
between passes by the same thread, so that all of its CPU is seen. Rounds of engine and
`floor_append` alternate; what counts is the median of the ratios of the rounds.

Allocation and flush are no part of the floor, and what they cost depends on how the machine gives
out memory: they are reported, and not held to the bar.
"""

import os
import random
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from stratamq_commitlog.config import CommitLogConfig
from stratamq_commitlog.engine import CommitLog
from stratamq_commitlog.log_parts import Workers
from stratamq_commitlog.messages import BatchResult, FrameBatch, FrameRun, LogListener

from stratamq.files.clock import SystemClock
from stratamq.files.real import RealFiles
from stratamq.formats.frame import Frame, decode
from stratamq.formats.message_status import SendStatus
from stratamq_bench import floor_append
from stratamq_bench.load import Mismatch
from stratamq_bench.plan import Plan
from stratamq_bench.report import Case, Floor

TOPIC = "TopicTest"
SEGMENT_BYTES = 1 << 28
TICK_NS = 50_000_000
KEPT_SEGMENTS = 2
SAMPLES = 64
ROUND_S = 0.7
QUEUES = 16


@dataclass(frozen=True, slots=True)
class PassLoad:
    """How many messages a pass holds, how large they are, over how many queues they go."""

    batch: int
    body_bytes: int = 1024
    queues: int = 1

    def runs(self) -> list[FrameRun]:
        counts = [len(part) for part in np.array_split(np.arange(self.batch), self.queues)]
        return [FrameRun(TOPIC, queue, count) for queue, count in enumerate(counts) if count]


class InlineWorker:
    """A `Worker` whose tasks run when `drain` is called, on the engine's own thread."""

    def __init__(self) -> None:
        self.cpu_s = 0.0
        self._tasks: deque[tuple[Callable[[], Any], Callable[[Any, Any], None]]] = deque()

    def submit(self, task: Callable[[], Any], on_done: Callable[[Any, Any], None]) -> None:
        self._tasks.append((task, on_done))

    def drain(self) -> None:
        while self._tasks:
            started = time.process_time()
            task, on_done = self._tasks.popleft()
            result, failure = None, None
            try:
                result = task()
            except OSError as error:
                failure = error
            self.cpu_s += time.process_time() - started
            on_done(result, failure)


class SkippingClock(SystemClock):
    """The system's clock, on which time can be made to pass."""

    def __init__(self) -> None:
        self._skipped_ns = 0

    def skip(self, seconds: float) -> None:
        self._skipped_ns += int(seconds * 1e9)

    def monotonic_ns(self) -> int:
        return super().monotonic_ns() + self._skipped_ns


class Engine:
    """A log in a directory of its own, driven as its service drives it."""

    def __init__(self, root: Path, load: PassLoad) -> None:
        self._clock = SkippingClock()
        self._bodies = [os.urandom(load.body_bytes) for _ in range(load.batch)]
        self.lengths, self.frames = floor_append.encode_batch(
            self._bodies, TOPIC.encode(), record_crc=True
        )
        self._runs = load.runs()
        self._wants_pass = False
        self._next_tick_ns = 0
        self._next_offsets = [0] * load.queues
        self._answers: list[BatchResult] = []
        self.worker = InlineWorker()
        config = CommitLogConfig(
            root=root,
            segment_bytes=SEGMENT_BYTES,
            flush_disk_type="ASYNC_FLUSH",
            default_topic_queues=load.queues,
            followers=(),
        )
        self.log = CommitLog(
            RealFiles(root),
            config,
            clock=self._clock,
            random=random.Random(1),
            workers=Workers(self.worker, self.worker),
            listener=LogListener(wake=self._wake),
        )
        self.log.open()

    def _wake(self) -> None:
        self._wants_pass = True

    def append(self) -> None:
        """One batch in, its answer out."""
        lengths = np.frombuffer(self.lengths, ">u4").astype(np.uint32)
        self.log.puts.batch(FrameBatch(self._runs, lengths, self.frames), self._answers.append)
        self._settle()
        now = self._clock.monotonic_ns()
        if now >= self._next_tick_ns:
            self._next_tick_ns = now + TICK_NS
            self.log.tick()
            self._settle()

    def _settle(self) -> None:
        while self._wants_pass:
            self._wants_pass = False
            self.log.run_pass()
            self.worker.drain()
        self.worker.drain()

    def run_for(self, seconds: float) -> tuple[int, float, float, float]:
        """Returns (batches, CPU seconds, CPU seconds of the workers' tasks, wall seconds)."""
        batches, worker = 0, self.worker.cpu_s
        cpu, wall = time.process_time(), time.perf_counter()
        while time.perf_counter() - wall < seconds:
            for _ in range(16):
                self.append()
            batches += 16
        return (
            batches,
            time.process_time() - cpu,
            self.worker.cpu_s - worker,
            time.perf_counter() - wall,
        )

    def check_and_forget(self, batches: int) -> None:
        """Compare the answers and a sample of what is stored, then free its disk. Mismatch."""
        if len(self._answers) != batches:
            raise Mismatch(f"{batches} batches were appended, {len(self._answers)} answered")
        for answer in self._answers:
            if answer.status is not SendStatus.PUT_OK:
                raise Mismatch(f"a batch was answered {answer.status.name}: {answer.error}")
            if list(answer.first_queue_offsets) != self._next_offsets:
                raise Mismatch(
                    f"queue offsets {answer.first_queue_offsets}, expected {self._next_offsets}"
                )
            for queue, run in enumerate(self._runs):
                self._next_offsets[queue] += run.count
        size = int.from_bytes(self.lengths[:4], "big")
        for answer in self._answers[:: max(1, len(self._answers) // SAMPLES)]:
            start = answer.physical_offset
            pieces = self.log.read_range(start, start + size, 0, unconfirmed=True)
            stored = b"".join(data for _, data in pieces)
            frame = decode(stored)
            if not isinstance(frame, Frame) or frame.body != self._bodies[0]:
                raise Mismatch(f"another message is at {start}")
        self._answers.clear()
        self.log.commit.request(self.log.offsets.appended)
        self._settle()
        keep = self.log.offsets.flushed - KEPT_SEGMENTS * SEGMENT_BYTES
        _, deleted = self.log.delete_below(max(0, keep), 1 << 16, True)
        for _ in deleted:
            self._clock.skip(1.1)
            self.log.tick()
            self._settle()

    def close(self) -> None:
        self.log.begin_close()
        self._settle()
        self.log.close()


def engine(place: Path, plan: Plan, *, batch: int) -> Case:
    """Short rounds, many of them: CPU hardly depends on what else runs, but caches do."""
    round_s = min(ROUND_S, plan.seconds / 3)
    rounds = max(3, round(plan.seconds / ROUND_S / 2))
    return compare(place, PassLoad(batch, plan.body, QUEUES), rounds=rounds, seconds=round_s)


def compare(root: Path, load: PassLoad, *, rounds: int, seconds: float) -> Case:
    """Alternate `rounds` rounds of `seconds` each of floor and engine, both below `root`.

    CPU microseconds per message are medians of the rounds.
    """
    engine = Engine(root / f"engine-{load.batch}-{load.queues}", load)
    floor = floor_append.Segment(os.fspath(root), record_crc=True)
    floor_us, passes_us, worker_us, rates = [], [], [], []
    messages = 0
    try:
        floor.touch_every_page(engine.lengths, engine.frames)
        engine.check_and_forget(engine.run_for(seconds)[0])
        for _ in range(rounds):
            batches, cpu, _ = floor_append.run_for(seconds, floor, engine.lengths, engine.frames)
            floor_us.append(cpu / batches / load.batch * 1e6)
            batches, cpu, worker, wall = engine.run_for(seconds)
            passes_us.append((cpu - worker) / batches / load.batch * 1e6)
            worker_us.append(worker / batches / load.batch * 1e6)
            rates.append(batches * load.batch / wall)
            messages += batches * load.batch
            engine.check_and_forget(batches)
    finally:
        floor.close()
        engine.close()
    parts = list(zip(floor_us, passes_us, worker_us, strict=True))
    least_us = median(floor_us)
    return Case(
        messages_per_s=median(rates),
        bytes_per_s=median(rates) * load.body_bytes,
        floor=Floor("floor_append --record-crc", 1e6 / least_us, {"append": least_us}),
        ratio=median(passes / least for least, passes, _ in parts),
        cpu_us_per_message={
            "passes": median(passes_us),
            "allocation and flush": median(worker_us),
        },
        measured={
            "times_with_allocation_and_flush": median(
                (passes + worker) / least for least, passes, worker in parts
            )
        },
        messages=messages,
    )
