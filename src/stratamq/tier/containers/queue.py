"""A queue in the tier: its records in one chain, its units in another.

Unit n, of the message with queue offset n, is at byte 20·n of the units' chain; it names the place
of its record in the records' chain. What a unit names need not be there: records expire before
their units do.
"""

from dataclasses import dataclass

import numpy as np

from stratamq.errors import LostMessagesError
from stratamq.formats.queue_unit import QUEUE_UNIT_BYTES
from stratamq.formats.queue_units import UnitArray, decode_units
from stratamq.tier.containers.chain import Chain
from stratamq.tier.driver.calls import Procedure


@dataclass(frozen=True, slots=True)
class TierQueue:
    """A committed state of one queue. `minimum` ≤ offsets < `end`.

    `minimum`: the first queue offset whose record is there. `holes`: queue offsets [from, to) that
    never came into the tier. `lost`: those holes of which it had messages, or should have.
    """

    topic: str
    queue_id: int
    records: Chain
    units: Chain
    minimum: int
    holes: tuple[tuple[int, int], ...] = ()
    lost: tuple[tuple[int, int], ...] = ()

    @property
    def end(self) -> int:
        """One past the last queue offset that can be read."""
        return self.units.end // QUEUE_UNIT_BYTES

    @property
    def first_unit(self) -> int:
        return -(-self.units.minimum // QUEUE_UNIT_BYTES)

    def behind_hole(self, offset: int) -> int:
        """`offset`, or where the hole that it is in ends, and those that adjoin it: all lost, or
        none."""
        lost = self.is_lost(offset)
        for start, end in self.holes:
            if start <= offset < end and self.is_lost(offset) == lost:
                offset = end
        return offset

    def is_lost(self, offset: int) -> bool:
        return any(start <= offset < end for start, end in self.lost)

    def require_not_lost(self, offset: int) -> None:
        """LostMessagesError where the message of `offset` is lost."""
        if self.is_lost(offset):
            end = self.behind_hole(offset)
            raise LostMessagesError.of_queue(self.topic, self.queue_id, offset, end)

    def until_hole(self, offset: int, count: int) -> int:
        """How many of `count` units from `offset` on come before a hole and the end."""
        end = min((start for start, _ in self.holes if start > offset), default=self.end)
        return max(0, min(count, end - offset, self.end - offset))

    def read_units(self, offset: int, count: int) -> Procedure[UnitArray]:
        """`count` units from queue offset `offset` on; all of them must be there."""
        raw = yield from self.units.read(offset * QUEUE_UNIT_BYTES, count * QUEUE_UNIT_BYTES)
        return decode_units(raw)


def spans(units: UnitArray, max_bytes: int) -> int:
    """How many of these units, at least one, name records within `max_bytes` of the first."""
    if not len(units):
        return 0
    first = int(units["physical_offset"][0])
    ends = units["physical_offset"].astype(np.int64) + units["size"] - first
    beyond = np.flatnonzero((ends > max_bytes) | (ends <= 0))
    return max(1, int(beyond[0])) if len(beyond) else len(units)
