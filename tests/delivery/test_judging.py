"""A receipt of several messages is judged as one, exactly when each of them is good by itself."""

import pytest
from stratamq_delivery.entries import Completed, HandedOut, Started
from stratamq_delivery.judging import Judge, by_hand_out
from stratamq_delivery.receipts import make_ticket
from stratamq_delivery.records import GroupPlace
from stratamq_delivery.shared_groups import SharedGroups

from stratamq.follow.fold import FoldPlace
from stratamq.formats.receipts import RECEIPT_BYTES, make_receipt, messages_of

PLACE = GroupPlace("billing", "orders", 0, 0)
TOKEN, OTHER_TOKEN = 7, 8
UNTIL_MS = 1_000
SIZE = 100
GENERATION_STARTS = 50 * SIZE


class Group:
    """A group that was handed out offsets 0 to 9, and by another hand-out 10 to 19. The second
    generation of the log begins at message 50."""

    def __init__(self) -> None:
        self.minimum = 0
        followed = FoldPlace(history=lambda: [(1, 0), (2, GENERATION_STARTS)])
        self.groups = SharedGroups(followed)
        self.judge = Judge(self.groups, followed, lambda topic, queue_id: self.minimum)
        self.groups.decide(PLACE, Started(0))
        for start, token in ((0, TOKEN), (10, OTHER_TOKEN)):
            runs = ((start, start + 10),)
            self.groups.decide(PLACE, HandedOut(runs, token, 1, UNTIL_MS, "a", False))

    def as_one(self, data: bytes, now_ms: int = 0, group: str = "billing"):
        return self.judge.held_run(group, "orders", data, now_ms)

    def each(self, *receipts: bytes, now_ms: int = 0):
        return self.judge.each("billing", "orders", receipts, now_ms, finishing=Completed)


def receipt(start: int, end: int, token: int = TOKEN, place: GroupPlace = PLACE, **other) -> bytes:
    """Of the messages [`start`, `end`)."""
    generation, attempt = other.pop("generation", 1), other.pop("attempt", 1)
    ticket = make_ticket(place, token, attempt, UNTIL_MS, generation)
    ends = other.pop("ends", (start * SIZE, (end - 1) * SIZE))
    return make_receipt(ticket, start, end - start, *ends)


WHOLE = receipt(0, 10)
LOST = (GENERATION_STARTS, GENERATION_STARTS + 9)


@pytest.mark.parametrize("bounds", [(0, 10), (0, 1), (0, 2), (3, 7), (8, 10)])
def test_consecutive_messages_of_a_hand_out_are_one(bounds):
    group, (start, end) = Group(), bounds
    run = group.as_one(receipt(start, end))
    assert run is not None
    assert (run.place, run.token, run.start, run.end) == (PLACE, TOKEN, start, end)
    alone = by_hand_out(group.each(receipt(start, end)))
    assert alone == {(PLACE, TOKEN): list(range(start, end))}


@pytest.mark.parametrize(
    ("what", "data", "good"),
    [
        ("none", b"", []),
        ("short", WHOLE[:-1], []),
        ("of no message", receipt(3, 3), []),
        ("of a hand-out that has none of them", receipt(0, 2, OTHER_TOKEN), []),
        ("of a hand-out that has one of them", receipt(9, 11, OTHER_TOKEN), [10]),
        ("of a hand-out that has the first of them", receipt(9, 11), [9]),
        ("never handed out", receipt(200_000, 200_002), []),
        ("of another group", receipt(0, 2, place=PLACE._replace(group="audit")), []),
        ("of another topic", receipt(0, 2, place=PLACE._replace(topic="paid")), []),
        ("of another queue", receipt(0, 2, place=PLACE._replace(queue_id=1)), []),
        ("of messages that the log has lost", receipt(0, 10, ends=LOST), []),
        ("of which the log has lost the last", receipt(0, 10, ends=(0, LOST[1])), []),
        ("of which the log has lost the first", receipt(0, 10, ends=(LOST[0], 9 * SIZE)), []),
    ],
    ids=lambda given: given if isinstance(given, str) else "",  # bytes cannot be asked for again
)
def test_what_is_not_good_as_a_whole_is_judged_message_by_message(what, data, good):
    assert Group().as_one(data) is None, what
    judged = Group().each(data)
    found = [offset for offsets in by_hand_out(judged).values() for offset in offsets]
    assert found == good
    is_ours = what not in ("none", "short", "of no message", "of another group", "of another topic")
    assert len(judged) == (messages_of(data) if is_ours else 1)


@pytest.mark.parametrize("place", range(RECEIPT_BYTES))
def test_a_damaged_receipt_is_none(place):
    broken = WHOLE[:place] + bytes([WHOLE[place] ^ 1]) + WHOLE[place + 1 :]
    assert Group().as_one(broken) is None
    ((error, *_),) = Group().each(broken)
    assert "no receipt of group billing" in str(error)


def test_a_run_of_which_something_is_settled_is_judged_one_by_one():
    group = Group()
    group.groups.decide(PLACE, Completed(((4, 5),), TOKEN))
    assert group.as_one(WHOLE) is None
    assert group.as_one(receipt(0, 4)) is not None
    alone = by_hand_out(group.each(WHOLE))
    assert alone == {(PLACE, TOKEN): [0, 1, 2, 3, 5, 6, 7, 8, 9]}
    group.groups.decide(PLACE, Completed(((0, 4),), TOKEN))
    assert group.as_one(receipt(0, 4)) is None, "it is below the floor"


def test_a_run_is_good_until_its_time_is_over():
    group = Group()
    assert group.as_one(WHOLE, UNTIL_MS - 1) is not None
    assert group.as_one(WHOLE, UNTIL_MS) is None
    judged = group.each(WHOLE, now_ms=UNTIL_MS)
    assert len(judged) == 10 and all(error is not None for error, *_ in judged)


def test_messages_of_a_later_generation_are_one_as_well():
    ends = (GENERATION_STARTS, GENERATION_STARTS + 2 * SIZE)
    assert Group().as_one(receipt(0, 3, generation=2, ends=ends)) is not None
    mixed = receipt(0, 3, generation=2, ends=(GENERATION_STARTS - SIZE, ends[1]))
    assert Group().as_one(mixed) is None, "a generation begins between them"


def test_what_is_gone_is_no_run():
    """Below 3 the queue's messages were purged, or deleted with their topic."""
    group = Group()
    group.minimum = 3
    assert group.as_one(WHOLE) is None
    assert group.as_one(receipt(3, 10)) is not None
    refusals = [error for error, *_ in group.each(WHOLE)]
    assert ["purged" in str(error) for error in refusals] == [True] * 3 + [False] * 7


def test_of_several_lost_hand_outs_of_a_message_the_first_settles_it():
    """Offset 20 was handed out twice, and losses of power have taken both hand-outs."""
    group, lost = Group(), [receipt(20, 21, token) for token in (3, 4, 3)]
    assert by_hand_out(group.each(*lost)) == {(PLACE, 3): [20]}
    assert [error for error, *_ in group.each(*lost)] == [None] * 3, "all of them are acknowledged"
    hidden = group.judge.each("billing", "orders", lost, 0)
    assert by_hand_out(hidden) == {(PLACE, 3): [20]}
    refusals = [str(error or "") for error, *_ in hidden]
    assert refusals == ["", "another hand-out has offset 20", ""]
