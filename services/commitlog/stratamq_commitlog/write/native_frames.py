"""The frames of a pass, checked and filled by the kernel: `few_frames` in C, for any number.

Only what is plain is taken, by the same rules; all else, and whatever is wrong, is left to
`batch_check`, which says what it is.
"""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from stratamq.formats.producer_item import item_head
from stratamq_commitlog.messages import FrameBatch, FrameRun
from stratamq_commitlog.write.batch_check import FrameRules

_HOST_BYTES = 8


@dataclass(frozen=True, slots=True)
class PlainFrames:
    """Plain frames of several batches in one private buffer, good as they are and unfilled."""

    raw: bytearray
    lengths: NDArray[np.uint32]
    runs: Sequence[FrameRun]
    run_counts: "array[int]"
    batch_counts: "array[int]"
    native: ModuleType


def plain_frames(
    native: ModuleType, batches: Sequence[FrameBatch], rules: FrameRules
) -> PlainFrames | None:
    """Copy the frames into private memory. None: not all of them are plain."""
    if len(rules.store_host) != _HOST_BYTES:
        return None
    raw = bytearray().join([batch.frames for batch in batches])
    if len(batches) == 1:
        runs, lengths = batches[0].runs, np.ascontiguousarray(batches[0].lengths)
    else:
        runs = [run for batch in batches for run in batch.runs]
        lengths = np.concatenate([batch.lengths for batch in batches])
    topics = [run.topic.encode() for run in runs]
    run_counts = array("q", [run.count for run in runs])
    batch_counts = array("q", [len(batch.lengths) for batch in batches])
    heads = [item_head(one.numbers.producer) for one in batches if one.numbers is not None]
    found = native.plain(
        raw,
        lengths,
        run_counts,
        batch_counts,
        b"".join(topics),
        array("q", accumulate(map(len, topics))),
        b"".join(heads),
        rules.forbidden_flags,
        rules.max_message_bytes,
        rules.property_checksum,
        batches[0].fence is not None,
    )
    if found < len(lengths):
        return None
    return PlainFrames(raw, lengths, runs, run_counts, batch_counts, native)


def fill_plain(
    frames: PlainFrames,
    batches: Sequence[FrameBatch],
    rules: FrameRules,
    first_queue_offsets: list[int],
    start: int,
    now_ms: int,
) -> None:
    """`frame_fields.fill_fields` of plain frames."""
    firsts = [one.numbers.first for one in batches if one.numbers is not None]
    frames.native.fill(
        frames.raw,
        frames.lengths,
        frames.run_counts,
        frames.batch_counts,
        array("q", [run.queue_id for run in frames.runs]),
        array("q", first_queue_offsets),
        array("q", firsts),
        start,
        now_ms.to_bytes(8, "big", signed=True) + rules.store_host,
        rules.property_checksum,
    )
