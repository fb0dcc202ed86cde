"""Where single queues' messages lie in the log: by the consume queue files that can be trusted.

A consume queue may be missing, behind, or of another log. A unit is believed only when the frame
that it points to is this message; otherwise nothing is narrowed, and what is not
wanted is read and left out. If RocketMQ restarted a queue after its topic was deleted, the
units lead to the new messages, as they do consumers.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from stratamq.errors import CorruptRecordError
from stratamq.formats.file_names import offset_name, parse_offset_name
from stratamq.formats.frame import Frame, decode
from stratamq.formats.queue_paths import can_be_directory, queue_directory
from stratamq.formats.queue_unit import QUEUE_UNIT_BYTES, QueueUnit, decode_queue_unit
from stratamq.table.log_files import LogFiles
from stratamq.table.selection import FOREVER, Queue, Selection

_LARGEST_FRAME_BYTES = 64 << 20


def narrowed_by_units(log: LogFiles, selection: Selection) -> tuple[int, int]:
    """Log offsets outside of which no wanted message of a single queue begins.

    Narrows only when the selection names all its queues, each with offsets that begin or end
    within what its units show.
    """
    low, high = log.minimum, log.end
    ranges = list(_ranges(selection))
    if log.root is None or not ranges:
        return low, high
    lows, highs = [], []
    for queue, begin, end in ranges:
        if begin >= end:
            continue
        lows.append(_place(log, queue, begin) if begin > 0 else None)
        highs.append(_place(log, queue, end) if end < FOREVER else None)
    if lows and None not in lows:
        low = max(low, min(at for at in lows if at is not None))
    if highs and None not in highs:
        high = min(high, max(at for at in highs if at is not None))
    return low, max(low, high)


def _ranges(selection: Selection) -> Iterator[tuple[Queue, int, int]]:
    """Each wanted queue with its offsets; nothing when the queues are not all named."""
    if selection.topics is None or selection.queues is None:
        return
    begin, end = selection.all_offsets or (0, FOREVER)
    for topic in selection.topics:
        for queue_id in selection.queues:
            its = selection.offsets.get((topic, queue_id), (0, FOREVER))
            yield (topic, queue_id), max(begin, its[0]), min(end, its[1])


def _place(log: LogFiles, queue: Queue, index: int) -> int | None:
    """The log offset of message `index` of a queue; None: no valid unit has it."""
    unit = _unit(log, queue, index)
    if unit is None or not unit.is_valid or unit.is_pre_blank:
        return None
    offset, size = int(unit.physical_offset), unit.size
    if not log.minimum <= offset < log.end or size > _LARGEST_FRAME_BYTES:
        return None
    segment = next(one for one in log.segments if one.start <= offset < one.end)
    with open(segment.path, "rb", buffering=0) as file:
        raw = os.pread(file.fileno(), size, offset - segment.start)
    try:
        frame = decode(raw)
    except CorruptRecordError:
        return None
    if not isinstance(frame, Frame) or frame.total_size != size:
        return None
    found = (frame.topic, frame.queue_id, frame.queue_offset, frame.physical_offset)
    return offset if found == (*queue, index, offset) else None


def _unit(log: LogFiles, queue: Queue, index: int) -> QueueUnit | None:
    topic, queue_id = queue
    if log.root is None or not can_be_directory(topic):
        return None
    directory = Path(log.root) / queue_directory(topic, queue_id)
    if not directory.is_dir():
        return None
    wanted = index * QUEUE_UNIT_BYTES
    starts = sorted(
        start
        for entry in directory.iterdir()
        if (start := parse_offset_name(entry.name)) is not None and start <= wanted
    )
    if not starts:
        return None
    path = directory / offset_name(starts[-1])
    with open(path, "rb", buffering=0) as file:
        return decode_queue_unit(os.pread(file.fileno(), QUEUE_UNIT_BYTES, wanted - starts[-1]))
