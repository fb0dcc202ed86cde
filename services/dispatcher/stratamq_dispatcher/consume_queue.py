"""One consume queue: its end in memory, the rest in files of 20-byte units.

    first_unit            first_index          written               end
        │ pre-blank units │ units in files     │ units in the tail   │ erased at the next flush …
        └ start of its first file              └ the tail may begin earlier: a small cache

Everything here is memory and reading. A flush takes `unwritten()` away, writes it beside the engine
(`queue_writer`), and `wrote()` brings the news back. `version` shows whether the queue was cut in
between: then what was written is not used.
"""

from dataclasses import dataclass
from typing import Protocol

from stratamq.errors import CorruptionError
from stratamq.formats.queue_growth import NO_MESSAGE, Growth, grow
from stratamq.formats.queue_paths import QueueGeometry, queue_directory
from stratamq.formats.queue_unit import QUEUE_UNIT, QUEUE_UNIT_BYTES, QueueUnit
from stratamq.formats.queue_units import UnitRun, decode_units
from stratamq_dispatcher.queue_files import OpenFiles

CACHED_UNITS = 64
"""Written units that stay in memory: consumers near the end cost no system call."""
SAMPLED_UNITS = 4
ERASE_ALL = 1 << 62


class UnitSource(Protocol):
    """What reading needs: a queue, or a snapshot of one."""

    directory: str
    geometry: QueueGeometry
    end: int
    tail_start: int

    @property
    def tail(self) -> bytes | bytearray: ...


def read_units(source: UnitSource, open_files: OpenFiles, index: int, count: int) -> bytes:
    """Up to `count` units from `index`, none beyond the queue's end or of the next file.

    Empty when the file is not there. Other errors of the disk come through as OSError.
    """
    geometry = source.geometry
    stop = min(index + count, geometry.file_of(index) + geometry.units_per_file)
    if index >= stop:
        return b""
    start = source.tail_start  # what is in memory ends with the queue
    if index >= start:
        begin = (index - start) * QUEUE_UNIT_BYTES
        return bytes(source.tail[begin : (stop - start) * QUEUE_UNIT_BYTES])
    in_file = min(stop, start)
    try:
        file = open_files.get(geometry.path(source.directory, index))
    except FileNotFoundError:
        return b""
    wanted = (in_file - index) * QUEUE_UNIT_BYTES
    data = file.read(geometry.position(index), wanted)
    if stop > in_file and len(data) == wanted:
        data += source.tail[: (stop - start) * QUEUE_UNIT_BYTES]
    return data


def unit_at(source: UnitSource, open_files: OpenFiles, index: int) -> QueueUnit:
    """CorruptionError when the unit is not where it must be, or is none."""
    try:
        data = read_units(source, open_files, index, 1)
    except OSError as error:
        raise _damaged(source, index, f"cannot be read: {error.strerror}") from error
    if len(data) < QUEUE_UNIT_BYTES:
        raise _damaged(source, index, "is missing")
    unit = QueueUnit(*QUEUE_UNIT.unpack(data))
    if not unit.is_valid:
        raise _damaged(source, index, "is no unit")
    return unit


def first_at_or_above(
    source: UnitSource, open_files: OpenFiles, offset: int, low: int, high: int
) -> int:
    """The first index in [low, high) whose message begins at or above `offset`; else `high`."""
    while low < high:
        middle = (low + high) // 2
        if unit_at(source, open_files, middle).physical_offset < offset:
            low = middle + 1
        else:
            high = middle
    return low


def first_message(
    source: UnitSource, open_files: OpenFiles, minimum_offset: int, low: int
) -> tuple[int, int]:
    """The first message from index `low` on that is at or above a log offset: its index and its
    log offset. There must be one."""
    index, unit = low, unit_at(source, open_files, low)
    if unit.physical_offset < minimum_offset:
        index = first_at_or_above(source, open_files, minimum_offset, low + 1, source.end)
        unit = unit_at(source, open_files, index)
    return index, unit.physical_offset


def _damaged(source: UnitSource, index: int, what: str) -> CorruptionError:
    position = source.geometry.position(index)
    path = source.geometry.path(source.directory, index)
    return CorruptionError(f"{path}: unit {index} {what}", path, position)


@dataclass(frozen=True, slots=True)
class QueueSnapshot:
    """A queue as it is now, for readers in another thread."""

    directory: str
    geometry: QueueGeometry
    minimum: int
    end: int
    tail_start: int
    tail: bytes


@dataclass(frozen=True, slots=True)
class WentBack:
    """The log gave queue offsets again: from `end` back to `first`, at `physical_offset`."""

    topic: str
    queue_id: int
    end: int
    first: int
    physical_offset: int


@dataclass(frozen=True, slots=True)
class QueueSample:
    """About so many messages of a queue are in the log; `count` of them have `size` bytes."""

    messages: int
    count: int
    size: int


class ConsumeQueue:
    """State of one queue. All methods belong to the engine's thread."""

    __slots__ = (
        "_least_index",
        "_least_offset",
        "directory",
        "end",
        "end_offset",
        "erase",
        "fill_from",
        "first_index",
        "first_unit",
        "floor",
        "geometry",
        "newest_ms",
        "queue_id",
        "tail",
        "tail_start",
        "topic",
        "version",
        "written",
    )

    def __init__(self, topic: str, queue_id: int, geometry: QueueGeometry) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.directory = queue_directory(topic, queue_id)
        self.geometry = geometry
        self.first_unit = 0
        self.first_index = 0
        """Index of the first message, the pre-blank units behind; `end` when there is none."""
        self.end = 0
        self.written = 0
        self.end_offset = NO_MESSAGE
        """Where the last message's frame ends in the log: the dedupe mark of spec 6.4."""
        self.newest_ms = NO_MESSAGE
        """Store time of the last message; unknown after a start."""
        self.erase = 0
        """Files may hold so many units beyond `end` that are not ours: zeroed by the next flush."""
        self.fill_from = NO_MESSAGE
        """Where pre-blank units must begin when the first unit is written."""
        self.floor = 0
        """Consumers get nothing below this index, whatever the log holds."""
        self.version = 0
        self.tail = bytearray()
        self.tail_start = 0
        self._least_offset = NO_MESSAGE
        self._least_index = 0
        """A message that was the first one the log had, and its log offset: it is, until the log's
        minimum has passed that. Unknown with NO_MESSAGE."""

    # --- what is there ---

    @property
    def has_messages(self) -> bool:
        return self.end_offset != NO_MESSAGE

    @property
    def unwritten_bytes(self) -> int:
        return (self.end - self.written) * QUEUE_UNIT_BYTES

    def minimum(self, open_files: OpenFiles, minimum_offset: int) -> int:
        """Index of the first message that consumers get; `end` if there is none."""
        return max(self.retained(open_files, minimum_offset), self.hidden_below)

    def known_minimum(self, minimum_offset: int) -> int | None:
        """`minimum` without reading; None when the files must be looked at."""
        retained = self._known_retained(minimum_offset)
        return None if retained is None else max(retained, self.hidden_below)

    @property
    def hidden_below(self) -> int:
        """`floor`, as far as the queue reaches."""
        return min(self.floor, self.end)

    def retained(self, open_files: OpenFiles, minimum_offset: int) -> int:
        """Index of the first message at or above the log's minimum; `end` if all are below.

        Spec 6.5 with 5.x's rule, so that a queue whose messages are gone keeps its offset. Reads
        the files when it is not known. Raises CorruptionError.
        """
        known = self._known_retained(minimum_offset)
        if known is not None:
            return known
        found = first_message(self, open_files, minimum_offset, self.lowest)
        self.learn_first(*found)
        return found[0]

    def _known_retained(self, minimum_offset: int) -> int | None:
        if not self.has_messages or self.end_offset <= minimum_offset:
            return self.end
        return self._least_index if self._least_offset >= minimum_offset else None

    def sample(self, minimum_offset: int) -> "QueueSample":
        """What the log has of the queue, by what is in memory: where the first message is not
        known, messages count as evenly spread, and their sizes are those of some of the newest."""
        begin, end = self._known_retained(minimum_offset), self.end
        if begin is None:
            begin = self.lowest
            if self._least_offset != NO_MESSAGE:
                gone = minimum_offset - self._least_offset
                begin += (end - begin) * gone // (self.end_offset - self._least_offset)
        step = max(1, (end - self.tail_start) // SAMPLED_UNITS) * QUEUE_UNIT_BYTES
        sizes = [
            QUEUE_UNIT.unpack_from(self.tail, position)[1]
            for position in range(0, len(self.tail), step)
        ]
        return QueueSample(end - begin, len(sizes), sum(sizes))

    @property
    def lowest(self) -> int:
        """No message before this index is in the log any more."""
        return max(self.first_index, self._least_index)

    def learn_first(self, index: int, offset: int) -> None:
        """The first message that the log has: its index, and its log offset."""
        self._least_index, self._least_offset = index, offset

    def snapshot(self, minimum: int) -> QueueSnapshot:
        """For readers that want nothing before the index `minimum`."""
        return QueueSnapshot(
            self.directory,
            self.geometry,
            minimum,
            self.end,
            self.tail_start,
            bytes(self.tail),
        )

    def snapshot_of(self, index: int) -> QueueSnapshot:
        """For a reader in another thread that wants the unit at `index` alone: the tail, which may
        have megabytes while it cannot be written, is not copied."""
        if index < self.tail_start:
            start, unit = index + 1, b""
        else:
            at = (index - self.tail_start) * QUEUE_UNIT_BYTES
            start, unit = index, bytes(self.tail[at : at + QUEUE_UNIT_BYTES])
        return QueueSnapshot(self.directory, self.geometry, index, index + 1, start, unit)

    # --- growing ---

    def append(self, run: UnitRun, minimum_offset: int) -> WentBack | None:
        """Add a run's units to the tail, leaving out those that are there already.

        The answer is what to report when the log's queue offsets went back: the newer messages win,
        as in a RocketMQ that went on after its topic had been deleted. A queue without messages, or
        whose messages are all below the log's minimum, starts wherever the run does. Any other gap
        raises CorruptionError: a unit is never put where it does not belong.
        """
        step = grow(run, self.end, self.end_offset, minimum_offset)
        first = step.first
        report = None
        if step.growth is Growth.NOTHING:
            return None
        alone = self.end_offset <= minimum_offset
        """None of the messages before them is in the log."""
        if step.growth is Growth.BEGINS:
            self.begin(first)
        elif step.growth is Growth.WENT_BACK:
            report = WentBack(self.topic, self.queue_id, self.end, first, run.first_physical_offset)
            if first > self.first_index:
                self.cut_index(first, NO_MESSAGE)
            else:
                self.begin(first)
        if alone:
            self.learn_first(first, QUEUE_UNIT.unpack_from(step.units)[0])
        self.tail += step.units
        self.end = run.first_queue_offset + run.count
        self.end_offset = run.end_offset
        self.newest_ms = run.newest_store_timestamp_ms
        return report

    def begin(self, first: int) -> None:
        """Start the queue again at `first`: nothing before it is a message of this queue."""
        file_start = self.geometry.file_of(first)
        self.first_unit = file_start
        self.fill_from = file_start if first > file_start else NO_MESSAGE
        self.first_index = self.end = self.written = self.tail_start = first
        self.tail.clear()
        self.end_offset = self.newest_ms = NO_MESSAGE
        self.erase = ERASE_ALL
        self.version += 1
        self.learn_first(0, NO_MESSAGE)

    # --- shrinking ---

    def cut(self, open_files: OpenFiles, offset: int) -> bool:
        """Drop the units of messages at or above a log offset. True when there were any."""
        if self.end_offset <= offset:
            return False
        keep = first_at_or_above(self, open_files, offset, self.first_index, self.end)
        if keep == self.first_index:
            self.cut_index(keep, NO_MESSAGE)
        else:
            last = unit_at(self, open_files, keep - 1)
            self.cut_index(keep, last.physical_offset + last.size)
        return True

    def cut_index(self, index: int, end_offset: int) -> None:
        """Drop the units from `index` on; what is left ends at `end_offset` in the log."""
        self.end = index
        self.end_offset = end_offset
        self.newest_ms = NO_MESSAGE
        if index < self.written:
            self.written = index
        if index < self.tail_start:
            self.tail.clear()
            self.tail_start = index
        else:
            del self.tail[(index - self.tail_start) * QUEUE_UNIT_BYTES :]
        self.erase = ERASE_ALL
        self.version += 1
        if index <= self._least_index:
            self.learn_first(0, NO_MESSAGE)

    # --- flushing ---

    def unwritten(self, below: int | None = None) -> bytes:
        """Units that are only in memory; with `below` only those of messages that end there."""
        data = bytes(self.tail[(self.written - self.tail_start) * QUEUE_UNIT_BYTES :])
        if below is not None and self.end_offset > below:
            rows = decode_units(data)
            ends = rows["physical_offset"].astype("i8") + rows["size"]
            data = data[: int(ends.searchsorted(below, "right")) * QUEUE_UNIT_BYTES]
        return data

    def wrote(self, version: int, upto: int, *, erased: bool) -> None:
        """Units below `upto` are in the files, unless the queue was cut since `version`."""
        if version != self.version:
            return
        if erased:
            self.erase = 0
        self.written = upto
        if upto > self.first_index:
            self.fill_from = NO_MESSAGE
        spare = upto - CACHED_UNITS - self.tail_start
        if spare > 0:
            del self.tail[: spare * QUEUE_UNIT_BYTES]
            self.tail_start += spare
