"""Where queues end in a rebuild that was interrupted: every queue is right up to a log offset, and
what is behind its units in the files may be anything.

    units of our rebuild, in log order                        kept
    units that another writer left behind them
        of messages at or above the offset                    dropped: the rebuild goes on there
        that do not follow upon the one before                dropped
        that follow, and are below the offset                 dropped: the log has no such message

The log distinguishes the last kind from ours: below the offset our rebuild has put every message of
the log into its queue, so that a unit which the log confirms is ours, and so are all before it.
"""

import numpy as np

from stratamq.errors import CorruptionError, CorruptRecordError, OffsetOutOfRangeError
from stratamq.files.port import EntryKind, Files
from stratamq.formats.dispatch import dispatch_columns
from stratamq.formats.file_names import parse_offset_name
from stratamq.formats.queue_unit import QueueUnit
from stratamq.formats.queue_units import light_runs, unit_runs
from stratamq.store.segment_reader import SegmentReader
from stratamq_dispatcher.consume_queue import NO_MESSAGE, ConsumeQueue, read_units, unit_at
from stratamq_dispatcher.frame_reads import ColdLog, read_frames
from stratamq_dispatcher.opening import Range, open_untrusted
from stratamq_dispatcher.queue_files import OpenFiles


class LogWitness:
    """Checks whether a unit is the one that the log's bytes give. Reads frames one by one."""

    def __init__(self, files: Files, directory: str, delay_levels_ms: tuple[int, ...]) -> None:
        sizes = [
            entry.size
            for entry in files.list(directory)
            if entry.kind is EntryKind.FILE and parse_offset_name(entry.name) is not None
        ]
        self._segment_bytes = max(sizes, default=1)
        self._segments = SegmentReader(files, directory, self._segment_bytes)
        self._log = ColdLog(self._segments, self._segment_bytes)
        self._minimum = self._segments.bounds()[0]
        self._levels = delay_levels_ms

    def confirms(self, queue: ConsumeQueue, index: int, unit: QueueUnit, raw: bytes) -> bool:
        """True also for a message below the log's minimum, which nothing can say more about."""
        if unit.physical_offset < self._minimum:
            return True
        physical, size = np.array([unit.physical_offset]), np.array([unit.size])
        try:
            (frame,) = read_frames(
                self._log,
                physical.astype(np.int64),
                size.astype(np.int64),
                np.array([index]),
                self._segment_bytes,
                queue.directory,
            )
            lengths = size.astype(np.uint32)
            columns = dispatch_columns(frame, unit.physical_offset, lengths, self._levels)
        except (CorruptionError, CorruptRecordError, OffsetOutOfRangeError):
            return False
        return any(
            (run.topic, run.queue_id, bytes(run.units)) == (queue.topic, queue.queue_id, raw)
            for run in (*unit_runs(columns), *light_runs(columns))
        )

    def close(self) -> None:
        self._segments.close()


def open_rebuilt(
    queue: ConsumeQueue, files: Range, open_files: OpenFiles, position: int, log: LogWitness
) -> None:
    """Set the queue's ends to what the log's first `position` bytes gave.

    Raises CorruptionError or OSError when that cannot be found out.
    """
    open_untrusted(queue, files, open_files, position)

    def is_ours(index: int) -> bool:
        raw = read_units(queue, open_files, index, 1)
        return log.confirms(queue, index, unit_at(queue, open_files, index), raw)

    if not queue.has_messages or is_ours(queue.end - 1):
        return
    low, high = queue.first_index, queue.end - 1
    while low < high:
        middle = (low + high) // 2
        if is_ours(middle):
            low = middle + 1
        else:
            high = middle
    end_offset = NO_MESSAGE
    if low > queue.first_index:
        last = unit_at(queue, open_files, low - 1)
        end_offset = last.physical_offset + last.size
    queue.cut_index(low, end_offset)
