"""What a producer sends again: what of it is in the log, what is to be appended, and the answer.

A batch is stored whole or not at all by a pass, but a loss of power may leave the beginning of it,
and a promotion what the slave had of it. The rest is appended then, and the answer has a part for
each stretch in which the batch lies.
"""

from collections.abc import Iterator, Sequence

from stratamq.errors import InvalidRequestError, StrataError, UnavailableError
from stratamq.formats.message_id import encode_message_id
from stratamq.formats.message_status import SendStatus
from stratamq.formats.topics import ANY_QUEUE
from stratamq.rpc.refusals import Refusal
from stratamq_commitlog.messages import (
    BatchResult,
    FrameBatch,
    FrameRun,
    Numbers,
    PutResult,
    StoredPart,
    runs_within,
)
from stratamq_commitlog.write.producer_window import ProducerWindow, Stretch


def is_suspected(window: ProducerWindow, batch: FrameBatch) -> bool:
    """Something of the batch may be in the log. A batch that is not marked as sent again is, when
    an attempt that came later has overtaken it."""
    numbers = batch.numbers
    return numbers is not None and (
        numbers.sent_from is not None or window.has_later(numbers.producer, numbers.first)
    )


def beyond_window() -> UnavailableError:
    return UnavailableError(
        "an earlier attempt may have stored it, before what the log's window of producers reaches "
        "back to (commitlog.producer_window_bytes): perhaps stored",
        beyond_window=True,
    )


def missing(window: ProducerWindow, batch: FrameBatch) -> list[FrameBatch]:
    """What of a numbered batch is not in the log, in order. UnavailableError (`beyond_window`) when
    that cannot be known."""
    numbers = batch.numbers
    assert numbers is not None
    found = window.find(numbers.producer, numbers.first, len(batch.lengths))
    absent = [piece for piece in found if piece.stretch is None]
    if absent and window.may_hide(numbers.sent_from):
        raise beyond_window()
    first = numbers.first
    return batch.stretches([(one.first - first, one.following - first) for one in absent])


def left_out(window: ProducerWindow, batch: FrameBatch) -> list[Refusal]:
    """What of a batch of a stream in order an earlier attempt has refused: later messages of its
    producer are in the log. For example, the topic of 5 was closed, and 6 was stored. The topic is
    opened, and 5 comes again, for its answer was lost: 6 would now be before it."""
    numbers = batch.numbers
    assert numbers is not None
    if batch.behind is None or window.may_hide(numbers.sent_from):
        return []
    first, count = numbers.first, len(batch.lengths)
    refusals = [
        Refusal(
            piece.first - first,
            piece.following - piece.first,
            SendStatus.MESSAGE_ILLEGAL,
            InvalidRequestError(
                f"message {piece.first} was refused when it was first sent, and later ones of its "
                "producer are stored: it would be out of order"
            ),
        )
        for piece in window.find(numbers.producer, first, count)
        if piece.stretch is None and window.has_later(numbers.producer, piece.following)
    ]
    return refusals if batch.partial or (refusals and refusals[0].count == count) else []


def stored(window: ProducerWindow, batch: FrameBatch) -> tuple[int, BatchResult]:
    """Where the log offset is that an answer waits for, and the answer for a numbered batch that is
    in the log as a whole. InvalidRequestError when its sequences are of other messages."""
    numbers = batch.numbers
    assert numbers is not None
    end, parts = 0, []
    found = window.find(numbers.producer, numbers.first, len(batch.lengths))
    bounds = [(one.first - numbers.first, one.following - numbers.first) for one in found]
    is_chosen = any(run.queue_id == ANY_QUEUE for run in batch.runs)
    for piece, runs in zip(found, runs_within(batch.runs, bounds), strict=True):
        stretch = piece.stretch
        if stretch is None:
            raise _reused(numbers.first)
        skipped, taken = piece.first - stretch.first, piece.following - piece.first
        offset = stretch.offset + int(stretch.lengths[:skipped].sum())
        lengths = stretch.lengths[skipped : skipped + taken]
        queues, firsts = zip(*_places(stretch, skipped, runs), strict=True)
        told = queues if is_chosen else ()
        parts.append(StoredPart(offset, lengths, firsts, stretch.store_timestamp_ms, told))
        end = max(end, offset + int(lengths.sum()))
    first = parts[0]
    return end, BatchResult(
        SendStatus.PUT_OK,
        first.physical_offset,
        first.first_queue_offsets,
        first.store_timestamp_ms,
        parts=tuple(parts),
        queue_ids=first.queue_ids,
    )


def stored_message(
    window: ProducerWindow, numbers: Numbers, topic: str, store_host: bytes
) -> PutResult | None:
    """The answer for a message given as fields: where it is, or that this cannot be known; None: it
    is not in the log."""
    (piece,) = window.find(numbers.producer, numbers.first, 1)
    stretch = piece.stretch
    if stretch is None:
        if not window.may_hide(numbers.sent_from):
            return None
        return PutResult(SendStatus.UNKNOWN_ERROR, topic, error=beyond_window())
    row = numbers.first - stretch.first
    run, queue_offset = _place(stretch, row)
    if run.topic != topic:
        error: StrataError = _reused(numbers.first)
        return PutResult(SendStatus.MESSAGE_ILLEGAL, topic, error=error)
    offset = stretch.offset + int(stretch.lengths[:row].sum())
    return PutResult(
        status=SendStatus.PUT_OK,
        topic=run.topic,
        queue_id=run.queue_id,
        physical_offset=offset,
        queue_offset=queue_offset,
        store_timestamp_ms=stretch.store_timestamp_ms,
        size=int(stretch.lengths[row]),
        message_id=encode_message_id(store_host, offset),
    )


def _places(stretch: Stretch, row: int, runs: Sequence[FrameRun]) -> Iterator[tuple[int, int]]:
    """The queue of each run, and its first message's offset there. InvalidRequestError when one of
    them lies in another queue than it names, or not in one piece."""
    number, begin = stretch.run_of(row)
    for run in runs:
        while row >= begin + stretch.runs[number].count:
            begin += stretch.runs[number].count
            number += 1
        known, first = stretch.runs[number], stretch.first_queue_offsets[number]
        fits = row + run.count <= begin + known.count
        if not fits or known.topic != run.topic or run.queue_id not in (ANY_QUEUE, known.queue_id):
            raise _reused(stretch.first + row)
        yield known.queue_id, first + row - begin
        row += run.count


def _place(stretch: Stretch, row: int) -> tuple[FrameRun, int]:
    """A message's run and queue offset."""
    number, begin = stretch.run_of(row)
    return stretch.runs[number], stretch.first_queue_offsets[number] + row - begin


def _reused(sequence: int) -> InvalidRequestError:
    return InvalidRequestError(f"the producer used sequence {sequence} for another message")
