"""The ends of consume queues, read from their files, for a directory without our snapshot.

Where a queue's messages are all deleted, or lie in a part of the log that cannot be read, its next
offset stands in its files only. The files belong to the dispatcher and are only read.
"""

from collections.abc import Callable

from stratamq.files.port import EntryKind, File, Files
from stratamq.formats.file_names import parse_offset_name
from stratamq.formats.frame import Frame
from stratamq.formats.light_queues import LIGHT_QUEUE_PREFIX
from stratamq.formats.numbers import INT64_MAX
from stratamq.formats.store_paths import CONSUME_QUEUES as DIRECTORY
from stratamq.store.queue_snapshot import QueueTable

UNIT_BYTES = 20


def queue_tails(
    files: Files, minimum: int, end: int, frame_at: Callable[[int, int], Frame | None]
) -> QueueTable:
    """Next queue offset of each queue by its last unit below `end`, the log's.

    A unit that points into the log ([minimum, end)) counts only if the frame there agrees.
    What cannot be read or does not fit is passed over.
    """
    tails: QueueTable = {}
    for topic in _directories(files, DIRECTORY):
        if topic.startswith(LIGHT_QUEUE_PREFIX):
            continue  # no message has it as its topic
        for queue in _directories(files, f"{DIRECTORY}/{topic}"):
            if not (queue.isascii() and queue.isdigit() and len(queue) <= 10):
                continue
            last = _last_unit(files, f"{DIRECTORY}/{topic}/{queue}", end)
            if last is None:
                continue
            queue_offset, physical, size = last
            frame = frame_at(physical, size) if physical >= minimum else None
            if physical < minimum or (
                frame is not None
                and (frame.topic, frame.queue_id) == (topic, int(queue))
                and (frame.queue_offset, frame.physical_offset) == (queue_offset, physical)
            ):
                tails[topic, int(queue)] = queue_offset + 1
    return tails


def leads_beyond(files: Files, end: int, largest: int) -> str:
    """The directory of a queue whose last unit leads to a message at log offset `end` or behind,
    of at most `largest` bytes; "" if none does."""
    for topic in _directories(files, DIRECTORY):
        for queue in _directories(files, f"{DIRECTORY}/{topic}"):
            path = f"{DIRECTORY}/{topic}/{queue}"
            last = _last_unit(files, path, INT64_MAX)
            if last is not None and last[1] >= end and last[2] <= largest:
                return path
    return ""


def _last_unit(files: Files, directory: str, end: int) -> tuple[int, int, int] | None:
    """(queue offset, physical offset, size) of the last unit that points below `end`."""
    for entry in reversed(files.list(directory)):
        base = parse_offset_name(entry.name)
        if base is None or entry.kind is not EntryKind.FILE or entry.size < UNIT_BYTES:
            continue
        try:
            file = files.open(f"{directory}/{entry.name}")
        except OSError:
            return None
        try:
            low, high = 0, entry.size // UNIT_BYTES
            while low < high:
                middle = (low + high) // 2
                physical, size = _unit(file, middle)
                if size > 0 and 0 <= physical < end:
                    low = middle + 1
                else:
                    high = middle
            if low:
                return base // UNIT_BYTES + low - 1, *_unit(file, low - 1)
        finally:
            file.close()
    return None


def _unit(file: File, index: int) -> tuple[int, int]:
    raw = file.read(index * UNIT_BYTES, UNIT_BYTES)
    return int.from_bytes(raw[:8], "big", signed=True), int.from_bytes(
        raw[8:12], "big", signed=True
    )


def _directories(files: Files, path: str) -> list[str]:
    entry = files.entry(path)
    if entry is None or entry.kind is not EntryKind.DIRECTORY:
        return []
    return [entry.name for entry in files.list(path) if entry.kind is EntryKind.DIRECTORY]
