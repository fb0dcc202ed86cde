"""What a group has of a queue, held against a table of single offsets."""

from dataclasses import dataclass, replace

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from stratamq_delivery.entries import Completed, HandedOut, Moved, PassedOver, Receipt
from stratamq_delivery.shared_queue import FINISHED, MAX_UNFINISHED, PASSED_OVER, Hold, SharedQueue

from stratamq.errors import BusyError, ExpiredReceiptError

CLIENTS = st.sampled_from(["a", "b"])


@dataclass(frozen=True)
class One:
    """A message in the table: who has it; "": passed over."""

    token: int
    attempt: int
    until_ms: int
    client: str
    leased: bool


class Histories(RuleBasedStateMachine):
    """Every interleaving of hand-outs, acknowledgements, changes, leases and time."""

    def __init__(self) -> None:
        super().__init__()
        self.leases: dict[str, int] = {}
        self.queue = SharedQueue(0, self.leases)
        self.follower = SharedQueue(0, self.leases)
        self.table: dict[int, One | str | None] = {}
        self.next = 0
        self.now_ms = 1000
        self.tokens = 0
        self.receipts: list[Receipt] = []

    def write(self, entry) -> None:
        """Decided here, and folded by a slave."""
        self.queue.apply(entry)
        self.follower.apply(entry)

    def until(self, one: One) -> int:
        return max(one.until_ms, self.leases.get(one.client, 0) if one.leased else 0)

    def give(self, runs, attempt: int, client: str, for_ms: int, leased: bool) -> None:
        self.tokens += 1
        until_ms = self.now_ms + for_ms
        self.write(HandedOut(tuple(runs), self.tokens, attempt, until_ms, client, leased))
        for start, end in runs:
            for offset in range(start, end):
                self.table[offset] = One(self.tokens, attempt, until_ms, client, leased)
                self.receipts.append(Receipt(offset, self.tokens, attempt, until_ms))

    @rule(count=st.integers(1, 5), client=CLIENTS, for_ms=st.integers(1, 50), leased=st.booleans())
    def hand_out_new_ones(self, count, client, for_ms, leased):
        start, self.next = self.next, self.next + count
        self.give([(start, self.next)], 1, client, for_ms, leased)

    @rule(count=st.integers(1, 3))
    def pass_over(self, count):
        start, self.next = self.next, self.next + count
        self.write(PassedOver(((start, self.next),)))
        self.table.update(dict.fromkeys(range(start, self.next), ""))

    @rule(most=st.integers(1, 6), client=CLIENTS, for_ms=st.integers(1, 50))
    def hand_out_again(self, most, client, for_ms):
        over = {
            o
            for o, one in self.table.items()
            if isinstance(one, One) and self.until(one) <= self.now_ms
        }
        found = self.queue.ready(self.now_ms, most)
        given = [offset for (start, end), _ in found for offset in range(start, end)]
        assert len(given) == len({*given}) == min(most, len(over)) and {*given} <= over
        for bounds, hold in found:
            self.give([bounds], hold.attempt + 1, client, for_ms, False)

    @rule(data=st.data(), how=st.sampled_from(["ack", "move"]), for_ms=st.integers(1, 50))
    def settle(self, data, how, for_ms):
        if not self.receipts:
            return
        receipt = data.draw(st.sampled_from(self.receipts))
        one = self.table.get(receipt.offset)
        held = isinstance(one, One) and one.token == receipt.token
        good = held and self.until(one) > self.now_ms
        if not good:
            with pytest.raises(ExpiredReceiptError):
                self.queue.require(receipt, self.now_ms)
            return
        self.queue.require(receipt, self.now_ms)
        run = ((receipt.offset, receipt.offset + 1),)
        if how == "ack":
            self.write(Completed(run, receipt.token))
            self.table[receipt.offset] = None
        else:
            self.tokens += 1
            until_ms = self.now_ms + for_ms
            new = HandedOut(run, self.tokens, one.attempt, until_ms, one.client, False)
            self.write(Moved(run, receipt.token, new))
            self.table[receipt.offset] = replace(
                one, token=self.tokens, until_ms=until_ms, leased=False
            )
            self.receipts.append(receipt._replace(token=self.tokens, until_ms=until_ms))

    @rule(data=st.data(), count=st.integers(1, 6))
    def acknowledge_as_one(self, data, count):
        if not self.receipts:
            return
        receipt = data.draw(st.sampled_from(self.receipts))
        start, end = receipt.offset, receipt.offset + count
        good = all(
            isinstance(one, One) and one.token == receipt.token and self.until(one) > self.now_ms
            for one in (self.table.get(offset) for offset in range(start, end))
        )
        assert self.queue.has_all(receipt.token, start, end, self.now_ms) == good
        if good:
            self.write(Completed(((start, end),), receipt.token))
            self.table.update(dict.fromkeys(range(start, end)))

    @rule(client=CLIENTS, for_ms=st.integers(1, 60))
    def renew(self, client, for_ms):
        self.leases[client] = max(self.leases.get(client, 0), self.now_ms + for_ms)

    @rule(by_ms=st.integers(1, 40))
    def wait(self, by_ms):
        self.now_ms += by_ms

    @invariant()
    def each_message_is_where_the_table_has_it(self):
        expected = {o: one for o, one in self.table.items() if o >= self.queue.floor}
        assert all(self.table[offset] is None for offset in range(self.queue.floor))
        assert self.queue.next == self.next
        seen = {}
        for start, end, holder in self.queue:
            for offset in range(start, end):
                seen[offset] = holder
        assert seen.keys() == expected.keys()
        for offset, one in expected.items():
            if isinstance(one, One):
                assert seen[offset] == Hold(
                    one.token, one.attempt, one.until_ms, one.client, one.leased
                )
            else:
                assert seen[offset] is (FINISHED if one is None else PASSED_OVER)
        times = [self.until(one) for one in expected.values() if isinstance(one, One)]
        assert self.queue.next_ready_ms() == min(times, default=None)
        assert self.queue.unfinished == sum(one is not None for one in expected.values())
        assert self.queue.has_passed_over == ("" in expected.values())
        assert expected.get(self.queue.floor, "") is not None, "the floor is an unfinished message"
        assert [*self.follower] == [*self.queue]


TestHistories = Histories.TestCase


def handed(start: int, end: int, token: int = 1, attempt: int = 1) -> HandedOut:
    return HandedOut(((start, end),), token, attempt, 1000, "a", False)


def test_a_receipt_whose_hand_out_a_power_loss_took_is_good():
    queue = SharedQueue(0, {})
    receipt = Receipt(4, 7, 1, 1000)
    queue.require(receipt, 10)
    queue.apply(Completed(((4, 5),), 7))
    assert [*queue] == [(0, 4, PASSED_OVER), (4, 5, FINISHED)], (
        "what is before was never handed out"
    )
    assert queue.passed_over(3) == [(0, 3)] and queue.passed_over(9) == [(0, 4)]
    queue.apply(handed(0, 4, token=9))
    assert not queue.has_passed_over and queue.passed_over(9) == []


def test_a_receipt_whose_hand_out_a_power_loss_took_is_bad_once_another_holds_the_message():
    queue = SharedQueue(0, {})
    queue.apply(handed(0, 5, token=8))
    with pytest.raises(ExpiredReceiptError, match="another hand-out has offset 4"):
        queue.require(Receipt(4, 7, 1, 1000), 10)
    queue.apply(Completed(((4, 5),), 7))
    assert [holder.token for *_, holder in queue] == [8]


def test_a_receipt_of_a_lost_hand_out_is_bad_while_an_earlier_one_has_the_message():
    """What `require` lets through, `apply` carries out."""
    queue = SharedQueue(0, {})
    queue.apply(handed(0, 5, token=8))
    with pytest.raises(ExpiredReceiptError, match="another hand-out has offset 4"):
        queue.require(Receipt(4, 9, 2, 2000), 1500)


def test_an_acknowledgement_given_twice_changes_nothing():
    queue = SharedQueue(0, {})
    queue.apply(handed(0, 2))
    for _ in range(2):
        queue.apply(Completed(((0, 1),), 1))
        assert queue.floor == 1 and queue.unfinished == 1


def test_an_acknowledgement_may_be_given_again_within_its_time_and_nothing_else():
    queue = SharedQueue(0, {})
    queue.apply(handed(0, 2))
    for offsets in ((1, 2), (0, 1)):
        queue.apply(Completed((offsets,), 1))
        receipt = Receipt(offsets[0], 1, 1, 1_000)
        queue.require(receipt, 999, finishing=True)
        for late in ({"now_ms": 1_000, "finishing": True}, {"now_ms": 999}):
            with pytest.raises(ExpiredReceiptError, match="finished already"):
                queue.require(receipt, **late)


def test_what_is_handed_out_and_not_acknowledged_is_bounded():
    queue = SharedQueue(0, {})
    queue.apply(handed(0, MAX_UNFINISHED))
    with pytest.raises(BusyError, match="100000 messages"):
        queue.room()
    queue.apply(Completed(((5, 6),), 1))
    assert queue.room() == 1


def test_what_is_finished_above_the_floor_stays_finished_whatever_hand_out_comes_later():
    """A hand-out that was decided before the acknowledgement may come behind it in the log."""
    queue = SharedQueue(0, {})
    queue.apply(HandedOut(((0, 3),), 1, 1, 1_000, "a", False))
    queue.apply(Completed(((1, 2),), 1))
    queue.apply(HandedOut(((0, 3),), 2, 2, 2_000, "b", False))
    holders = {start: holder for start, _, holder in queue}
    assert holders[1] is FINISHED
    assert [holders[offset].client for offset in (0, 2)] == ["b", "b"]
