"""Small parts of a queue made into larger ones, where each part is an object.

A queue with few messages gets a small part with each commit. When the last `RUN` parts are small
they become one object; so do `FEW` parts and more that are together more than half of `JOIN_BYTES`,
and then stay. The manifest stays short: at most `RUN` parts of the smallest size, as many of the
middle one, and about one for each third of `JOIN_BYTES` of a segment. A byte is written about four
times at most.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from stratamq.formats.crc import crc32
from stratamq.formats.queue_unit import QUEUE_UNIT_BYTES
from stratamq.formats.tier_manifest import Dropped, Epoch, Manifest, ManifestPart, RecordSegment
from stratamq.tier.containers.place import QueuePlace
from stratamq.tier.driver.calls import Create, Procedure, StorageCall
from stratamq.tier.reading.manifests import queue_of

RUN, FEW = 64, 4
JOIN_BYTES = 8 << 20
SMALL_BYTES = JOIN_BYTES // RUN


def run_to_merge(manifest: Manifest) -> int:
    """How many of the last parts are to be one; 0: none, or the storage has positions."""
    if manifest.positions or not manifest.records:
        return 0
    parts = manifest.records[-1].parts
    small, _ = _trailing(parts, SMALL_BYTES)
    if small >= RUN:
        return small
    middle, size = _trailing(parts, JOIN_BYTES // 2)
    return middle if middle >= FEW and size > JOIN_BYTES // 2 else 0


def _trailing(parts: Sequence[ManifestPart], limit: int) -> tuple[int, int]:
    """The number of last parts below `limit` that are together at most `JOIN_BYTES`, and their
    bytes."""
    count = size = 0
    for part in reversed(parts):
        if part.size >= limit or size + part.size > JOIN_BYTES:
            break
        count, size = count + 1, size + part.size
    return count, size


def merged(
    place: QueuePlace, manifest: Manifest, count: int, epoch: Epoch, attempt: str, now_ms: int
) -> Procedure[tuple[Manifest, list[StorageCall[Any]]]]:
    """The next manifest, in which the last `count` parts (2 or more) are one, and the call before
    it."""
    *earlier, last = manifest.records
    kept, run = last.parts[:-count], last.parts[-count:]
    queue = (yield from queue_of(place, replace(manifest, records=(last,)))).queue
    start = last.base + run[0].position
    records = yield from queue.records.read(start, last.end - start)
    first, messages = run[0].first, sum(part.count for part in run)
    units = yield from queue.units.read(first * QUEUE_UNIT_BYTES, messages * QUEUE_UNIT_BYTES)
    part = ManifestPart(
        run[0].position,
        len(records),
        crc32(records),
        crc32(units),
        first,
        messages,
        min(part.begin_ms for part in run),
        max(part.end_ms for part in run),
        place.part(last.base, run[0].position, epoch, f"{attempt}-merged"),
        run[-1].place,
    )
    grown: RecordSegment = replace(last, parts=(*kept, part))
    following = replace(
        manifest,
        revision=manifest.revision + 1,
        epoch=epoch,
        records=(*earlier, grown),
        dropped=(*manifest.dropped, *(Dropped(one.name, now_ms) for one in run)),
    )
    return following, [Create(part.name, b"".join((records, units)))]
