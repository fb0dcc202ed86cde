"""The sequencer: everything that waits goes into the log in one pass, in the order it came.

A pass gives each message its queue offset, physical offset and store time, patches them into
private memory, and writes the bytes to the segment: from the ninth on first, then the first eight,
the magic number among them. A process that is killed in between leaves a pass whole or absent. A
write that fails ends writing, as a failed flush does.

What does not fit the segment with eight bytes to spare goes into the next one, behind a blank
(spec 2.6). If the next segment is not there yet, the pass stops and continues when it is.
"""

from collections import deque
from collections.abc import Sequence
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
from stratamq.formats.frame import encode_blank
from stratamq.formats.frame_layout import END_FILE_MIN_BLANK_LENGTH
from stratamq.formats.message_status import SendStatus
from stratamq_commitlog.messages import Appended, BatchResult, PutResult
from stratamq_commitlog.recovery.recovery import RecoveredLog
from stratamq_commitlog.write import resends
from stratamq_commitlog.write.batch_check import BadFrame, FrameRules
from stratamq_commitlog.write.frame_fields import check_batches, fill_fields
from stratamq_commitlog.write.partial_batch import pieces_between, without_bad_frames
from stratamq_commitlog.write.pending_items import (
    AppendListener,
    BatchItem,
    DataItem,
    Item,
    PutItem,
    failed,
)
from stratamq_commitlog.write.prepare import Prepared
from stratamq_commitlog.write.producer_window import ProducerWindow, Stretch
from stratamq_commitlog.write.put_pass import PutPass
from stratamq_commitlog.write.queue_offsets import QueueOffsets, QueueTurns, queue_ids
from stratamq_commitlog.write.replicated_frames import read_replicated_frames
from stratamq_commitlog.write.segment_set import OpenSegment, SegmentSet

_EIGHT = END_FILE_MIN_BLANK_LENGTH

MAX_AGAIN = 16
"""Batches that may be in the log are looked for one by one, at 50 to 100 µs each: a pass takes so
many."""
MAX_PLACED_MESSAGES = 256
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
        recovered: RecoveredLog,
        window: ProducerWindow,
        *,
        clock: Clock,
        rules: FrameRules,
        pass_bytes: int,
        pass_messages: int,
        turns: QueueTurns,
        listener: AppendListener,
    ) -> None:
        self.appended = recovered.end
        self.queues = QueueOffsets(recovered.queues)
        self.store_timestamp_ms = recovered.store_timestamp_ms
        self.last_frame: tuple[int, int] | None = None
        """(offset, size) of the last frame appended since the start."""
        self.pending_bytes = 0
        self.blocked = False
        """What waits first does not fit, and the next segment is not there yet."""
        self.counters = Counters()
        self._segments = segments
        self._window = window
        self._clock = clock
        self._rules = rules
        self._pass_bytes = pass_bytes
        self._pass_messages = pass_messages
        self._most_placed = min(MAX_PLACED_MESSAGES, pass_messages)
        self._commit = listener.commit
        self._on_appended = listener.appended
        self._on_write_failed = listener.write_failed
        self.turns = turns
        self._failure: OSError | None = None
        self._pending: deque[Item] = deque()

    def enqueue(self, item: Item) -> None:
        item.arrived_ns = self._clock.monotonic_ns()
        self._pending.append(item)
        self.pending_bytes += item.size

    @property
    def waiting(self) -> bool:
        return bool(self._pending)

    @property
    def oldest_ns(self) -> int | None:
        return self._pending[0].arrived_ns if self._pending else None

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
            self._on_write_failed(self._failure)
        return bool(self._pending) and not self.blocked

    def refuse_all(self, status: SendStatus, error: StrataError) -> None:
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
        """Append the batches at the head, as many as fit the segment and the pass, of one fence,
        all numbered or none; and one by itself that may be in the log already."""
        head = self._pending[0]
        assert isinstance(head, BatchItem)
        if self._is_fenced(head):
            return 0, self._pop().size
        if resends.is_suspected(self._window, head.batch):
            self._pop()
            self._append_again(head)
            return max(len(head.batch.lengths), self._pass_messages // MAX_AGAIN), head.size
        room = self._segments.remaining(self.appended) - _EIGHT
        group: list[BatchItem] = []
        messages = size = 0
        for item in self._pending:
            if not isinstance(item, BatchItem) or size + item.size > room:
                break
            if group and (messages >= most_messages or size + item.size > most_bytes):
                break
            batch = item.batch
            is_again = resends.is_suspected(self._window, batch)
            if group and (is_again or not batch.goes_with(head.batch)):
                break
            group.append(item)
            messages += len(batch.lengths)
            size += item.size
        for _ in group:
            self._pop()
        self._append_batches(group)
        return messages, size

    def _append_batches(self, group: list[BatchItem]) -> None:
        try:
            results = self._store(group)
        except BadFrame as bad:
            self._refuse_bad(group, bad)
            return
        if results is None:
            return
        answers = [(item.done, result) for item, result in zip(group, results, strict=True)]

        def finish(status: SendStatus, error: StrataError | None) -> None:
            for done, result in answers:
                if status is not SendStatus.PUT_OK:
                    result = replace(result, status=status, error=error)
                done(result)

        self._commit(self.appended, finish)

    def _store(self, group: list[BatchItem]) -> list[BatchResult] | None:
        """Write the batches, numbered ones or others, one behind the other; how each is to be
        answered once it is safe. None: they could not be written, and are answered. Raises
        BadFrame."""
        batches = [self.turns.placed(item.batch) for item in group]
        checked = check_batches(batches, self._rules)
        raw, runs = checked.raw, checked.runs
        # Taken before the bytes are written: queue 0 is at 7, ten frames get 7 to 16, the write
        # fails, and 17 would be next. No one sees the gap: a write that fails ends writing, and
        # recovery counts the frames that are there.
        firsts = [self.queues.take((run.topic, run.queue_id), run.count) for run in runs]
        now, start = self._now(), self.appended
        fill_fields(
            checked, batches, self._rules, first_queue_offsets=firsts, start=start, now_ms=now
        )
        if not self._publish(memoryview(raw)):
            refused = BatchResult(SendStatus.SERVICE_NOT_AVAILABLE, error=self._not_written())
            for done in dict.fromkeys(item.done for item in group):
                done(refused)
            return None
        last_size = int(checked.lengths[-1])
        self.last_frame = (self.appended + len(raw) - last_size, last_size)
        self._count(len(checked.lengths), len(raw))
        follow_runs = [
            (run.topic, run.queue_id, first, run.count)
            for run, first in zip(runs, firsts, strict=True)
        ]
        self._advance(len(raw), checked.lengths, follow_runs)
        results: list[BatchResult] = []
        run_at, offset = 0, start
        for item, batch in zip(group, batches, strict=True):
            mine = tuple(firsts[run_at : run_at + len(batch.runs)])
            run_at += len(batch.runs)
            told = queue_ids(item.batch, batch)
            results.append(BatchResult(SendStatus.PUT_OK, offset, mine, now, queue_ids=told))
            end = offset + item.size
            if batch.numbers is not None:
                who = (batch.numbers.producer, batch.numbers.first)
                stretch = Stretch(*who, offset, end, batch.lengths, batch.runs, mine, now)
                self._window.record(stretch)
            offset = end
        return results

    def _append_again(self, item: BatchItem) -> None:
        """Store what is not in the log of a batch that may be, and answer all of it."""
        if refusals := resends.left_out(self._window, item.batch):
            for piece in pieces_between(item.batch, refusals, item.done):
                self._append_again(piece)
            return
        try:
            missing = resends.missing(self._window, item.batch)
            parts = [BatchItem(part, item.done, len(part.frames)) for part in missing]
            if parts and self._store(parts) is None:
                return
            end, result = resends.stored(self._window, item.batch)
        except BadFrame as bad:
            self._refuse_bad([item], bad)
            return
        except StrataError as error:
            unknown = isinstance(error, UnavailableError)
            status = SendStatus.UNKNOWN_ERROR if unknown else SendStatus.MESSAGE_ILLEGAL
            item.done(BatchResult(status, error=error))
            return

        def finish(status: SendStatus, error: StrataError | None) -> None:
            item.done(replace(result, status=status, error=error))

        self._commit(end, finish)

    def _refuse_bad(self, group: list[BatchItem], bad: BadFrame) -> None:
        """Refuse what is bad, and append the rest, one by one."""
        rest = group if len(group) > 1 else without_bad_frames(group[0], bad, self._rules)
        for item in rest:
            # Example: a service sent A and B, and A is bad. B was decided on top of A.
            if self._is_fenced(item):
                continue
            if resends.is_suspected(self._window, item.batch):
                self._append_again(item)
            else:
                self._append_batches([item])

    def _is_fenced(self, item: BatchItem) -> bool:
        """Whether the batch is refused because its stream may store nothing more, or not yet."""
        obstacle = item.batch.obstacle()
        if obstacle is not None:
            item.done(BatchResult(SendStatus.SERVICE_NOT_AVAILABLE, error=obstacle))
        return obstacle is not None

    # --- messages given as fields ---

    def _run_puts(self) -> tuple[int, int]:
        """Append the messages of the calls at the head that fit the segment."""
        start = self.appended
        placing = PutPass(
            self.queues,
            self._window,
            self._rules.store_host,
            start=start,
            now_ms=self._now(),
            room=self._segments.remaining(start) - _EIGHT,
            most_messages=self._most_placed,
        )
        finished: list[PutItem] = []
        while self._pending and placing.size < self._pass_bytes and not placing.full:
            item = self._pending[0]
            if not isinstance(item, PutItem):
                break
            if (item.atomic and not placing.fits(item.size)) or not self._place(item, placing):
                break
            self._pop()
            finished.append(item)
        frames, size = placing.frames, placing.size
        if frames and not self._publish(b"".join(frames)):
            for item in [*finished, *islice(self._pending, 1)]:
                if isinstance(item, PutItem):
                    item.withdraw(start, self._not_written())
        elif frames:
            self.last_frame = (start + size - len(frames[-1]), len(frames[-1]))
            self._count(len(frames), size)
            lengths = np.fromiter(map(len, frames), np.uint32, len(frames))
            self._advance(size, lengths, placing.runs)
            placing.record()
        for item in finished:
            item.finish(self._commit)
        return placing.messages, size

    def _place(self, item: PutItem, placing: PutPass) -> bool:
        """Place what follows of a call; False: not all of it fits the segment or the pass."""
        for outcome in islice(item.outcomes, len(item.results), None):
            result = outcome if isinstance(outcome, PutResult) else placing.known(outcome)
            if result is None:
                assert isinstance(outcome, Prepared)
                if not placing.fits(len(outcome.frame)) or (placing.full and not item.atomic):
                    return False
                result = placing.place(outcome)
            if isinstance(outcome, Prepared) and not outcome.wait:
                item.unwaited.add(len(item.results))
            item.results.append(result)
        return True

    # --- a master's bytes ---

    def _run_data(self, item: DataItem) -> tuple[int, int]:
        self._pop()
        if item.offset != self.appended:
            reason = f"data for offset {item.offset}, the log ends at {self.appended}"
            item.done(InvalidRequestError(reason, appended=self.appended))
            return 0, 0
        try:
            remaining = self._segments.remaining(self.appended)
            read = read_replicated_frames(item.data, item.offset, remaining)
        except StrataError as error:
            item.done(error)
            return 0, 0
        self.queues.set(read.next_offsets)
        if read.last_frame is not None:
            self.last_frame = read.last_frame
            self.store_timestamp_ms = max(self.store_timestamp_ms, read.newest_ms)
        if not self._publish(item.data):
            item.done(self._not_written())
            return 0, 0
        self._count(read.count, len(item.data))
        self._advance(len(item.data), read.lengths, read.runs)

        def finish(status: SendStatus, error: StrataError | None) -> None:
            if status is SendStatus.FLUSH_DISK_TIMEOUT:
                # A master that counts this replica relies on the replica's own flush setting.
                error = UnavailableError("stored, and not on the disk yet")
            item.done(error)

        self._commit(self.appended, finish)
        return read.count, len(item.data)

    def _count(self, messages: int, size: int) -> None:
        self.counters.messages += messages
        self.counters.bytes += size
