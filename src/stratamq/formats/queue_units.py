"""Many queue units at once: from dispatch columns to the bytes of consume queues.

The pure builder of consume queues, used by the dispatcher, `repair` and Spark: rows are grouped by
(topic, queue) in one NumPy pass and come out as runs of consecutive queue offsets, in log order.
`queue_unit` has the byte table of one unit; a queue that does not begin at 0 has pre-blank units
in front, back to the beginning of its first file. Spec 6.2 to 6.4.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stratamq.formats.dispatch import DispatchColumns
from stratamq.formats.light_queues import LIGHT_QUEUE_ID
from stratamq.formats.queue_unit import (
    PRE_BLANK,
    PRE_BLANK_SIZE,
    QUEUE_UNIT_BYTES,
    encode_queue_unit,
)

UNIT = np.dtype([("physical_offset", ">i8"), ("size", ">i4"), ("tags_code", ">i8")])
assert UNIT.itemsize == QUEUE_UNIT_BYTES

UnitArray = NDArray[np.void]
"""Rows of `UNIT`."""

_QUEUE_ID_MASK = np.int64(0xFFFFFFFF)
_RADIX_SORTED = 1 << 16


@dataclass(frozen=True, slots=True)
class UnitRun:
    """Units of one queue with consecutive queue offsets, as the bytes of its file."""

    topic: str
    queue_id: int
    first_queue_offset: int
    count: int
    units: memoryview
    """20 · count bytes."""
    first_physical_offset: int
    end_offset: int
    """Where the last message's frame ends in the log."""
    newest_store_timestamp_ms: int
    """Store time of the last message."""


def unit_runs(columns: DispatchColumns) -> list[UnitRun]:
    """The units of all frames that stand in queues (transaction type none or commit).

    The runs of one queue come in log order; a run ends where queue offsets do not follow upon each
    other, which the reader of the result judges.
    """
    rows = np.flatnonzero(columns.in_queue)
    if not len(rows):
        return []
    key = (columns.topic_index[rows].astype(np.int64) << 32) | (
        columns.queue_id[rows] & _QUEUE_ID_MASK
    )
    order = _grouped(key)
    if order is not None:
        rows, key = rows[order], key[order]
    physical = columns.physical_offset[rows]
    sizes = columns.size[rows]
    queue_offset = columns.queue_offset[rows]
    units = np.empty(len(rows), UNIT)
    units["physical_offset"] = physical
    units["size"] = sizes
    units["tags_code"] = columns.tags_code[rows]

    breaks = (key[1:] != key[:-1]) | (queue_offset[1:] != queue_offset[:-1] + 1)
    first = np.concatenate(([0], np.flatnonzero(breaks) + 1))
    last = np.append(first[1:], len(rows)) - 1
    ends = physical[last] + sizes[last]
    heads = rows[first]
    raw = units.view(np.uint8).data
    topics = columns.topics
    return [
        UnitRun(
            topics[topic],
            queue_id,
            offset,
            stop - start + 1,
            raw[start * QUEUE_UNIT_BYTES : (stop + 1) * QUEUE_UNIT_BYTES],
            begin,
            end,
            newest,
        )
        for topic, queue_id, offset, start, stop, begin, end, newest in zip(
            columns.topic_index[heads].tolist(),
            columns.queue_id[heads].tolist(),
            queue_offset[first].tolist(),
            first.tolist(),
            last.tolist(),
            physical[first].tolist(),
            ends.tolist(),
            columns.store_timestamp_ms[rows[last]].tolist(),
            strict=True,
        )
    ]


def light_runs(columns: DispatchColumns) -> list[UnitRun]:
    """The units of frames in light queues, one a run, in log order: the unit is that of the frame's
    own queue, at another queue offset."""
    in_queue = columns.in_queue if columns.light else ()
    runs = []
    for row, name, offset in columns.light:
        if not in_queue[row]:
            continue
        begin, size = int(columns.physical_offset[row]), int(columns.size[row])
        unit = encode_queue_unit(begin, size, int(columns.tags_code[row]))
        time_ms = int(columns.store_timestamp_ms[row])
        view = memoryview(unit)
        run = UnitRun(name, LIGHT_QUEUE_ID, offset, 1, view, begin, begin + size, time_ms)
        runs.append(run)
    return runs


def decode_units(buffer: bytes | bytearray | memoryview) -> UnitArray:
    """The whole units in `buffer`, as a view of it."""
    return np.frombuffer(buffer, UNIT, count=len(buffer) // QUEUE_UNIT_BYTES)


def valid_units(units: UnitArray) -> NDArray[np.bool_]:
    """RocketMQ's rule: offset ≥ 0 and size > 0. Pre-blank units are valid."""
    return (units["physical_offset"] >= 0) & (units["size"] > 0)


def pre_blank_units(units: UnitArray) -> NDArray[np.bool_]:
    return (units["physical_offset"] == 0) & (units["size"] == PRE_BLANK_SIZE)


def ordered_prefix(units: UnitArray, below: int, after: int = -1) -> int:
    """How many units from the beginning are valid, in log order and below the offset `below`.

    The first must not begin before `after`. Pre-blank units are no message and end the prefix.
    """
    physical = units["physical_offset"].astype(np.int64)
    ends = physical + units["size"]
    good = valid_units(units) & (physical < below) & ~pre_blank_units(units)
    if len(units):
        good[0] &= bool(physical[0] >= after)
        good[1:] &= physical[1:] >= ends[:-1]
    return len(units) if good.all() else int(np.argmin(good))


def pre_blank_fill(units: int) -> Iterator[bytes]:
    """`units` pre-blank units, in pieces of bounded size."""
    while units > 0:
        count = min(units, 1 << 16)
        yield PRE_BLANK * count
        units -= count


def _grouped(key: NDArray[np.int64]) -> NDArray[np.int64] | None:
    """A stable order in which equal keys stand together; None when they already do."""
    if (key == key[0]).all():
        return None
    topic_index = key >> 32
    queue_id = key & _QUEUE_ID_MASK
    width = int(queue_id.max()) + 1
    if (int(topic_index.max()) + 1) * width <= _RADIX_SORTED:
        return np.argsort((topic_index * width + queue_id).astype(np.uint16), kind="stable")
    return np.argsort(key, kind="stable")
