"""Reads one part of the log's files: bytes in chunks, wanted frames out as record batches.

Memory stays within a few chunks whatever the segment's size: nothing is mapped.
"""

import os
from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from stratamq.errors import CorruptionError, CorruptRecordError
from stratamq.formats.columns import FrameColumns, columns_at
from stratamq.formats.frame_verify import first_damaged
from stratamq.formats.log_damage import HEAD_BYTES, Damage, Examined, mark_off, next_frame
from stratamq.table.decode import Decoder
from stratamq.table.log_files import SegmentPart
from stratamq.table.selection import Selection

CHUNK_BYTES = 4 << 20

OnDamage = Callable[[str, Damage], None]
"""Path of the file, and the stretch of the log that cannot be read."""


def read_part(
    part: SegmentPart,
    decoder: Decoder,
    selection: Selection,
    *,
    verify: bool = False,
    on_damage: OnDamage | None = None,
) -> Iterator[pa.RecordBatch]:
    """Batches in the log's order; none is empty.

    `verify` holds every frame against its checksums. Damage is a CorruptionError that names file
    and position, or, with `on_damage`, reported and passed over.
    """
    for raw, frames in part_frames(part, verify=verify, on_damage=on_damage):
        wanted = selection.wanted(raw, frames)
        if len(wanted):
            yield from decoder.batches(raw, wanted)


def part_frames(
    part: SegmentPart, *, verify: bool = False, on_damage: OnDamage | None = None
) -> Iterator[tuple[NDArray[np.uint8], FrameColumns]]:
    """Chunks of bytes, each with the good frames that lie in it whole: they stand one behind the
    other from its first byte on. `verify`, `on_damage` and errors as for `read_part`."""
    with open(part.path, "rb", buffering=0) as file:
        yield from _Reader(file.fileno(), part, verify, on_damage).frames()


class _Reader:
    def __init__(
        self, descriptor: int, part: SegmentPart, verify: bool, on_damage: OnDamage | None
    ) -> None:
        self._descriptor = descriptor
        self._part = part
        self._verify = verify
        self._on_damage = on_damage
        self._buffer = bytearray()

    def frames(self) -> Iterator[tuple[NDArray[np.uint8], FrameColumns]]:
        """Chunks of bytes, each with the good frames that lie in it whole. A chunk is overwritten
        when the next one is asked for."""
        part = self._part
        position, length = self._first(), CHUNK_BYTES
        while position < part.end:
            data = self._read(position, length)
            looked, frames = self._examine(data, position)
            if len(frames):
                yield np.frombuffer(data, np.uint8), frames
            position += looked.good
            reason = looked.reason
            if looked.at_end:
                return
            if looked.good or reason:
                length = CHUNK_BYTES
            elif len(data) < min(length, part.segment_end - position):
                reason = "length"  # the file ends within a frame
            else:
                length = looked.needs
            if reason and position < part.end:
                position = self._pass_over(position, reason)

    def _first(self) -> int:
        """The first frame that begins in the part."""
        part = self._part
        if part.begin == part.segment_start:
            return part.begin
        return self._next(part.begin - 1)

    def _next(self, behind: int) -> int:
        """Where the next frame or blank begins behind a place; the part's end when none does."""
        position = behind
        while position < self._part.end:
            data = self._read(position, CHUNK_BYTES)
            found = next_frame(data, position, self._part.segment_end)
            if found is not None:
                return position + found
            if len(data) <= HEAD_BYTES:
                break
            position += len(data) - HEAD_BYTES
        return self._part.end

    def _examine(self, data: memoryview, position: int) -> tuple[Examined, FrameColumns]:
        part = self._part
        looked, starts, sizes = mark_off(data, position, part.segment_end)
        inside = int(np.searchsorted(starts, part.end - position))
        starts, sizes = starts[:inside], sizes[:inside]
        raw = np.frombuffer(data, np.uint8)
        found = None
        if self._verify and inside:
            found = first_damaged(data, starts, sizes, part.sealed_from - position)
        if found is not None:
            looked = Examined(int(starts[found[0]]), *found)
            starts, sizes = starts[: looked.frames], sizes[: looked.frames]
        try:
            return looked, columns_at(raw, starts, sizes, position)
        except CorruptRecordError as error:
            number = int(error.fields["frame"])  # type: ignore[call-overload]
            looked = Examined(int(starts[number]), number, error.reason)
            return looked, columns_at(raw, starts[:number], sizes[:number], position)

    def _pass_over(self, position: int, reason: str) -> int:
        """Behind the damage, if that is allowed."""
        resumed = self._next(position)
        if self._on_damage is None:
            raise CorruptionError(
                f"{self._part.path}: the log is damaged at offset {position} ({reason}): take it "
                "from a replica or a backup, or read on behind it (mode=permissive)",
                self._part.path,
                position,
            )
        self._on_damage(self._part.path, Damage(position, resumed, reason))
        return resumed

    def _read(self, position: int, length: int) -> memoryview:
        """Over what was read before: new memory costs more than the bytes that go into it."""
        length = min(length, self._part.segment_end - position)
        if len(self._buffer) < length:
            self._buffer = bytearray(length)
        room = memoryview(self._buffer)[:length]
        return room[: os.preadv(self._descriptor, [room], position - self._part.segment_start)]
