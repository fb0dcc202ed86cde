"""A cut that is written down, and carried out when the log is opened next.

`stratamq/cut.json` is durable before anything changes, and doing it twice is doing it once: a crash
anywhere ends in the same log. Later segments move aside, from the last on; the one in the middle
gives way to a copy of its first part. A segment that another process may have mapped is replaced,
never changed.
"""

from contextlib import closing
from dataclasses import dataclass

from stratamq.errors import StrataError
from stratamq.files.metadata import MetadataFile, remove_metadata
from stratamq.files.port import Files
from stratamq.formats.file_names import offset_name
from stratamq.formats.generation_number import Generation
from stratamq.formats.store_paths import ASIDE_DIRECTORY
from stratamq.formats.store_paths import COMMIT_LOG as DIRECTORY
from stratamq.store.queue_snapshot import TableSnapshot
from stratamq_commitlog.recovery.aside import aside_path, copy_aside, copy_bytes, last_used
from stratamq_commitlog.recovery.inspection import Inspected
from stratamq_commitlog.recovery.own_state import CUT_PATH, OwnState


@dataclass(frozen=True, slots=True)
class CutOrder:
    """What is asked for. `generations`: the master's; none leave the slave's list as it is."""

    offset: int
    empty: bool
    """Nothing is kept: the log starts over where its master's next bytes are."""
    generations: tuple[Generation, ...]
    master_confirmed: int | None = None
    """How far the master has confirmed; None: it does not report it, as RocketMQ's."""


@dataclass(frozen=True, slots=True)
class CutDone:
    """How it went. `reopen`: it is written down, and is done when the log is opened next."""

    error: StrataError | None = None
    reopen: bool = False


def load(files: Files) -> CutOrder | None:
    """The cut that an opening has to do, with the list that follows it."""
    document = MetadataFile(files, CUT_PATH).load()
    if document is None:
        return None
    generations = document["generations"]
    assert isinstance(generations, list)
    return CutOrder(
        int(str(document["offset"])),
        document["empty"] is True,
        tuple(Generation(number, start) for number, start in generations),
    )


def store(files: Files, cut: CutOrder) -> None:
    MetadataFile(files, CUT_PATH).store(
        {
            "offset": cut.offset,
            "empty": cut.empty,
            "generations": [[g.number, g.start] for g in cut.generations],
        }
    )


def forget(files: Files) -> None:
    """The cut is done. Durable on return."""
    remove_metadata(files, CUT_PATH)


def carry_out(
    files: Files,
    state: OwnState,
    inspected: Inspected,
    cut: CutOrder,
    snapshot: TableSnapshot | None,
    wall_ms: int,
) -> tuple[TableSnapshot | None, list[str]]:
    """Make the directory end at the cut; the snapshot, if it still holds, and what was done.

    Durable on return. `abort` must be there.
    """
    size = inspected.segment_bytes
    report = []
    files.make_directory(ASIDE_DIRECTORY)
    last_whole = cut.offset if not cut.empty else -1
    if snapshot is not None and (cut.empty or snapshot.offset > cut.offset):
        snapshot = None
        state.drop_snapshot()
    for base in reversed(inspected.segments):
        path = f"{DIRECTORY}/{offset_name(base)}"
        if base >= last_whole:
            # From the last on, and each for good: a crash in between must not leave a gap.
            kept = _remove_segment(files, path, base, wall_ms)
            if kept:
                report.append(f"{path} is not of the master's history: kept in {kept}")
        elif base + size > cut.offset:
            kept = _shorten(files, path, base, cut.offset, size, wall_ms)
            if kept:
                report.append(f"{path} was cut at {cut.offset}: what followed is kept in {kept}")
    return snapshot, report


def _remove_segment(files: Files, path: str, base: int, wall_ms: int) -> str:
    """Take a segment out of the log for good; where it is kept, "" if nothing is in it."""
    with closing(files.open(path)) as file:
        used = last_used(file, 0)
    kept = aside_path(files, base, wall_ms) if used else ""
    if used:
        files.replace(path, kept)
        files.sync_directory(ASIDE_DIRECTORY)
    else:
        files.unlink(path)
    files.sync_directory(DIRECTORY)
    return kept


def _shorten(files: Files, path: str, base: int, end: int, size: int, wall_ms: int) -> str:
    """Put a copy of [base, end) in a segment's place; where the rest is kept, "" if it is zeros."""
    with closing(files.open(path)) as file:
        used = last_used(file, end - base)
        if used == end - base:
            return ""
        kept = aside_path(files, end, wall_ms)
        copy_aside(files, kept, file, end - base, used)
        files.rewrite(path, size, lambda first: copy_bytes(first, file, 0, end - base))
    return kept
