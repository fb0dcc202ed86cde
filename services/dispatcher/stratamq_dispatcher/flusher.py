"""Brings all dirty queues to disk in jobs of bounded size, then the watermark: one *cycle*.

A cycle takes every queue that is dirty when it begins, writes what is below its limit, and stores
the watermark with its last job. One cycle runs at a time; the engine starts the next one.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from stratamq.files.port import Worker
from stratamq_dispatcher.consume_queue import ConsumeQueue
from stratamq_dispatcher.dispatch_state import DispatchState
from stratamq_dispatcher.queue_table import QueueTable
from stratamq_dispatcher.queue_writer import (
    FlushDone,
    FlushJob,
    QueueWrite,
    QueueWriter,
)

QUEUES_PER_JOB = 512
"""Building a job is work on the engine's thread: this many take about a millisecond."""


@dataclass(frozen=True, slots=True)
class Cycle:
    """What one cycle is to do."""

    limit: int
    """Only units of messages that end at or below this log offset: what the log has flushed."""
    erase: bool
    """Also zero what is stale behind the queues' ends."""
    compare: bool
    keep: bool
    before: DispatchState | None
    after: DispatchState | None


class Flusher:
    """Belongs to the engine's thread; the writing happens on the worker's lane."""

    def __init__(self, table: QueueTable, writer: QueueWriter, worker: Worker) -> None:
        self.running = False
        self.written_bytes = 0
        """Since the start, for metrics."""
        self._table = table
        self._writer = writer
        self._worker = worker
        self._waiting: OrderedDict[ConsumeQueue, None] = OrderedDict()
        """Queues of this cycle that are in no job yet."""
        self._in_job: list[tuple[ConsumeQueue, QueueWrite]] = []

    def start(self, cycle: Cycle, on_end: Callable[[BaseException | None], None]) -> None:
        """Begin a cycle. `on_end(None)`: all of it is durable; an error, that it stopped:
        SyncFailedError for good, OSError until the next try (everything is still in memory)."""
        assert not self.running
        self.running = True
        table = self._table
        self._waiting, table.dirty = table.dirty, OrderedDict()
        self._submit(cycle, on_end, first=True)

    def _submit(
        self, cycle: Cycle, on_end: Callable[[BaseException | None], None], *, first: bool
    ) -> None:
        count = min(QUEUES_PER_JOB, len(self._waiting))
        batch = [self._waiting.popitem(last=False)[0] for _ in range(count)]
        self._in_job = [(queue, self._write(queue, cycle)) for queue in batch]
        job = FlushJob(
            writes=[write for _, write in self._in_job],
            before=cycle.before if first else None,
            after=None if self._waiting else cycle.after,
            compare=cycle.compare,
            keep=cycle.keep,
        )
        self._worker.submit(
            lambda: self._writer.run(job),
            lambda done, error: self._job_ended(done, error, cycle, on_end),
        )

    def _write(self, queue: ConsumeQueue, cycle: Cycle) -> QueueWrite:
        data = queue.unwritten(cycle.limit)
        write = QueueWrite(
            key=(queue.topic, queue.queue_id),
            version=queue.version,
            first_unit=queue.first_unit,
            start=queue.written,
            data=data,
            fill_from=queue.fill_from,
            erase=queue.erase if cycle.erase else 0,
        )
        if write.end < queue.end:
            self._table.dirty[queue] = None
        return write

    def _job_ended(
        self,
        done: FlushDone | None,
        error: BaseException | None,
        cycle: Cycle,
        on_end: Callable[[BaseException | None], None],
    ) -> None:
        if done is None:
            # Those that became dirty meanwhile come behind them.
            later, self._table.dirty = self._table.dirty, self._waiting
            self._waiting = OrderedDict()
            for queue in (*(queue for queue, _ in self._in_job), *later):
                self._table.dirty[queue] = None
            self._in_job.clear()
            self.running = False
            on_end(error)
            return
        self.written_bytes += done.written_bytes
        for path in done.removed:
            self._table.open_files.forget(path)
        for queue, write in self._in_job:
            self._table.wrote(queue, write.version, write.end, erased=write.erase > 0)
        self._in_job.clear()
        if self._waiting:
            self._submit(cycle, on_end, first=False)
            return
        self.running = False
        on_end(None)
