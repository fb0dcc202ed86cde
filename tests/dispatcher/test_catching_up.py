"""What was answered before a pull, or another question, began is in its answer, although the log
sends a follower for which no caller waits what it has up to 50 ms later."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from stratamq.client import TimeBoundary, connect
from tests.support.brokers import COMMITLOG, DISPATCHER, INDEX, Broker

SENDS = 40
SETTINGS = (
    "commitlog.followers=dispatcher,index",
    "index.index_slots=1000",
    "index.index_items=4000",
)


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    directory = tmp_path_factory.mktemp("broker")
    with Broker(directory / "store", directory / "logs", SETTINGS) as broker:
        broker.start([COMMITLOG, DISPATCHER, INDEX])
        with connect(broker.root, retry_timeout_s=60) as client:
            client.send("warm", b"x")
            yield client


def test_a_pull_that_is_begun_after_an_answered_send_finds_it(client):
    for number in range(SENDS):
        stored = client.send("pulled", b"%d" % number, queue_id=0)
        (found,) = client.pull("pulled", 0, stored.queue_offset).messages
        assert found.body == b"%d" % number


def test_a_pull_of_one_tag_finds_what_was_answered_behind_others(client):
    for number in range(SENDS):
        client.send("tagged", b"other", queue_id=0, tag="other")
        stored = client.send("tagged", b"x", queue_id=0, tag=f"t{number}")
        (found,) = client.pull("tagged", 0, 0, tags=[f"t{number}"]).messages
        assert found.queue_offset == stored.queue_offset


def test_several_sends_are_found_from_the_last_one_on(client):
    for _ in range(SENDS // 4):
        results = [client.send("several", b"x", queue_id=1) for _ in range(4)]
        assert len(client.pull("several", 1, results[-1].queue_offset).messages) == 1


def test_a_queue_that_is_listed_after_an_answered_send_ends_behind_it(client):
    for number in range(SENDS):
        client.send("listed", b"x", queue_id=0)
        (queue,) = client.queues("listed")
        assert queue.max_offset == number + 1


def test_the_units_of_a_queue_have_what_was_answered(client):
    for number in range(SENDS):
        client.send("units", b"x", queue_id=0)
        assert len(client.units("units", 0, number)) == 1


def test_a_search_by_time_knows_what_was_answered(client):
    for number in range(SENDS):
        client.send("timed", b"x", queue_id=0)
        found = client.offset_at_time("timed", 0, 1 << 60, TimeBoundary.UPPER)
        assert found == number


def test_a_group_may_commit_what_was_answered_and_lags_behind_what_comes_next(client):
    for number in range(SENDS):
        stored = client.send("committed", b"x", queue_id=0)
        client.commit_offsets("group", {("committed", 0): stored.queue_offset + 1})
        client.send("committed", b"x", queue_id=0)
        (state,) = client.groups("group")
        assert (state.offset, state.lag) == (2 * number + 1, 1)


def test_a_query_by_key_that_is_begun_after_an_answered_send_finds_it(client):
    for number in range(SENDS):
        stored = client.send("keyed", b"x", keys=[f"k{number}"])
        (found,) = client.query_key("keyed", f"k{number}").messages
        assert found.physical_offset == stored.physical_offset


def test_a_pull_that_waits_gets_what_is_sent_meanwhile(client):
    with ThreadPoolExecutor(1) as pool:
        for number in range(SENDS // 4):
            pulled = pool.submit(client.pull, "waited", 0, number, wait_ms=20_000)
            stored = client.send("waited", b"%d" % number, queue_id=0)
            found = pulled.result().messages
            assert [one.physical_offset for one in found] == [stored.physical_offset]


def test_beyond_the_end_of_a_queue_there_is_nothing(client):
    stored = client.send("ended", b"x", queue_id=0)
    assert client.pull("ended", 0, stored.queue_offset + 1).messages == []
    assert client.pull("never", 0, 0).messages == []
