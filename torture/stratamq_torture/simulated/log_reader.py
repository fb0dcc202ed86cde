"""The log as its files show it, read frame by frame without any code of the rooms.

A segment is read from its beginning; frames are one behind the other, a blank ends it. What is
behind the log's end must read as zeros.
"""

from collections.abc import Iterator

from stratamq.files.simulated import SimulatedDisk
from stratamq.files.simulated_inode import Inode
from stratamq.formats.file_names import offset_name, parse_offset_name
from stratamq.formats.frame_layout import BLANK, MAGIC_BLANK, MAGIC_V1, MAGIC_V2
from stratamq_torture.simulated.model import Message, Model, Violation

DIRECTORY = "commitlog"


def segments(disk: SimulatedDisk) -> list[int]:
    """Starts of the segments that are seen, in order."""
    node = disk.tree.find(DIRECTORY)
    entries = getattr(node, "entries", {})
    return [start for name in sorted(entries) if (start := parse_offset_name(name)) is not None]


def shown(disk: SimulatedDisk, base: int) -> memoryview:
    """What a reader of the segment at `base` sees now."""
    node = disk.tree.find(f"{DIRECTORY}/{offset_name(base)}")
    if not isinstance(node, Inode):
        raise Violation("segment", f"the segment at {base} is not there")
    return memoryview(node.cache)


def read(disk: SimulatedDisk, offset: int, size: int, segment_bytes: int) -> bytes:
    base = offset - offset % segment_bytes
    return bytes(shown(disk, base)[offset - base : offset - base + size])


def frames(
    disk: SimulatedDisk, start: int, end: int, segment_bytes: int
) -> Iterator[tuple[int, bytes]]:
    """(offset, bytes) of every frame in [start, end). Violation where the chain breaks."""
    position = start
    while position < end:
        base = position - position % segment_bytes
        data = shown(disk, base)
        at = position - base
        if len(data) - at < BLANK.size:
            raise Violation("chain", f"no room for a frame at {position}, the log ends at {end}")
        size, magic = BLANK.unpack_from(data, at)
        if magic == MAGIC_BLANK and size == segment_bytes - at:
            position = base + segment_bytes
            continue
        if magic not in (MAGIC_V1, MAGIC_V2) or not 0 < size <= min(end, base + len(data)) - (
            position
        ):
            raise Violation("chain", f"no frame at {position}, the log ends at {end}")
        yield position, bytes(data[at : at + size])
        position += size
    if position != end:
        raise Violation("chain", f"the last frame ends at {position}, the log at {end}")


def readable(disk: SimulatedDisk, segment_bytes: int) -> Iterator[tuple[int, bytes]]:
    """(offset, bytes) of every frame from the log's start up to the first place without one."""
    starts = segments(disk)
    position = starts[0] if starts else 0
    while (base := position - position % segment_bytes) in starts:
        data, at = shown(disk, base), position - base
        if len(data) - at < BLANK.size:
            return
        size, magic = BLANK.unpack_from(data, at)
        if magic == MAGIC_BLANK and size == segment_bytes - at:
            position = base + segment_bytes
        elif magic in (MAGIC_V1, MAGIC_V2) and 0 < size <= len(data) - at:
            yield position, bytes(data[at : at + size])
            position += size
        else:
            return


def messages(
    disk: SimulatedDisk, model: Model, start: int, end: int, segment_bytes: int, where: str
) -> list[Message]:
    """The messages in [start, end), each checked against what was sent."""
    found = [
        model.observe(offset, raw, where) for offset, raw in frames(disk, start, end, segment_bytes)
    ]
    if len({message.number for message in found}) != len(found):
        raise Violation("twice", f"{where}: a message is in the log twice")
    return found


def is_zero_behind(disk: SimulatedDisk, end: int, segment_bytes: int) -> bool:
    """Whether nothing can be read behind the log's end, in any segment."""
    for base in segments(disk):
        if base + segment_bytes > end and bytes(shown(disk, base)[max(0, end - base) :]).strip(
            b"\0"
        ):
            return False
    return True
