"""How a run of units continues a consume queue: the rule of the dispatcher and of every rebuild.

    the run's units               the queue                              growth
    all end at or below its end   any                                    nothing to add
    any                           has no message                         begins where the run does
    follow upon its last one      has messages                           follows
    are below its end             has messages                           went back: newer ones win
    are above its end             all its messages are gone from the log starts over
    are above its end             has messages in the log                CorruptionError: a gap

Units that are there already (spec 6.4) are left out before this is looked at.
"""

import enum
from dataclasses import dataclass

from stratamq.errors import CorruptionError
from stratamq.formats.queue_paths import queue_directory
from stratamq.formats.queue_unit import QUEUE_UNIT_BYTES
from stratamq.formats.queue_units import UnitRun, decode_units

NO_MESSAGE = -1
"""The end in the log of a queue without messages."""


class Growth(enum.Enum):
    NOTHING = "all of the units are there"
    FOLLOWS = "the units go on where the queue ends"
    BEGINS = "the queue starts where the units do"
    WENT_BACK = "the log gave queue offsets again: the queue is cut to the first of them"


@dataclass(frozen=True, slots=True)
class Step:
    growth: Growth
    first: int
    """Index of the first unit to add."""
    units: memoryview


def grow(run: UnitRun, end: int, end_offset: int, minimum_offset: int) -> Step:
    """What `run` does to a queue whose last unit is `end` − 1, of a frame that ends at `end_offset`
    in the log (NO_MESSAGE: there is none).

    A gap raises CorruptionError: a unit is never put where it does not belong.
    """
    first, units = run.first_queue_offset, run.units
    if run.first_physical_offset < end_offset:
        known = _already_there(units, end_offset)
        first += known
        units = units[known * QUEUE_UNIT_BYTES :]
    if not units:
        return Step(Growth.NOTHING, first, units)
    if end_offset == NO_MESSAGE:
        return Step(Growth.BEGINS, first, units)
    if first == end:
        return Step(Growth.FOLLOWS, first, units)
    if first < end:
        return Step(Growth.WENT_BACK, first, units)
    if end_offset <= minimum_offset:
        return Step(Growth.BEGINS, first, units)
    raise CorruptionError(
        f"queue {run.topic} {run.queue_id} has units up to {end}, and the log "
        f"continues with {first} at {run.first_physical_offset}",
        queue_directory(run.topic, run.queue_id),
        end * QUEUE_UNIT_BYTES,
    )


def _already_there(units: memoryview, end_offset: int) -> int:
    """Spec 6.4: a unit is there if its frame ends at or before the last one's."""
    rows = decode_units(units)
    ends = rows["physical_offset"].astype("i8") + rows["size"]
    return int(ends.searchsorted(end_offset, "right"))
