"""What is below `consumequeue/` at a start: queues, the size of their files, what is wrong.

Never raises for what it finds. What RocketMQ would refuse, or what would stand in the way of a
file, is moved to `stratamq/aside/` and reported. A queue that lost a file by that, or that misses
one of those the list names, is damaged, and then all queues are compared with the log again.

    fact                                              done
    consumequeue, a topic, a queue is no directory    moved aside
    a topic whose name is no UTF-8                    left alone
    an entry below a topic that is no number          left alone, as RocketMQ leaves it
    in a queue: link, directory, device, other name   moved aside
    in a queue: wrong size, or name off the grid      moved aside; damaged
    in a queue: a file behind a gap                   moved aside; damaged
    recorded, and not there                           damaged
    a light queue (%LMQ%…) that is not recorded       damaged: the log gives it, or it goes aside
"""

from collections import Counter
from dataclasses import dataclass, field

from stratamq.errors import StoreRefusedError
from stratamq.files.port import Entry, EntryKind, Files
from stratamq.formats.file_names import parse_offset_name
from stratamq.formats.light_queues import LIGHT_QUEUE_PREFIX
from stratamq.formats.numbers import INT32_MAX, INT32_MIN, INT64_MAX
from stratamq.formats.queue_paths import QueueGeometry, queue_directory
from stratamq.formats.queue_unit import QUEUE_UNIT_BYTES
from stratamq.formats.store_paths import CONSUME_QUEUES
from stratamq_dispatcher.dispatch_state import Ranges, RecordedQueues
from stratamq_dispatcher.queue_files import set_aside


@dataclass(slots=True)
class LoadedQueues:
    geometry: QueueGeometry
    ranges: Ranges = field(default_factory=dict)
    damaged: bool = False
    report: list[str] = field(default_factory=list)


def load_queues(
    files: Files, configured_file_bytes: int, recorded: RecordedQueues | None
) -> LoadedQueues:
    """List every queue and set aside what cannot be one.

    The size of the files that are there wins over the setting. StoreRefusedError when something
    that must be moved aside cannot be.
    """
    report: list[str] = []
    listing = _list(files, report)
    geometry = _geometry(listing, configured_file_bytes, recorded)
    loaded = LoadedQueues(geometry, report=report)
    for (topic, queue_id), entries in listing.items():
        directory = queue_directory(topic, queue_id)
        kept = _judge(files, directory, entries, loaded)
        if kept:
            first = parse_offset_name(kept[0].name) or 0
            first_unit = first // QUEUE_UNIT_BYTES
            behind = first_unit + len(kept) * geometry.units_per_file
            loaded.ranges[topic, queue_id] = (first_unit, behind)
    if recorded is not None:
        _compare(recorded, loaded)
    return loaded


def _list(files: Files, report: list[str]) -> dict[tuple[str, int], list[Entry]]:
    """The entries of every queue's directory."""
    listing: dict[tuple[str, int], list[Entry]] = {}
    root = files.entry(CONSUME_QUEUES)
    if root is not None and root.kind is not EntryKind.DIRECTORY:
        _move(files, CONSUME_QUEUES, f"a {root.kind.value}, no directory", report)
        return listing
    for topic in files.list(CONSUME_QUEUES):
        path = f"{CONSUME_QUEUES}/{topic.name}"
        if topic.kind is not EntryKind.DIRECTORY:
            _move(files, path, f"a {topic.kind.value}, no topic", report)
            continue
        if not _is_text(topic.name):
            report.append(f"{path!a}: the name is no UTF-8; left alone")
            continue
        for queue in files.list(path):
            queue_id = _queue_id(queue.name)
            if queue_id is None:
                report.append(f"{path}/{queue.name}: no queue, left alone")
            elif queue.kind is not EntryKind.DIRECTORY:
                _move(files, f"{path}/{queue.name}", f"a {queue.kind.value}, no queue", report)
            else:
                listing[topic.name, queue_id] = files.list(f"{path}/{queue.name}")
    return listing


def _is_text(name: str) -> bool:
    """False for names that the system shows with surrogates: no topic can be called so."""
    return not any("\ud800" <= character <= "\udfff" for character in name)


def _queue_id(name: str) -> int | None:
    digits = name.removeprefix("-")
    if not (digits.isascii() and digits.isdigit()) or str(int(name)) != name:
        return None
    return int(name) if INT32_MIN <= int(name) <= INT32_MAX else None


def _geometry(
    listing: dict[tuple[str, int], list[Entry]],
    configured_file_bytes: int,
    recorded: RecordedQueues | None,
) -> QueueGeometry:
    """The recorded size if any file has it; else the one that most files have and fit by name."""
    votes: Counter[int] = Counter()
    for entries in listing.values():
        for entry in entries:
            offset = parse_offset_name(entry.name)
            if entry.kind is EntryKind.FILE and entry.size and offset is not None:
                fits = entry.size % QUEUE_UNIT_BYTES == 0 and offset % entry.size == 0
                votes[entry.size] += fits
    if recorded is not None and votes[recorded.file_bytes]:
        return QueueGeometry.of_bytes(recorded.file_bytes)
    configured = QueueGeometry.of_bytes(configured_file_bytes)
    best = max(votes.values(), default=0)
    if best == 0 or votes[configured.file_bytes] == best:
        return configured
    return QueueGeometry.of_bytes(max(size for size, count in votes.items() if count == best))


def _judge(files: Files, directory: str, entries: list[Entry], loaded: LoadedQueues) -> list[Entry]:
    """The files that can stay: whole, on the grid, each where the one before it ends."""
    file_bytes = loaded.geometry.file_bytes
    kept: list[Entry] = []
    for entry in entries:
        path = f"{directory}/{entry.name}"
        offset = parse_offset_name(entry.name)
        if entry.kind is not EntryKind.FILE:
            loaded.damaged |= offset is not None
            _move(files, path, f"a {entry.kind.value}, no file", loaded.report)
        elif offset is None or offset > INT64_MAX:
            _move(files, path, "no name of a queue file", loaded.report)
        elif entry.size != file_bytes or offset % file_bytes:
            loaded.damaged = True
            what = f"{entry.size} bytes at {offset}; files have {file_bytes}"
            _move(files, path, what, loaded.report)
        elif kept and offset != (parse_offset_name(kept[-1].name) or 0) + file_bytes:
            loaded.damaged = True
            _move(files, path, "the file before it is missing", loaded.report)
        else:
            kept.append(entry)
    return kept


def _compare(recorded: RecordedQueues, loaded: LoadedQueues) -> None:
    light = [key for key in loaded.ranges if key[0].startswith(LIGHT_QUEUE_PREFIX)]
    if not recorded.ranges.keys() >= set(light):
        # RocketMQ's, which earlier versions left alone: the log has to give them.
        loaded.damaged = True
        loaded.report.append("there are light queues that are not ours")
    for (topic, queue_id), (first, behind) in recorded.ranges.items():
        found = loaded.ranges.get((topic, queue_id))
        if found is None or found[0] > first or found[1] < behind:
            loaded.damaged = True
            loaded.report.append(f"{queue_directory(topic, queue_id)}: files are missing")


def _move(files: Files, path: str, what: str, report: list[str]) -> None:
    try:
        target = set_aside(files, path)
    except OSError as error:
        raise StoreRefusedError(
            f"{path} is {what}, and cannot be moved aside: {error.strerror}"
        ) from error
    report.append(f"{path}: {what}; moved to {target}")
