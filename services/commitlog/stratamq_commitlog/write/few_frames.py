"""The frames of a small pass, checked and filled one by one: columns cost what their NumPy calls
cost, 150 µs, whatever they hold, and a frame by itself 5.

Only what is plain is taken: version 1 with IPv4 hosts, a body, properties shorter than a sector,
and room for a record checksum where records have one. All else, and whatever is wrong, is left to
`batch_check`, which says what it is. A test holds both against each other on the same frames, whole
and with each byte changed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct

import numpy as np
from numpy.typing import NDArray

from stratamq.formats import frame_layout as layout
from stratamq.formats import sysflag
from stratamq.formats.columns import HEADER_BYTES
from stratamq.formats.crc import crc32_31
from stratamq.formats.producer_item import (
    SEQUENCE_AT,
    SEQUENCE_DIGITS,
    before_end,
    encode_sequence,
    item_head,
)
from stratamq.formats.property_crc import PROPERTY_CRC_BYTES, fill_property_crc
from stratamq.formats.source_item import may_end_in_source
from stratamq_commitlog.messages import FrameBatch, FrameRun
from stratamq_commitlog.write.batch_check import (
    PLACEHOLDER,
    PLACEHOLDER_END,
    ZERO_RUN_BYTES,
    FrameRules,
)

MAX_FEW = 32
"""Messages; with more, columns are cheaper."""
_HEAD = Struct(">III24xI44xi")
"""TOTALSIZE, MAGICCODE, BODYCRC, SYSFLAG, BODYLENGTH."""
_QUEUE_ID, _OFFSETS = Struct(">i"), Struct(">qq")
_HOSTS_V6 = sysflag.BORN_HOST_V6 | sysflag.STORE_HOST_V6
_HOST_BYTES, _MAX_TOPIC_BYTES = 8, 127
assert _HEAD.size == HEADER_BYTES
assert layout.PHYSICAL_OFFSET_POSITION == layout.QUEUE_OFFSET_POSITION + 8


@dataclass(frozen=True, slots=True)
class FewFrames:
    """Plain frames of several batches in one private buffer, good as they are and unfilled."""

    raw: bytearray
    lengths: NDArray[np.uint32]
    starts: list[int]
    """And where the last one ends."""
    runs: list[FrameRun]


def few_frames(batches: Sequence[FrameBatch], rules: FrameRules) -> FewFrames | None:
    """Copy the frames into private memory. None: they are not few, or not all of them plain."""
    if sum([len(batch.lengths) for batch in batches]) > MAX_FEW:
        return None
    if len(rules.store_host) != _HOST_BYTES:
        return None
    raw = bytearray().join([batch.frames for batch in batches])
    own = batches[0].fence is not None
    starts, start = [0], 0
    for batch in batches:
        lengths = iter(batch.lengths.tolist())
        item = item_head(batch.numbers.producer) if batch.numbers is not None else b""
        for run in batch.runs:
            topic = run.topic.encode()
            for _ in range(run.count):
                end = start + next(lengths)
                if not _is_plain(raw, start, end, topic, item, rules):
                    return None
                if not (own or item) and may_end_in_source(raw, end):
                    return None
                starts.append(end)
                start = end
    if len(batches) == 1:
        return FewFrames(raw, batches[0].lengths, starts, batches[0].runs)
    joined = np.concatenate([batch.lengths for batch in batches])
    return FewFrames(raw, joined, starts, [run for batch in batches for run in batch.runs])


def _is_plain(
    raw: bytearray, start: int, end: int, topic: bytes, item: bytes, rules: FrameRules
) -> bool:
    if end > len(raw) or end - start < layout.MIN_FRAME_BYTES:
        return False
    size, magic, body_crc, flags, body_length = _HEAD.unpack_from(raw, start)
    body = start + HEADER_BYTES
    topic_at = body + body_length + 1
    properties = topic_at + len(topic) + 2
    properties_length = end - properties
    return (
        size == end - start
        and magic == layout.MAGIC_V1
        and not flags & (rules.forbidden_flags | _HOSTS_V6)
        and 0 < body_length <= rules.max_message_bytes
        and 0 < len(topic) <= _MAX_TOPIC_BYTES
        and 0 < properties_length < ZERO_RUN_BYTES
        and raw[topic_at - 1] == len(topic)
        and raw[topic_at : topic_at + len(topic)] == topic
        and raw[properties - 2] << 8 | raw[properties - 1] == properties_length
        and _ends_well(raw, end, properties_length, item, sealed=rules.property_checksum)
        and crc32_31(memoryview(raw)[body : topic_at - 1]) == body_crc
    )


def _ends_well(
    raw: bytearray, end: int, properties_length: int, item: bytes, *, sealed: bool
) -> bool:
    """Where records are sealed, in room for the checksum; else in no zero byte and no checksum."""
    if item:
        at = end - before_end(sealed)
        if properties_length < before_end(sealed) or raw[at : at + len(item)] != item:
            return False
    if not sealed:
        return raw[end - 1] > PLACEHOLDER_END
    return properties_length >= PROPERTY_CRC_BYTES and raw.endswith(PLACEHOLDER, 0, end)


def fill_few(
    few: FewFrames,
    batches: Sequence[FrameBatch],
    rules: FrameRules,
    first_queue_offsets: list[int],
    start: int,
    now_ms: int,
) -> None:
    """`frame_fields.fill_fields` of few frames."""
    raw, sealed = few.raw, rules.property_checksum
    stamp = now_ms.to_bytes(8, "big", signed=True) + rules.store_host
    rows, firsts = iter(few.starts), iter(first_queue_offsets)
    at = next(rows)
    for batch in batches:
        sequence = batch.numbers.first if batch.numbers is not None else None
        for run in batch.runs:
            first = next(firsts)
            for queue_offset in range(first, first + run.count):
                _QUEUE_ID.pack_into(raw, at + layout.QUEUE_ID_POSITION, run.queue_id)
                _OFFSETS.pack_into(raw, at + layout.QUEUE_OFFSET_POSITION, queue_offset, start + at)
                stamp_at = at + layout.STORE_TIMESTAMP_POSITION_V4
                raw[stamp_at : stamp_at + len(stamp)] = stamp
                begin, at = at, next(rows)
                if sequence is not None:
                    digits_at = at - before_end(sealed) + SEQUENCE_AT
                    raw[digits_at : digits_at + SEQUENCE_DIGITS] = encode_sequence(sequence)
                    sequence += 1
                if sealed:
                    with memoryview(raw) as view, view[begin:at] as frame:
                        fill_property_crc(frame)
