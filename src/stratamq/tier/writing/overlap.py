"""Whether what a batch has in common with a queue in the tier are the same messages.

A queue offset is given twice where a topic was deleted and made again (RocketMQ begins at 0 then),
and where another broker's log is copied to the same path.
"""

from dataclasses import replace

import numpy as np

from stratamq.errors import NotWritableError
from stratamq.formats.tier_manifest import Manifest
from stratamq.formats.tier_records import place_records
from stratamq.tier.containers.place import QueuePlace
from stratamq.tier.driver.calls import Procedure
from stratamq.tier.reading.manifests import queue_of
from stratamq.tier.writing.batch import TierBatch


class OtherMessagesError(NotWritableError):
    """The tier has other messages at the queue offsets of a batch. `leaves`: the queue offset from
    which on its messages leave, where the batch is to be committed nevertheless."""

    def __init__(self, place: QueuePlace, offset: int, *, leaves: int) -> None:
        self.leaves = leaves
        super().__init__(
            f"{place.folder}: at queue offset {offset} the tier has another message than the log: "
            "it is another broker's, or the topic was deleted and made again; give this broker "
            "another name or target",
            reason="other messages",
        )


def first_difference(
    place: QueuePlace, manifest: Manifest, batch: TierBatch
) -> Procedure[int | None]:
    """A queue offset at which both have a message, and not the same one. The last one that both
    have is compared, byte for byte; None where it is the same, or where they have none."""
    offset = min(manifest.end_offset, batch.end) - 1
    if offset < max(batch.first, manifest.minimum):
        return None
    segments = [one for one in manifest.records if one.first <= offset < one.end_offset]
    queue = (yield from queue_of(place, replace(manifest, records=tuple(segments)))).queue
    if queue.behind_hole(offset) != offset:
        return None
    unit = yield from queue.read_units(offset, 1)
    start, size = int(unit["physical_offset"][0]), int(unit["size"][0])
    number = offset - batch.first
    if int(batch.sizes[number]) != size:
        return offset
    record = yield from queue.records.read(start, size)
    before = int(batch.sizes[:number].sum())
    ours = bytearray(batch.records[before : before + size])
    place_records(ours, np.array([0], np.int64), np.array([size], np.int64), start)
    return None if ours == record else offset
