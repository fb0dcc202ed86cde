"""What is purged, or deleted with its topic, is gone for shared groups, also when the topic is made
again: no receipt and no position of theirs counts for a new message."""

import asyncio
from base64 import b64encode
from types import SimpleNamespace

import grpc
import pytest
from stratamq_delivery import records
from stratamq_delivery.audit import audit
from stratamq_delivery.entries import Completed, HandedOut, PassedOver, Started
from stratamq_delivery.gone_messages import GoneMessages
from stratamq_delivery.queue_order import QueueOrder
from stratamq_delivery.records import GroupPlace, GroupRecord
from stratamq_delivery.shared_groups import SharedGroups

from stratamq.client import Topic, connect
from stratamq.errors import InvalidRequestError
from stratamq.follow.fold import FoldPlace
from stratamq.formats.json_files import format_json
from tests.delivery.test_sharing import (
    DELIVERY,
    ROOMS,
    acknowledge,
    drained,
    fill,
    floors,
    numbers,
    receive,
    settle,
)
from tests.support.brokers import Broker
from tests.support.waiting import until

PLACE = GroupPlace("billing", "orders", 0, 0)


class Scene:
    """A group that was handed out offsets 0 to 9 of a queue, and has passed over 10 to 19."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, bool]] = []
        self.groups = SharedGroups(FoldPlace())
        self.order = self.groups.orders.of[PLACE] = QueueOrder(0)
        entries = (
            Started(0),
            HandedOut(((0, 10),), 7, 1, 1_000, "a", False),
            PassedOver(((10, 20),)),
        )
        record = records.encode(GroupRecord(tuple((PLACE, entry) for entry in entries)))
        document = {"records": [b64encode(record).decode()], "whole_at": -1, "whole_begins": -1}
        self.groups.restore(document)
        appends = SimpleNamespace(is_active=True)
        self.hidden = GoneMessages(self.groups, appends, self, lambda: None)

    async def share(self, group, offsets, *, shared=True) -> None:
        self.calls.append((group, shared))

    def learn(self, minimum: int, *, deleted: bool = False) -> None:
        entry = {"perm": 0 if deleted else 6, "stratamqMinimumOffsets": {"0": minimum}}
        entry |= {"stratamqDeleted": True} if deleted else {}
        self.hidden.topics.take(format_json({"topicConfigTable": {"orders": entry}}))
        self.hidden.look_at(PLACE)

    @property
    def queue(self):
        return self.groups.queue(PLACE)


def test_what_is_hidden_is_finished_and_what_waited_for_it_is_looked_at():
    scene = Scene()
    for offset in (5, 12):
        scene.order.add(offset, "a")
    scene.learn(10)
    assert (scene.queue.floor, scene.queue.next, scene.queue.unfinished) == (10, 20, 10)
    assert scene.order.free(scene.queue, 20) == [12]
    scene.learn(10)
    (taken,) = scene.groups.take(0, 20)
    decided = records.decode(taken.body).entries
    assert decided == ((PLACE, Started(10)),), "nothing is decided twice"


def test_a_queue_of_a_deleted_topic_is_dropped():
    scene = Scene()
    scene.learn(20, deleted=True)
    assert scene.queue is None


def test_what_was_acknowledged_of_a_topic_that_was_made_again_stays_acknowledged():
    """The table of topics that says that it is deleted is a moment old."""
    scene = Scene()
    scene.groups.decide(PLACE, HandedOut(((20, 22),), 8, 1, 1_000, "a", False))
    scene.groups.decide(PLACE, Completed(((20, 21),), 8))
    scene.learn(20, deleted=True)
    assert (scene.queue.floor, scene.queue.next) == (21, 22)


def test_a_group_of_which_nothing_is_left_in_the_log_may_be_pulled():
    scene = Scene()
    scene.learn(20, deleted=True)
    asyncio.run(scene.hidden.leave())
    assert scene.calls == [], "the log still has it"
    scene.groups.restore({})
    asyncio.run(scene.hidden.leave())
    asyncio.run(scene.hidden.leave())
    assert scene.calls == [("billing", False)]


@pytest.fixture
def broker(tmp_path):
    with Broker(tmp_path / "store", tmp_path / "logs") as broker:
        yield broker.start(ROOMS)


def delete(broker: Broker, topic: str = "orders") -> None:
    with connect(broker.root, retry_timeout_s=60) as client:
        client.admin.delete_topic(topic)


def make(broker: Broker) -> None:
    with connect(broker.root, retry_timeout_s=60) as client:
        client.admin.create_topic(Topic("orders", 2, 2))


@pytest.mark.parametrize("killed", [(), (DELIVERY,), ROOMS], ids=["running", "delivery", "all"])
def test_a_receipt_of_a_deleted_topic_counts_for_no_message_of_the_one_that_is_made_again(
    broker, killed
):
    fill(broker, 0, 6)
    old = receive(broker)
    done, held = old[:2], old[2:]
    assert acknowledge(broker, done) == [""] * 2
    delete(broker)
    make(broker)
    fill(broker, 6, 10)
    broker.kill(*killed)
    broker.start(killed)
    until(lambda: all("deleted" in one for one in acknowledge(broker, held)), "it is learned")
    assert all("deleted" in one for one in acknowledge(broker, done)), "also one that was good"
    for method in ("ReturnMessages", "ChangeInvisibleTime"):
        refusals = settle(broker, method, held, invisible_ms=60_000)
        assert all("deleted" in one.refusal for one in refusals)
    new = drained(broker)
    assert sorted(numbers(new)) == [6, 7, 8, 9]
    assert {one.attempt for one in new} == {1}
    assert acknowledge(broker, new) == [""] * 4
    until(lambda: floors(broker) == {0: 5, 1: 5}, "the floors are those of the new messages")
    assert receive(broker, wait_ms=0) == []
    broker.stop()
    assert audit(broker.root, settled=True).faults == []


def acknowledge_one(client) -> None:
    with client.subscribe("others", "several") as messages:
        messages.receive()[0].ack()


def is_pulled(client, group: str) -> bool:
    """Whether the group may commit its own offsets."""
    try:
        client.commit_offsets(group, {("others", 0): 0})
    except InvalidRequestError as error:
        assert "is shared" in str(error)
        return False
    return True


def test_a_group_keeps_nothing_of_a_deleted_topic_and_may_be_pulled_then(broker):
    fill(broker, 0, 4)
    receive(broker, most=2)
    receive(broker, group="several", most=1)
    with connect(broker.root, retry_timeout_s=60) as client:
        client.send("others", b"x", queue_id=0)
        acknowledge_one(client)
        assert not is_pulled(client, "billing")
        delete(broker)
        until(lambda: is_pulled(client, "billing"), "the group has no queue left")
        until(
            lambda: {one.topic for one in client.held_messages("several")} == set(),
            "it holds nothing of it",
        )
        with pytest.raises(grpc.RpcError, match="deleted"):
            receive(broker)
        client.send("others", b"y", queue_id=0)
        acknowledge_one(client)
        until(lambda: client.committed_offsets("several") == {("others", 0): 2}, "published")
        assert not is_pulled(client, "several")


def test_what_was_purged_is_not_handed_out_again_and_its_receipts_end(broker):
    fill(broker, 0, 4, queues=1)
    held = receive(broker, most=2)
    with connect(broker.root, retry_timeout_s=60) as client:
        client.admin.purge_topic("orders", client.admin.plan_purge("orders", 3, 0))
    until(lambda: all("purged" in one for one in acknowledge(broker, held)), "it is learned")
    until(lambda: floors(broker) == {0: 3}, "the floor is behind what is gone")
    (rest,) = drained(broker)
    assert numbers([rest]) == [3]
    assert acknowledge(broker, [rest]) == [""]
    until(lambda: floors(broker) == {0: 4}, "the floor is behind all")
    broker.kill(DELIVERY)
    broker.start((DELIVERY,))
    assert drained(broker) == []
