"""Batches of which the log leaves out what it does not take, and stores the rest.

    messages      0 1 2 3 4 5     3 is for a topic that is closed
    pieces        0 1 2 · 4 5     the messages of each are consecutive, and keep their sequences
    the answer    a part for each piece, and why 3 is left out

The pieces are stored in order, but not together: should the log have to refuse a later one for now
(its disk is full, it was demoted), the batch is answered as one that may be stored, and its
producer sends it again.
"""

from collections.abc import Sequence
from dataclasses import replace

from stratamq.errors import UnavailableError
from stratamq.formats.message_status import SendStatus
from stratamq.rpc.refusals import Refusal, holds_up
from stratamq_commitlog.messages import BatchDone, BatchResult, FrameBatch, StoredPart
from stratamq_commitlog.write.batch_check import BadFrame, FrameRules
from stratamq_commitlog.write.frame_fields import check_batches
from stratamq_commitlog.write.pending_items import BatchItem

MAX_BAD_FRAMES = 16
"""A batch is checked again behind each bad frame: not more often than so."""


def pieces_between(
    batch: FrameBatch, refusals: Sequence[Refusal], done: BatchDone
) -> list[BatchItem]:
    """What is to be stored of a batch, in order; `done` is called once all of it is answered, at
    once where nothing is. `refusals` are in order."""
    starts = [0, *(one.rows.stop for one in refusals)]
    stops = [*(one.first for one in refusals), len(batch.lengths)]
    bounds = [pair for pair in zip(starts, stops, strict=True) if pair[0] < pair[1]]
    answer = _Answer(refusals, len(bounds), done)
    if not bounds:
        answer.give()
    return [
        answer.piece(number, bounds[number][0], piece)
        for number, piece in enumerate(batch.stretches(bounds))
    ]


def without_bad_frames(item: BatchItem, bad: BadFrame, rules: FrameRules) -> list[BatchItem]:
    """What is to be stored of a batch with a bad frame; the rest of it, or all, is refused."""
    if item.batch.partial:
        return pieces_between(item.batch, _bad_frames(item.batch, rules), item.done)
    item.done(BatchResult(SendStatus.MESSAGE_ILLEGAL, error=bad.refusal(0, 1).error))
    return []


def _bad_frames(batch: FrameBatch, rules: FrameRules) -> list[Refusal]:
    """Why frames of a batch are refused, in order; from the last of `MAX_BAD_FRAMES` on, all."""
    count, refusals = len(batch.lengths), []
    start = 0
    while start < count:
        try:
            check_batches(batch.stretches([(start, count)]), rules)
        except BadFrame as bad:
            is_last = len(refusals) + 1 == MAX_BAD_FRAMES
            refusals.append(bad.refusal(start, count - start - bad.number if is_last else 1))
            start = refusals[-1].rows.stop
        else:
            break
    return refusals


class _Answer:
    """Collects how the pieces of one batch ended."""

    def __init__(self, refusals: Sequence[Refusal], pieces: int, done: BatchDone) -> None:
        self._refusals = list(refusals)
        self._missing = pieces
        self._done = done
        self._results: list[tuple[int, FrameBatch, BatchResult]] = []
        self._given = False

    def piece(self, number: int, start: int, batch: FrameBatch) -> BatchItem:
        def done(result: BatchResult) -> None:
            if self._given:
                return
            # One before it is stored, and waits until it is safe. The stream must not take later
            # batches meanwhile: they would be stored before this piece.
            early = len(self._results) < number and holds_up(result.error)
            self._results.append((start, batch, result))
            self._missing -= 1
            if early or not self._missing:
                self.give()

        return BatchItem(batch, done, len(batch.frames))

    def give(self) -> None:
        self._given = True
        self._results.sort(key=lambda one: one[0])
        self._done(self._merged())

    def _merged(self) -> BatchResult:
        results = [result for _, _, result in self._results]
        for_now = next((one for one in results if holds_up(one.error)), None)
        is_answered = not self._missing
        if for_now and is_answered and all(one.physical_offset < 0 for one in results):
            return for_now
        if for_now is not None:
            error = UnavailableError(f"a part of the batch is stored: {for_now.error}")
            return BatchResult(SendStatus.UNKNOWN_ERROR, error=error)
        parts: list[StoredPart] = []
        for start, batch, result in self._results:
            self._refusals += [_within(one, start) for one in result.refusals]
            if result.physical_offset >= 0:
                parts += result.parts or [_part(batch, result)]
            elif result.error is not None and not result.refusals:
                count = len(batch.lengths)
                self._refusals.append(Refusal(start, count, result.status, result.error))
        refusals = tuple(sorted(self._refusals, key=lambda one: one.first))
        if not parts:
            return BatchResult(refusals[0].status, error=refusals[0].error, refusals=refusals)
        stored = [one for one in results if one.physical_offset >= 0]
        least = next((one for one in stored if one.status is not SendStatus.PUT_OK), stored[0])
        first = parts[0]
        return BatchResult(
            least.status,
            first.physical_offset,
            first.first_queue_offsets,
            first.store_timestamp_ms,
            least.error,
            tuple(parts),
            first.queue_ids,
            refusals,
        )


def _within(refusal: Refusal, start: int) -> Refusal:
    """A piece's refusal, counted from the batch's first message."""
    error = refusal.error.fresh_copy()
    frame = error.fields.get("frame")
    if isinstance(frame, int):
        error.message = error.message.replace(f"frame {frame}:", f"frame {frame + start}:", 1)
        error.fields = error.fields | {"frame": frame + start}
    return replace(refusal, first=refusal.first + start, error=error)


def _part(batch: FrameBatch, result: BatchResult) -> StoredPart:
    return StoredPart(
        result.physical_offset,
        batch.lengths,
        result.first_queue_offsets,
        result.store_timestamp_ms,
        result.queue_ids,
    )
