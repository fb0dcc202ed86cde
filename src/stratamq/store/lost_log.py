"""A directory that has something of a store and no log: it is refused, not taken for a new store.

A log lies elsewhere (`storePathCommitLog`), on a volume that is not mounted, or is lost. A start
without it would end all queues, index files and group offsets at 0. Every service asks here before
it changes anything. A new or an empty root is a new store. So is one whose log was empty by its own
record: a snapshot of an empty log, or a cut that leaves nothing.

A log without the tables of `config/` that were written here is refused as well: topics would lose
their settings, purged and deleted messages would come back, and groups would begin again.

`begin_new_log` moves what the lost log left to `stratamq/aside/`, for an operator who goes without
its messages.
"""

from collections.abc import Iterator

from stratamq.errors import StoreRefusedError
from stratamq.files.journal import Journal
from stratamq.files.metadata import MetadataFile
from stratamq.files.paths import parent
from stratamq.files.port import Clock, Entry, EntryKind, Files
from stratamq.formats.file_names import parse_offset_name
from stratamq.formats.store_paths import (
    ABORT_PATH,
    ASIDE_DIRECTORY,
    CHECKPOINT_PATH,
    CHECKSUMS_DIRECTORY,
    COMMIT_LOG,
    CONSUME_QUEUES,
    CONSUMER_OFFSETS_PATH,
    CUT_PATH,
    DELAY_OFFSETS_PATH,
    DISPATCHER_STATE_PATH,
    IDENTITY_PATH,
    INDEX,
    INDEX_STATE_PATH,
    LIGHT_OFFSETS_PATH,
    LOCK_PATH,
    LOGS_DIRECTORY,
    OWN_DIRECTORY,
    RESERVE_PATH,
    ROLE_PATH,
    RUN_DIRECTORY,
    SNAPSHOT_PATH,
    TEMPORARY_DIRECTORY,
    TOPICS_PATH,
)
from stratamq.store.confirmed import is_ours, read_checkpoint
from stratamq.store.generations import history

_STAYS = (
    ASIDE_DIRECTORY,
    LOGS_DIRECTORY,
    RESERVE_PATH,
    RUN_DIRECTORY,
    TEMPORARY_DIRECTORY,
)
"""What stays under `stratamq/`, with the lock files of rooms."""
_OFFSET_FILES = (CONSUMER_OFFSETS_PATH, LIGHT_OFFSETS_PATH, DELAY_OFFSETS_PATH)

_TABLES = (TOPICS_PATH, CONSUMER_OFFSETS_PATH)


def require_log(files: Files) -> None:
    """StoreRefusedError for a store without its log, with what was found. Changes nothing."""
    if other := _other_log(files):
        raise StoreRefusedError(
            f"{other} holds a DLedger log, which StrataMQ does not read: the newest messages are "
            "there alone. Let RocketMQ's controller mode take the broker over first; or move the "
            f"directory away to serve only what {COMMIT_LOG}/ holds. Nothing was changed"
        )
    if _has_log(files) or not (found := [*_left_by_a_log(files)]):
        return
    if is_ours(files) and _is_known_empty(files):
        return
    raise StoreRefusedError(
        f"{COMMIT_LOG}/ has no segment, and the directory has {', '.join(found)}: its log is not "
        f"here. Mount the log's volume at {COMMIT_LOG}/; if it lies in another directory "
        "(storePathCommitLog), bind that there (mount --bind). To go without its messages run "
        "`stratamq new-log --data` with this directory: it moves what the log left to "
        f"{ASIDE_DIRECTORY}/. Nothing was changed"
    )


def require_tables(files: Files) -> None:
    """StoreRefusedError where topics or offsets of groups were written and are gone, with the
    content before the last. Changes nothing."""
    lost = [path for path in _TABLES if MetadataFile(files, path).is_lost]
    if lost:
        marks = " and ".join(f"{CHECKSUMS_DIRECTORY}/{path}" for path in lost)
        raise StoreRefusedError(
            f"{' and '.join(lost)} missing, though written here: without them purged messages and "
            "deleted topics come back, and consumer groups begin again. Mount or restore what is "
            f"missing; if it is lost for good, remove {marks} to go on without. Nothing was changed"
        )


def begin_new_log(files: Files, clock: Clock) -> tuple[str, list[str]]:
    """Move what a lost log left aside, durably; where to, and what.

    The caller keeps every service away. Interrupted, it is run again: what says that the
    directory counts in a cluster goes first, so that no start in between believes it. Topics and
    subscriptions stay. StoreRefusedError when there is a log.
    """
    if _has_log(files):
        raise StoreRefusedError(f"{COMMIT_LOG}/ has segments: the log is there")
    target = f"{ASIDE_DIRECTORY}/before-new-log-{clock.wall_ms()}"
    own = [f"{OWN_DIRECTORY}/{entry.name}" for entry in files.list(OWN_DIRECTORY)]
    own = [path for path in own if path not in _STAYS and not path.endswith(".lock")]
    own.sort(key=lambda path: not path.startswith((IDENTITY_PATH, ROLE_PATH)))
    offsets = [path for name in _OFFSET_FILES for path in (name, f"{name}.bak")]
    candidates = [*own, *offsets, CONSUME_QUEUES, INDEX, ABORT_PATH, CHECKPOINT_PATH, LOCK_PATH]
    moved = [path for path in candidates if files.entry(path) is not None]
    for path in moved:
        files.make_directory(parent(f"{target}/{path}"))
        files.replace(path, f"{target}/{path}")
        files.sync_directory(parent(f"{target}/{path}"))
        files.sync_directory(parent(path))
    return target, moved


def _has_log(files: Files) -> bool:
    """Something that is no directory is the log's owner's to refuse."""
    entry = files.entry(COMMIT_LOG)
    if entry is not None and entry.kind is not EntryKind.DIRECTORY:
        return True
    return any(
        each.kind is EntryKind.FILE and each.size and parse_offset_name(each.name) is not None
        for each in _listed(files, COMMIT_LOG)
    )


def _other_log(files: Files) -> str:
    for name in (entry.name for entry in files.list("")):
        listed = _listed(files, f"{name}/data") if name.startswith("dledger-") else []
        if any(entry.size for entry in listed):
            return f"{name}/"
    return ""


def _left_by_a_log(files: Files) -> Iterator[str]:
    """What only a log with messages leaves behind, in words."""
    if _stored_ms(files):
        yield f"a {CHECKPOINT_PATH} of messages"
    if queues := sum(1 for _ in _queue_files(files)):
        yield f"{queues} files in {CONSUME_QUEUES}/"
    if index := len(_listed(files, INDEX)):
        yield f"{index} files in {INDEX}/"
    for path in _OFFSET_FILES:
        if _has_offset((MetadataFile(files, path).load(keep_aside=False) or {}).get("offsetTable")):
            yield f"offsets in {path}"
    if any(start for _, start in history(files)):
        yield "generations of a log"
    for path in (DISPATCHER_STATE_PATH, INDEX_STATE_PATH):
        if (MetadataFile(files, path).load(keep_aside=False) or {}).get("position"):
            yield f"a position in {path}"
    if (_snapshot(files) or {}).get("offset"):
        yield f"a position in {SNAPSHOT_PATH}"


def _is_known_empty(files: Files) -> bool:
    """Our record says so: a cut that leaves nothing is not done to its end, or the snapshot is of
    an empty log. Messages that came behind the snapshot are in the checkpoint."""
    cut, snapshot = MetadataFile(files, CUT_PATH).load(keep_aside=False), _snapshot(files)
    if cut is not None:
        return cut.get("empty") is True
    return (
        snapshot is not None
        and snapshot["frame"] is None
        and snapshot["minimum"] == snapshot["offset"]
        and not _stored_ms(files)
    )


def _snapshot(files: Files) -> dict | None:
    return Journal(files, SNAPSHOT_PATH).load(lambda piece: None)


def _stored_ms(files: Files) -> int:
    """Store time of the newest message that was on the disk; 0: there was none."""
    checkpoint = read_checkpoint(files)
    return checkpoint.physic_msg_timestamp_ms if checkpoint is not None else 0


def _queue_files(files: Files) -> Iterator[Entry]:
    for topic in _listed(files, CONSUME_QUEUES):
        path = f"{CONSUME_QUEUES}/{topic.name}"
        for queue in _listed(files, path):
            yield from (each for each in _listed(files, f"{path}/{queue.name}") if each.size)


def _listed(files: Files, directory: str) -> list[Entry]:
    """Empty for what is no directory."""
    entry = files.entry(directory)
    is_directory = entry is not None and entry.kind is EntryKind.DIRECTORY
    return files.list(directory) if is_directory else []


def _has_offset(value: object) -> bool:
    """Whether a table of offsets has one above 0, at any depth."""
    if isinstance(value, dict):
        return any(_has_offset(each) for each in value.values())
    return isinstance(value, int) and value > 0
