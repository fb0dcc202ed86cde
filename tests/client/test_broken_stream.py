"""The connection to the log breaks during appends: no acknowledged message is missing, none is
stored twice, and the client reports each message whose outcome is unknown."""

import asyncio
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from stratamq.client import connect_async
from stratamq.client.received import split_frames
from stratamq.errors import InvalidRequestError, UnavailableError
from tests.client.on_loop import original
from tests.support import freezing
from tests.support.brokers import COMMITLOG
from tests.support.waiting import until


@pytest.fixture
def client(own_log, opened):
    with opened(own_log.root, retry_timeout_s=60) as client:
        yield client


def freeze(broker):
    freezing.freeze(broker.pid(COMMITLOG))


def all_sent(producer):
    """Until every message is on its way to the log: a batch is sent by another thread or task."""
    until(lambda: not producer._only.outbox.has_unsent, "everything is in flight")


def restart(broker):
    broker.start([COMMITLOG])


def bodies_in_log(client) -> Counter[bytes]:
    """Every message of the log."""
    end = client.log_state().appended_offset  # waits for a log that is starting
    return Counter(
        message.body for _, frames in client.log_frames(0, end) for message in split_frames(frames)
    )


def send_frozen(producer, broker, count):
    """Deliveries of messages that were sent and cannot have been answered."""
    answered = [producer.send("t", f"before {number}".encode()) for number in range(count)]
    producer.flush()
    freeze(broker)
    unanswered = [producer.send("t", f"after {number}".encode()) for number in range(count)]
    all_sent(producer)
    return answered, unanswered


def test_what_was_not_answered_is_perhaps_stored_and_what_was_is_there(client, own_log):
    with client.producer(window=100, retry=False) as producer:
        answered, unanswered = send_frozen(producer, own_log, 100)
        own_log.kill(COMMITLOG)
        for delivery in unanswered:
            with pytest.raises(UnavailableError) as caught:
                delivery.result(60)
            assert "perhaps_stored" in caught.value.fields
    restart(own_log)
    found = bodies_in_log(client)
    for number in range(100):
        assert answered[number].result().stored
        assert found[f"before {number}".encode()] == 1
        assert found[f"after {number}".encode()] <= 1


def test_messages_that_were_never_sent_are_reported_as_not_stored(client, own_log):
    producer = client.producer(window=1, batch_messages=1, retry=False)
    producer.send("t", b"first").result()
    freeze(own_log)
    sent = producer.send("t", b"sent")
    all_sent(producer)
    waiting = producer.send("t", b"waiting")
    own_log.kill(COMMITLOG)
    with pytest.raises(UnavailableError) as caught:
        sent.result(60)
    assert caught.value.fields["perhaps_stored"] is True
    with pytest.raises(UnavailableError) as caught:
        waiting.result(60)
    assert not caught.value.fields.get("perhaps_stored")
    producer.close()


def test_everything_is_stored_once_when_the_log_is_back_elsewhere(client, own_log):
    with client.producer(window=100, retry_delay_ms=10) as producer:
        _, unanswered = send_frozen(producer, own_log, 100)
        own_log.kill(COMMITLOG)
        restart(own_log)
        assert all(delivery.result(60).stored for delivery in unanswered)
    found = bodies_in_log(client)
    assert all(found[f"after {number}".encode()] == 1 for number in range(100))


def test_a_producer_continues_after_its_log_is_back_elsewhere(client, own_log):
    with client.producer() as producer:
        producer.send("t", b"before").result()
        own_log.kill(COMMITLOG)
        restart(own_log)
        deliveries = []
        while not deliveries or not settled_well(deliveries[-1]):
            deliveries.append(producer.send("t", b"again"))
        assert deliveries[-1].result().stored


def settled_well(delivery) -> bool:
    try:
        return delivery.result(60).stored
    except UnavailableError:
        return False


@pytest.mark.parametrize("way", ["messages", "rows"])
def test_sending_waits_while_nothing_is_answered(client, own_log, way):
    """What waits in memory stays within the limit and a batch."""
    with client.producer(max_pending_bytes=5_000, batch_bytes=1_000) as producer:
        producer.send("t", b"first").result(60)
        lane, blocked = original(producer)._only, threading.Event()
        wait_for_room = lane.wait_for_room

        def waits():
            blocked.set()
            return wait_for_room()

        lane.wait_for_room = waits

        def send():
            if way == "rows":
                return producer.send_rows("t", [(b"x" * 400, b"")] * 300)
            return [producer.send("t", b"x" * 400) for _ in range(300)]

        freeze(own_log)
        with ThreadPoolExecutor(1) as pool:
            sent = pool.submit(send)
            sent.add_done_callback(lambda _: blocked.set())
            assert blocked.wait(60)
            waiting_bytes = producer._only.outbox.pending_bytes
            freezing.thaw(own_log.pid(COMMITLOG))
            assert all(delivery.result(60).stored for delivery in sent.result(60))
        assert 5_000 <= waiting_bytes <= 6_000


def test_a_graceful_stop_answers_what_is_in_flight(client, own_log):
    with client.producer(retry=False) as producer:
        deliveries = [producer.send("t", str(number).encode()) for number in range(2000)]
        deliveries[0].result(60)
        own_log.terminate(COMMITLOG)
        outcomes = Counter(settled_well(delivery) for delivery in deliveries)
    restart(own_log)
    found = bodies_in_log(client)
    stored = [n for n, delivery in enumerate(deliveries) if settled_well(delivery)]
    assert outcomes[True] == len(stored) >= 1
    wrong = {number: times for number in stored if (times := found[str(number).encode()]) != 1}
    assert wrong == {}


def test_a_log_that_is_not_there_at_first_is_reported_at_the_first_message(client, own_log, opened):
    own_log.kill(COMMITLOG)
    impatient = opened(own_log.root)
    producer = impatient.producer()
    with pytest.raises(UnavailableError):
        producer.send("t", b"early")
    restart(own_log)
    assert client.log_state().writable
    deliveries = []
    while not deliveries:
        try:
            deliveries.append(producer.send("t", b"now"))
        except UnavailableError:
            continue
    assert deliveries[0].result(60).stored
    producer.close()
    impatient.close()


def test_a_first_connection_is_waited_for_as_long_as_the_client_is_patient(client, own_log):
    own_log.kill(COMMITLOG)
    with ThreadPoolExecutor(1) as pool, client.producer() as producer:
        sent = pool.submit(producer.send, "t", b"early")
        restart(own_log)
        assert sent.result(60).result(60).stored


def test_a_message_sent_by_itself_is_stored_once_when_its_answer_is_lost(client, own_log):
    client.send("t", b"first")
    freeze(own_log)
    with ThreadPoolExecutor(1) as pool:
        sent = pool.submit(client.send, "t", b"second")
        until(lambda: sent.running(), "the message is on its way")
        own_log.kill(COMMITLOG)
        restart(own_log)
        assert sent.result(60).stored
    assert bodies_in_log(client) == {b"first": 1, b"second": 1}


def test_closing_does_not_wait_for_a_log_that_never_answers(client, own_log):
    producer = client.producer()
    producer.send("t", b"first").result()
    freeze(own_log)
    delivery = producer.send("t", b"unanswered")
    all_sent(producer)
    with pytest.raises(UnavailableError):
        producer.close(timeout_s=0.2)
    with pytest.raises(UnavailableError) as caught:
        delivery.result(60)
    assert caught.value.fields["perhaps_stored"] is True


def test_an_answer_that_does_not_come_in_time_is_perhaps_stored(client, own_log):
    with client.producer() as producer:
        producer.send("t", b"first").result()
        freeze(own_log)
        delivery = producer.send("t", b"unanswered")
        with pytest.raises(UnavailableError) as caught:
            delivery.result(0.05)
        assert caught.value.fields["perhaps_stored"] is True
        freezing.thaw(own_log.pid(COMMITLOG))
        assert delivery.result(60).stored


def test_a_flush_in_vain_leaves_the_failures_to_the_next(client, own_log):
    with client.producer() as producer:
        refused = producer.send("t", b"", queue_id=9)
        while not refused.done:
            continue
        freeze(own_log)
        producer.send("t", b"unanswered", queue_id=0)
        with pytest.raises(UnavailableError):
            producer.flush(timeout_s=0.05)
        freezing.thaw(own_log.pid(COMMITLOG))
        with pytest.raises(InvalidRequestError, match="queue"):
            producer.flush()


def test_a_loop_that_cancels_its_tasks_fails_what_is_unanswered(own_log, run):
    async def scenario():
        async with connect_async(own_log.root) as aio:
            producer = aio.producer()
            await (await producer.send("t", b"first"))
            freeze(own_log)
            delivery = await producer.send("t", b"unanswered")
            while producer._only.outbox.has_unsent:
                await asyncio.sleep(0)
            (worker,) = [
                one for one in asyncio.all_tasks() if one.get_name() == "stratamq-producer"
            ]
            worker.cancel()
            with pytest.raises(UnavailableError) as caught:
                await delivery
            assert caught.value.fields["perhaps_stored"] is True

    run(scenario())
