"""Units of a queue file that are damaged are taken from the log again, while the service runs.

When a unit does not lead to its frame, either the queue file is wrong or the log. Around the unit
others lead to theirs; between these the log is read frame by frame. If it is whole there, the
units in between follow from it, and they are written where they belong. If it is not, nothing can
be mended, and the reader receives an error.

    Mender.plan   on the engine's thread: the units around the damaged one
    MendPlan.run  on the reading lane: what the log gives
    Mender.write  on the writing lane
"""

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass

import numpy as np

from stratamq.errors import CorruptionError, OffsetOutOfRangeError, StrataError
from stratamq.files.port import Files, Worker
from stratamq.follow.fold import FoldPlace
from stratamq.formats.dispatch import dispatch_columns
from stratamq.formats.frame_layout import BLANK, MAGIC_BLANK
from stratamq.formats.frame_verify import first_damaged
from stratamq.formats.queue_paths import QueueGeometry
from stratamq.formats.queue_unit import QUEUE_UNIT_BYTES
from stratamq.formats.queue_units import decode_units, light_runs, unit_runs
from stratamq.store.log_pieces import next_frames
from stratamq_dispatcher.consume_queue import ConsumeQueue, read_units
from stratamq_dispatcher.findings import Findings
from stratamq_dispatcher.frame_reads import LogBytes, read_frames
from stratamq_dispatcher.queue_files import OpenFiles
from stratamq_dispatcher.queue_table import QueueTable

LOOK_UNITS = 1024
"""So far to either side a unit is looked for that is right."""
SCAN_BYTES = 64 << 20
"""So much of the log is read to mend one unit; rarer queues wait for the next start."""
STEP_MEMBERS = 4096
_UNKNOWN = -1


@dataclass(frozen=True, slots=True)
class Mended:
    """`units` belong at the queue offset `first`."""

    first: int
    units: bytes

    @property
    def stop(self) -> int:
        return self.first + len(self.units) // QUEUE_UNIT_BYTES


@dataclass(frozen=True, slots=True)
class MendPlan:
    """The damaged unit among those around it. Holds nothing of the engine's."""

    topic: str
    queue_id: int
    directory: str
    version: int
    damaged: int
    first: int
    units: bytes
    log_begin: int
    """Where the log begins for the unit `first`: known when nothing of the queue is before it."""
    log_end: int
    """The end of the frame of the last unit: known when nothing of the queue follows it."""
    segment_bytes: int
    delay_levels_ms: tuple[int, ...]

    def run(self, log: LogBytes) -> Mended | None:
        """What the log has of the damaged unit and its damaged neighbours; None: it cannot."""
        units = decode_units(self.units)
        row = self.damaged - self.first
        before, behind = row - 1, row + 1
        while before >= 0 and not self._leads_to_its_frame(log, before):
            before -= 1
        while behind < len(units) and not self._leads_to_its_frame(log, behind):
            behind += 1
        start, end = self.log_begin, self.log_end
        if before >= 0:
            start = int(units[before]["physical_offset"]) + int(units[before]["size"])
        if behind < len(units):
            end = int(units[behind]["physical_offset"])
        if start == _UNKNOWN or end == _UNKNOWN or not 0 < end - start <= SCAN_BYTES:
            return None
        try:
            found = self._scan(log, start, end)
        except (CorruptionError, OffsetOutOfRangeError):
            return None
        wanted = range(self.first + before + 1, self.first + behind)
        if not all(offset in found for offset in wanted):
            return None
        return Mended(wanted.start, b"".join(found[offset] for offset in wanted))

    def _leads_to_its_frame(self, log: LogBytes, row: int) -> bool:
        unit = decode_units(self.units)[row : row + 1]
        try:
            read_frames(
                log,
                unit["physical_offset"].astype(np.int64),
                unit["size"].astype(np.int64),
                np.array([self.first + row]),
                self.segment_bytes,
                self.directory,
            )
        except (CorruptionError, OffsetOutOfRangeError):
            return False
        return True

    def _scan(self, log: LogBytes, start: int, end: int) -> dict[int, bytes]:
        """The queue's units of all messages in [start, end). CorruptionError: a frame is damaged,
        or `start` is none's beginning."""
        found: dict[int, bytes] = {}
        position = start
        while position < end:
            segment_end = position - position % self.segment_bytes + self.segment_bytes
            stop = min(end, segment_end)
            window, lengths = next_frames(log.window, position, stop, STEP_MEMBERS)
            sizes = lengths.astype(np.int64)
            starts = sizes.cumsum() - sizes
            if BLANK.unpack_from(window, int(starts[-1]))[1] == MAGIC_BLANK:
                starts, sizes = starts[:-1], sizes[:-1]
            damaged = first_damaged(window, starts, sizes, log.sealed_from - position)
            if damaged is not None:
                raise CorruptionError(f"the log is damaged at {position + starts[damaged[0]]}")
            columns = dispatch_columns(window, position, lengths, self.delay_levels_ms)
            for run in (*unit_runs(columns), *light_runs(columns)):
                if (run.topic, run.queue_id) == (self.topic, self.queue_id):
                    for number in range(run.count):
                        at = number * QUEUE_UNIT_BYTES
                        found[run.first_queue_offset + number] = bytes(
                            run.units[at : at + QUEUE_UNIT_BYTES]
                        )
            position += int(lengths.sum(dtype=np.int64))
        return found


class Mender:
    """Used on the engine's thread."""

    def __init__(
        self,
        files: Files,
        worker: Worker,
        queues: QueueTable,
        followed: FoldPlace,
        findings: Findings,
        delay_levels_ms: tuple[int, ...],
        may_write: Callable[[], bool],
    ) -> None:
        """`may_write`: false for good after a failed sync."""
        self._files = files
        self._worker = worker
        self._queues = queues
        self._followed = followed
        self._findings = findings
        self._delay_levels_ms = delay_levels_ms
        self._may_write = may_write

    def plan(self, topic: str, queue_id: int, damaged: int) -> MendPlan | None:
        """How to find out what unit `damaged` should be; None when there is no such queue, the
        units around it cannot be read either, or nothing may be written any more."""
        queue = self._queues.get(topic, queue_id)
        if queue is None or not self._may_write():
            return None
        followed = self._followed
        return plan_mend(
            queue,
            self._queues.open_files,
            damaged,
            followed.minimum,
            followed.segment_bytes,
            self._delay_levels_ms,
        )

    def write(self, plan: MendPlan, mended: Mended, done: Callable[[bool], None]) -> None:
        """Write units that the log has given again; `done` is called with whether they are in the
        file, synced. What was cut or written again since the plan was made is left alone."""
        queue = self._queues.get(plan.topic, plan.queue_id)
        if queue is None or queue.version != plan.version or mended.stop > queue.written:
            done(False)
            return

        def written(_: None, error: BaseException | None) -> None:
            what = f"{plan.directory}: units {mended.first} to {mended.stop - 1} were damaged"
            if error is None:
                self._findings.add(f"{what}, and are taken from the log again")
            elif isinstance(error, OSError | StrataError):
                self._findings.add(f"{what}, and cannot be written: {error}")
            else:
                raise error
            done(error is None)

        geometry, files = queue.geometry, self._files
        self._worker.submit(lambda: write_mended(files, geometry, plan.directory, mended), written)


def plan_mend(
    queue: ConsumeQueue,
    open_files: OpenFiles,
    damaged: int,
    minimum: int,
    segment_bytes: int,
    delay_levels_ms: tuple[int, ...],
) -> MendPlan | None:
    """None when the units around the damaged one cannot be read either."""
    first = max(queue.first_index, damaged - LOOK_UNITS)
    stop = min(queue.written, damaged + LOOK_UNITS)
    units = bytearray()
    while first + len(units) // QUEUE_UNIT_BYTES < stop:
        index = first + len(units) // QUEUE_UNIT_BYTES
        piece = read_units(queue, open_files, index, stop - index)
        if not piece:
            return None
        units += piece
    if not first <= damaged < stop:
        return None
    return MendPlan(
        topic=queue.topic,
        queue_id=queue.queue_id,
        directory=queue.directory,
        version=queue.version,
        damaged=damaged,
        first=first,
        units=bytes(units),
        log_begin=minimum if first == queue.first_index else _UNKNOWN,
        log_end=queue.end_offset if stop == queue.end else _UNKNOWN,
        segment_bytes=segment_bytes,
        delay_levels_ms=delay_levels_ms,
    )


def write_mended(files: Files, geometry: QueueGeometry, directory: str, mended: Mended) -> None:
    """Durable on return. Nothing of it is behind what the queue has written."""
    index = mended.first
    while index < mended.stop:
        stop = min(mended.stop, geometry.file_of(index) + geometry.units_per_file)
        begin, end = ((each - mended.first) * QUEUE_UNIT_BYTES for each in (index, stop))
        with closing(files.open(geometry.path(directory, index), writable=True)) as file:
            file.write(geometry.position(index), mended.units[begin:end])
            file.flush()
        index = stop
