"""Reading that may wait for the disk: old frames, and searches by time, on a lane of its own.

Works on snapshots, so that it shares nothing with the engine but the files.
"""

from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass

from stratamq.errors import CorruptionError, OffsetOutOfRangeError
from stratamq.files.port import Files
from stratamq.formats.frame_verify import NOWHERE
from stratamq.formats.store_paths import COMMIT_LOG
from stratamq.store.segment_reader import SegmentReader
from stratamq_dispatcher.consume_queue import QueueSnapshot, first_message, unit_at
from stratamq_dispatcher.frame_reads import ColdLog, checked_store_timestamp
from stratamq_dispatcher.mending import Mended, MendPlan
from stratamq_dispatcher.pull import PullAnswer, PullPlan
from stratamq_dispatcher.queue_files import OpenFiles
from stratamq_dispatcher.time_search import Boundary, offset_at

FILES_OF_ONE_SEARCH = 4


@dataclass(frozen=True, slots=True)
class LogIdentity:
    """Which log is meant: `history` changes when it was cut, and its files may be others."""

    segment_bytes: int
    history: int
    minimum: int
    sealed_from: int = NOWHERE
    """From this log offset on every record has a checksum of its own."""


@dataclass(frozen=True, slots=True)
class BeginAndNewest:
    """The first message of a queue that the log has, and the store time of its last one."""

    first: tuple[int, int] | None
    """Its index, and its log offset; None: not asked for."""
    newest_ms: int | None
    """None: its frame is damaged, or gone."""


class ColdReads:
    """Everything but the constructor runs on the reading lane."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._segments: SegmentReader | None = None
        self._view = LogIdentity(0, -1, 0)

    def pull(self, plan: PullPlan, view: LogIdentity) -> PullAnswer:
        return plan.run(self._log(view))

    def mend(self, plan: MendPlan, view: LogIdentity) -> Mended | None:
        return plan.run(self._log(view))

    def offset_at(
        self, queue: QueueSnapshot, timestamp_ms: int, boundary: Boundary, view: LogIdentity
    ) -> int:
        with closing(OpenFiles(self._files, FILES_OF_ONE_SEARCH)) as open_files:
            log = self._log(view)
            return offset_at(queue, queue.minimum, open_files, log, timestamp_ms, boundary)

    def begin_and_newest(
        self, queues: Iterable[tuple[QueueSnapshot, bool]], view: LogIdentity
    ) -> list[BeginAndNewest | None]:
        """Takes queues with messages at or above the log's minimum, each with whether its first one
        is to be looked for; None for one whose units are damaged or gone."""
        open_files = OpenFiles(self._files, FILES_OF_ONE_SEARCH)
        log = self._log(view)
        found: list[BeginAndNewest | None] = []
        try:
            for queue, wants_first in queues:
                try:
                    first = None
                    if wants_first:
                        first = first_message(queue, open_files, view.minimum, queue.minimum)
                except (CorruptionError, OffsetOutOfRangeError):
                    found.append(None)
                else:
                    newest_ms = _store_time(queue, queue.end - 1, open_files, log)
                    found.append(BeginAndNewest(first, newest_ms))
        finally:
            open_files.close()
        return found

    def store_times(
        self, asked: Iterable[tuple[QueueSnapshot, int]], view: LogIdentity
    ) -> list[int | None]:
        """Returns one for the message at each index; None: it is not in the log, or is damaged."""
        open_files = OpenFiles(self._files, FILES_OF_ONE_SEARCH)
        log = self._log(view)
        try:
            return [
                _store_time(queue, index, open_files, log, view.minimum) for queue, index in asked
            ]
        finally:
            open_files.close()

    def close(self) -> None:
        if self._segments is not None:
            self._segments.close()

    def _log(self, view: LogIdentity) -> ColdLog:
        if self._segments is None or view.segment_bytes != self._view.segment_bytes:
            self._segments = SegmentReader(self._files, COMMIT_LOG, view.segment_bytes)
        elif view.history != self._view.history:
            self._segments.close()
        elif view.minimum != self._view.minimum:
            self._segments.release_below(view.minimum)
        self._view = view
        return ColdLog(self._segments, view.segment_bytes, view.sealed_from)


def _store_time(
    queue: QueueSnapshot, index: int, open_files: OpenFiles, log: ColdLog, minimum: int = 0
) -> int | None:
    """In ms since 1970; None: the message is below the log offset `minimum`, damaged, or gone."""
    try:
        unit = unit_at(queue, open_files, index)
        if unit.physical_offset < minimum:
            return None
        return checked_store_timestamp(log, unit, index, queue.directory)
    except (CorruptionError, OffsetOutOfRangeError):
        return None
