"""The ends of consume queues, read from their files: for queues whose messages are all deleted.

Such a queue's next offset stands nowhere in the log. Only a directory without our snapshot needs
this; the files belong to the dispatcher and are only read.
"""

from stratamq.files.port import Files, Kind
from stratamq.formats.file_names import parse_offset_name
from stratamq_commitlog.own_state import QueueTable

DIRECTORY = "consumequeue"
UNIT_BYTES = 20
_UNWRITTEN = bytes(UNIT_BYTES)


def queue_tails(files: Files, minimum: int) -> QueueTable:
    """Next queue offsets of the queues whose last unit points below `minimum`, the log's first.

    What cannot be read is passed over: the queue starts at 0 again, as in RocketMQ.
    """
    tails: QueueTable = {}
    for topic in _directories(files, DIRECTORY):
        for queue in _directories(files, f"{DIRECTORY}/{topic}"):
            if not (queue.isascii() and queue.isdigit() and len(queue) <= 10):
                continue
            following = _next_offset(files, f"{DIRECTORY}/{topic}/{queue}", minimum)
            if following:
                tails[topic, int(queue)] = following
    return tails


def _next_offset(files: Files, directory: str, minimum: int) -> int:
    for entry in reversed(files.list(directory)):
        base = parse_offset_name(entry.name)
        if base is None or entry.kind is not Kind.FILE or entry.size < UNIT_BYTES:
            continue
        try:
            file = files.open(f"{directory}/{entry.name}")
        except OSError:
            return 0
        try:
            low, high = 0, entry.size // UNIT_BYTES
            while low < high:
                middle = (low + high) // 2
                if file.read(middle * UNIT_BYTES, UNIT_BYTES) == _UNWRITTEN:
                    high = middle
                else:
                    low = middle + 1
            if not low:
                continue
            unit = file.read((low - 1) * UNIT_BYTES, UNIT_BYTES)
        finally:
            file.close()
        physical = int.from_bytes(unit[:8], "big", signed=True)
        size = int.from_bytes(unit[8:12], "big", signed=True)
        if physical < 0 or size <= 0 or physical >= minimum:
            return 0
        return base // UNIT_BYTES + low
    return 0


def _directories(files: Files, path: str) -> list[str]:
    entry = files.entry(path)
    if entry is None or entry.kind is not Kind.DIRECTORY:
        return []
    return [entry.name for entry in files.list(path) if entry.kind is Kind.DIRECTORY]
