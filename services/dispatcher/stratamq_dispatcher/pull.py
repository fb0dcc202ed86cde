"""A pull: from a queue and an offset to frames, with RocketMQ 4.9.8's statuses and limits.

In two steps, because frames that are no longer in memory are read in another thread:

    plan_pull    beside the engine: the statuses that need no frame; the units to look at
    PullPlan.run anywhere: chooses units by tag and limits, reads their frames

Spec 10.1. Limits are taken as 4.9.8 takes them: a batch is full when the next unit, wanted or not,
would take it over the bytes; the first message always fits.
"""

import contextlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from itertools import compress

import numpy as np
from numpy.typing import NDArray

from stratamq.errors import OffsetOutOfRangeError
from stratamq.formats.frame_layout import MIN_FRAME_BYTES
from stratamq.formats.javahash import tags_code
from stratamq.formats.message_status import PullStatus
from stratamq.formats.numbers import INT32_MAX, INT32_MIN
from stratamq.formats.queue_unit import QUEUE_UNIT_BYTES
from stratamq.formats.queue_units import decode_units
from stratamq.formats.text import decode_text
from stratamq.formats.topics import SCHEDULE_TOPIC
from stratamq_dispatcher.consume_queue import ConsumeQueue, read_units
from stratamq_dispatcher.frame_reads import (
    DamagedFrameError,
    LogBytes,
    Piece,
    is_of_light_queue,
    light_frames,
    read_frames,
    tags_of,
)
from stratamq_dispatcher.queue_files import OpenFiles

SCANNED_UNITS = 800
"""RocketMQ looks at 16 000 bytes of units in one pull, or as many as messages were asked for."""

FIRST_LOOK_UNITS = 64


@dataclass(frozen=True, slots=True)
class PullLimits:
    """RocketMQ's settings, and our own bounds for requests that name their limits."""

    in_memory_bytes: int = 262_144
    in_memory_messages: int = 32
    on_disk_bytes: int = 65_536
    on_disk_messages: int = 8
    hot_bytes: int = 1 << 34
    """A message this far below the log's end counts as being on disk only."""
    most_bytes: int = 4 << 20
    most_messages: int = 16_384


class StreamPieces:
    """How large the next piece of a stream is.

    A piece costs both sides the same whatever it holds: a reader that has taken `SURE_AFTER` at
    once gets twice as many bytes in the next ones. A slow reader's piece waits in memory: it gets
    half. The first pieces of one that never reads are taken at once as well, by gRPC's buffers.
    Larger pieces leave room for the client's other streams.
    """

    SMALLEST, LARGEST = 256 << 10, 1 << 20
    AT_ONCE_S = 0.2
    SURE_AFTER = 16

    def __init__(self, asked_bytes: int, spares: Callable[[int], bool]) -> None:
        """`asked_bytes`: of each piece; 0: of the reader's speed. `spares`: whether the client has
        room for so many bytes and for its other streams."""
        self._asked_bytes = asked_bytes
        self._spares = spares
        self._at_once = 0
        self._bytes = self.SMALLEST

    @property
    def max_bytes(self) -> int:
        if self._asked_bytes:
            return self._asked_bytes
        return self._bytes if self._spares(self._bytes) else self.SMALLEST

    def taken(self, after_s: float) -> None:
        """The reader has taken the last piece `after_s` after it was given."""
        if self._asked_bytes:
            return
        self._at_once += 1
        if after_s > self.AT_ONCE_S:
            self._at_once = 0
            self._bytes = max(self._bytes // 2, self.SMALLEST)
        elif self._at_once == self.SURE_AFTER:
            self._at_once = 0
            self._bytes = min(2 * self._bytes, self.LARGEST)


class TagFilter:
    """Messages with one of these tags (hash first, then text) or one of these codes.

    A code of 32 bits is compared with the low 32 bits of the unit's, as RocketMQ's broker does; a
    longer one (a deliver time) with all 64.
    """

    def __init__(self, texts: Iterable[str] = (), codes: Iterable[int] = ()) -> None:
        self.texts = frozenset(texts)
        codes = set(codes)
        short = {code for code in codes if INT32_MIN <= code <= INT32_MAX}
        self._short = np.array(sorted(short), np.int32)
        self._long = np.array(sorted(codes - short), np.int64)
        self._hashes = np.array(sorted({tags_code(text) for text in self.texts}), np.int32)

    @property
    def matches_all(self) -> bool:
        return "*" in self.texts or not (self.texts or len(self._short) or len(self._long))

    def mask(self, codes: NDArray[np.int64], topic: str) -> NDArray[np.bool_]:
        """Which units may match. The schedule topic's codes are deliver times, and tell no tag."""
        low = codes.astype(np.int32)
        wanted = np.isin(low, self._short)
        if len(self._long):
            wanted |= np.isin(codes, self._long)
        if self.texts:
            wanted |= (topic == SCHEDULE_TOPIC) | np.isin(low, self._hashes)
        return wanted

    def needs_text(self, codes: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of the units that may match are wanted for their text only."""
        if not self.texts:
            return np.zeros(len(codes), bool)
        by_code = np.isin(codes.astype(np.int32), self._short) | np.isin(codes, self._long)
        return ~by_code

    def has_tag(self, frame: Piece) -> bool:
        tags = tags_of(frame)
        return tags is not None and decode_text(tags) in self.texts


@dataclass(frozen=True, slots=True)
class PullQuery:
    topic: str
    queue_id: int
    offset: int
    max_messages: int
    """0: 32."""
    max_bytes: int
    """0: RocketMQ's limits for bytes and messages."""
    tag_filter: TagFilter | None = None
    stop_before: int | None = None
    """Look at no unit from this queue offset on."""


@dataclass(frozen=True, slots=True)
class PullAnswer:
    status: PullStatus
    next_offset: int
    minimum: int
    maximum: int
    count: int = 0
    pieces: list[Piece] = field(default_factory=list)
    """Raw frames, neighbours joined. Views of the log's mapping: copy before anything else runs."""
    size: int = 0


def plan_pull(
    queue: ConsumeQueue | None,
    query: PullQuery,
    open_files: OpenFiles,
    minimum_offset: int,
    log_end: int,
    limits: PullLimits,
    segment_bytes: int,
) -> "PullAnswer | PullPlan":
    """Raises CorruptionError for damaged queue files."""
    if queue is None or queue.end == 0:
        return PullAnswer(PullStatus.NO_MESSAGE_IN_QUEUE, 0, 0, 0)
    minimum, maximum = queue.minimum(open_files, minimum_offset), queue.end
    offset = query.offset

    def answer(status: PullStatus, next_offset: int) -> PullAnswer:
        return PullAnswer(status, next_offset, minimum, maximum)

    if offset < minimum:
        return answer(PullStatus.OFFSET_TOO_SMALL, minimum)
    if offset == maximum:
        return answer(PullStatus.OFFSET_OVERFLOW_ONE, offset)
    if offset > maximum:
        return answer(PullStatus.OFFSET_OVERFLOW_BADLY, maximum)
    if query.max_bytes:
        bytes_limit = min(query.max_bytes, limits.most_bytes)
        messages_limit = min(query.max_messages or 32, limits.most_messages)
        disk = (bytes_limit, messages_limit)
    else:
        asked = query.max_messages or 32
        bytes_limit = limits.in_memory_bytes
        messages_limit = min(asked, limits.in_memory_messages)
        disk = (limits.on_disk_bytes, min(asked, limits.on_disk_messages))
    filtered = query.tag_filter is not None and not query.tag_filter.matches_all
    count = max(SCANNED_UNITS, messages_limit) if filtered else messages_limit
    if query.stop_before is not None:
        count = min(count, query.stop_before - offset)
    if filtered:
        data = read_units(queue, open_files, offset, count)
    else:
        data = _units_that_fit(queue, open_files, offset, count, bytes_limit)
    if not data:
        units = queue.geometry.units_per_file
        return answer(PullStatus.OFFSET_FOUND_NULL, offset - offset % units + units)
    hot_from = log_end - limits.hot_bytes
    return PullPlan(
        query.topic,
        queue.directory,
        offset,
        minimum,
        maximum,
        data,
        query.tag_filter if filtered else None,
        (bytes_limit, messages_limit),
        disk,
        hot_from,
        int.from_bytes(data[:8], "big", signed=True) < hot_from,
        segment_bytes,
    )


def _units_that_fit(
    queue: ConsumeQueue, open_files: OpenFiles, offset: int, count: int, bytes_limit: int
) -> bytes:
    """About as many units as fill the batch, where many more could be asked for."""
    data = read_units(queue, open_files, offset, min(count, FIRST_LOOK_UNITS))
    if count <= FIRST_LOOK_UNITS or len(data) < FIRST_LOOK_UNITS * QUEUE_UNIT_BYTES:
        return data
    looked_bytes = max(FIRST_LOOK_UNITS, int(decode_units(data)["size"].sum()))
    more = min(count, 2 * bytes_limit * FIRST_LOOK_UNITS // looked_bytes) - FIRST_LOOK_UNITS
    index = offset + FIRST_LOOK_UNITS
    if more > 0 and index % queue.geometry.units_per_file:
        data += read_units(queue, open_files, index, more)
    return data


@dataclass(frozen=True, slots=True)
class PullPlan:
    """Units of one queue, and what to take of them. Holds nothing of the engine's."""

    topic: str
    directory: str
    offset: int
    minimum: int
    maximum: int
    units: bytes
    tag_filter: TagFilter | None
    memory_limits: tuple[int, int]
    disk_limits: tuple[int, int]
    hot_from: int
    cold: bool
    """The first frame is probably not in memory: run this where waiting harms no one."""
    segment_bytes: int
    strict: bool = False
    """OffsetOutOfRangeError for messages that were deleted meanwhile: they are elsewhere."""

    def run(self, log: LogBytes) -> PullAnswer:
        """Choose and read. Raises CorruptionError when the first frame cannot be given.

        Of later ones that cannot, what is before them is given: the next pull begins there.
        """
        try:
            return self._run(log)
        except DamagedFrameError as damaged:
            count = damaged.queue_offset - self.offset
            if count <= 0:
                raise
            return replace(self, units=self.units[: count * QUEUE_UNIT_BYTES]).run(log)

    def _run(self, log: LogBytes) -> PullAnswer:
        units = decode_units(self.units)
        physical = units["physical_offset"].astype(np.int64)
        sizes = units["size"].astype(np.int64)
        if int(sizes.min()) < MIN_FRAME_BYTES:
            # A zeroed page: its codes say that there is no tag, its places that they are gone.
            row = int((sizes < MIN_FRAME_BYTES).argmax())
            index, place = self.offset + row, int(physical[row])
            raise DamagedFrameError(self.directory, index, place, "where no frame can be so small")
        if self.tag_filter is None and (
            self.disk_limits == self.memory_limits or int(physical[0]) >= self.hot_from
        ):
            with contextlib.suppress(OffsetOutOfRangeError):
                return self._all(log, physical, sizes)
        wanted = np.ones(len(units), bool)
        unsure = np.zeros(len(units), bool)
        if self.tag_filter is not None:
            codes = units["tags_code"].astype(np.int64)
            wanted = self.tag_filter.mask(codes, self.topic)
            unsure = self.tag_filter.needs_text(codes)
        removed = False
        while True:
            stop = self._full_at(physical, sizes, wanted)
            rows = np.flatnonzero(wanted[:stop])
            if not len(rows):
                status = (
                    PullStatus.MESSAGE_WAS_REMOVING if removed else PullStatus.NO_MATCHED_MESSAGE
                )
                return self._answer(status, stop)
            by_text = bool(unsure[rows].any())
            try:
                pieces = self._read(
                    log, physical[rows], sizes[rows], rows + self.offset, joined=not by_text
                )
            except OffsetOutOfRangeError as gone:
                if self.strict:
                    raise
                # The segment was deleted meanwhile: what it held is passed over.
                removed = True
                wanted &= physical >= gone.minimum
                continue
            if by_text and self.tag_filter is not None:
                # The texts of one batch are compared, of a queue full of others with the same hash,
                # too: the next pull goes on behind them.
                has_tag = self.tag_filter.has_tag
                kept = [
                    not doubt or has_tag(frame)
                    for doubt, frame in zip(unsure[rows].tolist(), pieces, strict=True)
                ]
                rows, pieces = rows[kept], [*compress(pieces, kept)]
                if not pieces:
                    return self._answer(PullStatus.NO_MATCHED_MESSAGE, stop)
            return self._answer(PullStatus.FOUND, stop, len(rows), pieces, int(sizes[rows].sum()))

    def _all(
        self, log: LogBytes, physical: NDArray[np.int64], sizes: NDArray[np.int64]
    ) -> PullAnswer:
        """Without a filter, and with one pair of limits: the same in fewer steps."""
        bytes_limit, messages_limit = self.memory_limits
        ends = np.cumsum(sizes)
        fit = int(ends.searchsorted(bytes_limit, "right"))
        stop = min(len(sizes), messages_limit, max(fit, 1))
        indexes = np.arange(self.offset, self.offset + stop)
        pieces = self._read(log, physical[:stop], sizes[:stop], indexes)
        return self._answer(PullStatus.FOUND, stop, stop, pieces, int(ends[stop - 1]))

    def _read(
        self,
        log: LogBytes,
        physical: NDArray[np.int64],
        sizes: NDArray[np.int64],
        indexes: NDArray[np.int64],
        *,
        joined: bool = True,
    ) -> list[Piece]:
        light = is_of_light_queue(self.directory)
        pieces = read_frames(
            log,
            physical,
            sizes,
            indexes,
            self.segment_bytes,
            self.directory,
            joined=joined and not light,
        )
        if light:
            pieces = light_frames(pieces, self.topic, physical, indexes.tolist(), self.directory)
        return pieces

    def _full_at(
        self, physical: NDArray[np.int64], sizes: NDArray[np.int64], wanted: NDArray[np.bool_]
    ) -> int:
        """The first unit that is not looked at, because the batch is full by then."""
        taken = wanted.astype(np.int64)
        count = np.cumsum(taken) - taken
        taken *= sizes
        size = np.cumsum(taken) - taken
        bytes_limit, messages_limit = self.memory_limits
        if self.disk_limits == self.memory_limits:
            full = (count >= messages_limit) | (size + sizes > bytes_limit)
        else:
            on_disk = physical < self.hot_from
            full = np.where(
                on_disk,
                (count >= self.disk_limits[1]) | (size + sizes > self.disk_limits[0]),
                (count >= messages_limit) | (size + sizes > bytes_limit),
            )
        full &= count > 0
        return int(np.argmax(full)) if full.any() else len(full)

    def _answer(
        self,
        status: PullStatus,
        consumed: int,
        count: int = 0,
        pieces: list[Piece] | None = None,
        size: int = 0,
    ) -> PullAnswer:
        return PullAnswer(
            status,
            self.offset + consumed,
            self.minimum,
            self.maximum,
            count,
            pieces or [],
            size,
        )
