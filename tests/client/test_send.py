"""Messages that a client stores are in the log unchanged: every way of sending, with both
clients."""

import gc
import math
import random
import threading
from concurrent.futures import ThreadPoolExecutor, wait
from datetime import UTC, datetime, timedelta

import pytest

from stratamq.client import Message, SendStatus, Topic
from stratamq.client.intake import ProducerSettings
from stratamq.client.units import Batch
from stratamq.errors import (
    DeliveryTimeError,
    InvalidRequestError,
    NotFoundError,
    StrataError,
    UnavailableError,
)
from stratamq.formats.sysflag import MULTI_TAGS
from tests.client.conftest import SEGMENT_BYTES
from tests.support.waiting import until


@pytest.fixture(scope="module")
def client(log_alone, opened):
    with opened(log_alone.root) as client:
        yield client


def same_as_sent(client, result, body, **expected):
    # What does not wait for the disk is shown once it is confirmed.
    end = result.physical_offset
    until(lambda: client.log_state().confirmed_offset > end, "the message is confirmed")
    message = client.message_at(result.physical_offset)
    assert message.body == body
    assert (message.topic, message.queue_id) == (result.topic, result.queue_id)
    assert message.queue_offset == result.queue_offset
    assert message.store_timestamp_ms == result.store_timestamp_ms
    assert message.size == result.size
    assert message.unique_key == result.unique_key
    for name, value in expected.items():
        assert getattr(message, name) == value
    return message


# --- one ---


def test_one_message_comes_back_with_everything_it_had(client):
    result = client.send_message(
        Message(
            "one",
            b"body",
            tag="A",
            keys=("k1", "k2"),
            properties={"colour": "blue"},
            queue_id=2,
            flag=7,
            sys_flag=MULTI_TAGS,
            born_timestamp_ms=1_700_000_000_000,
            reconsume_times=3,
        )
    )
    assert result.status is SendStatus.PUT_OK
    message = same_as_sent(
        client,
        result,
        b"body",
        tag="A",
        keys=["k1", "k2"],
        queue_id=2,
        flag=7,
        sys_flag=MULTI_TAGS,
        born_timestamp_ms=1_700_000_000_000,
        reconsume_times=3,
        message_id=result.message_id,
    )
    assert message.properties["colour"] == "blue"
    assert client.message_by_id(result.message_id) == message
    assert client.message_by_id(result.message_id.lower()) == message


def test_a_message_gets_a_unique_key_unless_it_asks_for_none(client):
    assert len(client.send("unique", b"").unique_key) == 32
    assert client.send("unique", b"", unique_key="mine").unique_key == "mine"
    none = client.send("unique", b"", unique_key="")
    assert "UNIQ_KEY" not in client.message_at(none.physical_offset).properties


def test_a_message_that_can_never_be_stored_raises(client):
    for topic in ("", "not/a/name", "SCHEDULE_TOPIC_XXXX"):
        with pytest.raises(InvalidRequestError):
            client.send(topic, b"")
    with pytest.raises(InvalidRequestError):
        client.send("one", "text is not bytes")
    with pytest.raises(InvalidRequestError):
        client.send("one", b"", queue_id=1 << 40)


def test_of_several_messages_every_one_has_a_result_of_its_own(client):
    results = client.send_all([Message("several", b"a"), Message("bad name!", b"b")])
    assert [result.stored for result in results] == [True, False]
    assert results[1].status is SendStatus.MESSAGE_ILLEGAL
    with pytest.raises(InvalidRequestError):
        results[1].check()


def test_all_or_nothing_stores_nothing_when_one_is_bad(client):
    before = client.log_state().appended_offset
    results = client.send_all(
        [Message("atomic", b"a", queue_id=0), Message("atomic", b"b", queue_id=99)],
        all_or_nothing=True,
    )
    assert not any(result.stored for result in results)
    assert client.log_state().appended_offset == before
    together = [Message("atomic", bytes([number]), queue_id=0) for number in range(5)]
    results = client.send_all(together, all_or_nothing=True)
    first = results[0].queue_offset
    assert [result.queue_offset for result in results] == list(range(first, first + 5))


UNDELIVERED = [
    ({"properties": {"DELAY": "1"}}, "DELAY: give the field instead"),
    ({"properties": {"TIMER_DELAY_SEC": "1"}}, "TIMER_DELAY_SEC: give the field instead"),
    ({"delay": 1, "delay_level": 1}, "one of delay, deliver_at and delay_level"),
    (
        {"delay": 1, "deliver_at": datetime(2100, 1, 1, tzinfo=UTC)},
        "one of delay, deliver_at and delay_level",
    ),
    ({"delay": "1s"}, "delay is '1s': timedelta or a number is expected"),
    ({"delay": math.inf}, "delay is inf: timedelta or a number is expected"),
    ({"delay": math.nan}, "delay is nan"),
    ({"delay": True}, "delay is True: "),
    ({"deliver_at": 1e9}, "datetime is expected"),
    ({"half": True, "delay": 1}, "when its transaction commits"),
    ({"half": True}, "its producer group: `client.transaction"),
]


@pytest.mark.parametrize(("how", "sentence"), UNDELIVERED, ids=str)
def test_a_message_that_would_never_be_delivered_is_refused_with_a_sentence(client, how, sentence):
    before = client.log_state().appended_offset
    with pytest.raises(InvalidRequestError, match=sentence):
        client.send("later", b"", **how)
    with pytest.raises(InvalidRequestError):
        client.send_all([Message("later", b"good"), Message("later", b"", **how)])
    with client.producer() as producer:
        with pytest.raises(InvalidRequestError):
            producer.send_message(Message("later", b"", **how))
        if "properties" in how:
            with pytest.raises(InvalidRequestError):
                producer.send("later", b"", **how)
    assert client.log_state().appended_offset == before


@pytest.mark.parametrize(("level", "stored_as"), [(1, 0), (18, 17), (99, 17)])
def test_a_delayed_message_is_stored_where_it_waits(client, level, stored_as):
    by_call = client.send("later", b"", delay_level=level)
    with client.producer() as producer:
        by_producer = producer.send_message(Message("later", b"", delay_level=level)).result()
    for result in (by_call, by_producer):
        assert (result.topic, result.queue_id) == ("SCHEDULE_TOPIC_XXXX", stored_as)
        properties = client.message_at(result.physical_offset).properties
        assert properties["REAL_TOPIC"] == "later" and properties["DELAY"] == str(min(level, 18))


@pytest.mark.parametrize("delay", [60, 59.9991, timedelta(minutes=1)], ids=str)
def test_a_message_for_a_time_is_stored_where_it_waits(client, delay):
    by_call = client.send("later", b"", delay=delay)
    with client.producer() as producer:
        by_producer = producer.send_message(Message("later", b"", delay=delay)).result()
    for result in (by_call, by_producer):
        assert (result.topic, result.queue_id) == ("rmq_sys_wheel_timer", 0)
        message = client.message_at(result.physical_offset)
        assert message.properties["REAL_TOPIC"] == "later"
        assert message.properties["TIMER_DELAY_MS"] == "60000"
        assert int(message.properties["TIMER_DELIVER_MS"]) <= message.store_timestamp_ms + 60_000


def test_a_time_is_rounded_up_and_one_too_far_ahead_is_refused(client):
    at = datetime.now(UTC).replace(microsecond=1) + timedelta(hours=1)
    for given in (at, at.astimezone().replace(tzinfo=None)):
        result = client.send("later", b"", deliver_at=given)
        asked_ms = int(client.message_at(result.physical_offset).properties["TIMER_DELIVER_MS"])
        assert asked_ms == int(at.replace(microsecond=0).timestamp()) * 1_000 + 1
    assert client.send("later", b"", deliver_at=at - timedelta(days=1)).topic == "later"
    with pytest.raises(DeliveryTimeError, match="timer_max_delay_ms"):
        client.send("later", b"", deliver_at=at + timedelta(days=367))


def test_the_target_of_a_delayed_message_is_checked_when_it_is_taken(client):
    before = client.log_state().appended_offset
    with pytest.raises(InvalidRequestError, match="no 99"):
        client.send("later", b"", delay_level=1, queue_id=99)
    with pytest.raises(StrataError):
        client.send("rmq_sys_STRATAMQ_x", b"", delay_level=1)
    assert client.log_state().appended_offset == before


def test_no_delay_is_no_delayed_message(client):
    assert client.send("at-once", b"", delay_level=0).topic == "at-once"
    assert client.send("at-once", b"", delay_level=-1).topic == "at-once"


def test_what_is_not_there_is_reported_as_missing(client):
    stored = client.send("missing", b"")
    with pytest.raises(NotFoundError):
        client.message_at(stored.physical_offset + 1)
    other = "0A0B0C0D" + stored.message_id[8:]
    with pytest.raises(NotFoundError, match="0A0B0C0D"):
        client.message_by_id(other)
    with pytest.raises(InvalidRequestError):
        client.message_by_id("no id")


def test_a_client_without_a_broker_is_unavailable(tmp_path, opened):
    with opened(tmp_path) as lonely:
        with pytest.raises(UnavailableError, match="running"):
            lonely.send("t", b"")
        with lonely.producer() as producer, pytest.raises(UnavailableError, match="running"):
            producer.send("t", b"")


def test_topics_are_created_and_listed(client):
    made = client.admin.put_topic(Topic("made", 3, 3))
    assert made == Topic("made", 3, 3)
    assert made in client.topics()


# --- many ---


def test_many_messages_come_back_in_the_order_of_each_queue(client):
    bodies = [random.Random(number).randbytes(number % 900) for number in range(3000)]
    with client.producer(batch_bytes=40_000) as producer:
        deliveries = [
            producer.send("many", body, tag=f"T{number % 3}", keys=(f"K{number}",))
            for number, body in enumerate(bodies)
        ]
    last: dict[int, int] = {}
    for number, (delivery, body) in enumerate(zip(deliveries, bodies, strict=True)):
        assert delivery.done
        result = delivery.result()
        assert result.status is SendStatus.PUT_OK
        assert last.get(result.queue_id, -1) < result.queue_offset
        last[result.queue_id] = result.queue_offset
        if number % 100 == 0:
            same_as_sent(client, result, body, tag=f"T{number % 3}", keys=[f"K{number}"])
    assert set(last) == {0, 1, 2, 3}


def test_messages_for_several_topics_and_queues_share_batches(client):
    with client.producer() as producer:
        deliveries = [
            (producer.send(topic, f"{topic} {number}".encode(), queue_id=number % 2), topic, number)
            for number in range(50)
            for topic in ("several1", "several2")
        ]
    for delivery, topic, number in deliveries:
        result = delivery.result()
        assert (result.topic, result.queue_id) == (topic, number % 2)
        same_as_sent(client, result, f"{topic} {number}".encode())


def test_rows_that_are_encoded_already_are_stored_as_they_are(client):
    rows = [(str(number).encode(), b"TAGS\x01fast") for number in range(500)]
    with client.producer() as producer:
        deliveries = producer.send_rows("rows", rows, queue_id=1)
    assert len(deliveries) == 500
    for number in (0, 250, 499):
        same_as_sent(client, deliveries[number].result(), str(number).encode(), tag="fast")
    assert [one.result().queue_offset for one in deliveries] == list(range(500))
    assert deliveries[-1].result() == deliveries[499].result()
    assert [one.result() for one in deliveries[3:5]] == [deliveries[n].result() for n in (3, 4)]
    with pytest.raises(IndexError):
        deliveries[500]


def test_rows_are_spread_over_a_new_topics_queues_and_one_that_is_too_large_is_named(client):
    with client.producer(batch_messages=10) as producer:
        deliveries = producer.send_rows("fresh-rows", [(b"x", b"")] * 100)
        assert {one.result().queue_id for one in deliveries} == {0, 1, 2, 3}
        with pytest.raises(InvalidRequestError, match="row 1"):
            producer.send_rows("fresh-rows", [(b"x", b""), (bytes(SEGMENT_BYTES), b"")])


def test_results_are_passed_to_a_callback_once_each(client):
    results = []
    with client.producer(on_result=results.append, batch_bytes=2000) as producer:
        for number in range(300):
            producer.send("callback", str(number).encode(), unique_key=f"U{number}")
    assert sorted(result.unique_key for result in results) == sorted(f"U{n}" for n in range(300))
    assert all(result.stored for result in results)


@pytest.mark.parametrize("kind", ["synchronous"], indirect=True, scope="module")
def test_a_flush_waits_for_the_callback(client):
    released, results = threading.Event(), []

    def on_result(result):
        released.wait(60)
        results.append(result)

    with client.producer(on_result=on_result) as producer, ThreadPoolExecutor(1) as pool:
        producer.send_message(Message("callback", b"x"), alone=True)
        flush = pool.submit(producer.flush)
        assert not wait([flush], 0.3).done
        released.set()
        flush.result(60)
        assert len(results) == 1


@pytest.mark.parametrize("kind", ["synchronous"], indirect=True, scope="module")
def test_a_callback_never_runs_in_the_thread_that_sends(client, monkeypatch):
    """This holds also when the response arrives before the callback is registered with gRPC."""
    connections = client._connections
    callable_of, threads = connections.callable, []

    class Answered:
        def __init__(self, method):
            self._call = callable_of(method)

        def future(self, request, timeout):
            call = self._call.future(request, timeout=timeout)
            call.result()
            return call

    with client.producer(on_result=lambda _: threads.append(threading.get_ident())) as producer:
        monkeypatch.setattr(connections, "callable", Answered)
        producer.send_message(Message("callback", b"x"), alone=True)
        monkeypatch.undo()
        producer.flush(60)
    assert len(threads) == 1
    assert threads[0] != threading.get_ident()


def test_a_callback_that_fails_does_not_end_the_stream(client, caplog):
    def fail(_):
        raise ValueError("the caller's fault")

    with client.producer(on_result=fail) as producer:
        delivery = producer.send("callback", b"x")
    assert delivery.result().stored
    assert "on_result failed" in caplog.text


@pytest.mark.parametrize("kind", ["synchronous"], indirect=True, scope="module")
def test_a_callback_may_send(client):
    answers = []

    def answer(result):
        if result.topic == "question" and len(answers) < 5:
            answers.append(producer.send("answer", b"a"))

    with client.producer(on_result=answer, max_pending_bytes=1) as producer:
        for _ in range(5):
            producer.send("question", b"q").result()
        producer.flush()
    assert len(answers) == 5
    assert all(delivery.result().stored for delivery in answers)


def test_messages_that_cannot_travel_in_a_batch_go_beside_it(client):
    with client.producer() as producer:
        deliveries = [
            producer.send_message(Message("beside", b"1")),
            producer.send_message(Message("beside", b"2", wait_store_ok=False)),
        ]
    for delivery, body in zip(deliveries, (b"1", b"2"), strict=True):
        same_as_sent(client, delivery.result(), body)


def test_a_message_larger_than_a_batch_may_be_goes_beside_it(client):
    body = random.Random(1).randbytes(SEGMENT_BYTES - 200)
    with client.producer() as producer:
        delivery = producer.send("large", body)
    same_as_sent(client, delivery.result(), body)


def test_a_message_larger_than_a_batch_may_be_keeps_its_place_in_the_order(client):
    bodies = [b"before", bytes(SEGMENT_BYTES - 200), b"between", b"", bytes(SEGMENT_BYTES - 200)]
    with client.producer(linger_ms=60_000) as producer:
        sent = [producer.send("large", body, queue_id=3) for body in [*bodies, b"after"] * 2]
    offsets = [one.result().queue_offset for one in sent]
    assert offsets == list(range(offsets[0], offsets[0] + len(sent)))


def test_a_message_that_no_broker_takes_is_refused_at_once(client):
    with client.producer() as producer:
        for keys in (["a b"], [""]):
            with pytest.raises(InvalidRequestError):
                producer.send("fine", b"", keys=keys)
        with pytest.raises(InvalidRequestError):
            producer.send("", b"")
        with pytest.raises(InvalidRequestError):
            producer.send("fine", b"", queue_id=-1)
        with pytest.raises(InvalidRequestError):
            producer.send("fine", b"", flag=1 << 40)
        assert producer.send("fine", b"").result().stored


def test_a_batch_that_the_log_refuses_is_reported_and_the_next_one_works(client):
    with client.producer() as producer:
        with pytest.raises(InvalidRequestError, match="bad name"):
            producer.send("bad name!", b"").result()
        with pytest.raises(InvalidRequestError, match="queue"):
            producer.send("refused", b"", queue_id=9).result()
        assert producer.send("refused", b"").result().stored


def test_a_flush_raises_a_failure_that_was_not_looked_at(client):
    producer = client.producer()
    producer.send("refused", b"", queue_id=9)
    with pytest.raises(InvalidRequestError, match="queue"):
        producer.flush()
    producer.flush()
    producer.close()


def test_failures_that_are_not_looked_at_hold_no_more_than_may_wait(client):
    """A producer may fail for hours before it is flushed."""
    with client.producer(batch_bytes=10_000, max_pending_bytes=20_000) as producer:
        before = len(batches())
        for _ in range(50):
            producer.send("fine", bytes(9_900), queue_id=1000)
        assert producer.send("fine", b"").result().stored
        assert len(batches()) <= before + 3
        with pytest.raises(InvalidRequestError, match="queue"):
            producer.flush()


def batches() -> list[Batch]:
    return [one for one in gc.get_objects() if type(one) is Batch]


def test_a_failure_that_was_looked_at_is_not_raised_again(client):
    with client.producer() as producer:
        with pytest.raises(InvalidRequestError):
            producer.send("refused", b"", queue_id=9).result()
        producer.flush()


def test_rows_wait_while_too_much_is_unanswered(client):
    """What waits in memory stays within the limit and a batch."""
    with client.producer(max_pending_bytes=5_000, batch_bytes=1_000) as producer:
        outbox, most = producer._only.outbox, 0
        add_rows = outbox.add_rows

        def watched(*arguments):
            nonlocal most
            added = add_rows(*arguments)
            most = max(most, outbox.pending_bytes)
            return added

        outbox.add_rows = watched
        deliveries = producer.send_rows("slow", [(b"x" * 400, b"")] * 300)
        assert len([delivery.result() for delivery in deliveries]) == 300
    assert 4_000 < most <= 6_000


def test_several_threads_share_a_producer(client):
    with client.producer() as producer:
        sent: list[list] = [[] for _ in range(4)]

        def work(number):
            for count in range(200):
                sent[number].append(producer.send("threads", f"{number} {count}".encode()))

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for number, deliveries in enumerate(sent):
        for count, delivery in enumerate(deliveries):
            if count % 50 == 0:
                same_as_sent(client, delivery.result(), f"{number} {count}".encode())


def test_a_closed_producer_takes_nothing_more(client):
    producer = client.producer()
    producer.send("closed", b"").result()
    producer.close()
    producer.close()
    with pytest.raises(UnavailableError, match="closed"):
        producer.send("closed", b"")


@pytest.mark.parametrize(
    "wrong",
    [{"window": 0}, {"batch_bytes": 5 << 20}, {"delivery_timeout_s": -1}, {"linger_ms": -1}],
)
def test_settings_out_of_bounds_are_refused(wrong):
    with pytest.raises(InvalidRequestError):
        ProducerSettings(**wrong)
