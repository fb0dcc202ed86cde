"""What saving costs the event loop of a log with many queues and topics, step by step.

    python -m stratamq_bench.child saving.run topics=100000 queues=1000000 directory=/dev/shm/saving

The log's own parts run here without a log: what the event loop does, and what its worker does, take
turns in one thread, and the CPU time of each step is taken. Printed: milliseconds of the longest
step on the loop, the 99th percentile, their number, and the worker's time in all.
"""

import gc
import random
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
from stratamq_commitlog.recovery.own_state import OwnState
from stratamq_commitlog.upkeep.snapshots import ENTRIES_PER_STEP, SnapshotSaving
from stratamq_commitlog.write.queue_offsets import QueueOffsets
from stratamq_commitlog.write.topic_table import TopicConfig, TopicTable

from stratamq.files.clock import SystemClock
from stratamq.files.real import RealFiles
from stratamq.store.queue_snapshot import TableSnapshot


class LoopAndWorker:
    """Run the event loop and one worker alternately, and time both."""

    def __init__(self) -> None:
        self._tasks: deque[tuple[Callable[[], Any], Callable[..., None]]] = deque()
        self._loop_ms: list[float] = []
        self._worker_ms = 0.0

    def submit(self, task: Callable[[], Any], done: Callable[..., None]) -> None:
        self._tasks.append((task, done))

    def loop(self, step: Callable[[], Any]) -> None:
        began = time.thread_time_ns()
        step()
        self._loop_ms.append((time.thread_time_ns() - began) / 1e6)

    def run(self) -> None:
        while self._tasks:
            task, done = self._tasks.popleft()
            began = time.thread_time_ns()
            task()
            self._worker_ms += (time.thread_time_ns() - began) / 1e6
            began = time.thread_time_ns()
            done(None, None)
            del task, done  # what they held is let go of on the loop, at worst
            self._loop_ms.append((time.thread_time_ns() - began) / 1e6)

    def taken(self) -> dict[str, float]:
        """Since the last call."""
        loop, worker_ms = self._loop_ms, self._worker_ms
        self._loop_ms, self._worker_ms = [], 0.0
        return {
            "longest_ms": max(loop),
            "p99_ms": float(np.percentile(loop, 99)),
            "steps": len(loop),
            "worker_ms": worker_ms,
        }


def run(
    directory: str, topics: int = 100_000, queues: int = 1_000_000, changed: int = 100_000
) -> dict[str, object]:
    """`directory`: an empty one; `queues` in all; `changed` queues between snapshots."""
    files = RealFiles(directory)
    return _queues(files, topics, queues, changed) | _topics(files, topics)


def _queues(files: RealFiles, topics: int, count: int, changed: int) -> dict[str, object]:
    turns, names = LoopAndWorker(), [f"topic-{number:06}" for number in range(topics)]
    each = count // topics
    queues = QueueOffsets({(name, number): 1 for name in names for number in range(each)})
    state = OwnState(files)
    state.load()
    snapshot = TableSnapshot(generation=1, offset=0, frame=None, store_timestamp_ms=0, minimum=0)
    state.first_snapshot(snapshot, queues.table)
    saving = SnapshotSaving(
        state, queues, lambda _, task, done: turns.submit(task, done), lambda: None
    )
    gc.freeze()
    chance = random.Random(1)

    def change_and_save() -> None:
        for number in chance.sample(range(len(names) * each), changed):
            queues.take((names[number // each], number % each), 1)
        turns.loop(saving.take)
        turns.loop(lambda: saving.store(snapshot, lambda _: None))
        turns.run()

    found: dict[str, object] = {}
    change_and_save()
    found["changed_queues"] = turns.taken()
    while True:
        change_and_save()
        taken = turns.taken()
        if taken["steps"] > len(queues) / ENTRIES_PER_STEP:
            return found | {"whole_queue_table": taken}


def _topics(files: RealFiles, topics: int) -> dict[str, object]:
    turns = LoopAndWorker()
    table = TopicTable(files, SystemClock(), auto_create=True, default_queues=4)
    table.load(foreign=False)
    for number in range(topics):
        table.put(TopicConfig(f"topic-{number:06}", 4, 4))
    table.save()
    gc.freeze()
    found: dict[str, object] = {}

    def make(name: str) -> None:
        turns.loop(lambda: table.put(TopicConfig(name, 4, 4)))
        turns.loop(lambda: table.saving.save(turns.submit, lambda _: None))
        turns.run()

    make("another")
    found["one_topic_made"] = turns.taken()
    turns.loop(lambda: table.saving.save_whole(turns.submit, lambda _: None))
    turns.run()
    found["topics_json"] = turns.taken()
    return found
