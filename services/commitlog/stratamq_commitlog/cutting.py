"""A slave's log is cut back to where its history is its master's, and takes over that history.

    Cut ──► nothing lies behind the offset ──► the generations, durable ──► followers open again
        └─► stratamq/cut.json says what is to be done ──► the log closes and is opened again, and
            opening does it: later segments move aside, from the last on; the one in the middle
            gives way to a copy of its first part; then the generations; then cut.json goes

The file is durable before anything changes, and doing it twice is doing it once: a crash anywhere
ends in the same log. A segment that another process may have mapped is replaced, never changed.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stratamq.errors import (
    InvalidRequestError,
    NotWritableError,
    StrataError,
    UnavailableError,
)
from stratamq.files.metadata import MetadataFile, remove_metadata
from stratamq.files.port import ASIDE_DIRECTORY, TEMPORARY_DIRECTORY, Files, Worker
from stratamq.formats.file_names import offset_name
from stratamq_commitlog.aside import aside_path, copy_aside, copy_bytes, last_used
from stratamq_commitlog.master_confirmed import after_opening
from stratamq_commitlog.messages import Generation, PutStatus, Role
from stratamq_commitlog.own_state import (
    CUT_PATH,
    KEPT_GENERATIONS,
    OwnState,
    Snapshot,
)
from stratamq_commitlog.recovery import Inspected
from stratamq_commitlog.role_change import term_step_fault
from stratamq_commitlog.segment_set import DIRECTORY

if TYPE_CHECKING:
    from stratamq_commitlog.engine import CommitLog


@dataclass(frozen=True, slots=True)
class Cut:
    """What is asked for. `generations`: the master's; none leave the slave's list as it is."""

    offset: int
    empty: bool
    """Nothing is kept: the log begins anew, wherever its master's next bytes lie."""
    generations: tuple[Generation, ...]
    master_confirmed: int | None = None
    """How far the master has confirmed; None: it tells nothing of it, as RocketMQ's."""


@dataclass(frozen=True, slots=True)
class CutDone:
    """How it went. `reopen`: it is written down, and is done when the log is opened next."""

    error: StrataError | None = None
    reopen: bool = False


def merged(own: list[Generation], cut: Cut) -> list[Generation]:
    """A slave's list after a cut: its own up to there, then its master's from there on.

    What lies behind the cut becomes empty and stays listed, so that followers who know it are told
    where it ended. The master's generation that covers the cut may be listed twice.
    """
    if not cut.generations:
        return [Generation(g.number, min(g.start, cut.offset)) for g in own]
    first = max((at for at, g in enumerate(cut.generations) if g.start <= cut.offset), default=0)
    rest = cut.generations[first:]
    coming = {g.number for g in rest}
    kept = [g for g in own if g.start < cut.offset or g.number not in coming]
    kept = [Generation(g.number, min(g.start, cut.offset)) for g in kept]
    if kept and kept[-1].number == rest[0].number:
        rest = rest[1:]
    kept += [Generation(g.number, max(g.start, cut.offset)) for g in rest]
    return kept[-KEPT_GENERATIONS:]


def begin(
    engine: "CommitLog",
    files: Files,
    state: OwnState,
    worker: Worker,
    cut: Cut,
    done: Callable[[CutDone], None],
) -> None:
    """Cut an open slave. `done` comes once the log that is left is as safe as its flush setting
    says, or with `reopen`: the caller closes the log and opens it again."""
    refusal = _refusal(engine, cut)
    if refusal is not None:
        done(CutDone(refusal))
        return
    generations = merged(engine.hub.generations, cut)
    bound = engine.master_confirmed
    confirmed = None
    if cut.master_confirmed is not None:
        confirmed = after_opening(
            bound.value,
            engine.offsets.confirmed,
            cut.master_confirmed,
            engine.hub.generations,
            cut.generations,
        )

    def store_bound() -> None:
        if confirmed is None:
            bound.drop()
        else:
            bound.store(confirmed)

    def store_history() -> None:
        store_bound()
        if generations != engine.hub.generations:
            state.store_generations(generations, engine.segment_bytes)

    def store_cut() -> None:
        store_bound()
        _store(files, planned)

    def stored(_: None, error: BaseException | None) -> None:
        if isinstance(error, OSError):
            sentence = f"the history could not be written: {error.strerror or error}"
            done(CutDone(NotWritableError(sentence, "generations")))
        elif error is not None:
            raise error
        else:
            # What is left is the master's, too: consumers may see it, as far as it is confirmed.
            bound.value = confirmed
            engine.tail_unconfirmed = False
            if generations != engine.hub.generations:
                engine.hub.generations = generations
                engine.hub.end_all()
            engine.advance()
            _when_safe(engine, done)

    def written(_: None, error: BaseException | None) -> None:
        if isinstance(error, OSError):
            engine.gate.closing = engine.hub.closing = False
            sentence = f"the cut could not be written down: {error.strerror or error}"
            done(CutDone(NotWritableError(sentence, "cut")))
        elif error is not None:
            raise error
        else:
            done(CutDone(reopen=True))

    if _cuts_nothing(engine, cut):
        worker.submit(store_history, stored)
        return
    engine.gate.closing = True
    engine.appender.refuse_all(
        PutStatus.SERVICE_NOT_AVAILABLE, UnavailableError("the log is being cut")
    )
    engine.hub.end_all()
    planned = Cut(cut.offset, cut.empty, tuple(generations))
    worker.submit(store_cut, written)


def _refusal(engine: "CommitLog", cut: Cut) -> StrataError | None:
    offsets = engine.offsets
    if engine.role is not Role.SLAVE:
        return NotWritableError("only a slave's log is cut", "role")
    if shut := engine.gate.shut():
        return UnavailableError(shut)
    if not cut.empty and not offsets.minimum <= cut.offset <= offsets.appended:
        return InvalidRequestError(
            f"the log holds [{offsets.minimum}, {offsets.appended}), and cannot be cut at "
            f"{cut.offset}"
        )
    if cut.generations:
        term, known = max(g.term for g in cut.generations), engine.roles.state.term
        if term < known:
            return NotWritableError(
                f"term {known} is known, and a master of term {term} is not followed", "term"
            )
        if step := term_step_fault(engine, term):
            return NotWritableError(step, "term")
    starts = [g.start for g in cut.generations]
    if cut.offset < 0 or starts != sorted(starts):
        return InvalidRequestError("the generations are not in the order of their starts")
    return None


def _cuts_nothing(engine: "CommitLog", cut: Cut) -> bool:
    offsets = engine.offsets
    if cut.empty and not engine.segments.offsets and offsets.appended == 0:
        return True
    return cut.offset == offsets.appended and not (cut.empty and offsets.minimum < cut.offset)


def _when_safe(engine: "CommitLog", done: Callable[[CutDone], None]) -> None:
    def flushed(durable: bool | None) -> None:
        late = UnavailableError("the log's end is not on the disk yet")
        done(CutDone(None if durable else late))

    if engine.sync_flush:
        engine.commit.wait(engine.offsets.appended, flushed)
    else:
        flushed(engine.commit.failure is None)


# --- what is written down, and done at the next opening ---


def load(files: Files) -> Cut | None:
    """The cut that an opening has to do, with the list that follows it."""
    document = MetadataFile(files, CUT_PATH).load()
    if document is None:
        return None
    generations = document["generations"]
    assert isinstance(generations, list)
    return Cut(
        int(str(document["offset"])),
        document["empty"] is True,
        tuple(Generation(number, start) for number, start in generations),
    )


def _store(files: Files, cut: Cut) -> None:
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
    cut: Cut,
    snapshot: Snapshot | None,
    wall_ms: int,
) -> tuple[Snapshot | None, list[str]]:
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
    file = files.open(path)
    try:
        used = last_used(file, 0)
    finally:
        file.close()
    kept = aside_path(files, DIRECTORY, base, wall_ms) if used else ""
    if used:
        files.replace(path, kept)
        files.sync_directory(ASIDE_DIRECTORY)
    else:
        files.unlink(path)
    files.sync_directory(DIRECTORY)
    return kept


def _shorten(files: Files, path: str, base: int, end: int, size: int, wall_ms: int) -> str:
    """Put a copy of [base, end) in a segment's place; where the rest is kept, "" if it is zeros."""
    temporary = f"{TEMPORARY_DIRECTORY}/{offset_name(base)}.cut"
    file = files.open(path)
    try:
        used = last_used(file, end - base)
        if used == end - base:
            return ""
        kept = aside_path(files, DIRECTORY, end, wall_ms)
        copy_aside(files, kept, file, end - base, used)
        if files.entry(temporary) is not None:
            files.unlink(temporary)
        files.create(temporary, size)
        copy_bytes(files, temporary, file, 0, end - base)
    finally:
        file.close()
    files.replace(temporary, path)
    files.sync_directory(TEMPORARY_DIRECTORY)
    files.sync_directory(DIRECTORY)
    return kept
