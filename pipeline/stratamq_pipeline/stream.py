"""The log as a stream: exact offsets, limits per batch, retention that overtakes the reader.

How the driver learns the ends of queues. Consume queue files may be missing or behind, and asking a
dispatcher helps only where one runs. The log itself always suffices: from the place where the last
batch ended (`offsets.StreamOffset`) the driver walks forward over the headers of the frames up to
the log's end, or until a limit is reached, and takes the queue offsets from them. So

- a batch is a range of the log, and its frames are the same whenever it is read again;
- a limit cuts between two frames, exactly, in the order in which messages were stored, so that no
  queue waits for another;
- topics and queues that did not exist before appear by themselves;
- the driver goes through the headers of all messages once: of a broker it gets these alone, without
  bodies and properties; a backlog is walked in steps when there is a limit per trigger.

A log that was cut below the place, as by a promotion, is told by its generations, however much was
written behind the cut since: the query ends, or with failOnDataLoss=false goes back to the cut, and
reads what took the place of what it has given.

Where nothing wanted was found, the stream stays where it is and only remembers how far it has
walked; after `_IDLE_BYTES` it steps forward without rows, so that a restart does not walk them
again, and retention does not seem to take what was never wanted.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from stratamq.errors import InvalidRequestError, OffsetOutOfRangeError
from stratamq.files.clock import SystemClock
from stratamq.store.generations import parted_at
from stratamq.table.selection import FOREVER, Queue, Selection
from stratamq_pipeline.batch import open_view
from stratamq_pipeline.cuts import FramePlaces
from stratamq_pipeline.log_view import LogView, part_bytes_of
from stratamq_pipeline.offsets import (
    StreamOffset,
    check_starts,
    ends_of,
    losses,
    next_offsets,
)
from stratamq_pipeline.options import LATEST, SourceOptions
from stratamq_pipeline.partition import read_partition
from stratamq_pipeline.table_columns import TableColumns

log = logging.getLogger(__name__)

_IDLE_BYTES = 64 << 20


@dataclass(slots=True)
class Walk:
    """How far the driver has come from the place `start`, and what it found on the way."""

    start: StreamOffset
    log: int
    generation: int = 0
    """The log's generation when the stream came to this offset."""
    seen: dict[Queue, int] = field(default_factory=dict)
    """The next offset of each queue on the way."""
    rows: int = 0
    byte_count: int = 0
    """The size of the wanted frames."""
    since_ns: int | None = None
    """When the first wanted frame was seen."""
    places: FramePlaces = field(default_factory=FramePlaces)


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one batch; 0: none. At least one frame is always taken, however large."""

    rows: int = 0
    byte_count: int = 0
    least_rows: int = 0


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One of it lives in the driver for as long as the query; copies of it read in executors."""

    def __init__(self, options: SourceOptions, columns: TableColumns) -> None:
        if options.bounded:
            raise InvalidRequestError(f"a stream has no end: {options.bounded} is for batches")
        if options.damage_table:
            raise InvalidRequestError("table=damage is read in batches, not as a stream")
        self.options = options
        self.columns = columns
        self._wanted = options.selection(offsets={}, all_offsets=None)
        self._clock = SystemClock()
        self._view: LogView | None = None
        self._walk: Walk | None = None
        self._looked_to = 0
        """The log's end when it was last looked at."""
        self._last_frame = (0, 0)
        """Where the last frame that was walked over begins and ends."""
        self._last_places: dict[Queue, int] = {}
        """Where the last message of each queue in the checkpoint lies, or something behind it."""
        self._target: int | None = None
        """The log's end when a query with Trigger.AvailableNow began."""
        self._logged: tuple[int, int, int] | None = None
        """The loss that has been logged: where the stream stood, the log's minimum and end."""

    # --- offsets ---

    def initialOffset(self) -> dict[str, Any]:
        """Where a new query begins: `startingOffsets`, or `startingTimestamp`, or the log's end."""
        options = self.options
        view = self._look()
        starting = options.starting
        if isinstance(starting, dict):
            return self._at_named_queues(view, starting).to_json()
        if starting == LATEST or (starting is None and options.since_ms is None):
            return _place(view, view.end).to_json()
        begin, _ = view.within(options.since_ms, None)
        return _place(view, begin).to_json()

    def beginning(self) -> dict[str, Any]:
        """Where the log begins now."""
        view = self._look()
        return _place(view, view.minimum).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        """What Spark hands to `latestOffset`; several limits hold together there."""
        options = self.options
        if options.max_offsets:
            return ReadMaxRows(options.max_offsets)
        if options.max_bytes:
            return ReadMaxBytes(options.max_bytes)
        if options.min_offsets:
            return ReadMinRows(options.min_offsets)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._look().end

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Where the batch that begins at `start` ends; `start` itself while there is none."""
        given, limits = StreamOffset.from_json(start), self._limits(limit)
        for last_look in (False, False, True):
            view = self._look()
            at = self._uncut(view, given)
            if at.log > view.end:
                return self._lost(view, at).to_json()
            walk = self._walk
            if (
                walk is None
                or walk.start != at
                or _cut_at(view, walk.log, walk.generation) is not None
            ):
                walk = self._walk = Walk(at, at.log)
            if (at.log if walk.rows else walk.log) < view.minimum:
                walk = self._walk = Walk(at, self._lost(view, at).log)
            walk.generation = _generation_of(view)
            end = view.end if self._target is None else min(view.end, self._target)
            if self._go(view, walk, end, limits, fail=last_look):
                break
        if not walk.rows and walk.log - at.log < _IDLE_BYTES:
            return start
        if walk.rows < limits.least_rows and not self._waited_enough(walk):
            return start
        stop = at.after(walk.log, walk.seen, walk.generation, self._cuts(view, walk))
        # What an earlier run has seen lies in front of the place where this one began.
        last = {queue: self._last_places.get(queue, at.log) for queue in stop.queues}
        stop = stop.without_empty(last, view.minimum)
        self._last_places = {queue: last[queue] for queue in stop.queues}
        return stop.to_json()

    def reportLatestOffset(self) -> dict[str, Any]:
        """The log's end: what is between it and the end of the last batch is the lag, in bytes;
        `queues` are the ends of what has been walked so far."""
        end, walk = self._look().end, self._walk
        if walk is None:
            return StreamOffset(end).to_json()
        return walk.start.after(max(end, walk.log), walk.seen, walk.generation).to_json()

    # --- reading ---

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Also of a batch that an earlier run planned and did not finish."""
        first, last = StreamOffset.from_json(start), StreamOffset.from_json(end)
        view = self._look()
        first, last = self._uncut(view, first), self._uncut(view, last)
        if first.log >= last.log:
            return []
        walk = self._walk
        nothing_there = walk is not None and walk.start == first and not walk.rows
        if first.log < view.minimum and not nothing_there:
            first = self._lost(view, first)
        if last.log > view.end:
            last = self._lost(view, last)
        begin, behind = max(first.log, view.minimum), last.log
        return view.pieces(
            begin,
            behind,
            part_bytes_of(self.options, behind - begin),
            replace(self._selection(first), physical=(begin, behind)),
            cuts=last.cuts,
        )

    def read(self, partition: InputPartition) -> Any:
        return map(self.columns.rows, read_partition(partition, self.options, self.columns.decoded))

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing is held for batches that are done; the offsets stand in the checkpoint."""

    def __getstate__(self) -> dict[str, Any]:
        """Executors need no memory of the walk."""
        return {**self.__dict__, "_view": None, "_walk": None, "_last_places": {}}

    def stop(self) -> None:
        if self._view is not None:
            self._view.close()
            self._view = None

    # --- the walk ---

    def _look(self) -> LogView:
        # From the last frame on, so that a log that was cut in front of its end is found out.
        begin, end = self._last_frame
        known = begin if end >= self._looked_to else self._looked_to
        self._view = view = open_view(self.options, known, self._view)
        self._looked_to = view.end
        return view

    def _selection(self, at: StreamOffset) -> Selection:
        skip = {queue: (offset, FOREVER) for queue, offset in at.skip.items()}
        return replace(self._wanted, offsets=skip)

    def _limits(self, limit: ReadLimit) -> Limits:
        if isinstance(limit, ReadAllAvailable):
            return Limits()
        options = self.options
        # A query that ends with what there is does not wait for more.
        least = options.min_offsets if self._target is None else 0
        if options.max_offsets:
            least = min(least, options.max_offsets)
        if options.max_bytes:
            least = 0  # a batch that is full of bytes is as large as it can get
        limits = Limits(options.max_offsets, options.max_bytes, least)
        if isinstance(limit, ReadMaxRows):
            limits = replace(limits, rows=limit.max_rows)
        if isinstance(limit, ReadMaxBytes):
            limits = replace(limits, byte_count=limit.max_bytes)
        return limits

    def _go(self, view: LogView, walk: Walk, end: int, limits: Limits, *, fail: bool) -> bool:
        """Walk on to `end`, or to where a limit is reached. False, unless it shall `fail`: what
        is ahead was deleted meanwhile."""
        try:
            self._walk_on(view, walk, end, limits)
        except OffsetOutOfRangeError:
            if fail:
                raise
            return False
        return True

    def _walk_on(self, view: LogView, walk: Walk, end: int, limits: Limits) -> None:
        selection = self._selection(walk.start)
        for raw, frames in view.frames(walk.log, end):
            rows = selection.rows(raw, frames)
            wanted = np.arange(len(frames)) if rows is None else rows
            taken = _fitting(frames.size[wanted], walk, limits)
            if taken and walk.since_ns is None:
                walk.since_ns = self._clock.monotonic_ns()
            kept = wanted[:taken]
            for queue, (following, place) in next_offsets(raw, frames, kept).items():
                walk.seen[queue], self._last_places[queue] = following, place
            walk.rows += taken
            if view.divided_at_frames:
                walk.places.add(frames.physical_offset[kept])
            walk.byte_count += int(frames.size[kept].sum())
            last = len(frames) - 1 if taken == len(wanted) else int(wanted[taken]) - 1
            if last >= 0:
                place = int(frames.physical_offset[last])
                walk.log = place + int(frames.size[last])
                self._last_frame = (place, walk.log)
            if taken < len(wanted):
                return
        walk.log = max(walk.log, end)

    def _cuts(self, view: LogView, walk: Walk) -> list[int]:
        if not view.divided_at_frames:
            return []
        begin = max(walk.start.log, view.minimum)
        part_bytes = part_bytes_of(self.options, walk.log - begin)
        return walk.places.cuts(begin, walk.log, part_bytes)

    def _waited_enough(self, walk: Walk) -> bool:
        if walk.since_ns is None:
            return False
        waited_ms = (self._clock.monotonic_ns() - walk.since_ns) // 1_000_000
        return waited_ms >= self.options.max_delay_ms

    # --- beginnings and losses ---

    def _at_named_queues(self, view: LogView, starting: dict[Queue, int]) -> StreamOffset:
        """Those named begin at their offsets, all others with the log."""
        if self.options.fail_on_data_loss:
            check_starts(view, starting)
        skip = {queue: at for queue, at in starting.items() if at > 0}
        latest = [queue for queue, at in starting.items() if at == LATEST]
        if latest:
            skip.update(ends_of(view, latest))
        return replace(_place(view, view.minimum), skip=skip)

    def _uncut(self, view: LogView, at: StreamOffset) -> StreamOffset:
        """The place itself, or, where the log was cut below it, the cut: OffsetOutOfRangeError
        unless the stream may go back."""
        cut = _cut_at(view, at.log, at.generation)
        if cut is None:
            return at
        if self.options.fail_on_data_loss:
            raise OffsetOutOfRangeError(
                f"the log was cut at offset {cut}, below {at.log}, where this stream was: a "
                "promotion, or a restored directory, replaced messages that the stream has given. "
                "Start the query with failOnDataLoss=false, which goes back to the cut",
                view.minimum,
                view.end,
            )
        if self._logged != (at.log, cut, cut):
            log.warning("log cut", extra={"from": at.log, "goes_back_to": cut})
            self._logged = (at.log, cut, cut)
        return replace(at, log=cut, queues={}, generation=0)

    def _lost(self, view: LogView, at: StreamOffset) -> StreamOffset:
        """The place where reading can go on, or OffsetOutOfRangeError."""
        if self._logged == (at.log, view.minimum, view.end):
            return replace(at, log=min(view.end, max(at.log, view.minimum)))
        if at.log > view.end:
            place = view.end
            what = [
                f"the log ends at {view.end}, in front of offset {at.log}, where this stream was: "
                "it was cut, or replaced by another"
            ]
        else:
            place = view.minimum
            what = losses(view, at, self._wanted)
            if not what and at.queues:  # every queue continues where it was
                return replace(at, log=place)
            what = what or [f"log offsets {at.log} to {place - 1}"]
        if self.options.fail_on_data_loss:
            raise OffsetOutOfRangeError(
                f"{'; '.join(what)}: deleted from the log, which begins at {view.minimum}. Start "
                "the query again, or with failOnDataLoss=false, which continues with what is there",
                view.minimum,
                view.end,
            )
        log.warning("data lost", extra={"lost": what, "from": at.log, "goes_on_at": place})
        self._logged = (at.log, view.minimum, view.end)
        return replace(at, log=place)


def _place(view: LogView, at: int) -> StreamOffset:
    return StreamOffset(at, generation=_generation_of(view))


def _generation_of(view: LogView) -> int:
    return view.history[-1][0] if view.history else 0


def _cut_at(view: LogView, at: int, generation: int) -> int | None:
    """Where the log was cut below a place that was reached in that generation; None: nowhere."""
    cut = parted_at(view.history, generation) if generation else None
    return cut if cut is not None and cut < at else None


def _fitting(sizes: np.ndarray, walk: Walk, limits: Limits) -> int:
    """How many of these frames, in order, still go into the batch."""
    count = len(sizes)
    if limits.rows:
        count = min(count, max(0, limits.rows - walk.rows))
    if limits.byte_count:
        inside = int((sizes.cumsum() + walk.byte_count <= limits.byte_count).sum())
        count = min(count, inside if walk.rows or inside else 1)
    return count
