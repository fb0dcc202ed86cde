"""The sequencer: everything that waits goes into the log in one pass, in the order it came.

A pass gives each message its queue offset, physical offset and store time, patches them into
private memory, and writes the bytes to the segment: from the ninth on first, then the first eight,
the magic number among them. A process that is killed in between leaves a pass whole or absent. A
write that fails ends writing, as a failed flush does.

What does not fit the segment with eight bytes to spare goes into the next one, behind a blank
(spec 2.6). If the next segment is not there yet, the pass stops and continues when it is.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from stratamq.errors import (
    InvalidRequestError,
    NotWritableError,
    StrataError,
    UnavailableError,
)
from stratamq.files.port import Clock
from stratamq.follow.protocol import Run as FollowRun
from stratamq.formats.columns_patch import patch
from stratamq.formats.frame import encode_blank
from stratamq.formats.frame_layout import END_FILE_MIN_BLANK_LENGTH, I64
from stratamq.formats.message_id import encode_message_id
from stratamq.formats.property_crc import fill_property_crc
from stratamq_commitlog.messages import (
    BatchDone,
    BatchResult,
    PutResult,
    PutStatus,
)
from stratamq_commitlog.replica.follow_hub import Appended
from stratamq_commitlog.replica.replicated_frames import read_replicated_frames
from stratamq_commitlog.write.batch_check import (
    BadFrame,
    FrameRules,
    check_frames,
    fill_property_checksums,
)
from stratamq_commitlog.write.pending_items import (
    BatchItem,
    Commit,
    DataItem,
    Item,
    PutItem,
    failed,
)
from stratamq_commitlog.write.prepare import Prepared
from stratamq_commitlog.write.queue_offsets import QueueOffsets
from stratamq_commitlog.write.segment_set import OpenSegment, SegmentSet

_EIGHT = END_FILE_MIN_BLANK_LENGTH

MOST_PLACED_MESSAGES = 256
"""Messages given as fields are placed one by one, at 5 to 10 µs each: a pass takes so many, and
what must be stored together."""


@dataclass(slots=True)
class Counters:
    """Totals since the start, for metrics."""

    messages: int = 0
    bytes: int = 0
    passes: int = 0
    segments_rolled: int = 0


class Appender:
    """Owns the end of the log and the queue table. Single-threaded, never waits."""

    def __init__(
        self,
        segments: SegmentSet,
        queues: QueueOffsets,
        end: int,
        store_timestamp_ms: int,
        *,
        clock: Clock,
        rules: FrameRules,
        pass_bytes: int,
        pass_messages: int,
        commit: Commit,
        on_appended: Callable[[Appended], None],
    ) -> None:
        self.on_write_failed: Callable[[OSError], None] = lambda error: None
        """Called once, when writing has ended."""
        self.appended = end
        self.queues = queues
        self.store_timestamp_ms = store_timestamp_ms
        self.last_frame: tuple[int, int] | None = None
        """(offset, size) of the last frame appended since the start."""
        self.pending_bytes = 0
        self.blocked = False
        """What waits first does not fit, and the next segment is not there yet."""
        self.counters = Counters()
        self._segments = segments
        self._clock = clock
        self._rules = rules
        self._pass_bytes = pass_bytes
        self._pass_messages = pass_messages
        self._most_placed = min(MOST_PLACED_MESSAGES, pass_messages)
        self._commit = commit
        self._on_appended = on_appended
        self._failure: OSError | None = None
        self._pending: deque[Item] = deque()

    def enqueue(self, item: Item) -> None:
        self._pending.append(item)
        self.pending_bytes += item.size

    @property
    def waiting(self) -> bool:
        return bool(self._pending)

    def run(self) -> bool:
        """One pass. True: more waits and can go on at once."""
        messages = taken = 0
        self.blocked = False
        self.counters.passes += 1
        while self._pending and messages < self._pass_messages and taken < self._pass_bytes:
            head = self._pending[0]
            if not self._make_room(head):
                self.blocked = self._failure is None
                break
            if isinstance(head, BatchItem):
                count, size = self._run_batches(
                    self._pass_messages - messages, self._pass_bytes - taken
                )
            elif isinstance(head, PutItem):
                count, size = self._run_puts()
                messages += count * (self._pass_messages // self._most_placed - 1)
            else:
                count, size = self._run_data(head)
            messages += count
            taken += size
            if self._failure is not None:
                break
        if self._failure is not None:
            self.on_write_failed(self._failure)
        return bool(self._pending) and not self.blocked

    def refuse_all(self, status: PutStatus, error: StrataError) -> None:
        """Refuse everything that waits; of it, only items that already have a result are stored."""
        while self._pending:
            self._pop().refuse(status, error, self._commit)

    def _pop(self) -> Item:
        item = self._pending.popleft()
        self.pending_bytes -= item.size
        return item

    # --- space ---

    def _make_room(self, item: Item) -> bool:
        """Make the active segment take the item's beginning and a blank, rolling if it must."""
        segments = self._segments
        remaining = segments.remaining(self.appended)
        if isinstance(item, DataItem):
            # A master's bytes fill a segment to its last one; the blanks are among them.
            return remaining > 0 or segments.roll(self.appended)
        size = item.first_size
        if size + _EIGHT <= remaining or size == 0:
            return True
        if remaining:
            following = self.appended + remaining
            active = segments.active
            if not segments.roll(following):
                return False
            assert active is not None
            if not self._write(active, ((self.appended - active.base, encode_blank(remaining)),)):
                return False
            self._advance(remaining, np.array([remaining], np.uint32), ())
            self.counters.segments_rolled += 1
            return True
        return segments.roll(self.appended)

    def _publish(self, source: bytes | memoryview) -> bool:
        """Store a pass: everything but its first eight bytes, then these. False: writing has ended,
        and the log with it, where it was."""
        active = self._segments.active
        assert active is not None
        position, whole = self.appended - active.base, memoryview(source)
        return self._write(
            active, ((position + _EIGHT, whole[_EIGHT:]), (position, whole[:_EIGHT]))
        )

    def _write(
        self, segment: OpenSegment, pieces: Sequence[tuple[int, bytes | memoryview]]
    ) -> bool:
        if self._failure is None:
            try:
                for position, piece in pieces:
                    segment.file.write(position, piece)
            except OSError as error:
                self._failure = error
        return self._failure is None

    def _not_written(self) -> NotWritableError:
        """Nothing of a pass is in the log whose first eight bytes were not written."""
        assert self._failure is not None
        return NotWritableError(failed("write", self._failure), "write_failed")

    def _advance(self, size: int, lengths: NDArray[np.uint32], runs: Sequence[FollowRun]) -> None:
        start = self.appended
        self.appended = start + size
        self._on_appended(Appended(start, self.appended, lengths, runs))

    def _now(self) -> int:
        """The store time of this pass; it never goes back within a log."""
        self.store_timestamp_ms = max(self.store_timestamp_ms, self._clock.wall_ms())
        return self.store_timestamp_ms

    # --- batches of ready frames ---

    def _run_batches(self, most_messages: int, most_bytes: int) -> tuple[int, int]:
        """Append the batches at the head, as many as fit the segment and the pass."""
        room = self._segments.remaining(self.appended) - _EIGHT
        group: list[BatchItem] = []
        messages = size = 0
        for item in self._pending:
            if not isinstance(item, BatchItem) or size + item.size > room:
                break
            if group and (messages >= most_messages or size + item.size > most_bytes):
                break
            group.append(item)
            messages += len(item.batch.lengths)
            size += item.size
        for _ in group:
            self._pop()
        self._append_batches(group)
        return messages, size

    def _append_batches(self, group: list[BatchItem]) -> None:
        try:
            checked = check_frames([item.batch for item in group], self._rules)
        except BadFrame as bad:
            self._refuse_bad(group, bad)
            return
        raw, frames, runs = checked.raw, checked.frames, checked.runs
        firsts = self._take_queue_offsets(runs, checked.run_counts)
        counts = checked.run_counts
        before = counts.cumsum() - counts
        numbers = np.arange(len(frames), dtype=np.int64)
        if len(runs) == 1:
            queue_offset = numbers + firsts[0]
            queue_id = np.full(len(frames), runs[0].queue_id, np.int32)
        else:
            queue_offset = numbers + (np.array(firsts, np.int64) - before).repeat(counts)
            queue_id = np.array([run.queue_id for run in runs], np.int32).repeat(counts)
        now = self._now()
        start = self.appended
        patch(
            raw,
            frames,
            physical_offset=frames.start + start,
            queue_id=queue_id,
            queue_offset=queue_offset,
            store_timestamp_ms=now,
            store_host=self._rules.store_host,
        )
        if len(checked.sealed):
            fill_property_checksums(raw, checked)
        if not self._publish(raw.data):
            refused = BatchResult(PutStatus.SERVICE_NOT_AVAILABLE, error=self._not_written())
            for item in group:
                item.done(refused)
            return
        last_size = int(checked.lengths[-1])
        self.last_frame = (self.appended + len(raw) - last_size, last_size)
        self._count(len(frames), len(raw))
        follow_runs = [
            (run.topic, run.queue_id, first, run.count)
            for run, first in zip(runs, firsts, strict=True)
        ]
        self._advance(len(raw), checked.lengths, follow_runs)
        results: list[tuple[BatchDone, BatchResult]] = []
        run_at, offset = 0, start
        for item in group:
            mine = firsts[run_at : run_at + len(item.batch.runs)]
            run_at += len(item.batch.runs)
            result = BatchResult(PutStatus.PUT_OK, offset, tuple(mine), now)
            results.append((item.done, result))
            offset += item.size

        def finish(status: PutStatus, error: StrataError | None) -> None:
            for done, result in results:
                if status is not PutStatus.PUT_OK:
                    result = replace(result, status=status, error=error)
                done(result)

        self._commit(self.appended, finish)

    def _refuse_bad(self, group: list[BatchItem], bad: BadFrame) -> None:
        """Refuse the batches that hold bad frames, and append the others, one by one."""
        if len(group) > 1:
            for item in group:
                self._append_batches([item])
            return
        number = bad.number
        error = InvalidRequestError(f"frame {number}: {bad}", frame=number, reason=bad.reason)
        group[0].done(BatchResult(PutStatus.MESSAGE_ILLEGAL, error=error))

    def _take_queue_offsets(self, runs: list, counts: NDArray[np.int64]) -> list[int]:
        queues = self.queues
        firsts = []
        for run in runs:
            key = (run.topic, run.queue_id)
            firsts.append(queues.take(key, run.count))
        return firsts

    # --- messages given as fields ---

    def _run_puts(self) -> tuple[int, int]:
        """Append the messages of the calls at the head that fit the segment."""
        now = self._now()
        start = self.appended
        room = self._segments.remaining(start) - _EIGHT
        parts: list[bytearray] = []
        runs: list[FollowRun] = []
        finished: list[PutItem] = []
        size = 0
        while self._pending and size < self._pass_bytes and len(parts) < self._most_placed:
            item = self._pending[0]
            if not isinstance(item, PutItem):
                break
            if item.atomic and size + item.size > room:
                break
            full = False
            for outcome in islice(item.outcomes, len(item.results), None):
                if isinstance(outcome, PutResult):
                    item.results.append(outcome)
                    continue
                full = size + len(outcome.frame) > room or (
                    not item.atomic and len(parts) >= self._most_placed
                )
                if full:
                    break
                if not outcome.wait:
                    item.unwaited.add(len(item.results))
                item.results.append(self._place(outcome, start + size, now, runs))
                parts.append(outcome.frame)
                size += len(outcome.frame)
            if full:
                break
            self._pop()
            finished.append(item)
        if parts and not self._publish(b"".join(parts)):
            for item in [*finished, *islice(self._pending, 1)]:
                if isinstance(item, PutItem):
                    item.withdraw(start, self._not_written())
        elif parts:
            self.last_frame = (start + size - len(parts[-1]), len(parts[-1]))
            self._count(len(parts), size)
            lengths = np.fromiter(map(len, parts), np.uint32, len(parts))
            self._advance(size, lengths, runs)
        for item in finished:
            item.finish(self._commit)
        return len(parts), size

    def _place(self, prepared: Prepared, offset: int, now: int, runs: list[FollowRun]) -> PutResult:
        frame = prepared.frame
        queue_offset = 0
        if prepared.counted:
            key = (prepared.topic, prepared.queue_id)
            queue_offset = self.queues.take(key, 1)
        frame[20:36] = I64.pack(queue_offset) + I64.pack(offset)
        at = prepared.store_timestamp_position
        frame[at : at + 8] = I64.pack(now)
        if prepared.has_checksum:
            fill_property_crc(frame)
        runs.append((prepared.topic, prepared.queue_id, queue_offset, 1))
        return PutResult(
            status=PutStatus.PUT_OK,
            topic=prepared.topic,
            queue_id=prepared.queue_id,
            physical_offset=offset,
            queue_offset=queue_offset,
            store_timestamp_ms=now,
            size=len(frame),
            message_id=encode_message_id(self._rules.store_host, offset),
        )

    # --- a master's bytes ---

    def _run_data(self, item: DataItem) -> tuple[int, int]:
        self._pop()
        if item.offset != self.appended:
            item.done(
                InvalidRequestError(
                    f"data for offset {item.offset}, the log ends at {self.appended}",
                    appended=self.appended,
                )
            )
            return 0, 0
        try:
            remaining = self._segments.remaining(self.appended)
            read = read_replicated_frames(item.data, item.offset, remaining)
        except StrataError as error:
            item.done(error)
            return 0, 0
        frames = read.frames
        self.queues.set(read.next_offsets)
        if len(frames):
            self.last_frame = (item.offset + int(frames.start[-1]), int(frames.size[-1]))
            newest = int(frames.store_timestamp_ms.max())
            self.store_timestamp_ms = max(self.store_timestamp_ms, newest)
        if not self._publish(item.data):
            item.done(self._not_written())
            return 0, 0
        self._count(len(frames), len(item.data))
        self._advance(len(item.data), read.lengths, read.runs)

        def finish(status: PutStatus, error: StrataError | None) -> None:
            if status is PutStatus.FLUSH_DISK_TIMEOUT:
                # Whoever counts on this replica counts on its own flush setting.
                error = UnavailableError("stored, and not on the disk yet")
            item.done(error)

        self._commit(self.appended, finish)
        return len(frames), len(item.data)

    def _count(self, messages: int, size: int) -> None:
        self.counters.messages += messages
        self.counters.bytes += size
