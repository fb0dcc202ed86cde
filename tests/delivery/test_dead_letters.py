"""Copies that are owed to a group's dead-letter topic."""

from stratamq_delivery.dead_letters import DeadLetters
from stratamq_delivery.entries import Buried
from stratamq_delivery.records import GroupPlace
from stratamq_delivery.shared_groups import SharedGroups

from stratamq.files.simulated import SimulatedDisk
from stratamq.follow.fold import FoldPlace
from stratamq.formats.store_paths import COMMIT_LOG
from stratamq.store.segment_reader import SegmentReader

PLACE = GroupPlace("billing", "orders", 0, 0)


def test_what_was_taken_on_a_stream_that_broke_is_owed_again():
    followed = FoldPlace(generation=1)
    followed.segments = SegmentReader(SimulatedDisk(1).files(), COMMIT_LOG, 4_096, 4)
    letters = DeadLetters(followed)
    letters.add(PLACE, Buried(((0, 1),), 1, 17, source=0, size=100))
    assert letters.due_ms() is not None
    letters.take(0, 32)
    assert letters.due_ms() is None
    letters.begin()
    assert letters.due_ms() is not None


def test_the_log_must_keep_a_message_whose_dead_letter_is_owed():
    groups = SharedGroups(FoldPlace(generation=1))
    assert groups.needed() is None
    for source in (700, 300):
        groups.dead_letters.add(PLACE, Buried(((0, 1),), 1, 17, source=source, size=100))
    assert groups.needed() == 300
