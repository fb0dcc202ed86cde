"""Messages of one ordering key go to one queue, by every way of sending, and keep their order."""

import pytest

from stratamq.client import Message, Topic
from stratamq.errors import InvalidRequestError, NotFoundError
from stratamq.formats.javahash import java_string_hash
from tests.support.waiting import until

QUEUES = 5


@pytest.fixture(scope="module")
def client(log_alone, opened):
    with opened(log_alone.root, retry_timeout_s=60) as client:
        client.admin.create_topic(Topic("ordered", QUEUES, QUEUES))
        yield client


def expected_queue(key: str) -> int:
    """Java: Math.abs(key.hashCode() % queues)."""
    code = java_string_hash(key)
    return abs(code) % QUEUES


@pytest.mark.parametrize("key", ["order-1", "polygenelubricants", "größe"])
def test_a_key_has_one_queue_by_every_way_of_sending(client, key):
    alone = client.send("ordered", b"1", ordering_key=key)
    with client.producer() as producer:
        many = [producer.send("ordered", b"2", ordering_key=key) for _ in range(3)]
    results = [alone, *(one.result() for one in many)]
    assert {one.queue_id for one in results} == {expected_queue(key)}
    offsets = [one.queue_offset for one in results]
    assert offsets == sorted(offsets)


@pytest.mark.parametrize("how", [{"alone": True}, {}], ids=["alone", "not-flushed"])
def test_a_message_beside_the_stream_goes_to_its_keys_queue_too(client, how):
    message = Message("ordered", b"1", wait_store_ok=bool(how))
    with client.producer() as producer:
        sent = producer.send_message(message, ordering_key="order-1", **how).result()
    assert sent.queue_id == expected_queue("order-1")
    until(lambda: client.log_state().confirmed_offset > sent.physical_offset, "it is confirmed")
    assert client.message_at(sent.physical_offset).keys == ["order-1"]


def test_the_key_is_the_messages_first_key_once(client):
    sent = client.send("ordered", b"1", ordering_key="a", keys=["b", "a"])
    assert client.message_at(sent.physical_offset).keys == ["a", "b"]


def test_a_queue_beside_a_key_is_refused(client):
    with pytest.raises(InvalidRequestError, match="give one"):
        client.send("ordered", b"1", ordering_key="a", queue_id=1)
    with client.producer() as producer, pytest.raises(InvalidRequestError, match="give one"):
        producer.send("ordered", b"1", ordering_key="a", queue_id=1)


@pytest.mark.parametrize("key", ["", "two words"])
def test_a_key_that_is_no_word_is_refused(client, key):
    with pytest.raises(InvalidRequestError, match="a word without spaces"):
        client.send("ordered", b"1", ordering_key=key)


def test_a_topic_that_is_not_there_has_no_queues_for_keys(client):
    with pytest.raises(NotFoundError, match="create it first"):
        client.send("not-there", b"1", ordering_key="a")
    with client.producer() as producer, pytest.raises(NotFoundError, match="create it first"):
        producer.send("not-there", b"1", ordering_key="a")
    assert client.topics("not-there") == []


def test_a_topic_that_is_created_after_a_refusal_takes_keys_at_once(client):
    with client.producer() as producer:
        for send in (client.send, producer.send):
            with pytest.raises(NotFoundError):
                send("created-later", b"1", ordering_key="a")
        client.admin.create_topic(Topic("created-later", 3, 3))
        sent = client.send("created-later", b"1", ordering_key="a")
        assert producer.send("created-later", b"2", ordering_key="a").result().queue_id == (
            sent.queue_id
        )
