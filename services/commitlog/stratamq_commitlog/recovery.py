"""From any directory to a log that can be served: where it ends, and what its queues' next are.

Nothing is changed before the directory is known to be servable (`inspect`). Then `recover`

1. walks from the start that `choose_start` names to the log's end (`log_walk`, `recovery_cases`);
   after an unclean stop what it accepts is written again from the same bytes; later segments may
   be walked ahead by others (`walk_ahead`);
2. copies aside what lies behind the end, zeroes the rest of that segment, removes later segments;
3. syncs the files and their directory.

A crash at any point leaves a directory from which the same end is found again. Any step that fails
refuses the store; nothing is served that was not made durable.
"""

import enum
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from stratamq.errors import CorruptRecordError, StoreRefusedError
from stratamq.files.port import ASIDE_DIRECTORY, File, Files, Kind
from stratamq.files.segments import FamilyReport, FindingKind, SegmentEntry, scan_family
from stratamq.formats.checkpoint import Checkpoint
from stratamq.formats.file_names import offset_name, parse_offset_name
from stratamq.formats.frame import Frame, decode
from stratamq.formats.frame_layout import END_FILE_MIN_BLANK_LENGTH, HEAD, MAGIC_V1
from stratamq.formats.frame_verify import NOWHERE
from stratamq.formats.sysflag import host_bytes
from stratamq_commitlog.aside import aside_path, copy_aside, last_used
from stratamq_commitlog.log_walk import SURVEYED, SegmentWalk, Strictness, Walked, survey
from stratamq_commitlog.own_state import FrameMark, QueueTable, Snapshot, mark
from stratamq_commitlog.queue_tails import queue_tails
from stratamq_commitlog.recovery_cases import DAMAGE, Case
from stratamq_commitlog.walk_ahead import Found, Walkers, join, plan, write_again

DIRECTORY = "commitlog"
MIN_SEGMENT_BYTES = 128
"""As the setting's bound: a shorter file tells nothing about the size of segments."""
_COPY_BYTES = 4 << 20
_NORMAL_RECOVERY_FILES = 3


class Start(enum.Enum):
    """Where the walk begins, and by whose rule."""

    SNAPSHOT = "at our snapshot, known durable"
    ROCKETMQ_NORMAL = "RocketMQ stopped cleanly: at its third-last file"
    ROCKETMQ_ABNORMAL = "RocketMQ crashed: at the file its checkpoint names"
    EMPTY = "there is no log"


@dataclass(frozen=True, slots=True)
class Inspected:
    """A directory that can be served, untouched so far."""

    segment_bytes: int
    segments: tuple[int, ...]
    strays: tuple[str, ...]
    short_last: SegmentEntry | None
    """The last file is shorter than it should be: it is completed with zeros."""
    deleted: tuple[str, ...] = ()
    """Files in front of a gap that the log had deleted: a power loss brought them back."""


@dataclass(slots=True)
class Recovered:
    """The log after recovery. Everything below `end` is durable; what follows it reads as zeros."""

    segment_bytes: int
    segments: list[int]
    end: int
    queues: QueueTable
    last_frame: FrameMark | None
    store_timestamp_ms: int
    start: Start
    end_case: Case
    report: list[str] = field(default_factory=list)

    @property
    def minimum(self) -> int:
        return self.segments[0] if self.segments else self.end


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known beside the segments."""

    snapshot: Snapshot | None
    """Only if RocketMQ did not run since and its frame is still there."""
    unclean: bool
    """`abort` is there: nobody stopped the last run cleanly."""
    checkpoint: Checkpoint
    wall_ms: int
    found_clean: bool = False
    """`abort` is ours, from a recovery that did not end: RocketMQ had stopped cleanly."""
    sealed_from: int = NOWHERE
    """From here on every record has a checksum of its own (`files.sealed`)."""


def is_empty(files: Files) -> bool:
    """The directory holds nothing that could be a log."""
    return not _is_directory(files) or not files.list(DIRECTORY)


def inspect(
    files: Files, configured_bytes: int, known_bytes: int | None, deleted_below: int = 0
) -> Inspected:
    """Decide the segment size and whether the files can be a log. StoreRefusedError says why not.

    The size is the one our own state names, else that of the files, else the configured one. A file
    that is shorter than our own state says was cut short, whatever its length. What lies before
    `deleted_below` is no part of the log if a segment is missing behind it.
    """
    sizes = (
        {
            entry.size
            for entry in files.list(DIRECTORY)
            if entry.kind is Kind.FILE
            and entry.size >= MIN_SEGMENT_BYTES
            and parse_offset_name(entry.name) is not None
        }
        if _is_directory(files)
        else set()
    )
    if known_bytes is not None and (known_bytes in sizes or max(sizes, default=0) < known_bytes):
        segment_bytes = known_bytes
    elif len(sizes) == 1:
        segment_bytes = sizes.pop()
    elif sizes:
        segment_bytes = max(sizes)
    else:
        segment_bytes = configured_bytes
    family, deleted = _without_deleted(scan_family(files, DIRECTORY, segment_bytes), deleted_below)
    segments, short_last = _usable(family)
    return Inspected(
        segment_bytes=segment_bytes,
        segments=tuple(segment.offset for segment in segments),
        strays=tuple(
            finding.name
            for finding in family.findings
            if finding.kind in (FindingKind.STRAY, FindingKind.EMPTY_LAST)
            or parse_offset_name(finding.name) is None
        ),
        short_last=short_last,
        deleted=deleted,
    )


def _without_deleted(
    family: FamilyReport, deleted_below: int
) -> tuple[FamilyReport, tuple[str, ...]]:
    """The family from behind the last gap that only deleted segments lie in front of."""
    first = 0
    for before, segment in itertools.pairwise(family.segments):
        ends = before.offset + family.file_bytes
        if ends <= deleted_below and ends != segment.offset:
            first = family.segments.index(segment)
    deleted = tuple(segment.name for segment in family.segments[:first])
    if not deleted:
        return family, ()
    begins = family.segments[first].name
    kept = replace(
        family,
        segments=family.segments[first:],
        findings=tuple(
            finding
            for finding in family.findings
            if finding.name not in deleted
            and not (finding.name == begins and finding.kind is FindingKind.GAP)
        ),
    )
    return kept, deleted


def _is_directory(files: Files) -> bool:
    entry = files.entry(DIRECTORY)
    if entry is not None and entry.kind is not Kind.DIRECTORY:
        raise StoreRefusedError(
            f"{DIRECTORY} is a {entry.kind.value}, not a directory: put the log's directory in its "
            "place and start again"
        )
    return entry is not None


def _usable(family: FamilyReport) -> tuple[list[SegmentEntry], SegmentEntry | None]:
    segments = list(family.segments)
    if family.of_kind(FindingKind.EMPTY_LAST):
        segments.pop()
    short_last = None
    for finding in family.findings:
        last = bool(segments) and finding.name == segments[-1].name
        match finding.kind:
            case FindingKind.WRONG_SIZE if last and segments[-1].size < family.file_bytes:
                short_last = segments[-1]
            case FindingKind.STRAY | FindingKind.EMPTY_LAST:
                pass
            case FindingKind.DIRECTORY | FindingKind.LINK | FindingKind.OTHER if (
                parse_offset_name(finding.name) is None
            ):
                pass
            case FindingKind.GAP:
                raise StoreRefusedError(
                    f"{DIRECTORY}: {finding.detail}. A segment is missing; restore it, or move the "
                    "segments before the gap away to serve what follows it"
                )
            case _:
                raise StoreRefusedError(
                    f"{DIRECTORY}: {finding.detail}. Restore the file or move it away; "
                    f"the segment size is {family.file_bytes} (commitlog.segment_bytes)"
                )
    return segments, short_last


def recover(
    files: Files,
    inspected: Inspected,
    evidence: Evidence,
    *,
    verify_bodies: bool = True,
    progress: Callable[[int, int], None] | None = None,
    walkers: Walkers | None = None,
) -> Recovered:
    """Find the end and make the directory say nothing else. Raises StoreRefusedError, OSError."""
    recovery = _Recovery(files, inspected, evidence, verify_bodies, progress, walkers)
    return recovery.run()


def move_deleted(files: Files, inspected: Inspected, wall_ms: int) -> list[str]:
    """Move aside what the log had deleted and a power loss brought back; a report of it."""
    for name in inspected.deleted:
        _move_aside(files, name, wall_ms)
    if not inspected.deleted:
        return []
    return [
        f"{DIRECTORY}: {', '.join(inspected.deleted)} had been deleted, and came back with a gap "
        f"behind them: moved to {ASIDE_DIRECTORY}, where they can be removed"
    ]


def _move_aside(files: Files, name: str, wall_ms: int) -> str:
    target = f"{ASIDE_DIRECTORY}/{DIRECTORY}-{name}-{wall_ms}"
    files.make_directory(ASIDE_DIRECTORY)
    files.replace(f"{DIRECTORY}/{name}", target)
    files.sync_directory(ASIDE_DIRECTORY)
    files.sync_directory(DIRECTORY)
    return target


def snapshot_holds(files: Files, inspected: Inspected, snapshot: Snapshot) -> bool:
    """Whether the log still holds what a snapshot stands on."""
    frame = snapshot.frame
    if frame is None:
        # There was no frame yet: the log must still begin there.
        return snapshot.offset == (inspected.segments[0] if inspected.segments else snapshot.offset)
    base = frame.offset - frame.offset % inspected.segment_bytes
    if base not in inspected.segments or frame.end > snapshot.offset:
        return False
    if snapshot.offset > inspected.segments[-1] + inspected.segment_bytes:
        return False
    file = files.open(_path(base))
    try:
        if frame.size > inspected.segment_bytes:
            return False
        return mark(frame.offset, file.read(frame.offset - base, frame.size)) == frame
    finally:
        file.close()


def choose_start(files: Files, inspected: Inspected, evidence: Evidence) -> tuple[Start, int]:
    """The rule and the offset where the walk begins."""
    segments = inspected.segments
    if not segments:
        return Start.EMPTY, evidence.snapshot.offset if evidence.snapshot is not None else 0
    if evidence.snapshot is not None:
        return Start.SNAPSHOT, evidence.snapshot.offset
    if not evidence.unclean or evidence.found_clean:
        return Start.ROCKETMQ_NORMAL, segments[max(0, len(segments) - _NORMAL_RECOVERY_FILES)]
    limit_ms = evidence.checkpoint.min_timestamp_ms
    for base in reversed(segments):
        timestamp_ms = _first_store_timestamp(files, base)
        if timestamp_ms is not None and 0 != timestamp_ms <= limit_ms:
            return Start.ROCKETMQ_ABNORMAL, base
    return Start.ROCKETMQ_ABNORMAL, segments[0]


def _first_store_timestamp(files: Files, base: int) -> int | None:
    """Spec 9.4: only magic, SYSFLAG and the timestamp are looked at."""
    file = files.open(_path(base))
    try:
        head = file.read(0, 128)
    finally:
        file.close()
    if len(head) < 128:
        return None
    fields = HEAD.unpack_from(head)
    if fields[1] != MAGIC_V1:
        return None
    at = HEAD.size + host_bytes(fields[7])[0]
    return int.from_bytes(head[at : at + 8], "big", signed=True)


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

    def run(self) -> Recovered:
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
        return Recovered(
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
                f"{_path(end - end % self._size)}: its last message leaves {left} bytes, and "
                f"nothing can be written behind it: a blank needs {END_FILE_MIN_BLANK_LENGTH}. No "
                "writer leaves a segment like this; restore the file"
            )

    def _read_queue_files(self, walked: Walked) -> None:
        """Queues go on where log and queue files say, whichever is further.

        Of queues whose messages are all deleted, or lie where the log cannot be read, the number
        stands in their files only.
        """
        minimum = self._segments[0] if self._segments else walked.end
        tails = queue_tails(self._files, minimum, walked.end, self._frame_at)
        for key, following in tails.items():
            if following > walked.queues.get(key, 0):
                walked.queues[key] = following

    def _frame_at(self, offset: int, size: int) -> Frame | None:
        """What lies at `offset`, if it is a whole frame of `size` bytes."""
        base = offset - offset % self._size
        if base not in self._segments or not 0 < size <= self._size - (offset - base):
            return None
        file = self._files.open(_path(base))
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
            target = _move_aside(self._files, name, self._evidence.wall_ms)
            self._report.append(f"{DIRECTORY}/{name} is no segment: moved to {target}")
        short = self._inspected.short_last
        if short is None:
            return
        source = self._files.open(f"{DIRECTORY}/{short.name}")
        temporary = f"stratamq/tmp/{short.name}.whole"
        if self._files.entry(temporary) is not None:
            self._files.unlink(temporary)
        self._files.create(temporary, self._size)
        whole = self._files.open(temporary, writable=True)
        for at in range(0, short.size, _COPY_BYTES):
            whole.write(at, source.read(at, min(_COPY_BYTES, short.size - at)))
        whole.flush()
        whole.close()
        source.close()
        self._files.replace(temporary, f"{DIRECTORY}/{short.name}")
        self._files.sync_directory(DIRECTORY)
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
                    f"{_path(base)}: unreadable in its middle ({case.name}); kept, as RocketMQ does"
                )
            self._progress(base + self._size - self._segments[0], self._total())

    def _survey_segment(self, base: int, walked: Walked) -> Case | None:
        walked.end = base
        found = self._found_elsewhere(base)
        if found is not None and join(walked, found, SURVEYED):
            walked.end = base + self._size
            return None if found.case is Case.NEXT_SEGMENT else found.case
        file = self._files.open(_path(base))
        try:
            return survey(file, base, walked)
        finally:
            file.close()

    # --- the walk ---

    def _walk_ahead(self, offset: int, strictness: Strictness) -> None:
        """Let others begin with the segments behind the first, if that is worth while."""
        if self._walkers is None:
            return
        all_of_them = self._evidence.snapshot is None
        visited = {
            base: _path(base)
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

    def _found_elsewhere(self, base: int) -> Found | None:
        return self._walkers.take(base) if self._walkers is not None else None

    def _walk(self, offset: int, walked: Walked, strictness: Strictness) -> Case:
        walked.end = offset
        if not self._segments:
            return Case.END_SEGMENT
        while True:
            base = walked.end - walked.end % self._size
            if base not in self._segments:
                return Case.END_SEGMENT
            case = self._walk_segment(base, walked, strictness)
            if case is not Case.NEXT_SEGMENT:
                return case

    def _walk_segment(self, base: int, walked: Walked, strictness: Strictness) -> Case:
        rewrites = self._evidence.unclean
        file = self._files.open(_path(base), writable=rewrites)
        try:
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
        finally:
            file.close()

    def _last_frame(self, walked: Walked, snapshot: Snapshot | None) -> FrameMark | None:
        if walked.last_frame is None:
            return snapshot.frame if snapshot is not None else None
        offset, size = walked.last_frame
        base = offset - offset % self._size
        file = self._files.open(_path(base))
        try:
            return mark(offset, file.read(offset - base, size))
        finally:
            file.close()

    # --- behind the end ---

    def _cut(self, end: int, case: Case, start: Start) -> None:
        """Leave nothing behind `end`: kept aside, zeroed, removed, synced."""
        trusted = start is Start.SNAPSHOT and not self._evidence.unclean
        base = end - end % self._size
        if base in self._segments and not (trusted and case is Case.END_CLEAN):
            file = self._files.open(_path(base), writable=True)
            try:
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
            finally:
                file.close()
        later = [segment for segment in self._segments if segment >= end and segment != base]
        for segment in reversed(later):
            # From the last on, and each for good: a crash in between must not leave a gap.
            self._remove(segment)
            self._files.sync_directory(DIRECTORY)
        self._segments = [segment for segment in self._segments if segment not in later]
        if self._segments and not trusted:
            self._files.sync_directory(DIRECTORY)

    def _remove(self, segment: int) -> None:
        path = _path(segment)
        file = self._files.open(path)
        try:
            used = last_used(file, 0)
            if used:
                kept = self._keep_aside(file, segment, 0, used)
                self._report.append(f"{path} lies behind the end: {used} bytes kept in {kept}")
        finally:
            file.close()
        self._files.unlink(path)

    def _keep_aside(self, file: File, offset: int, position: int, end: int) -> str:
        path = aside_path(self._files, DIRECTORY, offset, self._evidence.wall_ms)
        copy_aside(self._files, path, file, position, end)
        return path

    def _total(self) -> int:
        return len(self._segments) * self._size


def _path(base: int) -> str:
    return f"{DIRECTORY}/{offset_name(base)}"
