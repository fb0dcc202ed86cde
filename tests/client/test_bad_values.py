"""Values that cannot be stored are refused when they are given, callbacks may raise anything, and
what was sent beside them is stored."""

import pytest

from stratamq.client import Message
from stratamq.client.units import perhaps_stored
from stratamq.errors import InvalidRequestError, OffsetOutOfRangeError, UnavailableError
from tests.client.reading import send
from tests.support.brokers import Broker
from tests.support.waiting import until

BAD = {
    "queue of a fraction": {"queue_id": 1.5},
    "queue of a text": {"queue_id": "1"},
    "queue below 0": {"queue_id": -1},
    "queue too large": {"queue_id": 1 << 31},
    "topic of bytes": {"topic": b"t"},
    "no topic": {"topic": ""},
    "topic of half a character": {"topic": "\ud800"},
    "tag of bytes": {"tag": b"x"},
    "tag of half a character": {"tag": "a\ud83d"},
    "key of two words": {"keys": ["a b"]},
    "empty key": {"keys": [""]},
    "key of half a character": {"keys": ["\udcff"]},
    "keys of numbers": {"keys": [1]},
    "keys of a number": {"keys": 7},
    "property of half a character": {"properties": {"a": "\ud800"}},
    "name of half a character": {"properties": {"\ud800": "a"}},
    "property of a number": {"properties": {"a": 1}},
    "unique key of a number": {"unique_key": 1},
    "ordering key of a number": {"ordering_key": 1},
}
NUMBERS = {
    "flag of a fraction": {"flag": 0.5},
    "flag too large": {"flag": 1 << 40},
    "birth of a text": {"born_timestamp_ms": "now"},
}


@pytest.fixture(scope="module")
def client(log_alone, opened):
    with opened(log_alone.root, retry_timeout_s=60) as client:
        yield client


@pytest.mark.parametrize("bad", [BAD[name] for name in BAD], ids=BAD)
def test_a_bad_value_is_refused_when_it_is_given(client, bad):
    fields = {"topic": "t"} | bad
    topic = fields.pop("topic")
    with pytest.raises(InvalidRequestError):
        client.send(topic, b"x", **fields)
    if "ordering_key" not in fields:
        with pytest.raises(InvalidRequestError):
            client.send_all([Message("t", b"x"), Message(topic, b"x", **fields)])
    with client.producer() as producer:
        good = [producer.send("t", b"before", queue_id=0)]
        with pytest.raises(InvalidRequestError):
            producer.send(topic, b"x", **fields)
        good.append(producer.send("t", b"after", queue_id=0))
        first, second = (delivery.result().queue_offset for delivery in good)
    assert second == first + 1


@pytest.mark.parametrize("bad", [NUMBERS[name] for name in NUMBERS], ids=NUMBERS)
def test_a_bad_number_is_refused_when_it_is_given(client, bad):
    with pytest.raises(InvalidRequestError):
        client.send_message(Message("t", b"x", **bad))
    with client.producer() as producer:
        with pytest.raises(InvalidRequestError):
            producer.send("t", b"x", **bad)
        with pytest.raises(InvalidRequestError):
            producer.send_message(Message("t", b"x", **bad), alone=True)


def test_a_batch_that_cannot_be_encoded_fails_alone(client):
    with client.producer(linger_ms=0) as producer:
        assert producer.send("t", b"first", queue_id=0).result().error is None
        bad = producer.send_rows("t", [("text", b"")], queue_id=0)
        with pytest.raises(InvalidRequestError, match="cannot be encoded"):
            bad[0].result()
        assert producer.send("t", b"last", queue_id=0).result().error is None


@pytest.mark.parametrize("raised", [SystemExit, KeyboardInterrupt, ValueError])
def test_a_callback_may_raise_anything(client, caplog, raised):
    told = []

    def on_result(result) -> None:
        told.append(result.queue_offset)
        raise raised("from the callback")

    with client.producer(on_result=on_result, batch_messages=1) as producer:
        for _ in range(20):
            producer.send("called", b"x", queue_id=0)
    assert len(told) == 20
    assert told == list(range(told[0], told[0] + 20))
    failures = [one for one in caplog.records if one.name == "stratamq.client.checking"]
    assert len(failures) == 1
    assert "on_result failed" in failures[0].getMessage()


@pytest.mark.parametrize("raised", [SystemExit, KeyboardInterrupt, ValueError])
def test_a_callback_of_an_interruption_may_raise_anything(own_log, opened, raised):
    told = []

    def on_interruption(error) -> None:
        told.append(error)
        raise raised("from the callback")

    with (
        opened(own_log.root, retry_timeout_s=60) as client,
        client.producer(on_interruption=on_interruption) as producer,
    ):
        producer.send("t", b"first", queue_id=0).result()
        own_log.kill("commitlog")
        pending = [producer.send("t", b"more", queue_id=0) for _ in range(10)]
        until(lambda: told, "the producer waits for the log")
        own_log.start(["commitlog"])
        offsets = [delivery.result().queue_offset for delivery in pending]
    assert offsets == list(range(offsets[0], offsets[0] + 10))
    assert told[-1] is None


def test_what_is_perhaps_stored_was_sent():
    error = perhaps_stored(UnavailableError("away", never_sent=True, status="X"))
    assert error.fields == {"status": "X", "perhaps_stored": True}


def test_frames_behind_a_queues_end_are_out_of_range(tmp_path, opened):
    with (
        Broker(tmp_path / "store", tmp_path / "logs") as broker,
        opened(broker.start().root, retry_timeout_s=60) as client,
    ):
        send(client, "short", 3, queue_id=0)
        assert sum(len(frames) > 0 for _, _, frames in client.queue_frames([("short", 0, 0, 3)]))
        for beyond in (("short", 0, 0, 4), ("short", 0, 7, 9), ("short", 5, 0, 1)):
            with pytest.raises(OffsetOutOfRangeError):
                list(client.queue_frames([beyond]))
