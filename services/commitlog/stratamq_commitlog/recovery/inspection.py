"""A directory before recovery: whether it can be a log, of which segments, and where to start.

Nothing is changed here but by `move_deleted`.
"""

import enum
import itertools
from contextlib import closing
from dataclasses import dataclass, replace

from stratamq.errors import StoreRefusedError
from stratamq.files.port import EntryKind, Files
from stratamq.formats.checkpoint import Checkpoint
from stratamq.formats.file_names import offset_name, parse_offset_name
from stratamq.formats.frame_layout import HEAD, MAGIC_V1
from stratamq.formats.frame_verify import NOWHERE
from stratamq.formats.store_paths import ASIDE_DIRECTORY, CONSUME_QUEUES, SNAPSHOT_PATH
from stratamq.formats.store_paths import COMMIT_LOG as DIRECTORY
from stratamq.formats.sysflag import host_bytes
from stratamq.store.queue_snapshot import TableSnapshot, mark
from stratamq.store.segments import FamilyReport, FindingKind, SegmentEntry, scan_family
from stratamq_commitlog.recovery.aside import last_used
from stratamq_commitlog.recovery.queue_tails import leads_beyond

MIN_SEGMENT_BYTES = 128
"""The setting has the same bound: a shorter file is no evidence of the size of segments."""
_NORMAL_RECOVERY_FILES = 3


def segment_path(base: int) -> str:
    return f"{DIRECTORY}/{offset_name(base)}"


class WalkStart(enum.Enum):
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


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known beside the segments."""

    snapshot: TableSnapshot | None
    """Only if RocketMQ did not run since and its frame is still there."""
    unclean: bool
    """`abort` is there: the last run was not stopped cleanly."""
    checkpoint: Checkpoint
    wall_ms: int
    found_clean: bool = False
    """`abort` is ours, from a recovery that did not end: RocketMQ had stopped cleanly."""
    sealed_from: int = NOWHERE
    """From here on every record has a checksum of its own (`store.sealed`)."""


def is_empty(files: Files) -> bool:
    """The directory holds nothing that could be a log."""
    return not _is_directory(files) or not files.list(DIRECTORY)


def inspect(
    files: Files, configured_bytes: int, known_bytes: int | None, deleted_below: int = 0
) -> Inspected:
    """Decide the segment size and whether the files can be a log; else StoreRefusedError.

    The size is the one our own state names, else that of the files, else the configured one. A file
    that is shorter than that of our own state was cut short, whatever its length. What is before
    `deleted_below` is no part of the log if a segment is missing behind it.
    """
    sizes = (
        {
            entry.size
            for entry in files.list(DIRECTORY)
            if entry.kind is EntryKind.FILE
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
    if entry is not None and entry.kind is not EntryKind.DIRECTORY:
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


def move_deleted(files: Files, inspected: Inspected, wall_ms: int) -> list[str]:
    """Move aside what the log had deleted and a power loss brought back; a report of it."""
    for name in inspected.deleted:
        move_aside(files, name, wall_ms)
    if not inspected.deleted:
        return []
    return [
        f"{DIRECTORY}: {', '.join(inspected.deleted)} had been deleted, and came back with a gap "
        f"behind them: moved to {ASIDE_DIRECTORY}, where they can be removed"
    ]


def move_aside(files: Files, name: str, wall_ms: int) -> str:
    target = f"{ASIDE_DIRECTORY}/{DIRECTORY}-{name}-{wall_ms}"
    files.make_directory(ASIDE_DIRECTORY)
    files.replace(f"{DIRECTORY}/{name}", target)
    files.sync_directory(ASIDE_DIRECTORY)
    files.sync_directory(DIRECTORY)
    return target


def snapshot_holds(files: Files, inspected: Inspected, snapshot: TableSnapshot) -> bool:
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
    with closing(files.open(segment_path(base))) as file:
        if frame.size > inspected.segment_bytes:
            return False
        return mark(frame.offset, file.read(frame.offset - base, frame.size)) == frame


def ends_at(files: Files, inspected: Inspected, end: int) -> bool:
    """Whether nothing is stored from log offset `end` on."""
    base = end - end % inspected.segment_bytes
    if any(segment > base for segment in inspected.segments) or base not in inspected.segments:
        return not any(segment >= end for segment in inspected.segments)
    with closing(files.open(segment_path(base))) as file:
        return last_used(file, end - base) == end - base


def require_newest(inspected: Inspected, snapshot: TableSnapshot) -> None:
    """StoreRefusedError where the log ends in front of the segment of a message that a snapshot
    names: that message was durable, and recovery cuts no segment below it."""
    frame, segments = snapshot.frame, inspected.segments
    if frame is None or not segments:
        return
    base = frame.offset - frame.offset % inspected.segment_bytes
    if base > segments[-1]:
        raise StoreRefusedError(
            f"{segment_path(base)} is missing: messages were stored up to {snapshot.offset}, and "
            f"the last segment begins at {segments[-1]}. Restore what is missing; if it is lost, "
            f"move {SNAPSHOT_PATH} away to go on with the log that is left"
        )


def require_all_segments(files: Files, inspected: Inspected) -> None:
    """StoreRefusedError where a queue of RocketMQ's leads behind the last segment. A crash loses
    the last bytes of segments, which are there before they are written, and no segment."""
    if not inspected.segments:
        return
    end = inspected.segments[-1] + inspected.segment_bytes
    if queue := leads_beyond(files, end, inspected.segment_bytes):
        raise StoreRefusedError(
            f"{segment_path(end)} is missing: {queue} leads to messages in it or behind it, and "
            f"the last segment begins at {inspected.segments[-1]}. Restore what is missing, or "
            f"mount the log's volume at {DIRECTORY}/; if it is lost, move {CONSUME_QUEUES}/ away "
            "to go on with the log that is left: the queues are built from it. Nothing was changed"
        )


def choose_start(files: Files, inspected: Inspected, evidence: Evidence) -> tuple[WalkStart, int]:
    """The rule and the offset where the walk begins."""
    segments = inspected.segments
    if not segments:
        return WalkStart.EMPTY, evidence.snapshot.offset if evidence.snapshot is not None else 0
    if evidence.snapshot is not None:
        return WalkStart.SNAPSHOT, evidence.snapshot.offset
    if not evidence.unclean or evidence.found_clean:
        return WalkStart.ROCKETMQ_NORMAL, segments[max(0, len(segments) - _NORMAL_RECOVERY_FILES)]
    limit_ms = evidence.checkpoint.min_timestamp_ms
    for base in reversed(segments):
        timestamp_ms = _first_store_timestamp(files, base)
        if timestamp_ms is not None and 0 != timestamp_ms <= limit_ms:
            return WalkStart.ROCKETMQ_ABNORMAL, base
    return WalkStart.ROCKETMQ_ABNORMAL, segments[0]


def _first_store_timestamp(files: Files, base: int) -> int | None:
    """Spec 9.4: only magic, SYSFLAG and the timestamp are looked at."""
    with closing(files.open(segment_path(base))) as file:
        head = file.read(0, 128)
    if len(head) < 128:
        return None
    fields = HEAD.unpack_from(head)
    if fields[1] != MAGIC_V1:
        return None
    at = HEAD.size + host_bytes(fields[7])[0]
    return int.from_bytes(head[at : at + 8], "big", signed=True)
