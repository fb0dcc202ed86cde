"""What a consumer gets from a queue in the tier.

Two groups of calls answer a pull: one for its units, one for the records that they name, over any
number of segments. Spec tier 6.3, 6.4.
"""

from dataclasses import dataclass

import numpy as np

from stratamq.formats.message_status import PullStatus
from stratamq.formats.queue_units import UnitArray
from stratamq.tier.containers.queue import TierQueue, spans
from stratamq.tier.driver.calls import Procedure
from stratamq.tier.reading.records import NO_RECORDS, TierRecords, cut_records

MAX_PULL_MESSAGES = 4096
MAX_PULL_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class TierPull:
    """`next`: where to go on, behind every unit that was read, its record there or not."""

    status: PullStatus
    next: int
    messages: TierRecords = NO_RECORDS


def pull(
    queue: TierQueue, offset: int, count: int, max_bytes: int = MAX_PULL_BYTES
) -> Procedure[TierPull]:
    """Up to `count` messages (1 to 4 096) from queue offset `offset` on; at least one, whatever its
    size. LostMessagesError."""
    queue.require_not_lost(offset)
    if not queue.units:
        return TierPull(PullStatus.NO_MESSAGE_IN_QUEUE, offset)
    if offset < queue.minimum:
        return TierPull(PullStatus.OFFSET_TOO_SMALL, queue.minimum)
    if offset > queue.end:
        return TierPull(PullStatus.OFFSET_OVERFLOW_BADLY, queue.end)
    offset = queue.behind_hole(offset)
    queue.require_not_lost(offset)
    if offset == queue.end:
        return TierPull(PullStatus.OFFSET_OVERFLOW_ONE, queue.end)
    wanted = queue.until_hole(offset, max(1, min(count, MAX_PULL_MESSAGES)))
    units = yield from queue.read_units(offset, wanted)
    units = units[: spans(units, max_bytes)]
    is_large = int(units["size"][0]) > max_bytes
    limit = (yield from _end_at_most(queue, offset)) if is_large else None
    messages = yield from read_records(queue, units, offset, limit)
    status = PullStatus.FOUND if len(messages) else PullStatus.NO_MATCHED_MESSAGE
    return TierPull(status, offset + len(units), messages)


def _end_at_most(queue: TierQueue, offset: int) -> Procedure[int | None]:
    """Where the record of `offset` ends at the latest, by the unit behind its own, which is a call
    more; None: it is the last one."""
    if queue.until_hole(offset, 2) < 2:
        return None
    following = yield from queue.read_units(offset + 1, 1)
    return int(following["physical_offset"][0])


def read_records(
    queue: TierQueue, units: UnitArray, first_offset: int, limit: int | None = None
) -> Procedure[TierRecords]:
    """The records of consecutive units, in one range; none of those that are not there. None ends
    behind the place `limit`, whatever its unit says, if that is behind their beginning."""
    if not len(units):
        return NO_RECORDS
    places = units["physical_offset"].astype(np.int64)
    start = max(int(places.min()), queue.records.minimum)
    end = min(int((places + units["size"]).max()), queue.records.end)
    if limit is not None and limit > start:
        end = min(end, limit)
    if end <= start:
        return NO_RECORDS
    data = yield from queue.records.read(start, end - start)
    return cut_records(units, first_offset, data, start)
