"""The window of producers, read back from the end of a log that begins to take messages.

The last so many bytes are walked by the heads of their frames, whose last properties are then read
as columns. The walk begins at a segment's start or, within one, at the first place that holds the
magic code and, as PHYSICALOFFSET, itself. What a walk cannot pass (damage, bytes that the device
refuses) ends what can be known: the window begins behind it.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from stratamq.errors import CorruptionError, OffsetOutOfRangeError
from stratamq.files.port import Files
from stratamq.formats.columns import FrameColumns, columns_at
from stratamq.formats.frame_layout import (
    I64,
    MAGIC_POSITION,
    MAGIC_V1,
    MAGIC_V2,
    MIN_FRAME_BYTES,
    PHYSICAL_OFFSET_POSITION,
)
from stratamq.formats.frame_scan import ScanEnd, scan_frames
from stratamq.formats.log_damage import HEAD_BYTES
from stratamq.formats.producer_item import producer_of, read_items
from stratamq.formats.store_paths import COMMIT_LOG as DIRECTORY
from stratamq.formats.text import decode_text
from stratamq.formats.text_groups import group_texts
from stratamq.store.segment_reader import SegmentReader
from stratamq_commitlog.messages import FrameRun
from stratamq_commitlog.write.producer_window import Stretch, WindowContents

_PIECE_BYTES = 8 << 20
_SEARCH_BYTES = 1 << 20
_MAGICS = tuple(magic.to_bytes(4, "big") for magic in (MAGIC_V1, MAGIC_V2))
_UNREADABLE = (CorruptionError, OffsetOutOfRangeError, OSError)


def scan_producers(
    files: Files, segment_bytes: int, minimum: int, end: int, window_bytes: int
) -> WindowContents:
    """Scan about the last `window_bytes` of the log from `minimum` to `end`, which are both between
    frames. Blocking. Never raises because of the log's contents."""
    reader = SegmentReader(files, DIRECTORY, segment_bytes)
    walk = _Walk(reader, segment_bytes, end)
    try:
        walk.run(max(minimum, end - window_bytes), minimum)
    finally:
        reader.close()
    return walk.found


class _Walk:
    def __init__(self, reader: SegmentReader, segment_bytes: int, end: int) -> None:
        self.found = WindowContents(end)
        self._reader = reader
        self._segment_bytes = segment_bytes
        self._end = end

    def run(self, start: int, minimum: int) -> None:
        at = start if start == minimum else self._next_frame(start)
        while at < self._end:
            self.found = WindowContents(at)
            fault = self._walk_from(at)
            if fault is None:
                return
            self.found = WindowContents(self._end)
            at = self._next_frame(fault + 1)

    def _segment_end(self, offset: int) -> int:
        return (offset // self._segment_bytes + 1) * self._segment_bytes

    def _next_frame(self, offset: int) -> int:
        """The first place from `offset` on where a frame begins; the log's end if none does."""
        while offset < self._end:
            limit = min(self._segment_end(offset), self._end)
            if offset % self._segment_bytes == 0:
                return offset
            size = min(_SEARCH_BYTES + HEAD_BYTES, limit - offset)
            try:
                data = self._reader.read(offset, size)
            except _UNREADABLE:
                offset = min(self._segment_end(offset), offset + size)
                continue
            place = _first_frame(data, offset)
            if place >= 0:
                return offset + place
            offset = limit if offset + size >= limit else offset + _SEARCH_BYTES
        return self._end

    def _walk_from(self, offset: int) -> int | None:
        """Read everything up to the end; where that was not possible, None: nowhere."""
        wanted = _PIECE_BYTES
        while offset < self._end:
            limit = min(self._segment_end(offset), self._end)
            try:
                data = self._reader.read(offset, min(wanted, limit - offset))
                scan = scan_frames(data, limit=limit - offset)
                frames = _columns(data, scan.sizes, offset)
            except _UNREADABLE:
                return offset
            for stretch in stretches(data, frames, offset):
                self.found.record(stretch)
            offset += scan.end
            wanted = _PIECE_BYTES
            if scan.stop is ScanEnd.BLANK:
                offset = self._segment_end(offset)
            elif scan.stop is ScanEnd.WITHIN and not scan.end and len(data) < limit - offset:
                wanted = max(2 * _PIECE_BYTES, scan.size)
            elif scan.stop not in (ScanEnd.END, ScanEnd.WITHIN) or not scan.end:
                return offset
        return None


def _columns(data: bytes, sizes: NDArray[np.int64], offset: int) -> FrameColumns:
    return columns_at(np.frombuffer(data, np.uint8), sizes.cumsum() - sizes, sizes, offset)


def _first_frame(data: bytes, offset: int) -> int:
    """Where the first frame begins in `data`, which lies at `offset`; −1: none is seen."""
    first = -1
    for magic in _MAGICS:
        at = data.find(magic, MAGIC_POSITION)
        while at >= 0:
            start = at - MAGIC_POSITION
            if start + HEAD_BYTES > len(data):
                break
            if I64.unpack_from(data, start + PHYSICAL_OFFSET_POSITION)[0] == offset + start and (
                int.from_bytes(data[start : start + 4], "big") >= MIN_FRAME_BYTES
            ):
                first = start if first < 0 else min(first, start)
                break
            at = data.find(magic, at + 1)
    return first


def stretches(data: bytes, frames: FrameColumns, offset: int) -> Iterator[Stretch]:
    """The numbered messages among frames that lie at log offset `offset`, in order."""
    raw = np.frombuffer(data, np.uint8)
    rows, producers, sequences = read_items(raw, frames)
    if not len(rows):
        return
    start, size = frames.start[rows], frames.size[rows]
    stored_ms = frames.store_timestamp_ms[rows]
    begins = np.ones(len(rows), np.bool_)
    begins[1:] = (
        (producers[1:] != producers[:-1]).any(axis=1)
        | (sequences[1:] != sequences[:-1] + 1)
        | (start[1:] != start[:-1] + size[:-1])
        | (stored_ms[1:] != stored_ms[:-1])
    )
    firsts, runs = _runs(raw, frames, rows, begins)
    bounds = np.flatnonzero(begins)
    run_bounds = np.searchsorted(firsts, np.append(bounds, len(rows))).tolist()
    edges = [*bounds.tolist(), len(rows)]
    lasts = np.append(bounds[1:], len(rows)) - 1
    lengths = size.astype(np.uint32)
    numbers: dict[tuple[int, int], int] = {}
    columns = zip(
        producers[bounds].tolist(),
        sequences[bounds].tolist(),
        (start[bounds] + offset).tolist(),
        (start[lasts] + size[lasts] + offset).tolist(),
        stored_ms[bounds].tolist(),
        strict=True,
    )
    for at, (words, first, begin, end, stored) in enumerate(columns):
        producer = numbers.get((words[0], words[1]))
        if producer is None:
            producer = numbers[words[0], words[1]] = producer_of(producers[edges[at]])
        mine = runs[run_bounds[at] : run_bounds[at + 1]]
        yield Stretch(
            producer=producer,
            first=first,
            offset=begin,
            end=end,
            lengths=lengths[edges[at] : edges[at + 1]],
            runs=tuple(run for run, _ in mine),
            first_queue_offsets=tuple(queue_first for _, queue_first in mine),
            store_timestamp_ms=stored,
        )


def _runs(
    raw: NDArray[np.uint8], frames: FrameColumns, rows: NDArray[np.int64], begins: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], list[tuple[FrameRun, int]]]:
    """The runs of numbered messages, each with its first queue offset, and where they begin among
    `rows`: where a stretch `begins`, and where the queue or its offsets do not continue."""
    topic_index, texts = group_texts(raw, frames.topic_start[rows], frames.topic_length[rows])
    topics = [decode_text(text) for text in texts]
    queue_id, queue_offset = frames.queue_id[rows], frames.queue_offset[rows]
    run_begins = begins.copy()
    run_begins[1:] |= (
        (topic_index[1:] != topic_index[:-1])
        | (queue_id[1:] != queue_id[:-1])
        | (queue_offset[1:] != queue_offset[:-1] + 1)
    )
    firsts = np.flatnonzero(run_begins)
    columns = zip(
        topic_index[firsts].tolist(),
        queue_id[firsts].tolist(),
        np.diff(firsts, append=len(rows)).tolist(),
        queue_offset[firsts].tolist(),
        strict=True,
    )
    return firsts, [
        (FrameRun(topics[topic], queue, count), first) for topic, queue, count, first in columns
    ]
