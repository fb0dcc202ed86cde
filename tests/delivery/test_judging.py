"""Receipts of consecutive messages of one hand-out are judged as one, exactly when each of them is
good by itself."""

import pytest
from stratamq_delivery.entries import Completed, HandedOut, Receipt, Started
from stratamq_delivery.judging import Judge, by_hand_out
from stratamq_delivery.receipts import encode_receipt
from stratamq_delivery.records import GroupPlace
from stratamq_delivery.shared_groups import SharedGroups

from stratamq.follow.fold import FoldPlace
from stratamq.formats.source_item import MessageSource

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

    def as_one(self, receipts: list[bytes], now_ms: int = 0, group: str = "billing"):
        return self.judge.held_run(group, "orders", receipts, now_ms)

    def each(self, receipts: list[bytes], now_ms: int = 0):
        return self.judge.each("billing", "orders", receipts, now_ms, acknowledging=True)


def receipt(
    offset: int, token: int = TOKEN, generation: int = 1, place: GroupPlace = PLACE, **other: int
) -> bytes:
    source = MessageSource(generation, other.pop("source", offset * SIZE))
    fields = {"attempt": 1, "until_ms": UNTIL_MS, **other}
    return encode_receipt(place, Receipt(offset, token, source=source, **fields))


WHOLE = [receipt(offset) for offset in range(10)]
LOST = [receipt(offset, source=GENERATION_STARTS + offset) for offset in range(3)]
BROKEN = bytes([WHOLE[4][0]]) + WHOLE[4][1:-1] + bytes([WHOLE[4][-1] ^ 1])


@pytest.mark.parametrize("bounds", [(0, 10), (0, 2), (3, 7), (8, 10)])
def test_consecutive_messages_of_a_hand_out_are_one(bounds):
    group, (start, end) = Group(), bounds
    run = group.as_one(WHOLE[start:end])
    assert run is not None
    assert (run.place, run.token, run.start, run.end) == (PLACE, TOKEN, start, end)
    alone = by_hand_out(group.each(WHOLE[start:end]))
    assert alone == {(PLACE, TOKEN): list(range(start, end))}


@pytest.mark.parametrize(
    ("what", "receipts"),
    [
        ("none", []),
        ("one", WHOLE[:1]),
        ("out of order", [WHOLE[1], WHOLE[0]]),
        ("one twice", [WHOLE[0], WHOLE[0]]),
        ("one left out", [WHOLE[0], WHOLE[2]]),
        ("of two hand-outs", [WHOLE[9], receipt(10, OTHER_TOKEN)]),
        ("of a hand-out that has none of them", [receipt(at, OTHER_TOKEN) for at in (0, 1)]),
        ("of a hand-out that has others", [receipt(9, OTHER_TOKEN), receipt(10, OTHER_TOKEN)]),
        ("never handed out", [receipt(20), receipt(21)]),
        ("half of them never handed out", [receipt(19, OTHER_TOKEN), receipt(20, OTHER_TOKEN)]),
        ("a damaged one", [*WHOLE[:4], BROKEN]),
        ("a damaged one first", [BROKEN, WHOLE[5]]),
        ("a short one", [*WHOLE[:4], WHOLE[4][:-1]]),
        ("empty ones", [b"", b""]),
        ("of another group", [receipt(at, place=PLACE._replace(group="audit")) for at in (0, 1)]),
        ("of another queue", [receipt(at, place=PLACE._replace(queue_id=1)) for at in (0, 1)]),
        ("of messages that the log has lost", LOST),
        ("of which the log has lost the last", [*WHOLE[:2], receipt(2, source=9_000)]),
        ("of which the log has lost one", [WHOLE[0], receipt(1, source=9_000), WHOLE[2]]),
        ("of different attempts", [WHOLE[0], receipt(1, attempt=2)]),
    ],
)  # fmt: skip
def test_what_is_no_such_run_is_judged_one_by_one(what, receipts):
    assert Group().as_one(receipts) is None, what


def test_a_run_of_which_something_is_settled_is_judged_one_by_one():
    group = Group()
    group.groups.decide(PLACE, Completed(((4, 5),), TOKEN))
    assert group.as_one(WHOLE) is None
    assert group.as_one(WHOLE[:4]) is not None
    alone = by_hand_out(group.each(WHOLE))
    assert alone == {(PLACE, TOKEN): [0, 1, 2, 3, 5, 6, 7, 8, 9]}
    group.groups.decide(PLACE, Completed(((0, 4),), TOKEN))
    assert group.as_one(WHOLE[:4]) is None, "it is below the floor"


def test_a_run_is_good_until_its_time_is_over():
    group = Group()
    assert group.as_one(WHOLE, UNTIL_MS - 1) is not None
    assert group.as_one(WHOLE, UNTIL_MS) is None
    assert all(error is not None for error, *_ in group.each(WHOLE, UNTIL_MS))


def test_messages_of_a_later_generation_are_one_as_well():
    group = Group()
    receipts = [receipt(at, generation=2, source=GENERATION_STARTS + at * SIZE) for at in range(3)]
    assert group.as_one(receipts) is not None
    mixed = [receipt(0, source=GENERATION_STARTS - SIZE), *receipts[1:]]
    assert group.as_one(mixed) is None, "a generation begins between them"
    assert all(error is None for error, *_ in group.each(mixed))


def test_what_is_gone_is_no_run():
    """Below 3 the queue's messages were purged, or deleted with their topic."""
    group = Group()
    group.minimum = 3
    assert group.as_one(WHOLE) is None
    assert group.as_one(WHOLE[3:]) is not None
    refusals = [error for error, *_ in group.each(WHOLE)]
    assert ["purged" in str(error) for error in refusals] == [True] * 3 + [False] * 7


def test_of_several_lost_hand_outs_of_a_message_the_first_settles_it():
    """Offset 20 was handed out twice, and losses of power have taken both hand-outs."""
    group, lost = Group(), [receipt(20, token) for token in (3, 4, 3)]
    assert by_hand_out(group.each(lost)) == {(PLACE, 3): [20]}
    assert [error for error, *_ in group.each(lost)] == [None] * 3, "all of them are acknowledged"
    hidden = group.judge.each("billing", "orders", lost, 0)
    assert by_hand_out(hidden) == {(PLACE, 3): [20]}
    refusals = [str(error or "") for error, *_ in hidden]
    assert refusals == ["", "another hand-out has offset 20", ""]
