"""An acknowledgement or a burial whose answer was lost is answered when it is given again, also
when the time of its receipt has passed."""

import pytest
from stratamq_commitlog.replica.role_change import RoleChange
from stratamq_delivery.acknowledged import StoredAcknowledgements
from stratamq_delivery.delivery import Delivery
from stratamq_delivery.entries import Buried, Completed, HandedOut, Receipt, Started
from stratamq_delivery.judging import Judge
from stratamq_delivery.receipts import encode_receipt, place_in_log
from stratamq_delivery.records import GroupPlace, GroupRecord
from stratamq_delivery.shared_groups import SharedGroups

from stratamq.errors import ExpiredReceiptError, StrataError
from stratamq.follow.fold import FoldPlace
from stratamq.formats.log_state import Role
from tests.follow.egg_scene import Broker, Service

PLACE = GroupPlace("billing", "orders", 0, 0)
MASTER, TO_SLAVE = RoleChange(Role.ASYNC_MASTER), RoleChange(Role.SLAVE, master="m:1")
UNTIL_MS, LATER_MS = 1_000, 5_000
TOKEN, OTHER_TOKEN = 7, 8
END = 1 << 40


class GroupsService(Service):
    name, path = "delivery", "stratamq/delivery.json"

    def state(self, followed: FoldPlace) -> Delivery:
        self.groups = SharedGroups(followed)
        return Delivery([self.groups], followed)

    def follow(self, events: int = 1 << 30) -> None:
        super().follow(events)
        self.groups.moved(self.appends.is_active)


class GroupsBroker(Broker):
    """A worker has offsets 0 to 3 by one hand-out, and 4 by another."""

    service_type = GroupsService

    def __init__(self) -> None:
        super().__init__(5)
        self.message = self.store.put(b"order", "orders").physical_offset
        self.service.settle()
        self.decide(
            Started(0),
            HandedOut(((0, 4),), TOKEN, 1, UNTIL_MS, "a", False),
            HandedOut(((4, 5),), OTHER_TOKEN, 1, UNTIL_MS, "a", False),
        )

    def decide(self, *entries) -> None:
        for entry in entries:
            self.service.groups.decide(PLACE, entry)
        self.service.settle()

    def again(self, offset: int, token: int = TOKEN, finishing=Completed) -> StrataError:
        """What becomes of a receipt long after its time."""
        service = self.service
        judge = Judge(service.groups, service.followed, lambda topic, queue_id: 0)
        source = place_in_log(service.followed, self.message)
        data = encode_receipt(PLACE, Receipt(offset, token, 1, UNTIL_MS, source))
        ((error, *_),) = judge.each("billing", "orders", (data,), LATER_MS, finishing=finishing)
        return error


@pytest.fixture
def broker():
    return GroupsBroker()


def test_the_hand_out_that_finished_a_message_is_answered_and_no_other(broker):
    assert isinstance(broker.again(0), ExpiredReceiptError), "it is not finished"
    broker.decide(Completed(((0, 2),), TOKEN), Completed(((4, 5),), OTHER_TOKEN))
    assert [broker.again(offset) for offset in (0, 1)] == [None, None]
    assert broker.again(4, OTHER_TOKEN) is None
    for offset, token in ((0, OTHER_TOKEN), (4, TOKEN), (2, TOKEN)):
        assert isinstance(broker.again(offset, token), ExpiredReceiptError)
    refused = broker.again(0, finishing=None)
    assert "offset 0 is finished already" in str(refused), "it cannot be hidden or returned"


def test_an_attempt_has_one_token_in_several_queues():
    lately, record = StoredAcknowledgements(), GroupRecord(((PLACE, Completed(((0, 9),), TOKEN)),))
    lately.see(record, 100)
    assert lately.has(PLACE, TOKEN, 8, 101)
    for other in (
        PLACE._replace(queue_id=1),
        PLACE._replace(topic="others"),
        PLACE._replace(group="shop"),
        PLACE._replace(incarnation=1),
    ):
        assert not lately.has(other, TOKEN, 8, 101)


def test_a_record_that_a_power_loss_may_take_is_not_answered():
    lately = StoredAcknowledgements()
    lately.see(GroupRecord(((PLACE, Completed(((0, 9),), TOKEN)),)), 100)
    assert (lately.has(PLACE, TOKEN, 8, 100), lately.has(PLACE, TOKEN, 8, 101)) == (False, True)


def test_a_hand_out_may_be_acknowledged_one_by_one():
    """In order it is one run; in any other each is one."""
    for offsets, known in ((range(6), {*range(6)}), ((5, 4, 3, 2, 1, 0), {0, 1, 2, 3})):
        lately = StoredAcknowledgements(4)
        for place, offset in enumerate(offsets):
            see(lately, offset, offset + 1, place)
        assert {one for one in range(6) if lately.has(PLACE, TOKEN, one, END)} == known


def see(lately: StoredAcknowledgements, start: int, end: int, place: int, token: int = TOKEN):
    lately.see(GroupRecord(((PLACE, Completed(((start, end),), token)),)), place)


def test_of_a_run_that_grows_each_part_counts_once_it_is_flushed_and_until_it_is_cut():
    lately = StoredAcknowledgements(4)
    for place, (start, end) in enumerate(((0, 2), (2, 5), (5, 6))):
        see(lately, start, end, place * 100)
    flushed = [[lately.has(PLACE, TOKEN, one, end) for one in (1, 4, 5)] for end in (101, 201)]
    assert flushed == [[True, True, False], [True, True, True]]
    lately.cut(200)
    assert [lately.has(PLACE, TOKEN, one, END) for one in (0, 1, 4, 5)] == [True, True, True, False]
    see(lately, 5, 6, 300)
    assert lately.has(PLACE, TOKEN, 4, 250) and not lately.has(PLACE, TOKEN, 5, 250)
    lately.cut(100)
    assert not lately.has(PLACE, TOKEN, 0, END), "its first part is forgotten with the others"


@pytest.mark.parametrize("restored", [False, True])
def test_a_run_that_is_half_forgotten_does_not_grow(restored):
    lately = StoredAcknowledgements(4)
    see(lately, 0, 1, 0)
    for token in (20, 21):
        see(lately, 0, 1, token, token)
    if restored:
        lately.restore(lately.snapshot()())
    see(lately, 1, 2, 30)
    for token in (22, 23):
        see(lately, 0, 1, token * 10, token)
    assert [lately.has(PLACE, TOKEN, one, END) for one in (0, 1)] == [False, True]


def test_what_was_buried_was_not_acknowledged(broker):
    """A burial is answered again, and each for its own message alone."""
    size = broker.store.frames()[0].total_size
    assert isinstance(broker.again(0, finishing=Buried), ExpiredReceiptError)
    broker.decide(Buried(((0, 1),), TOKEN, 1, broker.message, size), Completed(((1, 2),), TOKEN))
    assert broker.again(0, finishing=Buried) is None and broker.again(1) is None
    assert isinstance(broker.again(0), ExpiredReceiptError)
    assert isinstance(broker.again(1, finishing=Buried), ExpiredReceiptError)
    assert isinstance(broker.again(0, OTHER_TOKEN, finishing=Buried), ExpiredReceiptError)


def test_what_the_log_does_not_have_is_not_answered(broker):
    """It was decided, and may be lost with the master that decided it."""
    groups = broker.service.groups
    groups.decide(PLACE, Completed(((0, 1),), TOKEN))
    assert isinstance(broker.again(0), ExpiredReceiptError)


@pytest.mark.parametrize("state", ["saved", "lost"])
def test_it_is_known_after_a_start(broker, state):
    broker.decide(Completed(((0, 2),), TOKEN))
    broker.service.save()
    if state == "lost":
        broker.store.disk.files().unlink(broker.service.path)
    broker.kill_service()
    broker.service.settle()
    assert broker.again(1) is None
    assert isinstance(broker.again(2), ExpiredReceiptError)


def test_a_promoted_slave_knows_it(broker):
    broker.decide(Completed(((0, 2),), TOKEN))
    slave = GroupsBroker.__new__(GroupsBroker)
    Broker.__init__(slave, 6, role="SLAVE")
    slave.message = broker.message
    slave.take_from(broker)
    slave.service.follow()
    slave.set_role(MASTER)
    slave.service.settle()
    assert slave.again(0) is None


def test_a_cut_takes_it_back(broker):
    end = broker.store.end()
    broker.decide(Completed(((0, 2),), TOKEN))
    broker.set_role(TO_SLAVE)
    broker.cut(end, broker.store.log.state.generations[:1])
    broker.service.follow()
    broker.set_role(MASTER)
    broker.service.settle()
    assert isinstance(broker.again(0), ExpiredReceiptError)
    assert broker.service.groups.folded(PLACE).unfinished == 5


def test_only_the_newest_are_remembered():
    lately = StoredAcknowledgements(3)
    for token in range(1, 6):
        lately.see(GroupRecord(((PLACE, Completed(((token, token + 1),), token)),)), token * 100)
    assert [token for token in range(1, 6) if lately.has(PLACE, token, token, END)] == [3, 4, 5]
    lately.cut(500)
    assert [token for token in range(1, 6) if lately.has(PLACE, token, token, END)] == [3, 4]
    for token in (8, 9):
        lately.see(GroupRecord(((PLACE, Completed(((0, 1),), token)),)), token * 100)
    assert (
        lately.has(PLACE, 3, 3, END),
        lately.has(PLACE, 4, 4, END),
        lately.has(PLACE, 9, 0, END),
    ) == (False, True, True)


def test_pieces_of_the_whole_state_and_what_had_no_hand_out_say_nothing():
    lately = StoredAcknowledgements()
    lately.see(GroupRecord(((PLACE, Completed(((0, 9),), TOKEN)),), is_piece=True), 1)
    lately.see(GroupRecord(((PLACE, Completed(((0, 9),), 0)),)), 2)
    assert not lately.has(PLACE, TOKEN, 0, END) and not lately.has(PLACE, 0, 0, END)


def test_one_of_another_size_is_not_restored():
    lately, other = StoredAcknowledgements(3), StoredAcknowledgements(4)
    lately.see(GroupRecord(((PLACE, Completed(((0, 9),), TOKEN)),)), 1)
    other.restore(lately.snapshot()())
    assert not other.has(PLACE, TOKEN, 0, END)
    again = StoredAcknowledgements(3)
    again.restore(lately.snapshot()())
    assert again.has(PLACE, TOKEN, 8, END)
