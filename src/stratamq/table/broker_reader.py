"""The log of a running broker as record batches: whole verified frames, decoded here."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from stratamq.client import Client
from stratamq.formats.columns import columns_at
from stratamq.formats.log_damage import mark_off
from stratamq.table.decode import Decoder
from stratamq.table.selection import Selection


def read_broker(client: Client, decoder: Decoder, selection: Selection) -> Iterator[pa.RecordBatch]:
    """From the log's minimum up to what is confirmed now, in the log's order."""
    state = client.log_state()
    begin, end = state.minimum_offset, state.confirmed_offset
    if selection.physical is not None:
        end = min(end, selection.physical[1])
    if begin >= end:
        return
    for offset, data in client.log_frames(begin, end):
        segment_end = (offset // state.segment_bytes + 1) * state.segment_bytes
        _, starts, sizes = mark_off(data, offset, segment_end)
        raw = np.frombuffer(data, np.uint8)
        frames = columns_at(raw, starts, sizes, offset)
        rows = selection.rows(raw, frames)
        if rows is not None:
            frames = columns_at(raw, frames.start[rows], frames.size[rows], offset)
        if len(frames):
            yield decoder.decode_columns(raw, frames)
