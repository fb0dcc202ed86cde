"""Reading that may wait for the disk: old frames, and searches by time, on a lane of its own.

Works on snapshots, so that it shares nothing with the engine but the files.
"""

from dataclasses import dataclass

from stratamq.files.port import Files
from stratamq.files.segment_reader import SegmentReader
from stratamq.formats.frame_verify import NOWHERE
from stratamq_dispatcher.consume_queue import QueueSnapshot
from stratamq_dispatcher.frame_reads import ColdLog
from stratamq_dispatcher.mending import Mended, MendPlan
from stratamq_dispatcher.pull import PullAnswer, PullPlan
from stratamq_dispatcher.queue_files import OpenFiles
from stratamq_dispatcher.time_search import Boundary, offset_at

COMMIT_LOG = "commitlog"
FILES_OF_ONE_SEARCH = 4


@dataclass(frozen=True, slots=True)
class LogView:
    """Which log is meant: `history` changes when it was cut, and its files may be others."""

    segment_bytes: int
    history: int
    minimum: int
    sealed_from: int = NOWHERE
    """From this log offset on every record has a checksum of its own."""


class ColdReads:
    """Everything but the constructor runs on the reading lane."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._segments: SegmentReader | None = None
        self._view = LogView(0, -1, 0)

    def pull(self, plan: PullPlan, view: LogView) -> PullAnswer:
        return plan.run(self._log(view))

    def mend(self, plan: MendPlan, view: LogView) -> Mended | None:
        return plan.run(self._log(view))

    def offset_at(
        self, queue: QueueSnapshot, timestamp_ms: int, boundary: Boundary, view: LogView
    ) -> int:
        open_files = OpenFiles(self._files, FILES_OF_ONE_SEARCH)
        try:
            log = self._log(view)
            return offset_at(queue, queue.minimum, open_files, log, timestamp_ms, boundary)
        finally:
            open_files.close()

    def close(self) -> None:
        if self._segments is not None:
            self._segments.close()

    def _log(self, view: LogView) -> ColdLog:
        if self._segments is None or view.segment_bytes != self._view.segment_bytes:
            self._segments = SegmentReader(self._files, COMMIT_LOG, view.segment_bytes)
        elif view.history != self._view.history:
            self._segments.close()
        elif view.minimum != self._view.minimum:
            self._segments.release_below(view.minimum)
        self._view = view
        return ColdLog(self._segments, view.segment_bytes, view.sealed_from)
