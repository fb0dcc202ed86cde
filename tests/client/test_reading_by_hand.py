"""Readers that are asked for by time, by number, from elsewhere: poll, getmany, seek, pause."""

import asyncio
import itertools
from concurrent.futures import ThreadPoolExecutor

import pytest

from stratamq.client import AtTime, Interceptor, connect_async
from stratamq.errors import InvalidRequestError
from tests.client.conftest import SEGMENT_BYTES
from tests.client.reading import bodies, send
from tests.support.brokers import COMMITLOG, DISPATCHER, broker_fixture

SETTINGS = (f"commitlog.segment_bytes={SEGMENT_BYTES}", "commitlog.followers=dispatcher")
broker = broker_fixture(*SETTINGS, rooms=[COMMITLOG, DISPATCHER], of_each_kind=True)


@pytest.fixture(scope="module")
def client(broker, opened):
    with opened(broker.root, retry_timeout_s=60) as client:
        yield client


def test_a_poll_gives_the_next_message_or_nothing_in_time(client):
    send(client, "polled", 2, queue_id=0)
    with client.consume("polled", follow=True) as reader:
        assert [int(reader.poll(60).body) for _ in range(2)] == [0, 1]
        assert reader.poll() is None
        assert reader.poll(0.05) is None
        client.send("polled", b"2", queue_id=0)
        assert int(reader.poll(60).body) == 2
        client.send("polled", b"3", queue_id=0)
        assert int(next(reader).body) == 3


def test_a_reader_of_what_comes_begins_where_it_is_entered(client):
    send(client, "entered", 3, queue_id=0)
    with client.consume("entered", offset="latest", follow=True) as reader:
        client.send("entered", b"3", queue_id=0)
        assert int(reader.poll(60).body) == 3


def test_closing_from_another_thread_ends_a_poll_that_waits(client):
    send(client, "poll-closed", 1, queue_id=0)
    reader = client.consume("poll-closed", follow=True)
    assert reader.poll(60) is not None
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(reader.poll, 3600)
        while not reader._asking:
            continue
        reader.close()
        assert waiting.result(60) is None
    assert reader.poll(60) is None


def test_a_poll_may_wait_for_ever_and_not_for_no_number(client):
    send(client, "for-ever", 1, queue_id=0)
    with client.consume("for-ever", follow=True) as reader:
        assert int(reader.poll(float("inf")).body) == 0
        assert reader.poll(-1.0) is None
        with pytest.raises(InvalidRequestError, match="a number is expected"):
            reader.poll(float("nan"))


def test_a_poll_behind_the_last_message_ends_at_once(client):
    send(client, "polled-out", 1)
    with client.consume("polled-out") as reader:
        assert int(reader.poll(60).body) == 0
        assert reader.poll(3600) is None


def test_many_come_at_a_time_at_most_so_many(client):
    send(client, "many", 50, queue_id=0)
    with client.consume("many") as reader:
        pieces = [bodies(reader.getmany(20, 60)) for _ in range(3)]
        assert [number for piece in pieces for number in piece] == list(range(50))
        assert max(map(len, pieces)) == 20
        assert reader.getmany(20, 60) == []
        with pytest.raises(InvalidRequestError, match="at least one"):
            reader.getmany(0)


def test_of_many_none_counts_as_taken_before_more_are_asked_for(client):
    send(client, "many-taken", 10, queue_id=0)
    options = {"group": "many", "commit_interval_s": 3600}
    reader = client.consume("many-taken", **options)
    assert len(reader.getmany(4, 60)) == 4
    assert len(reader.getmany(4, 60)) == 4
    reader.close()
    assert client.committed_offsets("many") == {("many-taken", 0): 4}
    with client.consume("many-taken", **options) as reader:
        assert bodies(reader.getmany(3, 60)) == [4, 5, 6]
    assert client.committed_offsets("many") == {("many-taken", 0): 7}


def test_a_reader_continues_where_it_is_sent(client):
    for queue_id in (0, 1):
        send(client, "sought", 10, queue_id=queue_id)
    (eighth, *_) = client.consume("sought", queues=[1], offset=7)
    moment = eighth.store_timestamp_ms
    later = {m.queue_offset for m in client.consume("sought", queues=[1], offset=AtTime(moment))}
    options = {"group": "sought", "follow": True}
    with client.consume("sought", queues=[0, 1], **options) as reader:
        list(itertools.islice(reader, 15))
        reader.seek(8)
        assert reader.positions == {("sought", 0): 8, ("sought", 1): 8}
        rest = [(m.queue_id, m.queue_offset) for m in itertools.islice(reader, 4)]
        assert sorted(rest) == [(0, 8), (0, 9), (1, 8), (1, 9)]
        reader.seek("earliest", queues=[0])
        assert bodies(itertools.islice(reader, 10)) == list(range(10))
        reader.seek(AtTime(moment), queues=[1], topic="sought")
        assert {m.queue_offset for m in itertools.islice(reader, len(later))} == later
        reader.seek("latest")
        client.send("sought", b"10", queue_id=1)
        assert int(next(reader).body) == 10
        with pytest.raises(InvalidRequestError, match="queues \\[7\\]"):
            reader.seek(0, queues=[7])
        reader.seek(5, queues=[0])
    assert client.committed_offsets("sought") == {("sought", 0): 5, ("sought", 1): 11}


def test_a_paused_queue_gives_nothing_and_keeps_its_place(client):
    for queue_id in (0, 1):
        send(client, "paused", 5, queue_id=queue_id)
    with client.consume("paused", max_bytes=1) as reader:
        next(reader)
        reader.pause([0])
        reader.seek("earliest", queues=[1])
        assert [m.queue_id for m in itertools.islice(reader, 5)] == [1] * 5
        with pytest.raises(InvalidRequestError, match="paused"):
            next(reader)
        assert reader.poll(0.2) is None
        begin = reader.positions["paused", 0]
        reader.resume()
        assert [m.queue_offset for m in reader] == list(range(begin, 5))
        with pytest.raises(InvalidRequestError, match="other"):
            reader.pause(topic="other")


def test_what_was_given_before_a_pause_or_a_seek_counts_as_taken_when_more_is_asked_for(client):
    for queue_id in (0, 1):
        send(client, "in-hand", 4, queue_id=queue_id)
    options = {"group": "in-hand", "commit_interval_s": 3600, "queues": [0]}
    reader = client.consume("in-hand", **options)
    assert bodies(reader.getmany(2, 60)) == [0, 1]
    reader.pause()
    reader.resume()
    reader.close()
    assert client.committed_offsets("in-hand") == {}
    reader = client.consume("in-hand", **options)
    assert int(reader.poll(60).body) == 0
    reader.pause()
    assert reader.poll(0) is None
    reader.close()
    assert client.committed_offsets("in-hand") == {("in-hand", 0): 1}
    reader = client.consume("in-hand", **options | {"queues": [0, 1]})
    (queue_id,) = {message.queue_id for message in reader.getmany(2, 60)}
    reader.seek(3, queues=[1 - queue_id])
    reader.close()
    begun = {("in-hand", 0): 1, ("in-hand", 1 - queue_id): 3}
    assert client.committed_offsets("in-hand") == begun


@pytest.mark.parametrize("kind", ["asyncio"], indirect=True, scope="module")
def test_a_cancelled_resume_loses_nothing_and_leaves_no_task(client, broker, run):
    count = 300
    send(client, "move-cancelled", count, queue_id=0)

    async def read(turns: int) -> list[int]:
        """Cancel each `resume` after so many turns of the loop."""
        before = asyncio.all_tasks()
        given = []
        async with (
            connect_async(broker.root) as aio,
            aio.consume("move-cancelled", max_bytes=500) as reader,
        ):
            while len(given) < count // 4:
                given += bodies(await reader.getmany(3, 0.0))
                moving = asyncio.create_task(reader.resume())
                for _ in range(turns):
                    await asyncio.sleep(0)
                moving.cancel()
                await asyncio.wait([moving])
                given += bodies(await reader.getmany(3, 60))
            given += [int(message.body) async for message in reader]
        left = [task for task in asyncio.all_tasks() - before if "_next_response" in repr(task)]
        assert left == []
        return given

    for turns in range(8):
        assert run(read(turns)) == list(range(count))


def test_what_an_interceptor_raises_keeps_nothing_before_it_from_the_caller(client, broker, opened):
    class Refusing(Interceptor):
        def received(self, message):
            if message.queue_offset == 2:
                raise LookupError("refused")

    send(client, "refused", 5, queue_id=0)
    options = {"group": "refused", "commit_interval_s": 3600}
    with opened(broker.root, interceptors=[Refusing()]) as seeing:
        with seeing.consume("refused", **options) as reader:
            assert bodies(reader.getmany(10, 60)) == [0, 1]
        assert client.committed_offsets("refused") == {("refused", 0): 2}
        with seeing.consume("refused", offset=1) as reader:
            assert bodies(reader.getmany(10, 60)) == [1]
            with pytest.raises(LookupError):
                reader.getmany(10, 60)
            assert bodies(reader.getmany(10, 60)) == [3, 4]
