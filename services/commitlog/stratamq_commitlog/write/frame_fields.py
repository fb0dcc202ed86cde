"""What the log writes into the frames of a pass, in private memory, before they are stored."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from stratamq.formats import kernel
from stratamq.formats.columns_patch import patch
from stratamq.formats.producer_item import fill_sequences, items_match
from stratamq.formats.source_item import possible_copies, source_of
from stratamq_commitlog.messages import FrameBatch
from stratamq_commitlog.write.batch_check import (
    BadFrame,
    CheckedFrames,
    FrameRules,
    check_frames,
    fill_property_checksums,
)
from stratamq_commitlog.write.few_frames import FewFrames, few_frames, fill_few
from stratamq_commitlog.write.native_frames import PlainFrames, fill_plain, plain_frames

Checked = FewFrames | PlainFrames | CheckedFrames


def check_batches(batches: list[FrameBatch], rules: FrameRules) -> Checked:
    """Copy the frames into private memory and check every one. All `batches` are numbered, or none,
    and of one fence, or of producers. Raises BadFrame."""
    rules = rules.for_batch(batches[0])
    plain: FewFrames | PlainFrames | None
    if kernel.NATIVE is not None:
        plain = plain_frames(kernel.NATIVE, batches, rules)
    else:
        plain = few_frames(batches, rules)
    if plain is not None:
        return plain
    checked = check_frames(batches, rules)
    if batches[0].numbers is not None:
        _check_items(checked, batches, rules)
    elif batches[0].fence is None:
        _check_sources(checked)
    return checked


def _check_items(checked: CheckedFrames, batches: Sequence[FrameBatch], rules: FrameRules) -> None:
    """Every frame of numbered batches has room for its producer's item. Raises BadFrame."""
    producers = [batch.numbers.producer for batch in batches if batch.numbers is not None]
    good = items_match(
        checked.raw, checked.frames, producers, _counts(batches), checksum=rules.property_checksum
    )
    if not good.all():
        what = "the frame must end in its producer's item"
        raise BadFrame(int(np.flatnonzero(~good)[0]), "producer_item", what)


def _check_sources(checked: CheckedFrames) -> None:
    """No frame says that it delivers another message: followers would believe it. Raises
    BadFrame."""
    frames = checked.frames
    for row in possible_copies(checked.raw, frames.start + frames.size).tolist():
        end = int(frames.start[row] + frames.size[row])
        properties = checked.raw[end - int(frames.properties_length[row]) : end].tobytes()
        if source_of(properties) is not None:
            what = "the property PSRC at the end is for services of the broker: leave it out"
            raise BadFrame(row, "source_item", what)


def fill_fields(
    checked: Checked,
    batches: Sequence[FrameBatch],
    rules: FrameRules,
    *,
    first_queue_offsets: list[int],
    start: int,
    now_ms: int,
) -> None:
    """Offsets, store time and host, sequences, and what follows from all of it, the record
    checksum. `start`: the log offset of the first frame; all `batches` are numbered, or none."""
    if isinstance(checked, FewFrames):
        fill_few(checked, batches, rules, first_queue_offsets, start, now_ms)
        return
    if isinstance(checked, PlainFrames):
        fill_plain(checked, batches, rules, first_queue_offsets, start, now_ms)
        return
    raw, frames, runs = checked.raw, checked.frames, checked.runs
    counts = checked.run_counts
    numbers = np.arange(len(frames), dtype=np.int64)
    if len(runs) == 1:
        queue_offset = numbers + first_queue_offsets[0]
        queue_id = np.full(len(frames), runs[0].queue_id, np.int32)
    else:
        before = counts.cumsum() - counts
        queue_offset = numbers + (np.array(first_queue_offsets, np.int64) - before).repeat(counts)
        queue_id = np.array([run.queue_id for run in runs], np.int32).repeat(counts)
    patch(
        raw,
        frames,
        physical_offset=frames.start + start,
        queue_id=queue_id,
        queue_offset=queue_offset,
        store_timestamp_ms=now_ms,
        store_host=rules.store_host,
    )
    firsts = [batch.numbers.first for batch in batches if batch.numbers is not None]
    if len(firsts) == 1:
        fill_sequences(raw, frames, numbers + firsts[0], checksum=rules.property_checksum)
    elif firsts:
        sizes = _counts(batches)
        sequences = numbers + (np.array(firsts, np.int64) - sizes.cumsum() + sizes).repeat(sizes)
        fill_sequences(raw, frames, sequences, checksum=rules.property_checksum)
    if len(checked.sealed):
        fill_property_checksums(raw, checked)


def _counts(batches: Sequence[FrameBatch]) -> NDArray[np.int64]:
    return np.array([len(batch.lengths) for batch in batches], np.int64)
