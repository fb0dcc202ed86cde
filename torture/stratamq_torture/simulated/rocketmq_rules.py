"""What RocketMQ 4.9.8 makes of a directory: its recovery rules as a small model.

Of the log: the normal rule begins at the third-last file, the abnormal one at the file that the
checkpoint names; frames are checked without a look at PHYSICALOFFSET, and the first that fails is
the end (spec 2.7, 9.3, 9.4). Older files stay as they are.

Of the queues: units up to the first invalid one count, then units at or beyond the log's end are
dropped, and what was found by an abnormal recovery or is behind the newest unit is dispatched
again, as spec 6.4 appends it: what the queue has by its own end is skipped, a gap is not noticed.
Everything happens in memory; nothing is changed.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from stratamq.formats.checkpoint import Checkpoint
from stratamq.formats.frame import Frame, decode
from stratamq.formats.frame_check import FrameOutcome, check
from stratamq.formats.frame_layout import BLANK, MAGIC_BLANK, MAGIC_V1, MAGIC_V2
from stratamq.formats.queue_unit import (
    QUEUE_UNIT,
    QUEUE_UNIT_BYTES,
    QueueUnit,
)
from stratamq.formats.sysflag import host_bytes, is_in_queue

LOOKED_AT = 3
"""Files at the end of a family that a normal recovery reads."""

QueueKey = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Store:
    """A directory as bytes: segments by their start, queue files by queue and start."""

    segments: Mapping[int, bytes]
    queues: Mapping[QueueKey, Mapping[int, bytes]]
    checkpoint: Checkpoint
    unclean: bool


@dataclass(slots=True)
class Opened:
    """What RocketMQ would serve. `frames` by place, those in older files included."""

    frames: dict[int, bytes]
    end: int
    queues: dict[QueueKey, "Queue"]
    dirty: bool
    """Something is left behind the end, which RocketMQ does not zero."""


def open_store(store: Store, queue_file_bytes: int) -> Opened:
    """Open like RocketMQ's `load`, `recover` and `start`."""
    bases = sorted(store.segments)
    if not bases:
        return Opened({}, 0, {}, dirty=False)
    queues = {key: Queue(dict(files), queue_file_bytes) for key, files in store.queues.items()}
    for queue in queues.values():
        queue.recover()
    newest = max([queue.end_offset for queue in queues.values()], default=-1)
    first = _first_segment(store, bases)
    walked: list[tuple[int, bytes]] = []
    end = bases[first]
    for base in bases[first:]:
        data = store.segments[base]
        good, size, ended = _walk(data)
        walked += [(base + at, data[at : at + length]) for at, length in good]
        end = base + size
        if not ended:
            break
    frames = {
        base + at: store.segments[base][at : at + length]
        for base in bases[:first]
        for at, length in _chain(store.segments[base])
    }
    frames.update(walked)
    opened = Opened(frames, end, queues, _is_dirty(store, end))
    if store.unclean:
        for _, raw in walked:
            _dispatch(opened, raw, queue_file_bytes)
        newest = max([queue.end_offset for queue in queues.values()], default=-1)
    if newest >= end:
        for queue in queues.values():
            queue.truncate(end)
    begin = max([bases[0], *(queue.end_offset for queue in queues.values())])
    for offset in sorted(frames):
        if offset >= begin:
            _dispatch(opened, frames[offset], queue_file_bytes)
    return opened


def _first_segment(store: Store, bases: list[int]) -> int:
    """The index of the file where recovery begins to look."""
    if not store.unclean:
        return max(0, len(bases) - LOOKED_AT)
    limit_ms = store.checkpoint.min_timestamp_ms
    for index in range(len(bases) - 1, -1, -1):
        data = store.segments[bases[index]]
        _, magic = BLANK.unpack_from(data)
        if magic == MAGIC_V1:
            at = 48 + host_bytes(int.from_bytes(data[36:40], "big"))[0]
            stamp_ms = int.from_bytes(data[at : at + 8], "big", signed=True)
            if 0 != stamp_ms <= limit_ms:
                return index
    return 0


def _walk(data: bytes) -> tuple[list[tuple[int, int]], int, bool]:
    """Good frames of one file, the bytes they take, and whether the next file is looked at."""
    good: list[tuple[int, int]] = []
    at = 0
    while at < len(data):
        outcome, size = check(data, at)
        if outcome is FrameOutcome.BLANK:
            return good, at, True
        if outcome is not FrameOutcome.GOOD:
            return good, at, False
        good.append((at, size))
        at += size
    return good, at, True


def _chain(data: bytes) -> Iterator[tuple[int, int]]:
    """Whatever the lengths lead to, in a file that recovery does not look at."""
    at = 0
    while at + BLANK.size <= len(data):
        size, magic = BLANK.unpack_from(data, at)
        if magic == MAGIC_BLANK or magic not in (MAGIC_V1, MAGIC_V2) or size <= 0:
            return
        yield at, size
        at += size


def _is_dirty(store: Store, end: int) -> bool:
    return any(
        data[max(0, end - base) :].strip(b"\0")
        for base, data in store.segments.items()
        if base + len(data) > end
    )


def _dispatch(opened: Opened, raw: bytes, queue_file_bytes: int) -> None:
    frame = decode(raw, verify_body=False)
    if not isinstance(frame, Frame) or not is_in_queue(frame.sys_flag):
        return
    key = frame.topic, frame.queue_id
    queue = opened.queues.get(key)
    if queue is None:
        queue = opened.queues[key] = Queue({}, queue_file_bytes)
    queue.put(frame.physical_offset, frame.total_size, frame.queue_offset)


@dataclass(slots=True)
class Queue:
    """One consume queue. `files` by start; `end_offset` is maxPhysicOffset, `wrote` the place in
    the queue, in bytes, where the next unit goes."""

    files: dict[int, bytes]
    file_bytes: int
    end_offset: int = -1
    wrote: int = 0
    poisoned: bool = False
    """RocketMQ's own flaws: a last file without a unit is given a zero unit when it is cut (spec
    6.7), and a queue that ends in pre-blank units believes to reach to 2 GiB."""
    _units: dict[int, QueueUnit] = field(default_factory=dict)

    def unit(self, index: int) -> QueueUnit | None:
        return self._units.get(index)

    def units(self) -> list[QueueUnit]:
        """In order."""
        return [self._units[index] for index in sorted(self._units)]

    @property
    def end_index(self) -> int:
        return self.wrote // QUEUE_UNIT_BYTES

    def recover(self) -> None:
        """Spec 6.7: of the last three files, units up to the first invalid one."""
        bases = sorted(self.files)
        first = max(0, len(bases) - LOOKED_AT)
        for base in bases[:first]:
            self._take(base, self.file_bytes)
            self.wrote = base + self.file_bytes
        for base in bases[first:]:
            valid = self._valid_bytes(base)
            self._take(base, valid)
            self.wrote = base + valid
            if valid < self.file_bytes:
                break
            self.poisoned |= base + valid != bases[-1] + self.file_bytes and not valid
        looked_at = [unit for index, unit in self._units.items()]
        if looked_at:
            last = self._units[max(self._units)]
            self.end_offset = last.physical_offset + last.size
            self.poisoned |= last.is_pre_blank

    def _valid_bytes(self, base: int) -> int:
        at = 0
        for fields in QUEUE_UNIT.iter_unpack(self.files[base]):
            if not QueueUnit(*fields).is_valid:
                break
            at += QUEUE_UNIT_BYTES
        return at

    def _take(self, base: int, size: int) -> None:
        for at in range(0, size, QUEUE_UNIT_BYTES):
            unit = QueueUnit(*QUEUE_UNIT.unpack_from(self.files[base], at))
            self._units[(base + at) // QUEUE_UNIT_BYTES] = unit

    def truncate(self, end: int) -> None:
        """Spec 6.7: drop what points at or beyond the log's end."""
        self.end_offset = end
        for base in sorted(self.files, reverse=True):
            first = QueueUnit(*QUEUE_UNIT.unpack_from(self.files[base]))
            if first.physical_offset >= end:
                self._drop_from(base // QUEUE_UNIT_BYTES)
                del self.files[base]
                self.wrote = base
                continue
            self.poisoned |= not first.is_valid
            index = base // QUEUE_UNIT_BYTES
            self.end_offset = first.physical_offset + first.size
            while (unit := self._units.get(index)) is not None and unit.physical_offset < end:
                self.end_offset = unit.physical_offset + unit.size
                index += 1
            self._drop_from(index)
            self.wrote = index * QUEUE_UNIT_BYTES
            return

    def _drop_from(self, index: int) -> None:
        for each in [each for each in self._units if each >= index]:
            del self._units[each]

    def put(self, physical_offset: int, size: int, queue_offset: int) -> None:
        """Spec 6.4. The tag code is of no interest here."""
        if physical_offset + size <= self.end_offset:
            return
        expected = queue_offset * QUEUE_UNIT_BYTES
        if not self.files:
            self.wrote = expected
        if queue_offset and expected < self.wrote:
            return
        self.end_offset = physical_offset + size
        base = self.wrote - self.wrote % self.file_bytes
        raw = bytearray(self.files.get(base, bytes(self.file_bytes)))
        QUEUE_UNIT.pack_into(raw, self.wrote - base, physical_offset, size, 0)
        self.files[base] = bytes(raw)
        self._units[self.end_index] = QueueUnit(physical_offset, size, 0)
        self.wrote += QUEUE_UNIT_BYTES
