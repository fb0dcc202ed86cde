"""The log's messages, read into the intake, a bounded piece at a time. Belongs to one thread."""

import numpy as np

from stratamq.errors import OffsetOutOfRangeError
from stratamq.files.port import Files
from stratamq.formats.dispatch import DispatchColumns, dispatch_columns
from stratamq.formats.queue_units import unit_runs
from stratamq.formats.store_paths import COMMIT_LOG
from stratamq.store.log_pieces import next_frames
from stratamq.store.segment_reader import SegmentReader
from stratamq.tier.writing.intake import Due, Intake, QueueKey

PIECE_BYTES, FRAMES_AT_ONCE = 4 << 20, 32_768
"""What is read of the log at once: the more it is, the longer are the runs of each queue."""
STEP_BYTES = 8 << 20
"""What one task of the thread reads of the log when nothing is due: 20 ms."""


class LogReading:
    """Reads one log, from a claim of the tier to its end."""

    def __init__(self, files: Files, segment_bytes: int, intake: Intake) -> None:
        self._segment_bytes = segment_bytes
        self._reader = SegmentReader(files, COMMIT_LOG, segment_bytes)
        self.intake = intake
        self.passed_over = False
        """The log had deleted what was to be read."""

    def step(
        self, position: int, end: int, now_ms: int, from_ms: int | None
    ) -> tuple[int, list[Due]]:
        """Read from log offset `position` on, up to `end`, until batches are due or STEP_BYTES are
        read: where the next step begins, and the batches. As `read`; `position` may be `end`."""
        stop = min(end, position + STEP_BYTES)
        due: list[Due] = []
        while position < stop and not due:
            position = self.read(position, end, now_ms, from_ms)
            due = list(self.intake.due(now_ms))
        return position, due or list(self.intake.due(now_ms))

    def read(self, position: int, end: int, now_ms: int, from_ms: int | None) -> int:
        """One piece from log offset `position` on, up to `end`; messages that were stored before
        `from_ms` are left out. Where the next piece begins.

        What was deleted meanwhile is passed over. CorruptRecordError, UnreadableError.
        """
        try:
            data, columns, following = self._piece(position, end)
        except OffsetOutOfRangeError as gone:
            if gone.minimum <= position:
                raise
            self.passed_over = True
            return min(end, gone.minimum)
        if from_ms is not None and len(columns.store_timestamp_ms):
            if int(columns.store_timestamp_ms[-1]) < from_ms:
                return following
            first = int(np.searchsorted(columns.store_timestamp_ms, from_ms))
            if first:
                return self.read(int(columns.physical_offset[first]), end, now_ms, None)
        self.intake.add(data, position, columns, now_ms)
        self._reader.drop_cache(position, following - position)
        return following

    def first_offsets(self, position: int, end: int) -> tuple[dict[QueueKey, int], bool]:
        """The first queue offset of each queue in [position, end) of the log, and whether it has
        all of that range."""
        found: dict[QueueKey, int] = {}
        whole = True
        while position < end:
            try:
                _, columns, position = self._piece(position, end)
            except OffsetOutOfRangeError as gone:
                if gone.minimum <= position:
                    raise
                position, whole = gone.minimum, False
                continue
            for run in unit_runs(columns):
                found.setdefault((run.topic, run.queue_id), run.first_queue_offset)
        return found, whole

    def time_before(self, place: int) -> int | None:
        """When the last message below log offset `place` was stored, in ms; -1 at 0, where there
        can be none; None: the log has it no more."""
        if not place:
            return -1
        position, time_ms = (place - 1) - (place - 1) % self._segment_bytes, None
        try:
            while position < place:
                _, columns, position = self._piece(position, place)
                if len(columns.store_timestamp_ms):
                    time_ms = int(columns.store_timestamp_ms[-1])
        except OffsetOutOfRangeError as gone:
            if gone.minimum <= position:
                raise
        return time_ms

    def close(self) -> None:
        """Let go of the segments."""
        self._reader.release_from(0)

    def _piece(self, position: int, end: int) -> tuple[memoryview | bytes, DispatchColumns, int]:
        segment_end = position - position % self._segment_bytes + self._segment_bytes
        data, lengths = next_frames(
            self._reader.window, position, min(end, segment_end), FRAMES_AT_ONCE, PIECE_BYTES
        )
        columns = dispatch_columns(data, position, lengths)
        return data, columns, position + int(lengths.sum(dtype=np.int64))
