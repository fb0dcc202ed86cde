"""Where a consume queue ends on disk, found in two ways.

*Trusted*: our watermark stands. Everything below it is right and synced, what is behind it is not
known; the end is found by bisection, and the last unit must follow upon the one before it.
*Untrusted*: files of RocketMQ, or of a history that the log does not know. Only what is below the
log's minimum counts (the log cannot give it again), as far as it is a chain of valid units; the
rest is compared with the log.
"""

from collections.abc import Callable

from stratamq.errors import CorruptionError
from stratamq.formats.queue_unit import QUEUE_UNIT, QUEUE_UNIT_BYTES, QueueUnit
from stratamq.formats.queue_units import decode_units, ordered_prefix, pre_blank_units
from stratamq_dispatcher.consume_queue import ERASE_ALL, NO_MESSAGE, ConsumeQueue
from stratamq_dispatcher.queue_files import OpenFiles

_FIRST_PIECE_UNITS = 204
"""One page: most queues of a broker with many of them end in it."""
_LARGEST_PIECE_UNITS = 1 << 16

Range = tuple[int, int]
"""First unit of the first file, unit behind the last file."""


def open_trusted(
    queue: ConsumeQueue, files: Range, open_files: OpenFiles, position: int, erase: int
) -> None:
    """Set the queue's ends to what the log's first `position` bytes gave.

    Raises CorruptionError or OSError when the files do not agree with the watermark.
    """
    first, behind = files
    reader = _Reader(queue, open_files)
    units_per_file = queue.geometry.units_per_file
    start = first
    for start in range(behind - units_per_file, first, -units_per_file):
        if _is_below(reader.unit(start), position):
            break
    else:
        start = first
    end = reader.end_of_prefix(start, lambda unit: _is_below(unit, position))
    first_index = reader.end_of_prefix(first, lambda unit: unit.is_pre_blank)
    queue.first_unit = first
    queue.first_index = min(first_index, end)
    _set_end(queue, end, erase)
    if end > first_index:
        begins = reader.unit(first_index)
        if not begins.is_valid:
            # The units were looked for from behind.
            raise CorruptionError(
                f"{queue.directory}: unit {first_index} is none",
                queue.directory,
                first_index * QUEUE_UNIT_BYTES,
            )
        last = reader.unit(end - 1)
        before = reader.unit(end - 2) if end - 1 > first_index else None
        queue.end_offset = last.physical_offset + last.size
        follows = before is None or before.physical_offset + before.size <= last.physical_offset
        if queue.end_offset > position or not follows or last.is_pre_blank:
            raise CorruptionError(
                f"{queue.directory}: unit {end - 1} does not follow upon the one before it",
                queue.directory,
                (end - 1) * QUEUE_UNIT_BYTES,
            )
        # Where it begins and its last unit stay in memory: who lists queues opens no file.
        queue.learn_first(first_index, begins.physical_offset)
        queue.tail += reader.raw(end - 1)
        queue.tail_start = end - 1


def open_untrusted(queue: ConsumeQueue, files: Range, open_files: OpenFiles, below: int) -> None:
    """Set the queue's ends to the chain of valid units of messages below the log offset `below`."""
    first, behind = files
    reader = _Reader(queue, open_files)
    queue.first_unit = first
    index, after, blanks = first, NO_MESSAGE, True
    queue.first_index = first
    piece_units = _FIRST_PIECE_UNITS
    while index < behind:
        units = decode_units(reader.piece(index, piece_units))
        if not len(units):
            break
        if blanks:
            leading = pre_blank_units(units)
            count = len(units) if leading.all() else int(leading.argmin())
            index += count
            queue.first_index = index
            blanks = count == len(units)
            units = units[count:]
        if len(units):
            count = ordered_prefix(units, below, after)
            if count:
                index += count
                last = units[count - 1]
                after = int(last["physical_offset"]) + int(last["size"])
            if count < len(units):
                break
        piece_units = min(piece_units * 4, _LARGEST_PIECE_UNITS)
    _set_end(queue, index, ERASE_ALL)
    queue.end_offset = after


def _set_end(queue: ConsumeQueue, end: int, erase: int) -> None:
    queue.end = queue.written = queue.tail_start = end
    queue.end_offset = NO_MESSAGE
    queue.erase = erase


def _is_below(unit: QueueUnit, position: int) -> bool:
    return unit.is_valid and (unit.is_pre_blank or unit.physical_offset < position)


class _Reader:
    """Units of one queue's files, whatever the queue believes to end where. The page that was read
    last stays: most queues are in one."""

    def __init__(self, queue: ConsumeQueue, open_files: OpenFiles) -> None:
        self._queue = queue
        self._open_files = open_files
        self._page = b""
        self._page_start = 0

    def raw(self, index: int) -> bytes:
        at = (index - self._page_start) * QUEUE_UNIT_BYTES
        if not 0 <= at < len(self._page):
            return self.piece(index, 1)
        return self._page[at : at + QUEUE_UNIT_BYTES]

    def unit(self, index: int) -> QueueUnit:
        data = self.raw(index)
        if len(data) != QUEUE_UNIT_BYTES:
            directory = self._queue.directory
            raise CorruptionError(f"{directory}: unit {index} is missing", directory)
        return QueueUnit(*QUEUE_UNIT.unpack(data))

    def piece(self, index: int, count: int) -> bytes:
        """Up to `count` units of the file that holds `index`."""
        geometry = self._queue.geometry
        count = min(count, geometry.file_of(index) + geometry.units_per_file - index)
        file = self._open_files.get(geometry.path(self._queue.directory, index))
        return file.read(geometry.position(index), count * QUEUE_UNIT_BYTES)

    def end_of_prefix(self, start: int, good: Callable[[QueueUnit], bool]) -> int:
        """The first index of the file from `start` that is not `good`; good ones come first."""
        geometry = self._queue.geometry
        low, high = start, geometry.file_of(start) + geometry.units_per_file
        count = self._turn_to(start)
        if not count or not good(self.unit(start)):
            return start
        if good(self.unit(start + count - 1)):
            low = start + count
        else:
            high = start + count - 1
        while low < high:
            middle = (low + high) // 2
            if good(self.unit(middle)):
                low = middle + 1
            else:
                high = middle
        return low

    def _turn_to(self, index: int) -> int:
        """Have the page from `index` on; how many units it holds."""
        if not self._page or self._page_start != index:
            self._page, self._page_start = self.piece(index, _FIRST_PIECE_UNITS), index
        return len(self._page) // QUEUE_UNIT_BYTES
