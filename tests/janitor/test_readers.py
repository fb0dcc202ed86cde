"""Who reads a segment while it is deleted, as real processes: every byte right, and a clear end."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from stratamq.client import Client, connect
from stratamq.formats.message_status import PullStatus
from tests.support.brokers import DISPATCHER, broker_fixture
from tests.support.freezing import freeze, thaw
from tests.support.waiting import until, until_dispatched, until_indexed

SEGMENT = 65536
BODY = bytes(1024)
MESSAGES = 600
LARGE_END = 3600
"""48 MiB more: no stream has so much on its way."""
SETTINGS = (
    f"commitlog.segment_bytes={SEGMENT}",
    "commitlog.release_timeout_ms=0",
    "commitlog.snapshot_interval_ms=50",
    "dispatcher.queue_file_bytes=400",
    "index.index_slots=64",
    "index.index_items=128",
)


broker = broker_fixture(*SETTINGS, scope="function")


@pytest.fixture
def client(broker):
    with connect(broker.root, retry_timeout_s=60) as client:
        fill(client, 0, MESSAGES)
        yield client


def fill(client: Client, first: int, end: int) -> None:
    """One queue; a message's body begins with its number, which is its queue offset."""
    with client.producer() as producer:
        for number in range(first, end):
            producer.send("t", b"%06d" % number + BODY, queue_id=0, keys=[f"k{number}"])
    until_dispatched(client)
    until_indexed(client)


def delete(client: Client, below: int, *, urgent: bool = True) -> int:
    """Until the log's minimum is there; then the files go in their time."""

    def minimum() -> int:
        return client.admin.delete_below(below, max_segments=100, urgent=urgent)[0]

    until(lambda: minimum() >= below, "the log's minimum is there")
    return minimum()


def right(messages) -> list[int]:
    """The queue offsets of messages, each with the body that belongs to it."""
    messages = list(messages)
    for message in messages:
        number = b"%06d" % message.queue_offset
        assert message.body == number + bytes(len(message.body) - len(number))
    return [message.queue_offset for message in messages]


def test_pulls_during_a_deletion_find_right_messages_or_the_right_next_offset(broker, client):
    """A reader at the old minimum, again and again, while segment after segment goes."""
    below = SEGMENT * (client.log_state().segment_count - 1)
    over = threading.Event()

    def read() -> int:
        at, seen = 0, 0
        with connect(broker.root, retry_timeout_s=60) as reader:
            while not over.is_set() or not seen:
                pulled = reader.pull("t", 0, at, max_messages=3)
                if pulled.status is PullStatus.OFFSET_TOO_SMALL:
                    assert pulled.next_offset > at
                    at, seen = pulled.next_offset, seen + 1
                else:
                    assert pulled.status is PullStatus.FOUND
                    assert right(pulled.messages)[0] == at
        return seen

    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(read)
        for minimum in range(SEGMENT, below + SEGMENT, SEGMENT):
            delete(client, minimum)
        until(lambda: first_place(client) >= below, "the dispatcher knows the minimum")
        over.set()
        assert reading.result(60) > 0
    first = client.queues("t")[0].min_offset
    assert client.pull("t", 0, 0).next_offset == first
    assert right([first_message(client, first)]) == [first]


def first_place(client: Client) -> int:
    """Log offset of the queue's first message; -1 while the queue is being shortened."""
    units = client.units("t", 0, client.queues("t")[0].min_offset, 1)
    return units[0].physical_offset if units else -1


def first_message(client: Client, offset: int):
    """The message of one queue offset, by its place in the log."""
    return client.message_at(client.units("t", 0, offset, 1)[0].physical_offset)


def test_a_streaming_reader_continues_at_the_new_minimum(broker, client):
    """Its stream gives what was on its way; then it continues where the queue begins now."""
    large = bytes(16 << 10)
    with client.producer() as producer:
        for number in range(MESSAGES, LARGE_END):
            producer.send("t", b"%06d" % number + large, queue_id=0)
    end = client.log_state().appended_offset
    until_dispatched(client, end)
    minimum = end - end % SEGMENT - SEGMENT
    with client.consume("t", max_bytes=4096) as consumer:
        messages = iter(consumer)
        seen = right([next(messages) for _ in range(5)])
        delete(client, minimum)
        until(lambda: first_place(client) >= minimum, "the dispatcher knows the minimum")
        seen += right(messages)
    first = client.queues("t")[0].min_offset
    assert seen == sorted(set(seen)), "nothing twice, and nothing out of order"
    assert seen[first - LARGE_END :] == list(range(first, LARGE_END))
    assert 5 < len(seen) < LARGE_END, "it skipped what was gone"


def test_keys_and_times_are_right_after_a_deletion(broker, client):
    minimum = delete(client, SEGMENT * (client.log_state().segment_count // 2))
    until(lambda: first_place(client) >= minimum, "the dispatcher knows the minimum")
    (queue, *_) = client.queues("t")
    kept = right(client.consume("t"))
    assert kept == list(range(queue.min_offset, MESSAGES))
    last_gone = f"k{queue.min_offset - 1}"
    until(lambda: not client.query_key("t", last_gone).messages, "the index knows it, too")
    for number in (0, queue.min_offset - 1, queue.min_offset, MESSAGES - 1):
        found = client.query_key("t", f"k{number}").messages
        assert right(found) == ([number] if number >= queue.min_offset else [])
        assert all(message.physical_offset >= minimum for message in found)
    oldest = first_message(client, queue.min_offset)
    for at in (0, oldest.store_timestamp_ms - 60_000):
        assert client.offset_at_time("t", 0, at) == queue.min_offset
    middle = first_message(client, MESSAGES - 50)
    found = client.offset_at_time("t", 0, middle.store_timestamp_ms)
    stored = {m.queue_offset: m.store_timestamp_ms for m in client.consume("t")}
    same = [n for n, at in stored.items() if at == middle.store_timestamp_ms]
    assert found in (min(same), max(same))


def test_a_follower_that_lags_is_not_cut_off(broker, client):
    """It is stopped, not dead: what it has not made durable stays until it has."""
    broker.terminate(DISPATCHER)
    broker.start([DISPATCHER])
    reached = client.admin.dispatch_state().durable_offset
    freeze(broker.pid(DISPATCHER))
    try:
        with client.producer() as producer:
            for number in range(MESSAGES, 2 * MESSAGES):
                producer.send("t", b"%06d" % number + BODY, queue_id=0)
        end = client.log_state().appended_offset
        for _ in range(50):
            minimum, _ = client.admin.delete_below(end, max_segments=100)
            assert minimum <= reached
    finally:
        thaw(broker.pid(DISPATCHER))
    until_dispatched(client, end)
    first = client.queues("t")[0].min_offset
    assert right(client.consume("t", offset=first)) == list(range(first, 2 * MESSAGES))


def test_a_follower_that_a_full_disk_did_not_wait_for_continues_with_the_right_offsets(
    broker, client
):
    broker.kill(DISPATCHER)
    with client.producer() as producer:
        for number in range(MESSAGES, 2 * MESSAGES):
            producer.send("t", b"%06d" % number + BODY, queue_id=0)
    state = client.log_state()
    minimum = delete(client, state.minimum_offset + SEGMENT * (state.segment_count - 1))
    broker.start([DISPATCHER])
    until_dispatched(client, state.appended_offset)
    (queue,) = client.queues("t")
    assert queue.max_offset == 2 * MESSAGES
    messages = list(client.consume("t"))
    assert right(messages) == list(range(queue.min_offset, 2 * MESSAGES))
    assert messages[0].physical_offset >= minimum
