"""From any directory to a log that can be served: where it ends, and what its queues' next are.

Nothing is changed before the directory is known to be servable (`inspect`). Then `recover`

1. walks from the start that `choose_start` names to the log's end (`log_walk`, `recovery_cases`);
   after an unclean stop what it accepts is written again from the same bytes; later segments may
   be walked ahead by others (`walk_ahead`);
2. copies aside what is behind the end, zeroes the rest of that segment, removes later segments;
3. syncs the files and their directory.

A crash at any point leaves a directory from which the same end is found again. Any step that fails
refuses the store; nothing is served that was not made durable.
"""

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field

from stratamq.errors import CorruptRecordError, StoreRefusedError
from stratamq.files.port import File, Files
from stratamq.formats.frame import Frame, decode
from stratamq.formats.frame_layout import END_FILE_MIN_BLANK_LENGTH
from stratamq.store.queue_snapshot import FrameMark, QueueTable, TableSnapshot, mark
from stratamq_commitlog.recovery.aside import aside_path, copy_aside, copy_bytes, last_used
from stratamq_commitlog.recovery.inspection import (
    DIRECTORY,
    Evidence,
    Inspected,
    WalkStart,
    choose_start,
    move_aside,
    move_deleted,
    segment_path,
)
from stratamq_commitlog.recovery.log_walk import SURVEYED, SegmentWalk, Strictness, Walked, survey
from stratamq_commitlog.recovery.queue_tails import queue_tails
from stratamq_commitlog.recovery.recovery_cases import DAMAGE, WalkCase
from stratamq_commitlog.recovery.walk_ahead import WalkedSegment, Walkers, join, plan, write_again


@dataclass(slots=True)
class RecoveredLog:
    """The log after recovery. Everything below `end` is durable; what follows it reads as zeros."""

    segment_bytes: int
    segments: list[int]
    end: int
    queues: QueueTable
    last_frame: FrameMark | None
    store_timestamp_ms: int
    start: WalkStart
    end_case: WalkCase
    report: list[str] = field(default_factory=list)

    @property
    def minimum(self) -> int:
        return self.segments[0] if self.segments else self.end


def recover(
    files: Files,
    inspected: Inspected,
    evidence: Evidence,
    *,
    verify_bodies: bool = True,
    progress: Callable[[int, int], None] | None = None,
    walkers: Walkers | None = None,
) -> RecoveredLog:
    """Find the end and make the directory end there. Raises StoreRefusedError, OSError."""
    recovery = _Recovery(files, inspected, evidence, verify_bodies, progress, walkers)
    return recovery.run()


class _Recovery:
    def __init__(
        self,
        files: Files,
        inspected: Inspected,
        evidence: Evidence,
        verify_bodies: bool,
        progress: Callable[[int, int], None] | None,
        walkers: Walkers | None,
    ) -> None:
        self._files = files
        self._inspected = inspected
        self._evidence = evidence
        self._verify_bodies = verify_bodies
        self._progress = progress or (lambda done, total: None)
        self._walkers = walkers
        self._segments = list(inspected.segments)
        self._size = inspected.segment_bytes
        self._report: list[str] = []

    def run(self) -> RecoveredLog:
        snapshot = self._evidence.snapshot
        self._tidy()
        start, offset = choose_start(self._files, self._inspected, self._evidence)
        self._report.append(f"recovery begins at {offset}: {start.value}")
        walked = Walked(offset, {})
        strictness = Strictness(
            verify_bodies=self._verify_bodies,
            durable=snapshot.offset if snapshot is not None else None,
            sealed_from=self._evidence.sealed_from,
            known=frozenset(snapshot.queues) if snapshot is not None else frozenset(),
        )
        try:
            self._walk_ahead(offset, strictness)
            if snapshot is not None:
                walked.queues = dict(snapshot.queues)
                walked.store_timestamp_ms = snapshot.store_timestamp_ms
            else:
                self._survey_older(offset, walked)
            case = self._walk(offset, walked, strictness)
        finally:
            if self._walkers is not None:
                self._walkers.close()
        self._demand_room(walked.end)
        if snapshot is None:
            self._read_queue_files(walked)
        last_frame = self._last_frame(walked, snapshot)
        self._cut(walked.end, case, start)
        return RecoveredLog(
            segment_bytes=self._size,
            segments=self._segments,
            end=walked.end,
            queues=walked.queues,
            last_frame=last_frame,
            store_timestamp_ms=walked.store_timestamp_ms,
            start=start,
            end_case=case,
            report=self._report,
        )

    def _demand_room(self, end: int) -> None:
        left = self._size - end % self._size
        if left < END_FILE_MIN_BLANK_LENGTH:
            raise StoreRefusedError(
                f"{segment_path(end - end % self._size)}: its last message leaves {left} bytes, "
                f"and nothing can be written behind it: a blank needs {END_FILE_MIN_BLANK_LENGTH}. "
                "No writer leaves a segment like this; restore the file"
            )

    def _read_queue_files(self, walked: Walked) -> None:
        """Queues continue where the log or the queue files end, whichever is further.

        Of queues whose messages are all deleted, or lie where the log cannot be read, the number
        stands in their files only.
        """
        minimum = self._segments[0] if self._segments else walked.end
        tails = queue_tails(self._files, minimum, walked.end, self._frame_at)
        for key, following in tails.items():
            if following > walked.queues.get(key, 0):
                walked.queues[key] = following

    def _frame_at(self, offset: int, size: int) -> Frame | None:
        """The frame at `offset`, if it is a whole one of `size` bytes."""
        base = offset - offset % self._size
        if base not in self._segments or not 0 < size <= self._size - (offset - base):
            return None
        file = self._files.open(segment_path(base))
        try:
            found = decode(file.read(offset - base, size), verify_body=False)
        except CorruptRecordError:
            return None
        finally:
            file.close()
        return found if isinstance(found, Frame) else None

    # --- before the walk ---

    def _tidy(self) -> None:
        """Move away what is no segment, and complete a last file that is too short."""
        self._report += move_deleted(self._files, self._inspected, self._evidence.wall_ms)
        for name in self._inspected.strays:
            target = move_aside(self._files, name, self._evidence.wall_ms)
            self._report.append(f"{DIRECTORY}/{name} is no segment: moved to {target}")
        short = self._inspected.short_last
        if short is None:
            return
        with closing(self._files.open(f"{DIRECTORY}/{short.name}")) as source:
            self._files.rewrite(
                source.path, self._size, lambda whole: copy_bytes(whole, source, 0, short.size)
            )
        self._report.append(
            f"{DIRECTORY}/{short.name} had {short.size} bytes: completed with zeros to {self._size}"
        )

    def _survey_older(self, offset: int, walked: Walked) -> None:
        """Learn the queues of the segments that the walk does not visit."""
        for base in self._segments:
            if base >= offset:
                break
            case = self._survey_segment(base, walked)
            if case is not None:
                self._report.append(
                    f"{segment_path(base)}: unreadable in its middle ({case.name}); kept, as "
                    "RocketMQ does"
                )
            self._progress(base + self._size - self._segments[0], self._total())

    def _survey_segment(self, base: int, walked: Walked) -> WalkCase | None:
        walked.end = base
        found = self._found_elsewhere(base)
        if found is not None and join(walked, found, SURVEYED):
            walked.end = base + self._size
            return None if found.case is WalkCase.NEXT_SEGMENT else found.case
        with closing(self._files.open(segment_path(base))) as file:
            return survey(file, base, walked)

    # --- the walk ---

    def _walk_ahead(self, offset: int, strictness: Strictness) -> None:
        """Let others begin with the segments behind the first, if that is worth while."""
        if self._walkers is None:
            return
        all_of_them = self._evidence.snapshot is None
        visited = {
            base: segment_path(base)
            for base in self._segments
            if all_of_them or base + self._size > offset
        }
        tasks = plan(
            self._files,
            visited,
            self._size,
            (offset, strictness),
            pieces=self._evidence.unclean,
            least_bytes=self._walkers.least_bytes,
            others=self._walkers.count,
        )
        self._walkers.begin(tasks)

    def _found_elsewhere(self, base: int) -> WalkedSegment | None:
        return self._walkers.take(base) if self._walkers is not None else None

    def _walk(self, offset: int, walked: Walked, strictness: Strictness) -> WalkCase:
        walked.end = offset
        if not self._segments:
            return WalkCase.END_SEGMENT
        while True:
            base = walked.end - walked.end % self._size
            if base not in self._segments:
                return WalkCase.END_SEGMENT
            case = self._walk_segment(base, walked, strictness)
            if case is not WalkCase.NEXT_SEGMENT:
                return case

    def _walk_segment(self, base: int, walked: Walked, strictness: Strictness) -> WalkCase:
        rewrites = self._evidence.unclean
        with closing(self._files.open(segment_path(base), writable=rewrites)) as file:
            found = self._found_elsewhere(base)
            if (
                found is not None
                and (not rewrites or write_again(file, found))
                and join(walked, found, strictness)
            ):
                self._progress(walked.end - self._segments[0], self._total())
                if rewrites:
                    file.flush()
                return found.case
            following = base + self._size in self._segments
            walk = SegmentWalk(file, base, walked, strictness, following)
            while (case := walk.step(file.write if rewrites else None)) is None:
                self._progress(walked.end - self._segments[0], self._total())
            self._progress(walked.end - self._segments[0], self._total())
            if rewrites:
                file.flush()
            return case

    def _last_frame(self, walked: Walked, snapshot: TableSnapshot | None) -> FrameMark | None:
        if walked.last_frame is None:
            return snapshot.frame if snapshot is not None else None
        offset, size = walked.last_frame
        base = offset - offset % self._size
        with closing(self._files.open(segment_path(base))) as file:
            return mark(offset, file.read(offset - base, size))

    # --- behind the end ---

    def _cut(self, end: int, case: WalkCase, start: WalkStart) -> None:
        """Leave nothing behind `end`: kept aside, zeroed, removed, synced."""
        trusted = start is WalkStart.SNAPSHOT and not self._evidence.unclean
        base = end - end % self._size
        if base in self._segments and not (trusted and case is WalkCase.END_CLEAN):
            with closing(self._files.open(segment_path(base), writable=True)) as file:
                position = end - base
                used = last_used(file, position)
                if used > position:
                    kept = self._keep_aside(file, end, position, used)
                    self._report.append(
                        f"the log ends at {end} ({case.name}): {used - position} bytes behind it "
                        f"kept in {kept}"
                    )
                elif case in DAMAGE:
                    self._report.append(f"the log ends at {end} ({case.name})")
                file.zero(position, self._size - position)
                file.allocate()
                file.flush()
        later = [segment for segment in self._segments if segment >= end and segment != base]
        for segment in reversed(later):
            # From the last on, and each for good: a crash in between must not leave a gap.
            self._remove(segment)
            self._files.sync_directory(DIRECTORY)
        self._segments = [segment for segment in self._segments if segment not in later]
        if self._segments and not trusted:
            self._files.sync_directory(DIRECTORY)

    def _remove(self, segment: int) -> None:
        path = segment_path(segment)
        with closing(self._files.open(path)) as file:
            used = last_used(file, 0)
            if used:
                kept = self._keep_aside(file, segment, 0, used)
                self._report.append(f"{path} is behind the end: {used} bytes kept in {kept}")
        self._files.unlink(path)

    def _keep_aside(self, file: File, offset: int, position: int, end: int) -> str:
        path = aside_path(self._files, offset, self._evidence.wall_ms)
        copy_aside(self._files, path, file, position, end)
        return path

    def _total(self) -> int:
        return len(self._segments) * self._size
