"""The first steps of a start: the lock, what to believe, recovery, a new generation.

Nothing of the log is changed before `abort` is durable, so that a start that is interrupted counts
as unclean; nothing at all is changed in a directory that is refused.
"""

import logging
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass

from stratamq.errors import StoreRefusedError
from stratamq.files.metadata import MetadataFile
from stratamq.files.port import INDEX_TEMPORARY, Clock, EntryKind, Files, Lock, Random
from stratamq.formats.checkpoint import (
    Checkpoint,
)
from stratamq.formats.generation_number import GREATEST_TERM, Generation
from stratamq.formats.log_state import Role
from stratamq.formats.store_paths import (
    ABORT_PATH,
    ASIDE_DIRECTORY,
    CONSUMER_OFFSETS_PATH,
    RESTORING_PATH,
    ROCKSDB_TABLES,
    TOPICS_PATH,
)
from stratamq.store.confirmed import LOCK_PATH, read_checkpoint
from stratamq.store.queue_snapshot import TableSnapshot, lock_text
from stratamq.store.sealed import SEALED_PATH, load_sealed
from stratamq_commitlog.config import CommitLogConfig
from stratamq_commitlog.recovery import cut_file, inspection, own_state, recovery
from stratamq_commitlog.recovery.walk_ahead import Walkers
from stratamq_commitlog.roles import StartRole

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class OpenedLog:
    """A recovered directory. `foreign`: another program held it last."""

    recovered: recovery.RecoveredLog
    checkpoint: Checkpoint
    foreign: bool
    history_known: bool
    """Our generations are still this log's history."""
    report: list[str]
    cut_generations: tuple[Generation, ...] = ()
    """A cut was done: the list that follows it."""
    unclean: bool = False
    """`abort` was there: the last stop was not clean."""


def take_lock(files: Files, pid: int, adopt: Callable[[], None]) -> tuple[Lock, bool]:
    """The store's lock; True if another program held it last, after `adopt` has run.

    The text becomes ours only when no file of ours holds an older history: a start that
    is interrupted in between finds the other's text again. StoreRefusedError when another process,
    ours or RocketMQ's, holds the store.
    """
    # Read before the lock is taken: while it is held, closing any descriptor of it would drop it.
    text = own_state.read_lock_text(files)
    ours = lock_text(pid)
    if own_state.is_ours(text) or (files.entry(LOCK_PATH) is None and _is_as_we_left_it(files)):
        return _lock(files, text, ours), False
    with closing(_lock(files, text, text)):
        adopt()
    return _lock(files, text, ours), True


def _is_as_we_left_it(files: Files) -> bool:
    """The lock file alone is missing, as in a copy: the log ends where our own snapshot does, so
    that no other program wrote to it. RocketMQ never removes the file."""
    state = own_state.OwnState(files)
    snapshot = state.load()
    if snapshot is None or not state.segment_bytes:
        return False
    inspected = inspection.inspect(files, state.segment_bytes, state.segment_bytes)
    return inspection.snapshot_holds(files, inspected, snapshot) and inspection.ends_at(
        files, inspected, snapshot.offset
    )


def _lock(files: Files, expected: bytes, text: bytes) -> Lock:
    in_use = "the store is in use: another StrataMQ or RocketMQ process holds its lock file"
    try:
        lock = files.lock(LOCK_PATH, text)
    except BlockingIOError as error:
        raise StoreRefusedError(in_use) from error
    if lock.previous_text != expected:
        lock.close()
        raise StoreRefusedError(f"{in_use}, or did so a moment ago")
    return lock


def open_store(
    files: Files,
    config: CommitLogConfig,
    state: own_state.OwnState,
    foreign: bool,
    clock: Clock,
    progress: Callable[[int, int], None] | None,
    walkers: Walkers | None = None,
) -> OpenedLog:
    """Recover the directory. Raises StoreRefusedError, OSError."""
    _require_readable(files)
    report: list[str] = []
    if foreign and state.discarded:
        report.append(
            "another program held the store last, or its lock file is gone: our own state is not "
            f"used, and kept in {state.discarded}"
        )
    snapshot = state.load()
    inspected = _inspect(files, config, state, snapshot)
    cut = cut_file.load(files)
    if cut is not None:
        snapshot, done = _finish_cut(files, state, inspected, cut, snapshot, clock.wall_ms())
        report += done
        inspected = inspection.inspect(files, config.segment_bytes, state.segment_bytes)
    if not _fits(files, state, inspected, snapshot, clock.wall_ms()):
        report.append("our snapshot does not fit the log: it is moved aside, and not used")
        snapshot = None
    report += state.faults
    unclean = files.entry(ABORT_PATH) is not None
    if not unclean:
        state.set_found_clean(snapshot is None)
        files.create(ABORT_PATH, 0, sparse=True)
    files.clean_temporary(spare=(INDEX_TEMPORARY,))
    checkpoint = read_checkpoint(files) or Checkpoint()
    recovered = recovery.recover(
        files,
        inspected,
        inspection.Evidence(
            snapshot,
            unclean,
            checkpoint,
            clock.wall_ms(),
            state.found_clean,
            load_sealed(MetadataFile(files, SEALED_PATH)),
        ),
        verify_bodies=config.check_crc_on_recover,
        progress=progress,
        walkers=walkers,
    )
    report += recovered.report
    report += _possible_losses(config, snapshot, recovered.minimum, unclean)
    return OpenedLog(
        recovered=recovered,
        checkpoint=checkpoint,
        foreign=foreign,
        history_known=snapshot is not None,
        report=report,
        cut_generations=cut.generations if cut is not None else (),
        unclean=unclean,
    )


def require_adoptable(files: Files, config: CommitLogConfig) -> None:
    """StoreRefusedError for another program's directory that is not a whole store; nothing is
    changed before."""
    _require_readable(files)
    inspection.require_all_segments(files, inspection.inspect(files, config.segment_bytes, None))


def _require_readable(files: Files) -> None:
    """StoreRefusedError where what is in the directory is not the whole store."""
    if files.entry(RESTORING_PATH) is not None:
        raise StoreRefusedError(
            "the directory was not restored to its end: run `stratamq tier restore` again"
        )
    require_json(files)


def _fits(
    files: Files,
    state: own_state.OwnState,
    inspected: inspection.Inspected,
    snapshot: TableSnapshot | None,
    wall_ms: int,
) -> bool:
    """False for a snapshot that the log contradicts; it is aside then. StoreRefusedError where
    what it stands on is missing."""
    if snapshot is None or inspection.snapshot_holds(files, inspected, snapshot):
        return True
    inspection.require_newest(inspected, snapshot)
    state.set_snapshot_aside(wall_ms)
    return False


def _finish_cut(
    files: Files,
    state: own_state.OwnState,
    inspected: inspection.Inspected,
    cut: cut_file.CutOrder,
    snapshot: TableSnapshot | None,
    now_ms: int,
) -> tuple[TableSnapshot | None, list[str]]:
    """Carry out a cut that was recorded before the process ended. The snapshot that holds after it,
    and what was done."""
    if files.entry(ABORT_PATH) is None:
        files.create(ABORT_PATH, 0, sparse=True)
    moved = inspection.move_deleted(files, inspected, now_ms)
    snapshot, done = cut_file.carry_out(files, state, inspected, cut, snapshot, now_ms)
    return snapshot, [*moved, *done]


def _possible_losses(
    config: CommitLogConfig, snapshot: TableSnapshot | None, minimum: int, unclean: bool
) -> list[str]:
    """What may be missing without any damage that recovery could find."""
    report = []
    began = snapshot.minimum if snapshot is not None else None
    if began is not None and minimum > began:
        # A deletion records the new minimum before it unlinks a file.
        lost = (
            f"messages are missing: the log begins at {minimum}, and began at {began} when its "
            "state was last saved, and no deletion was recorded. Its first segments were removed "
            "by another program, or are on another volume: stop the broker, and put them back"
        )
        log.error("segments are missing", extra={"from": began, "to": minimum})
        report.append(lost)
    if unclean and config.flush_disk_type == "ASYNC_FLUSH":
        report.append(
            "the last stop was not clean: if the machine lost its power, messages acknowledged "
            f"under ASYNC_FLUSH in the {config.flush_interval_ms} ms before it may be missing"
        )
    return report


def _inspect(
    files: Files,
    config: CommitLogConfig,
    state: own_state.OwnState,
    snapshot: TableSnapshot | None,
) -> inspection.Inspected:
    """What the directory holds. A snapshot that fits the log records what was deleted of it."""
    sizes = config.segment_bytes, state.segment_bytes
    if snapshot is not None and snapshot.minimum:
        inspected = inspection.inspect(files, *sizes, snapshot.minimum)
        if not inspected.deleted or inspection.snapshot_holds(files, inspected, snapshot):
            return inspected
    return inspection.inspect(files, *sizes)


def remove_abort(files: Files, clock: Clock) -> None:
    """Remove `abort`, because the store is whole and durable. It may be something other than a
    file."""
    entry = files.entry(ABORT_PATH)
    if entry is not None and entry.kind is EntryKind.DIRECTORY:
        files.make_directory(ASIDE_DIRECTORY)
        files.replace(ABORT_PATH, f"{ASIDE_DIRECTORY}/{ABORT_PATH}-{clock.wall_ms()}")
        files.sync_directory(ASIDE_DIRECTORY)
    elif entry is not None:
        files.unlink(ABORT_PATH)
    files.sync_directory("")


def seal(state: own_state.OwnState, config: CommitLogConfig, role: Role, opened: OpenedLog) -> int:
    """From where on every record has a checksum of its own; durable on return."""
    return state.begin_sealing(
        opened.recovered.end,
        seals=config.property_checksum and role is not Role.SLAVE,
        history_known=opened.history_known,
    )


def begin_generation(
    state: own_state.OwnState, opened: OpenedLog, random: Random, role: StartRole
) -> list[Generation]:
    """Open a generation at the log's end; the list is durable on return.

    A slave whose history is known continues it: its generations are its master's.
    """
    known = state.generations if opened.history_known else []
    if opened.cut_generations:
        known = list(opened.cut_generations)
    if (role.state.role is Role.SLAVE or role.recovers_tail) and known:
        state.store_generations(known, opened.recovered.segment_bytes)
        return known
    newest = known[-1] if known else None
    term = role.state.term if role.state.role is not Role.SLAVE else 0
    if role.promotes:
        term = min(max(term, newest.term if newest is not None else 0) + 1, GREATEST_TERM)
    generation = own_state.next_generation(newest, opened.recovered.end, random, term)
    generations = own_state.extend(known, generation)
    state.store_generations(generations, opened.recovered.segment_bytes)
    return generations


_MARK = "CURRENT"
"""In the directory of every RocksDB database: the name of its manifest."""


def require_json(files: Files) -> None:
    """Refuses a store whose topics and group offsets RocketMQ 5.x keeps in RocksDB, not in JSON.

    Nothing here reads RocksDB: without those tables the queues' numbers of each topic are
    unknown and every group would begin at the earliest message; a JSON file beside them may be
    older than they are. `rocksdbstore/`, which RocketMQ 5.5 opens always, is no such table:
    queues are built from the log.

    StoreRefusedError with the tables and the way out.
    """
    found = [table for table in ROCKSDB_TABLES if files.entry(f"{table}/{_MARK}") is not None]
    if found:
        raise StoreRefusedError(
            f"RocketMQ keeps this broker's configuration in RocksDB ({', '.join(found)}), and "
            f"only JSON is read here. Export it to {TOPICS_PATH} and {CONSUMER_OFFSETS_PATH} "
            "with RocketMQ's `mqadmin rocksDBConfigToJson`, or start RocketMQ once without its "
            "RocksDB configuration; compare the group offsets; then "
            "move these directories out of config/ and start again"
        )
