"""The log of a running broker as record batches: whole frames, decoded here.

A reader of everything reads the log. A reader of some queues reads them by the dispatcher, where
its address is known, and from the log only what it has not applied yet.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa

from stratamq.client import Client, Queue
from stratamq.errors import CorruptionError, UnavailableError
from stratamq.formats.columns import columns_at
from stratamq.formats.dispatch import scan_lengths
from stratamq.formats.frame_verify import first_damaged
from stratamq.formats.log_damage import mark_off
from stratamq.table.decode import Decoder
from stratamq.table.selection import Selection

QueueRange = tuple[str, int, int, int]
"""Topic, queue id, and queue offsets [begin, end)."""

_PIECE_BYTES = 4 << 20
_QUEUES_AT_ONCE = 1000
"""Queues of one stream: the dispatcher takes ten times as many."""


def read_broker(client: Client, decoder: Decoder, selection: Selection) -> Iterator[pa.RecordBatch]:
    """Up to what is confirmed now. In the log's order, or, when queues are selected and a
    dispatcher can be asked, in order within each queue.
    """
    state = client.log_state()
    begin, end = state.minimum_offset, state.confirmed_offset
    if selection.physical is not None:
        end = min(end, selection.physical[1])
    if selection.by_queues:
        try:
            applied = min(client.admin.dispatch_state().applied_offset, end)
            queues = client.queues()
        except UnavailableError:
            pass  # without a dispatcher everything is in the log
        else:
            yield from _read_queues(client, queues, decoder, _up_to(selection, applied))
            begin = max(begin, applied)
    if begin < end:
        yield from read_log(client, decoder, selection, begin, end, state.segment_bytes)


def read_log(
    client: Client,
    decoder: Decoder,
    selection: Selection,
    begin: int,
    end: int,
    segment_bytes: int,
) -> Iterator[pa.RecordBatch]:
    """Selected messages that begin at log offsets [begin, end), in the log's order."""
    for offset, data in client.log_frames(begin, end):
        segment_end = (offset // segment_bytes + 1) * segment_bytes
        _, starts, sizes = mark_off(data, offset, segment_end)
        yield from _batches(np.frombuffer(data, np.uint8), starts, sizes, decoder, selection)


def _read_queues(
    client: Client, queues: list[Queue], decoder: Decoder, selection: Selection
) -> Iterator[pa.RecordBatch]:
    ranges = [one for queue in queues if (one := range_of(client, queue, selection)) is not None]
    for first in range(0, len(ranges), _QUEUES_AT_ONCE):
        some = ranges[first : first + _QUEUES_AT_ONCE]
        for number, _, frames in client.queue_frames(some, _PIECE_BYTES):
            yield from queue_batches(frames, some[number], decoder, selection)


def queue_batches(
    frames: memoryview, queue: QueueRange, decoder: Decoder, selection: Selection
) -> Iterator[pa.RecordBatch]:
    """What is wanted of a queue's frames; none is empty. CorruptionError."""
    sizes = scan_lengths(frames, 0, len(frames)).astype(np.int64)
    starts = sizes.cumsum() - sizes
    damaged = first_damaged(frames, starts, sizes) if len(sizes) else None
    if damaged is not None:
        topic, queue_id, _, _ = queue
        raise CorruptionError(
            f"the dispatcher sent a damaged frame of queue {queue_id} of {topic} ({damaged[1]})"
        )
    return _batches(np.frombuffer(frames, np.uint8), starts, sizes, decoder, selection)


def _batches(
    raw: np.ndarray, starts: np.ndarray, sizes: np.ndarray, decoder: Decoder, selection: Selection
) -> Iterator[pa.RecordBatch]:
    """What is wanted of it; none is empty."""
    frames = columns_at(raw, starts, sizes)
    rows = selection.rows(raw, frames)
    if rows is not None:
        frames = columns_at(raw, starts[rows], sizes[rows])
    if len(frames):
        yield from decoder.batches(raw, frames)


def _up_to(selection: Selection, applied: int) -> Selection:
    """Limit the selection to everything that the queues have below a log offset."""
    begin, end = selection.physical or (0, applied)
    return replace(selection, physical=(begin, min(end, applied)))


def range_of(
    client: Client, queue: Queue, selection: Selection, *, ask_times: bool = True
) -> QueueRange | None:
    """What is to be read of a queue; None: nothing. `ask_times`: begin at `since_ms`, by a call."""
    span = selection.span_of(queue.topic, queue.queue_id)
    if span is None:
        return None
    begin, end = max(span[0], queue.min_offset), min(span[1], queue.max_offset)
    if ask_times and selection.since_ms is not None and begin < end:
        first = client.offset_at_time(queue.topic, queue.queue_id, selection.since_ms)
        begin = max(begin, first)
    return (queue.topic, queue.queue_id, begin, end) if begin < end else None
