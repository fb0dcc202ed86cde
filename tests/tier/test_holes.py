"""Holes of a queue that adjoin: a reader passes over all of them at once, but over none that is
lost."""

import pytest

from stratamq.errors import LostMessagesError
from stratamq.formats.queue_unit import QUEUE_UNIT_BYTES
from stratamq.tier.containers.chain import Chain, TierSegment
from stratamq.tier.containers.queue import TierQueue
from stratamq.tier.driver.memory import MemoryStorage
from stratamq.tier.driver.storage import run
from stratamq.tier.reading.pull import pull


def queue(holes, lost=()) -> TierQueue:
    """Of 30 messages."""
    units = Chain([TierSegment(0, 30 * QUEUE_UNIT_BYTES, 0, 0, ())])
    return TierQueue("t", 0, Chain(()), units, 0, holes, lost)


def test_holes_that_adjoin_end_where_the_last_one_does():
    found = queue(((3, 8), (8, 14), (20, 21)))
    assert [found.behind_hole(at) for at in (2, 3, 7, 8, 13, 14, 20)] == [2, 14, 14, 14, 14, 14, 21]


def test_what_is_lost_behind_a_hole_is_not_passed_over():
    found = queue(((3, 8), (8, 14), (14, 16)), lost=((8, 14),))
    assert [found.behind_hole(at) for at in (3, 8, 14)] == [8, 14, 16]
    with pytest.raises(LostMessagesError, match="8"):
        run(pull(found, 3, 32), MemoryStorage())
