"""Walks the frames of the log from a good place to where it ends, in private memory.

Each chunk is read once by `pread`, judged as columns, and the first place that is not plainly good
is judged again by itself, so that the table of `recovery_cases` has the last word. What was
accepted can be written back from the same bytes: after a failed or interrupted flush the cache may
show what the disk does not have.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from stratamq.errors import CorruptRecordError
from stratamq.files.port import SECTOR_BYTES, File
from stratamq.formats.checksums import crc32_of_each
from stratamq.formats.columns import FrameColumns, body_checksums_hold, frame_columns
from stratamq.formats.frame_check import FrameOutcome, check
from stratamq.formats.frame_layout import BLANK
from stratamq.formats.frame_scan import ScanEnd, scan_frames
from stratamq.formats.frame_verify import NOWHERE, record_checksums
from stratamq.formats.property_crc import PROPERTY_CRC_BYTES, check_property_crc
from stratamq.formats.sysflag import TRANSACTION_COMMIT, TRANSACTION_MASK, TRANSACTION_NONE
from stratamq.formats.text import decode_text
from stratamq.formats.text_groups import group_texts
from stratamq.formats.topics import SCHEDULE_TOPIC
from stratamq.store.queue_snapshot import QueueTable
from stratamq_commitlog.recovery.recovery_cases import WalkCase, WalkFacts, judge

MIN_CHUNK_BYTES, MAX_CHUNK_BYTES = 256 << 10, 4 << 20
CHUNK_FRAMES = 2048
"""About so many are judged together: enough to make up for what a chunk costs whatever it holds,
and few enough for their columns to stay in a core's cache."""
_SCHEDULE = SCHEDULE_TOPIC.encode()
_FREED_BYTES = 16 << 20
"""The C library's allocator gives freed memory back at once, and faults it in again for the next
chunk (a sixth of the walk), until it has seen a block as large as this come and go."""


@dataclass(slots=True)
class Walked:
    """What a walk has learnt so far; `end` is where it stands."""

    end: int
    queues: QueueTable
    last_frame: tuple[int, int] | None = None
    """(offset, size) of the last accepted frame."""
    store_timestamp_ms: int = 0
    frames: int = 0
    queue_jumps: int = 0
    """QUEUEOFFSETs that were not the next: RocketMQ restarts queues when a topic is deleted."""
    version2_frames: int = 0
    firsts: QueueTable | None = None
    """The first QUEUEOFFSET of each queue that was met; None: not requested."""


@dataclass(frozen=True, slots=True)
class Strictness:
    """What a walk checks beside lengths, magic and place.

    `durable` is our last durable position: above it half-written records and queue offsets of a
    lost history count as the end; None: the directory is not ours, and what RocketMQ would keep is
    kept. `known` are the queues of the snapshot.
    """

    verify_bodies: bool = True
    durable: int | None = None
    sealed_from: int = NOWHERE
    """Above `durable`, every record from here on has a checksum of its own."""
    known: frozenset[tuple[str, int]] = field(default_factory=frozenset)


SURVEYED = Strictness(verify_bodies=False)
"""How older segments are read, for their queues alone."""


class SegmentWalk:
    """One segment. `step` takes one chunk and answers the case that ended it, or None to go on."""

    def __init__(
        self, file: File, base: int, walked: Walked, strictness: Strictness, next_exists: bool
    ) -> None:
        self._file = file
        self._base = base
        self._walked = walked
        self._strict = strictness
        self._next_exists = next_exists
        self._chunk_bytes = MIN_CHUNK_BYTES
        bytearray(_FREED_BYTES)

    def step(self, rewrite: Callable[[int, bytes], None] | None = None) -> WalkCase | None:
        """Judge one chunk. `rewrite(position, bytes)` gets what was accepted, as it was read."""
        walked = self._walked
        position = walked.end - self._base
        left = self._file.size - position
        if left < BLANK.size:
            if left:
                # No writer leaves less than a blank needs; RocketMQ's reader stops here as well.
                return WalkCase.END_TORN
            return WalkCase.NEXT_SEGMENT if self._next_exists else WalkCase.END_SEGMENT
        data = self._file.read(position, min(left, self._chunk_bytes))
        scan = scan_frames(data)
        if scan.stop is ScanEnd.WITHIN and not scan.end and len(data) < scan.size <= left:
            data = self._file.read(position, scan.size)
            scan = scan_frames(data)
        accepted = self._accept(data, scan.sizes)
        taken = int(scan.sizes[:accepted].sum())
        if rewrite is not None and taken:
            rewrite(position, data[:taken])
        walked.end += taken
        if accepted:
            wanted = taken // accepted * CHUNK_FRAMES
            self._chunk_bytes = min(max(MIN_CHUNK_BYTES, wanted), MAX_CHUNK_BYTES)
        if accepted == len(scan.sizes) and scan.stop in (ScanEnd.END, ScanEnd.WITHIN) and taken:
            return None
        case = self._judge_one(data, taken, left)
        if rewrite is not None and case is WalkCase.NEXT_SEGMENT:
            rewrite(position + taken, data[taken : taken + BLANK.size])
        return case

    def _accept(self, data: bytes, lengths: NDArray[np.int64]) -> int:
        """How many of the frames are plainly good; the walk's knowledge includes them."""
        if not len(lengths):
            return 0
        raw = np.frombuffer(data, np.uint8)
        base = self._walked.end
        try:
            frames = frame_columns(raw, lengths, base)
        except CorruptRecordError as error:
            number = int(error.fields["frame"])  # type: ignore[call-overload]
            return self._accept(data, lengths[:number])
        good = frames.physical_offset == base + frames.start
        good &= self._records_whole(data, raw, frames, base)
        index, names = group_texts(raw, frames.topic_start, frames.topic_length)
        if _SCHEDULE in names:
            # An unreadable DELAY ends RocketMQ's log; only the scalar check looks at it.
            for row in np.flatnonzero(index == names.index(_SCHEDULE)).tolist():
                good[row] &= check(data, int(frames.start[row])).outcome is FrameOutcome.GOOD
        count = len(frames) if good.all() else int(np.flatnonzero(~good)[0])
        return self._absorb(frames, index, names, count, base)

    def _records_whole(
        self, data: bytes, raw: NDArray[np.uint8], frames: FrameColumns, base: int
    ) -> NDArray[np.bool_]:
        view = memoryview(data)
        ends = frames.start + frames.size
        marked, stated = record_checksums(raw, ends)
        marked &= frames.properties_length >= PROPERTY_CRC_BYTES
        whole = marked | ~self._unsealed(frames.start + base)
        whole &= ~self._zero_tails(raw, frames, base)
        sealed = slice(None) if marked.all() else np.flatnonzero(marked)
        found = crc32_of_each(view, frames.start[sealed], ends[sealed] - PROPERTY_CRC_BYTES)
        whole[sealed] &= found == stated[sealed]
        others = np.flatnonzero(~marked)
        if self._strict.verify_bodies and len(others):
            # The record's checksum covers body and BODYCRC both.
            whole[others] &= body_checksums_hold(view, frames, others)
        if self._strict.durable is not None:
            for row in others[frames.properties_length[others] >= SECTOR_BYTES].tolist():
                start, end = _properties_span(frames, row)
                whole[row] &= not self._zero_sector(data, start, end, base)
        return whole

    def _unsealed(self, offsets: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether a record there cannot be whole without a checksum of its own."""
        strict = self._strict
        if strict.durable is None:
            return np.zeros(len(offsets), np.bool_)
        return offsets >= max(strict.durable, strict.sealed_from)

    def _zero_tails(
        self, raw: NDArray[np.uint8], frames: FrameColumns, base: int
    ) -> NDArray[np.bool_]:
        """Frames above the durable position whose text ends in a zero byte: the disk stopped there.

        No text that is appended here does: properties, or without any the topic.
        """
        durable = self._strict.durable
        if durable is None:
            return np.zeros(len(frames), np.bool_)
        with_properties = frames.properties_length > 0
        last = np.where(
            with_properties,
            frames.start + frames.size - 1,
            frames.topic_start + frames.topic_length - 1,
        )
        text = with_properties | (frames.topic_length > 0)
        return (raw[last] == 0) & text & (base + frames.start >= durable)

    def _zero_sector(self, data: bytes, start: int, end: int, base: int) -> bool:
        """Whether a whole sector of the file within data[start:end] is zero."""
        durable = self._strict.durable
        if durable is None or base + start < durable:
            return False
        shift = (base - self._base) % SECTOR_BYTES
        first = -(-(start + shift) // SECTOR_BYTES) * SECTOR_BYTES - shift
        empty = bytes(SECTOR_BYTES)
        return any(
            data[at : at + SECTOR_BYTES] == empty
            for at in range(first, end - SECTOR_BYTES + 1, SECTOR_BYTES)
        )

    def _absorb(
        self,
        frames: FrameColumns,
        index: NDArray[np.int32],
        names: list[bytes],
        count: int,
        base: int,
    ) -> int:
        """Move the queue table over the first `count` frames; stops at one out of order."""
        if not count:
            return 0
        walked = self._walked
        topics = [decode_text(name) for name in names]
        kinds = frames.sys_flag[:count] & TRANSACTION_MASK
        in_queue = (kinds == TRANSACTION_NONE) | (kinds == TRANSACTION_COMMIT)
        if not _move_on(walked, topics, index[:count], frames, in_queue):
            count = self._absorb_one_by_one(frames, index, topics, in_queue, count, base)
        if count:
            last = count - 1
            walked.last_frame = (base + int(frames.start[last]), int(frames.size[last]))
            newest = int(frames.store_timestamp_ms[:count].max())
            walked.store_timestamp_ms = max(walked.store_timestamp_ms, newest)
            walked.frames += count
            walked.version2_frames += int(frames.version2[:count].sum())
        return count

    def _absorb_one_by_one(
        self,
        frames: FrameColumns,
        index: NDArray[np.int32],
        topics: list[str],
        in_queue: NDArray[np.bool_],
        count: int,
        base: int,
    ) -> int:
        """The same for frames of which some queue offset is not the next."""
        walked, strict = self._walked, self._strict
        queues = walked.queues
        checked = strict.durable is not None
        rows = zip(
            index[:count].tolist(),
            frames.queue_id[:count].tolist(),
            frames.queue_offset[:count].tolist(),
            in_queue.tolist(),
            frames.start[:count].tolist(),
            strict=True,
        )
        for row, (topic_index, queue_id, queue_offset, counted, start) in enumerate(rows):
            if not counted:
                continue
            key = (topics[topic_index], queue_id)
            expected = queues.get(key)
            if expected is not None and expected != queue_offset:
                if checked and key in strict.known and base + start >= (strict.durable or 0):
                    count = row
                    break
                walked.queue_jumps += 1
            queues[key] = queue_offset + 1
            if walked.firsts is not None:
                walked.firsts.setdefault(key, queue_offset)
        return count

    def _judge_one(self, data: bytes, position: int, left: int) -> WalkCase:
        """The case at `position` of the chunk, where the columns stopped."""
        outcome, size = check(data, position, verify_body=self._strict.verify_bodies)
        remaining = left - position
        facts = WalkFacts(outcome)
        if outcome is FrameOutcome.BLANK:
            facts = WalkFacts(outcome, size == remaining, self._next_exists)
        elif outcome is FrameOutcome.GOOD:
            facts = self._facts_of_frame(data, position, size)
        case = judge(facts)
        if case is WalkCase.NEXT_SEGMENT:
            self._walked.end = self._base + self._file.size
        elif case is WalkCase.ACCEPT:
            raise AssertionError(f"columns refuse a good frame at {self._walked.end}")
        return case

    def _facts_of_frame(self, data: bytes, position: int, size: int) -> WalkFacts:
        offset = self._walked.end
        frame = memoryview(data)[position : position + size]
        columns = frame_columns(np.frombuffer(frame, np.uint8), np.array([size], np.uint32))
        in_place = int(columns.physical_offset[0]) == offset
        checksum = check_property_crc(frame)
        if checksum is None and self._unsealed(np.array([offset]))[0]:
            checksum = False
        start, end = _properties_span(columns, 0)
        zero = self._zero_sector(bytes(frame), start, end, offset) or bool(
            self._zero_tails(np.frombuffer(frame, np.uint8), columns, offset)[0]
        )
        # Whatever else is wrong is named first by the table; what is left is the queue's order.
        whole = in_place and checksum is not False and not (checksum is None and zero)
        return WalkFacts(
            FrameOutcome.GOOD,
            in_place=in_place,
            record_checksum=checksum,
            zero_sector=zero,
            queue_in_order=not whole,
        )


def survey(file: File, base: int, walked: Walked) -> WalkCase | None:
    """Read one older segment by its lengths alone, for the queue table; None: to its end.

    Bodies are not verified, as RocketMQ does not look there; where the chain of lengths breaks the
    rest of the segment is passed over, and the case gives the reason.
    """
    walk = SegmentWalk(file, base, walked, SURVEYED, True)
    walked.end = base
    while (case := walk.step()) is None:
        pass
    walked.end = base + file.size
    return None if case is WalkCase.NEXT_SEGMENT else case


def _move_on(
    walked: Walked,
    topics: list[str],
    topic_index: NDArray[np.int32],
    frames: FrameColumns,
    in_queue: NDArray[np.bool_],
) -> bool:
    """Move the queue table over frames whose queue offsets all follow each other and its
    entries. False, and nothing is moved, when one does not."""
    rows = np.flatnonzero(in_queue)
    places = (topic_index[rows].astype(np.int64) << 32) | (
        frames.queue_id[rows].astype(np.int64) & 0xFFFFFFFF
    )
    order = places.argsort(kind="stable")
    places, offsets = places[order], frames.queue_offset[rows][order]
    changes = np.flatnonzero(places[1:] != places[:-1]) + 1
    steps = offsets[1:] - offsets[:-1]
    steps[changes - 1] = 1
    if (steps != 1).any():
        return False
    firsts = np.concatenate(([0], changes)) if len(rows) else changes
    lasts = np.concatenate((changes - 1, [len(rows) - 1])) if len(rows) else changes
    queue_ids = frames.queue_id[rows][order][firsts].tolist()
    keys = [
        (topics[place >> 32], queue_id)
        for place, queue_id in zip(places[firsts].tolist(), queue_ids, strict=True)
    ]
    if len(set(keys)) < len(keys):
        return False  # two names that are not UTF-8 read the same
    begins = dict(zip(keys, offsets[firsts].tolist(), strict=True))
    for key, first in begins.items():
        if walked.queues.get(key, first) != first:
            return False
    walked.queues.update(zip(keys, (offsets[lasts] + 1).tolist(), strict=True))
    if walked.firsts is not None:
        for key, first in begins.items():
            walked.firsts.setdefault(key, first)
    return True


def _properties_span(frames: FrameColumns, row: int) -> tuple[int, int]:
    start = int(frames.properties_start[row])
    return start, start + int(frames.properties_length[row])
