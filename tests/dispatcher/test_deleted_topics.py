"""What was deleted of a topic is never shown again: after restarts, kills and rebuilds, on slaves,
and to no client that creates the topic again."""

import shutil

import pytest

from stratamq.client import Message, Topic, connect
from stratamq.errors import InvalidRequestError, NotFoundError
from tests.ha.pairs import Pair
from tests.support.brokers import COMMITLOG, DISPATCHER, INDEX, Broker, broker_fixture
from tests.support.waiting import until, until_dispatched

ROOMS = [COMMITLOG, DISPATCHER, INDEX]
SETTINGS = ("commitlog.segment_bytes=1048576", "commitlog.followers=dispatcher,index")
RETRY_TIMEOUT_S = 60


broker = broker_fixture(*SETTINGS, rooms=ROOMS, scope="function")


def put(broker: Broker, topic: str, *bodies: str, queue_id: int = 0) -> None:
    with connect(broker.root, retry_timeout_s=RETRY_TIMEOUT_S) as client:
        for body in bodies:
            client.send_message(
                Message(topic, body.encode(), keys=[f"key-{body}"], queue_id=queue_id)
            )


def bodies(broker: Broker, topic: str) -> list[str] | None:
    """None: there is no such topic."""
    with connect(broker.root, retry_timeout_s=RETRY_TIMEOUT_S) as client:
        try:
            return [message.body.decode() for message in client.consume(topic)]
        except NotFoundError:
            return None


def found(broker: Broker, topic: str, body: str) -> list[bytes]:
    with connect(broker.root, retry_timeout_s=RETRY_TIMEOUT_S) as client:
        return [message.body for message in client.query_key(topic, f"key-{body}").messages]


def delete(broker: Broker, topic: str) -> None:
    with connect(broker.root, retry_timeout_s=RETRY_TIMEOUT_S) as client:
        client.admin.delete_topic(topic)


def make(broker: Broker, topic: str) -> None:
    with connect(broker.root, retry_timeout_s=RETRY_TIMEOUT_S) as client:
        client.admin.create_topic(Topic(topic))


def purge(broker: Broker, topic: str, before, queue_id: int | None = None) -> None:
    with connect(broker.root, retry_timeout_s=RETRY_TIMEOUT_S) as client:
        client.admin.purge_topic(topic, client.admin.plan_purge(topic, before, queue_id))


def gone(broker: Broker, topic: str) -> None:
    until(lambda: bodies(broker, topic) is None, f"{topic} is gone")


def test_a_deleted_topic_is_gone_from_lists_queues_groups_and_queries(broker):
    put(broker, "orders", "a", "b")
    put(broker, "others", "x")
    until(lambda: found(broker, "orders", "a") == [b"a"], "the index has it")
    with connect(broker.root, retry_timeout_s=RETRY_TIMEOUT_S) as client:
        until_dispatched(client)
        client.commit_offsets("g", {("orders", 0): 1, ("others", 0): 1})
        delete(broker, "orders")
        gone(broker, "orders")
        assert [topic.name for topic in client.topics()] == ["others"]
        assert {queue.topic for queue in client.queues()} == {"others"}
        until(lambda: found(broker, "orders", "a") == [], "the index leaves it out")
        until(lambda: client.committed_offsets("g") == {("others", 0): 1}, "the group forgot it")
        with pytest.raises(NotFoundError):
            client.pull("orders", 0, 0)
    assert bodies(broker, "others") == ["x"]


def test_a_topic_that_was_deleted_is_made_anew_by_an_operator_and_has_no_old_messages(broker):
    put(broker, "orders", "old-1", "old-2")
    until(lambda: bodies(broker, "orders") == ["old-1", "old-2"], "they are there")
    delete(broker, "orders")
    gone(broker, "orders")
    refused = pytest.raises(NotFoundError, match="topics create orders")
    with connect(broker.root, retry_timeout_s=RETRY_TIMEOUT_S) as client, refused:
        client.send("orders", b"by itself")
    make(broker, "orders")
    put(broker, "orders", "new")
    until(lambda: bodies(broker, "orders") == ["new"], "the new one alone")
    with connect(broker.root, retry_timeout_s=RETRY_TIMEOUT_S) as client:
        (queue,) = [one for one in client.queues("orders") if one.queue_id == 0]
        assert (queue.min_offset, queue.max_offset) == (2, 3)


@pytest.mark.parametrize("restarted", [False, True], ids=["running", "restarted"])
def test_a_topic_that_was_narrowed_is_deleted_with_all_its_queues(broker, restarted):
    def widen(queues: int) -> None:
        with connect(broker.root, retry_timeout_s=RETRY_TIMEOUT_S) as client:
            client.admin.create_topic(Topic("orders", queues, queues))

    widen(8)
    for queue_id in range(8):
        put(broker, "orders", f"old-{queue_id}", queue_id=queue_id)
    if restarted:
        broker.kill(*ROOMS)
        broker.start(ROOMS)
    with connect(broker.root, retry_timeout_s=RETRY_TIMEOUT_S) as client:
        client.admin.alter_topic("orders", read_queue_count=2, write_queue_count=2)
        assert client.topics("orders")[0].read_queue_count == 8
    delete(broker, "orders")
    gone(broker, "orders")
    widen(8)
    put(broker, "orders", "new", queue_id=7)
    until(lambda: bodies(broker, "orders") == ["new"], "only the new message is there")
    until(lambda: found(broker, "orders", "new") == [b"new"], "the index has the new one")
    for old in (f"old-{queue_id}" for queue_id in range(8)):
        until(lambda old=old: found(broker, "orders", old) == [], "the index leaves it out")


def test_a_message_that_is_hidden_is_not_found_by_its_id_either(broker):
    put(broker, "orders", "old", "kept")
    put(broker, "gone", "x")
    with connect(broker.root, retry_timeout_s=RETRY_TIMEOUT_S) as client:
        old, kept = client.consume("orders")
        (gone_one,) = client.consume("gone")
        purge(broker, "orders", 1)
        delete(broker, "gone")
        assert client.message_by_id(kept.message_id).body == b"kept"
        for hidden in (old, gone_one):
            with pytest.raises(NotFoundError, match="purged"):
                client.message_by_id(hidden.message_id)
        make(broker, "gone")
        with pytest.raises(NotFoundError, match="purged"):
            client.message_by_id(gone_one.message_id)


def test_groups_keep_nothing_of_a_deleted_topic_and_wait_for_nothing_that_was_purged(broker):
    put(broker, "orders", *"abcd")
    put(broker, "gone", *"xy")
    with connect(broker.root, retry_timeout_s=RETRY_TIMEOUT_S) as client:
        until_dispatched(client)
        client.commit_offsets("billing", {("orders", 0): 1})
        purge(broker, "orders", 4)
        put(broker, "orders", "e")
        until(
            lambda: next(one.lag for one in client.groups() if one.group == "billing") == 1,
            "the lag is what can be read",
        )
        delete(broker, "gone")
        gone(broker, "gone")
        with pytest.raises(NotFoundError, match="deleted"):
            client.commit_offsets("billing", {("gone", 0): 1})
        assert {one.topic for one in client.groups()} == {"orders"}


def test_a_reader_that_waits_for_the_next_message_learns_of_the_deletion(broker):
    put(broker, "orders", "a")
    with connect(broker.root, retry_timeout_s=RETRY_TIMEOUT_S) as client:
        reader = client.consume("orders", follow=True)
        assert next(reader).body == b"a"
        client.admin.delete_topic("orders")
        with pytest.raises(NotFoundError, match="it was deleted"):
            next(reader)


@pytest.mark.parametrize("killed", [[DISPATCHER], [COMMITLOG], ROOMS])
def test_a_kill_brings_nothing_back(broker, killed):
    put(broker, "orders", "old-1", "old-2")
    put(broker, "kept", "1", "2", "3")
    delete(broker, "orders")
    purge(broker, "kept", 2)
    gone(broker, "orders")
    until(lambda: bodies(broker, "kept") == ["3"], "it is purged")
    broker.kill(*killed)
    broker.start(killed)
    for _ in range(20):
        assert bodies(broker, "orders") is None
        assert bodies(broker, "kept") == ["3"]


def test_queues_that_are_built_anew_from_the_log_have_nothing_of_it(broker):
    put(broker, "orders", "old-1", "old-2")
    put(broker, "kept", "1", "2", "3")
    delete(broker, "orders")
    purge(broker, "kept", 1)
    make(broker, "orders")
    put(broker, "orders", "new")
    broker.kill(*ROOMS)
    for name in ("consumequeue", "index", "stratamq/dispatcher.json", "stratamq/index.json"):
        path = broker.root / name
        if path.is_dir():
            shutil.rmtree(path)
        elif path.exists():
            path.unlink()
    broker.start(ROOMS)
    until(lambda: bodies(broker, "orders") == ["new"], "the new one alone")
    until(lambda: bodies(broker, "kept") == ["2", "3"], "what was purged stays away")
    until(lambda: found(broker, "orders", "new") == [b"new"], "the index has the new one")
    assert found(broker, "orders", "old-1") == []


def test_a_purge_takes_what_is_before_and_nothing_else(broker):
    put(broker, "orders", "0", "1", "2", "3", queue_id=0)
    put(broker, "orders", "4", "5", queue_id=1)
    until(lambda: len(bodies(broker, "orders") or []) == 6, "they are there")
    purge(broker, "orders", 3, 0)
    until(lambda: sorted(bodies(broker, "orders")) == ["3", "4", "5"], "queue 0 is purged")
    with connect(broker.root, retry_timeout_s=RETRY_TIMEOUT_S) as client:
        with pytest.raises(NotFoundError):
            client.admin.plan_purge("orders", 3, 9)
        client.admin.purge_topic("orders", client.admin.plan_purge("orders", "latest"))
    until(lambda: bodies(broker, "orders") == [], "all of it")
    put(broker, "orders", "6")
    until(lambda: bodies(broker, "orders") == ["6"], "what comes later is shown")


def test_what_cannot_be_deleted_is_refused_by_name(broker):
    with connect(broker.root, retry_timeout_s=RETRY_TIMEOUT_S) as client:
        with pytest.raises(NotFoundError, match="no topic 'nothing'"):
            client.admin.delete_topic("nothing")
        put(broker, "orders", "a")
        client.admin.delete_topic("orders")
        with pytest.raises(NotFoundError):
            client.admin.delete_topic("orders")
        with pytest.raises((InvalidRequestError, NotFoundError)):
            client.admin.delete_topic("SCHEDULE_TOPIC_XXXX")


def test_a_slave_shows_nothing_of_a_deleted_topic_either_and_not_as_a_master(tmp_path):
    with Pair(tmp_path, rooms=[DISPATCHER]) as pair:
        pair.start()
        put(pair.master, "orders", "old-1", "old-2")
        put(pair.master, "kept", "1", "2")
        pair.caught_up()
        until(lambda: bodies(pair.slave, "orders") == ["old-1", "old-2"], "the slave has them")
        delete(pair.master, "orders")
        purge(pair.master, "kept", 1)
        gone(pair.slave, "orders")
        until(lambda: bodies(pair.slave, "kept") == ["2"], "purged there, too")
        pair.master.kill_all()
        with connect(pair.slave.root, retry_timeout_s=RETRY_TIMEOUT_S) as client:
            client.admin.promote(force=True)
        gone(pair.slave, "orders")
        make(pair.slave, "orders")
        put(pair.slave, "orders", "new")
        until(lambda: bodies(pair.slave, "orders") == ["new"], "the new one alone")
