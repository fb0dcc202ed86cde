"""The records that a queue's units name, cut out of the bytes around them.

A unit whose record is not there, is another record or is damaged in its head yields nothing; the
others keep their own offsets, so that damage in the middle shifts nobody. Spec tier 6.6.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from stratamq.formats import frame_layout as layout
from stratamq.formats.queue_units import UnitArray
from stratamq.formats.sysflag import host_bytes
from stratamq.formats.tier_records import CODA_BYTES, CODA_MAGIC

_MAGICS = (layout.MAGIC_V1, layout.MAGIC_V2)


@dataclass(frozen=True, slots=True)
class TierMessage:
    """A record as it is in the tier, and the tag code of its unit."""

    offset: int
    tags_code: int
    record: memoryview


def cut_records(
    units: UnitArray, first_offset: int, data: bytes | memoryview, base: int
) -> Iterator[TierMessage]:
    """Units of consecutive queue offsets from `first_offset` on → their records in `data`, which
    begins at place `base` of the queue's records."""
    view = memoryview(data)
    for number, unit in enumerate(units.tolist()):
        place, size, tags_code = unit
        record = _record(view, place - base, size, first_offset + number)
        if record is not None:
            yield TierMessage(first_offset + number, tags_code, record)


def _record(view: memoryview, start: int, size: int, offset: int) -> memoryview | None:
    if start < 0 or size < layout.MIN_FRAME_BYTES or start + size > len(view):
        return None
    if _number(view, start + layout.MAGIC_POSITION, 4) == CODA_MAGIC:
        start += CODA_BYTES
        if start + size > len(view):
            return None
    record = view[start : start + size]
    good = (
        _number(record, layout.TOTAL_SIZE_POSITION, 4) == size
        and _number(record, layout.MAGIC_POSITION, 4) in _MAGICS
        and _number(record, layout.QUEUE_OFFSET_POSITION, 8) == offset
    )
    return record if good else None


def _number(view: memoryview, position: int, size: int) -> int:
    return int.from_bytes(view[position : position + size], "big")


def queue_offset_of(head: bytes | memoryview) -> int:
    """From the first 28 bytes of a record."""
    return _number(memoryview(head), layout.QUEUE_OFFSET_POSITION, 8)


STORE_TIME_BYTES = layout.BORN_HOST_POSITION + 20 + 8
"""The first bytes of a record that have its store time, whatever its born host: no record is
shorter."""
assert STORE_TIME_BYTES <= layout.MIN_FRAME_BYTES


def store_time_of(head: bytes | memoryview) -> int:
    """From the first `STORE_TIME_BYTES` of a record; an IPv6 born host is honoured."""
    view = memoryview(head)
    flags = _number(view, layout.SYS_FLAG_POSITION, 4)
    return _number(view, layout.BORN_HOST_POSITION + host_bytes(flags)[0], 8)
