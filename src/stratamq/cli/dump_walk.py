"""Walking the files of a store as far as they go, and saying where and why that ends.

Walks yield what they find and `WalkEnd`s. A stop that is damage makes `dump` end with exit code 1.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from stratamq.cli.dump_source import LogFile, QueueFiles, mapped
from stratamq.errors import NotFoundError, OffsetOutOfRangeError
from stratamq.formats import frame as frames
from stratamq.formats.frame import Frame
from stratamq.formats.frame_check import FrameOutcome, check
from stratamq.formats.frame_layout import BLANK, MAGIC_V1, MAGIC_V2, MIN_FRAME_BYTES
from stratamq.formats.queue_unit import QUEUE_UNIT_BYTES, QueueUnit, decode_queue_unit

SCAN_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Record:
    """A frame (`frame` and `raw`) or a blank (`blank` bytes long) at `offset`."""

    offset: int
    raw: bytes
    frame: Frame | None = None
    blank: int = 0
    body_is_good: bool = True


@dataclass(frozen=True, slots=True)
class WalkedUnit:
    queue: QueueFiles
    queue_index: int
    unit: QueueUnit


@dataclass(frozen=True, slots=True)
class WalkEnd:
    """The end of what can be read in `file`, at byte `position` of it."""

    file: str
    position: int
    reason: str
    is_damage: bool
    offset: int | None = None


def walk_log(
    files: list[LogFile], first: int | None = None, end: int | None = None
) -> Iterator[Record | WalkEnd]:
    """The records with first ≤ offset < end. After damage the walk continues with the next file."""
    for number, file in enumerate(files):
        following = files[number + 1] if number + 1 < len(files) else None
        if first is not None and file.start + file.size <= first:
            continue
        if end is not None and file.start >= end:
            return
        stop = yield from _walk_file(file, first, end)
        if stop is None:
            continue
        if stop.is_damage or following is None or not _has_frames(following):
            yield stop
            if not stop.is_damage:
                return
        else:
            reason = f"{stop.reason}, but the log continues in {following.path.name}"
            yield WalkEnd(stop.file, stop.position, reason, True, stop.offset)


def _walk_file(file: LogFile, first: int | None, end: int | None):
    """Yields records; returns the stop, or None when the file or the range ended as it should."""
    with mapped(file.path) as view:
        position = 0
        while position < len(view):
            offset = file.start + position
            if end is not None and offset >= end:
                return None
            wanted = first is None or offset >= first
            outcome, size = check(view, position, verify_body=False)
            if outcome is FrameOutcome.BLANK:
                if wanted:
                    yield Record(offset, bytes(view[position : position + 8]), blank=size)
                if size != len(view) - position:
                    reason = f"a blank of {size} bytes where {len(view) - position} remain"
                    return WalkEnd(str(file.path), position, reason, True, offset)
                return None
            if outcome is FrameOutcome.ZERO:
                return WalkEnd(str(file.path), position, outcome.value, False, offset)
            if outcome is not FrameOutcome.GOOD:
                reason = outcome.value
                if _is_torn(view, position):
                    reason += "; only zeros follow: torn by a crash"
                return WalkEnd(str(file.path), position, reason, True, offset)
            if wanted:
                yield _record(view, position, offset, size)
            position += size
        reason = "the file ends without a blank" if position else "the file is empty"
        return WalkEnd(str(file.path), position, reason, False, file.start + position)


def _is_torn(view: memoryview, position: int) -> bool:
    """Whether nothing but zeros follows the frame that should have been here."""
    if len(view) - position < BLANK.size:
        return False
    total_size, magic = BLANK.unpack_from(view, position)
    start = position + total_size
    if (
        magic not in (MAGIC_V1, MAGIC_V2)
        or not MIN_FRAME_BYTES <= total_size <= len(view) - position
    ):
        return False
    zeros = bytes(SCAN_BYTES)
    return all(
        view[at : at + SCAN_BYTES] == zeros[: min(SCAN_BYTES, len(view) - at)]
        for at in range(start, len(view), SCAN_BYTES)
    )


def _record(view: memoryview, position: int, offset: int, size: int) -> Record:
    frame = frames.decode(view, position, verify_body=False)
    good = check(view, position).outcome is FrameOutcome.GOOD
    raw = bytes(view[position : position + size])
    return Record(offset, raw, frame if isinstance(frame, Frame) else None, 0, good)


def _has_frames(file: LogFile) -> bool:
    with mapped(file.path) as view:
        return check(view, verify_body=False).outcome is not FrameOutcome.ZERO and len(view) > 0


def record_at(files: list[LogFile], offset: int, explain: bool = False) -> Record:
    """The frame or blank that begins at `offset`.

    OffsetOutOfRangeError outside the files; NotFoundError names what is there instead, with
    `explain` also which frame that is inside of (which reads the file from its beginning).
    """
    low, high = files[0].start, files[-1].start + files[-1].size
    for file in files:
        if file.start <= offset < file.start + file.size:
            break
    else:
        raise OffsetOutOfRangeError(
            f"offset {offset} is in no file; there is {low} to {high}", low, high
        )
    with mapped(file.path) as view:
        position = offset - file.start
        outcome, size = check(view, position, verify_body=False)
        if outcome is FrameOutcome.GOOD:
            return _record(view, position, offset, size)
        if outcome is FrameOutcome.BLANK:
            return Record(offset, bytes(view[position : position + 8]), blank=size)
    around = ""
    for record in walk_log([file], end=offset) if explain else ():
        length = record.blank or len(record.raw) if isinstance(record, Record) else 0
        if isinstance(record, Record) and record.offset + length > offset:
            what = "blank" if record.blank else "frame"
            around = f"; it is inside the {what} at offset {record.offset}"
    raise NotFoundError(f"no frame begins at offset {offset}: {outcome.value}{around}")


def walk_queue(
    queue: QueueFiles, first: int = 0, end: int | None = None
) -> Iterator[WalkedUnit | WalkEnd]:
    """The units with first ≤ index < end, up to the first that is not valid."""
    for number, (start, path) in enumerate(queue.files):
        is_last = number + 1 == len(queue.files)
        with mapped(path) as view:
            if start + len(view) <= first * QUEUE_UNIT_BYTES:
                continue
            position = max(0, first * QUEUE_UNIT_BYTES - start)
            while (unit := decode_queue_unit(view, position)) is not None:
                queue_index = (start + position) // QUEUE_UNIT_BYTES
                if end is not None and queue_index >= end:
                    return
                if not unit.is_valid:
                    damage = not unit.is_zero or not is_last
                    reason = "nothing was written here" if unit.is_zero else "an impossible unit"
                    if unit.is_zero and not is_last:
                        reason += f", but the queue continues in {queue.files[number + 1][1].name}"
                    yield WalkEnd(str(path), position, reason, damage, start + position)
                    break
                yield WalkedUnit(queue, queue_index, unit)
                position += QUEUE_UNIT_BYTES
            else:
                if position < len(view):
                    left = len(view) - position
                    reason = f"{left} bytes are left, less than a unit"
                    yield WalkEnd(str(path), position, reason, True, start + position)
