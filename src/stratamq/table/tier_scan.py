"""A scan of a tier, alone or together with the log that it is filled from: each message once.

The log is opened before the manifests are loaded: what the log has no more by then is named by
them. Then come the tier's messages queue by queue, and the log's, without those that the tier has.
What is deleted from the log meanwhile is in the tier by then, and is read there.
"""

import os
from collections import deque
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from stratamq.errors import CorruptRecordError, OffsetOutOfRangeError
from stratamq.formats.columns import FrameColumns, columns_at
from stratamq.formats.log_damage import Damage
from stratamq.formats.tier_progress import QueueName
from stratamq.table.log_files import LogFiles, SegmentPart
from stratamq.table.part_reader import part_frames
from stratamq.table.selection import Covered, Queue, in_queue, queues_in
from stratamq.table.tier_parts import (
    QueuePlan,
    TierDecoder,
    TierName,
    TierPart,
    chosen_broker,
    in_groups,
    plan_queue,
    wanted_queues,
)
from stratamq.tier.containers.place import QueuePlace
from stratamq.tier.driver.calls import AbsentError
from stratamq.tier.driver.opening import open_storage
from stratamq.tier.driver.running import Runner
from stratamq.tier.reading.queue_list import MISSING

_THREADS = 8
_AHEAD = 2
"""Groups of parts that are read and decoded, each in a thread, while another is given out."""
_GROUP_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class ReadBefore:
    """What a reader has of a queue: all in front of queue offset `next`. `covered` has also what it
    has of the queue's earlier lives."""

    next: int
    covered: Covered


NOTHING_READ: Mapping[Queue, ReadBefore] = {}


def scan_tier(
    name: TierName,
    decoder: TierDecoder,
    log: LogFiles | None = None,
    before: Mapping[Queue, ReadBefore] = NOTHING_READ,
    gaps: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Batches of a few MiB, those of the tier queue by queue, then the log's in its order. Up to
    `_AHEAD` + 1 times `_GROUP_BYTES`, or larger parts, are in memory, and their batches. What was
    read `before` is left out.

    OffsetOutOfRangeError when messages are neither in the tier nor in the log any more, unless
    `gaps` are accepted, and when the tier's own retention takes what is still to be read. What it
    took before can be in the log: with a log, `gaps` do not accept that.
    """
    with (
        open_storage(name.target) as storage,
        closing(Runner(storage, _THREADS)) as runner,
        ThreadPoolExecutor(_AHEAD, thread_name_prefix="tier-scan") as threads,
    ):
        cluster, broker = runner.run(chosen_broker(name))
        tier = _Tier(runner, threads, cluster, broker, decoder, before, gaps and log is None)
        yield from tier.new_messages()
        if log is not None:
            yield from _Rest(log, tier, decoder, gaps).batches()


@dataclass(frozen=True, slots=True)
class _Read:
    """What a group of parts has, and what of it is damaged."""

    batches: Iterator[pa.RecordBatch]
    damaged: list[tuple[str, Damage]]


@dataclass(frozen=True, slots=True)
class _Step:
    """A group of a queue's parts, from queue offset `first` on; the last of a queue is empty."""

    place: QueuePlace
    plan: QueuePlan
    group: list[TierPart]
    first: int


class _Tier:
    """What is read of it, each time from where the last reading ended."""

    def __init__(
        self,
        runner: Runner,
        threads: ThreadPoolExecutor,
        cluster: str,
        broker: str,
        decoder: TierDecoder,
        before: Mapping[Queue, ReadBefore],
        gaps: bool,
    ) -> None:
        self._runner = runner
        self._threads = threads
        self._whose = cluster, broker
        self._decoder = decoder
        self._gaps = gaps
        self.covered = {queue: read.covered for queue, read in before.items()}
        """What the tier, or the reader before, has of each queue that is wanted."""
        self._listed: set[QueueName] = set()
        self.ends = {queue: read.next for queue, read in before.items()}
        """For each queue, the end of what was read of tier and log."""

    def new_messages(self) -> Iterator[pa.RecordBatch]:
        under_way: deque[tuple[_Step, Future[_Read]]] = deque()
        try:
            planned_anew: set[QueuePlace] = set()
            for step in self._steps():
                under_way.append((step, self._threads.submit(self._read, step)))
                if len(under_way) > _AHEAD:
                    yield from self._taken(*under_way.popleft(), planned_anew)
            while under_way:
                yield from self._taken(*under_way.popleft(), planned_anew)
        finally:
            for _, future in under_way:
                future.cancel()

    def _steps(self) -> Iterator[_Step]:
        wanted = wanted_queues(*self._whose, self._decoder.selection)
        places, self._listed = self._runner.run(wanted)
        for place in places:
            if self._decoder.selection.span_of(place.topic, place.queue_id) is not None:
                first = self.ends.get((place.topic, place.queue_id), 0)
                plan = self._plan(place, first)
                if plan is not None:
                    if not self._gaps:
                        _require_no_gap(plan, first)
                    plan.require_not_lost(self._decoder.on_damage)
                    yield from _steps_of(place, plan, first)

    def _read(self, step: _Step) -> _Read:
        damaged: list[tuple[str, Damage]] = []
        decoder = self._decoder
        if decoder.on_damage is not None:
            decoder = replace(decoder, on_damage=lambda *found: damaged.append(found))
        return _Read(self._runner.run(decoder.read(step.group, step.first)), damaged)

    def _taken(
        self, step: _Step, future: "Future[_Read]", planned_anew: set[QueuePlace]
    ) -> Iterator[pa.RecordBatch]:
        """Yield the batches of a step. A queue that had to be planned again yields everything at
        its first step."""
        if step.place in planned_anew:
            future.cancel()
            return
        try:
            yield from self._given_out(step, future.result())
        except (AbsentError, OffsetOutOfRangeError) as error:
            planned_anew.add(step.place)
            yield from self._anew(step, error)

    def _anew(self, failed: _Step, error: Exception) -> Iterator[pa.RecordBatch]:
        """The rest of a queue, one group after the other: what its plan names was merged into
        another part since, or taken by retention."""
        plan, first = failed.plan, failed.first
        while True:
            newer = self._plan(failed.place, first)
            if newer is None or newer.covered.begin > first or newer.parts == plan.parts:
                raise OffsetOutOfRangeError(
                    f"the tier's retention took offsets of queue {failed.place.queue_id} of "
                    f"{failed.place.topic} from {first} on before they were read",
                    newer.covered.begin if newer else first,
                    plan.covered.end,
                ) from error
            plan = newer
            try:
                for step in _steps_of(failed.place, plan, first):
                    first = step.first
                    yield from self._given_out(step, self._read(step))
                return
            except (AbsentError, OffsetOutOfRangeError) as another:
                error = another

    def _given_out(self, step: _Step, read: _Read) -> Iterator[pa.RecordBatch]:
        for path, damage in read.damaged:
            assert self._decoder.on_damage is not None
            self._decoder.on_damage(path, damage)
        yield from read.batches
        if not step.group:
            self._note((step.place.topic, step.place.queue_id), step.plan.covered)

    def _plan(self, place: QueuePlace, first: int) -> QueuePlan | None:
        """None: the tier has nothing of the queue, or nothing that can be read."""
        decoder = self._decoder
        planning = plan_queue(place, decoder.selection, first, listed=self._listed)
        try:
            return self._runner.run(planning)
        except CorruptRecordError as error:
            if decoder.on_damage is None or error.reason != MISSING:
                raise
            decoder.on_damage(place.manifest, Damage(0, 0, MISSING))
            return None

    def _note(self, key: Queue, now: Covered) -> None:
        before = self.covered.get(key)
        if before is not None:
            begin, end = min(before.begin, now.begin), max(before.end, now.end)
            now = Covered(begin, end, max(before.last_ms, now.last_ms))
        self.covered[key] = now
        self.ends[key] = max(self.ends.get(key, 0), now.end)


def _steps_of(place: QueuePlace, plan: QueuePlan, first: int) -> Iterator[_Step]:
    for group in in_groups(plan.parts, _GROUP_BYTES):
        yield _Step(place, plan, group, first)
        first = group[-1].part.first + group[-1].part.count
    yield _Step(place, plan, [], first)


def _require_no_gap(plan: QueuePlan, first: int) -> None:
    """OffsetOutOfRangeError when the tier's retention took what is behind what was read."""
    if first and plan.covered.begin > first:
        raise OffsetOutOfRangeError(
            f"the tier's retention took offsets {first} to {plan.covered.begin} of queue "
            f"{plan.place.queue_id} of {plan.place.topic} before they were read: --accept-gap "
            "continues without them, where a log or a tier is exported alone",
            plan.covered.begin,
            plan.covered.end,
        )


class _Rest:
    """The log's messages that the tier has not."""

    def __init__(self, log: LogFiles, tier: _Tier, decoder: TierDecoder, gaps: bool) -> None:
        self._log = log
        self._tier = tier
        self._decoder = decoder
        self._selection = replace(decoder.selection, elsewhere=tier.covered)
        # What is passed over on purpose is no gap.
        asked_for = gaps or decoder.selection.since_ms is not None or decoder.on_damage is not None
        self._complete = not asked_for

    def batches(self) -> Iterator[pa.RecordBatch]:
        selection = self._selection
        parts = self._log.parts(*self._log.within(selection.since_ms, selection.until_ms))
        while parts:
            try:
                yield from self._part(parts[0])
                del parts[0]
            except FileNotFoundError:
                # Deleted when it was in the tier: before its manifests are loaded.
                while parts and not os.path.exists(parts[0].path):
                    del parts[0]
                yield from self._tier.new_messages()

    def _part(self, part: SegmentPart) -> Iterator[pa.RecordBatch]:
        decoder = self._decoder
        chunks = part_frames(part, verify=decoder.verify, on_damage=decoder.on_damage)
        for raw, frames in chunks:
            wanted = self._selection.wanted(raw, frames)
            self._note(raw, frames)
            if len(wanted):
                yield from decoder.decoder.batches(raw, wanted)

    def _note(self, raw: NDArray[np.uint8], frames: FrameColumns) -> None:
        """How far each queue was read. OffsetOutOfRangeError where messages of it are missing."""
        rows = np.flatnonzero(in_queue(frames))
        if len(rows) < len(frames):
            frames = columns_at(raw, frames.start[rows], frames.size[rows])
        queues, number = queues_in(raw, frames)
        first = np.full(len(queues), np.iinfo(np.int64).max)
        last = np.full(len(queues), -1)
        np.minimum.at(first, number, frames.queue_offset)
        np.maximum.at(last, number, frames.queue_offset)
        for queue, low, high in zip(queues, first.tolist(), last.tolist(), strict=True):
            if self._selection.span_of(*queue) is None:
                continue
            known = self._tier.ends.get(queue)
            if known is not None and low > known and self._complete:
                raise OffsetOutOfRangeError(
                    f"offsets {known} to {low} of queue {queue[1]} of {queue[0]} are neither in "
                    "the tier nor in the log any more: they were deleted before they were "
                    "uploaded. A scan of each by itself, or an export with --accept-gap, reads "
                    "what there is",
                    low,
                    high + 1,
                )
            self._tier.ends[queue] = max(known or 0, high + 1)
