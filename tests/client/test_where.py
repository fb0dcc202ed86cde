"""One message's whole life, told by a real broker: `lookup`."""

import contextlib

import pytest

from stratamq.client import Stage, connect
from stratamq.errors import NotFoundError
from tests.support.brokers import COMMITLOG, DELIVERY, DISPATCHER, INDEX, broker_fixture
from tests.support.waiting import until, until_dispatched, until_indexed

ROOMS = [COMMITLOG, DISPATCHER, INDEX, DELIVERY, "janitor"]
SETTINGS = ("commitlog.segment_bytes=1048576", "delivery.shared_attempts=2")
broker = broker_fixture(*SETTINGS, rooms=ROOMS)
without_index = broker_fixture(rooms=[COMMITLOG, DISPATCHER], scope="function")


@pytest.fixture(scope="module")
def client(broker):
    with connect(broker.root, retry_timeout_s=60) as client:
        yield client


def sent(client, topic: str, count: int = 1, **fields):
    """So many messages in queue 0, and what is known of the last one's place."""
    results = [client.send(topic, b"{}", queue_id=0, **fields) for _ in range(count)]
    until_dispatched(client)
    until_indexed(client, results[-1].physical_offset + results[-1].size)
    return results[-1]


def test_a_message_is_told_from_its_segment_to_its_groups(client):
    result = sent(client, "orders", 3, keys=["order-1"])
    client.commit_offsets("billing", {("orders", 0): 1})
    client.commit_offsets("audit", {("orders", 0): 3})
    found = client.lookup.where(client.lookup.by_id(result.message_id))
    assert (found.log.present, found.log.flushed, found.log.segment) == (True, True, 0)
    assert found.log.position == result.physical_offset
    assert found.queue.unit.physical_offset == result.physical_offset
    assert [(one.key, one.found) for one in found.keys] == [
        ("order-1", True),
        (result.unique_key, True),
    ]
    assert all(one.file for one in found.keys)
    assert [(one.group, one.stage, one.before) for one in found.groups] == [
        ("billing", Stage.NOT_READ, 1),
        ("audit", Stage.READ, 0),
    ]
    assert found.in_tier is None and not found.notes
    assert found.verdict.startswith("stored, readable, billing has not read it, kept: ")


def test_a_full_segment_has_a_time_of_deletion(client):
    first = sent(client, "filled")
    for _ in range(3):
        client.send("filled", b"x" * 400_000)
    found = client.lookup.where(client.lookup.at(first.physical_offset))
    assert found.fate.start_offset <= first.physical_offset < found.fate.end_offset
    assert found.fate.deleted_by_ms > found.fate.expires_ms > first.store_timestamp_ms
    assert "deleted on" in found.verdict and found.verdict.endswith("UTC at the latest")


def test_a_purged_message_is_found_and_hidden(client):
    sent(client, "purged", 2)
    client.admin.purge_topic("purged", client.admin.plan_purge("purged", 1))
    until(lambda: client.queues("purged")[0].min_offset == 1, "purged")
    found = client.lookup.where(client.lookup.in_queue("purged", 0, 0))
    assert "purged" in found.hidden and "hidden from consumers" in found.verdict
    assert client.lookup.where(client.lookup.in_queue("purged", 0, 1)).hidden == ""
    with pytest.raises(NotFoundError, match="it has 1 up to 1"):
        client.lookup.in_queue("purged", 0, 7)


def test_an_offset_within_a_message_is_no_damage(client):
    result = sent(client, "within")
    for offset in (result.physical_offset + 1, result.physical_offset + result.size - 1):
        with pytest.raises(NotFoundError, match=f"no message begins at log offset {offset}"):
            client.lookup.at(offset)


def test_a_message_of_a_deleted_topic_says_so(client):
    result = sent(client, "deleted")
    client.admin.delete_topic("deleted")
    found = client.lookup.where(client.lookup.at(result.physical_offset))
    assert "its topic was deleted" in found.verdict


def test_a_delayed_message_waits_and_then_is_where_it_was_delivered(client):
    sent(client, "later")
    result = client.send("later", b"soon", delay=3600)
    until_dispatched(client)
    message = client.lookup.at(result.physical_offset)
    found = client.lookup.where(message)
    assert found.waits_for == "later" and found.due_ms > message.store_timestamp_ms + 3_500_000
    assert "waiting for its delivery to later on" in found.verdict
    (waiting,) = until(
        lambda: client.admin.scheduled_messages("later").messages, "the delivery has the message"
    )
    client.admin.deliver_scheduled_now(waiting.place)
    until(lambda: client.lookup.where(message).delivered_as is not None, "delivered")
    assert "delivered as later queue" in client.lookup.where(message).verdict


def test_a_shared_group_names_the_worker_that_has_it_then_its_end(client):
    result = sent(client, "shared", 2)
    message = client.lookup.at(result.physical_offset)
    with client.subscribe("shared", "packers", client_id="worker-7", invisible_s=3600) as reader:
        first, second = reader.receive(2)
        (group,) = client.lookup.where(message).groups
        assert (group.stage, group.worker, group.attempt) == (Stage.HELD, "worker-7", 1)
        assert "held by worker-7 of packers (attempt 1)" in client.lookup.where(message).verdict
        # Above the floor, as the first one is not finished.
        second.ack()
        found = client.lookup.where(message)
        assert [one.stage for one in found.groups] == [Stage.READ]
        assert (found.groups_read, found.groups_not_read) == (1, 0)
        first.nack(1)
        letter = client.lookup.in_queue("shared", 0, 0)
        until(lambda: client.lookup.where(letter).groups[0].stage is Stage.READY, "handed back")
        while client.lookup.where(letter).groups[0].stage is not Stage.DEAD:
            for again in reader.receive(1):
                again.nack(0.001)
    assert "given up by packers (dead letters)" in client.lookup.where(letter).verdict


def test_many_groups_are_counted_and_a_few_are_named(client):
    result = sent(client, "popular", 2)
    for number in range(60):
        client.commit_offsets(f"group-{number:02}", {("popular", 0): number % 3})
    found = client.lookup.where(client.lookup.at(result.physical_offset))
    assert (found.groups_read, found.groups_not_read) == (20, 40)
    assert len(found.groups) == 40
    assert "and 37 more have not read it" in found.verdict
    assert any("at most 20" in note for note in found.notes)


def test_a_group_of_another_queue_of_the_topic_has_not_read_it(client):
    result = sent(client, "elsewhere")
    client.commit_offsets("other", {("elsewhere", 1): 0})
    (group,) = client.lookup.where(client.lookup.at(result.physical_offset)).groups
    assert (group.stage, group.offset) == (Stage.NOT_READ, -1)


def test_what_is_not_answered_is_a_note_and_not_an_error(without_index):
    with contextlib.closing(connect(without_index.root)) as client:
        result = client.send("orders", b"x", keys=["k"])
        until_dispatched(client)
        found = client.lookup.where(client.lookup.at(result.physical_offset))
    assert found.keys == [] and found.fate is None
    assert len([note for note in found.notes if "not known" in note]) >= 2
    assert found.verdict.startswith("stored, readable")
