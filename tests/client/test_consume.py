"""Messages come out as they went in: by queue, by key, by offset and by time, through the whole
broker, with both clients."""

import asyncio
import itertools
import random
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor, wait

import pytest

from stratamq.client import AtTime, PullStatus, TimeBoundary, connect_async
from stratamq.client.received import split_frames
from stratamq.errors import InvalidRequestError, NotFoundError, UnavailableError
from stratamq.rpc.endpoints import parse_target
from stratamq.rpc.paging import PAGE_ENTRIES
from tests.client.conftest import SEGMENT_BYTES
from tests.client.on_loop import original
from tests.client.reading import bodies, send
from tests.support.brokers import COMMITLOG, DISPATCHER, broker_fixture
from tests.support.slow_link import slow_link
from tests.support.waiting import until_dispatched, until_indexed

COUNT = 1000
SETTINGS = (
    f"commitlog.segment_bytes={SEGMENT_BYTES}",
    "index.index_slots=5000",
    "index.index_items=20000",
)


broker = broker_fixture(*SETTINGS, of_each_kind=True)


@pytest.fixture(scope="module")
def client(broker, opened):
    with opened(broker.root, retry_timeout_s=60) as client:
        yield client


@pytest.fixture(scope="module")
def numbers(client) -> list:
    """Results of messages 0, 1, 2, … in topic `numbers`, with tags T0 to T2 and keys."""
    with client.producer(batch_messages=50) as producer:
        deliveries = [
            producer.send(
                "numbers", str(number).encode(), tag=f"T{number % 3}", keys=(f"K{number // 10}",)
            )
            for number in range(COUNT)
        ]
    results = [delivery.result() for delivery in deliveries]
    wait_for(client, results)
    return results


def wait_for(client, results) -> None:
    """Until the dispatcher and the index have come as far."""
    end = max(result.physical_offset + result.size for result in results)
    until_dispatched(client, end)
    until_indexed(client, end)


# --- by queue ---


def test_everything_comes_out_once_each_queue_in_order(client, numbers):
    with client.consume("numbers") as reader:
        messages = list(reader)
    assert sorted(bodies(messages)) == list(range(COUNT))
    for queue_id in range(4):
        offsets = [m.queue_offset for m in messages if m.queue_id == queue_id]
        assert offsets == list(range(len(offsets)))
    by_place = {(m.queue_id, m.queue_offset): m for m in messages}
    for number, result in enumerate(numbers):
        message = by_place[result.queue_id, result.queue_offset]
        assert int(message.body) == number
        assert message.unique_key == result.unique_key


def test_what_was_acknowledged_before_is_read(client):
    for number in range(20):
        sent = client.send("just-now", str(number).encode())
        assert sorted(bodies(client.consume("just-now"))) == list(range(number + 1))
        moment = sent.store_timestamp_ms
        assert number in bodies(client.between("just-now", moment, moment))


def test_frames_of_several_ranges_come_with_the_number_of_their_range(client, numbers):
    ranges = [("numbers", 0, 3, 8), ("numbers", 1, 5, 5), ("numbers", 2, 0, 4)]
    found: dict[int, list[int]] = {}
    for number, _, frames in client.queue_frames(ranges):
        found.setdefault(number, []).extend(m.queue_offset for m in split_frames(frames))
    assert found == {0: [3, 4, 5, 6, 7], 2: [0, 1, 2, 3]}


def test_small_answers_give_the_same(client, numbers):
    assert sorted(bodies(client.consume("numbers", max_bytes=500))) == list(range(COUNT))


def test_only_the_wanted_tags_come(client, numbers):
    assert sorted(bodies(client.consume("numbers", tags=["T1"]))) == list(range(1, COUNT, 3))
    wanted = [number for number in range(COUNT) if number % 3]
    assert sorted(bodies(client.consume("numbers", tags="T1 || T2"))) == wanted
    assert bodies(client.consume("numbers", tags=["unknown"])) == []


def test_a_reader_begins_at_the_given_start(client, numbers):
    assert bodies(client.consume("numbers", offset="latest")) == []
    queue = [n for n, result in enumerate(numbers) if result.queue_id == 2]
    assert bodies(client.consume("numbers", queues=[2], offset=10)) == queue[10:]
    moment = numbers[COUNT // 2].store_timestamp_ms
    expected = [n for n, result in enumerate(numbers) if result.store_timestamp_ms >= moment]
    assert sorted(bodies(client.consume("numbers", offset=AtTime(moment)))) == expected


def test_one_pull_is_answered_as_rocketmq_answers_it(client, numbers):
    pulled = client.pull("numbers", 0, 0)
    assert pulled.status is PullStatus.FOUND
    assert len(pulled.messages) == 32
    assert pulled.next_offset == 32
    beyond = client.pull("numbers", 0, pulled.max_offset)
    assert (beyond.status, beyond.messages) == (PullStatus.OFFSET_OVERFLOW_ONE, [])
    assert client.pull("numbers", 0, 10**9).status is PullStatus.OFFSET_OVERFLOW_BADLY
    assert client.pull("numbers", 77, 0).status is PullStatus.NO_MESSAGE_IN_QUEUE


def test_a_pull_waits_for_a_first_message(client):
    send(client, "awaited", 1, queue_id=0)
    pulls = []
    waiting = threading.Thread(
        target=lambda: pulls.append(client.pull("awaited", 0, 1, wait_ms=30_000))
    )
    waiting.start()
    client.send("awaited", b"here", queue_id=0)
    waiting.join()
    assert [message.body for message in pulls[0].messages] == [b"here"]


def test_a_topic_that_does_not_exist_is_reported(client):
    with pytest.raises(NotFoundError):
        client.consume("nothing-here")


# --- following ---


def test_a_follower_gets_what_comes_while_it_reads(client):
    send(client, "followed", 10)
    with client.consume("followed", follow=True) as reader:
        assert sorted(bodies(itertools.islice(reader, 10))) == list(range(10))
        client.send("followed", b"11")
        assert bodies(itertools.islice(reader, 1)) == [11]


def test_a_topic_can_be_followed_before_it_exists(client):
    with client.consume("not-yet", follow=True, refresh_s=0.05) as reader:
        client.send("not-yet", b"1")
        assert bodies(itertools.islice(reader, 1)) == [1]


def test_a_follower_of_a_topic_that_is_not_there_yet_outlives_its_dispatcher(
    client, broker, opened
):
    """Its client tries nothing twice: a reader that follows waits all the same."""
    with opened(broker.root) as hasty:
        reader = hasty.consume("later", follow=True, refresh_s=0.05)
        broker.kill(DISPATCHER)
        with ThreadPoolExecutor(1) as pool:
            first = pool.submit(next, reader)
            assert not wait([first], 1.0).done
            broker.start([DISPATCHER])
            client.send("later", b"1")
            assert first.result(60).body == b"1"
        reader.close()


def test_a_follower_takes_up_queues_that_come_later(client):
    send(client, "grows", 1, queue_id=0)
    with client.consume("grows", follow=True, refresh_s=0.05) as reader:
        assert len(list(itertools.islice(reader, 1))) == 1
        for queue_id in (3, 1):
            client.send("grows", str(queue_id).encode(), queue_id=queue_id)
            assert bodies(itertools.islice(reader, 1)) == [queue_id]


def test_a_reader_ends_when_its_log_was_cut_behind_its_back(client):
    """Its plan was made of a longer history than the dispatcher has now."""
    send(client, "cut", 5)
    with client.consume("cut", refresh_s=0.05) as reader:
        for one in reader._lanes.all[0].queues.ranges:
            one.end += 3
        assert sorted(bodies(reader)) == [0, 1, 2, 3, 4]


def test_a_reader_that_looks_again_before_a_message_can_have_come_gets_it(client, broker, opened):
    large = bytes(1_000_000)
    client.send("slow", large)
    endpoints = parse_target(broker.root)
    log = endpoints.listening(COMMITLOG)
    with (
        slow_link(endpoints.listening(DISPATCHER), 4e6) as address,
        opened(f"commitlog={log},dispatcher={address}") as distant,
        distant.consume("slow", refresh_s=0.05) as reader,
        ThreadPoolExecutor(1) as pool,
    ):
        try:
            assert pool.submit(lambda: [one.body for one in reader]).result(60) == [large]
        finally:
            reader.close()


def test_closing_from_another_thread_ends_a_reader_that_waits(client):
    send(client, "waiting", 1)
    reader = client.consume("waiting", follow=True)
    got = []
    first = threading.Event()

    def read():
        for message in reader:
            got.append(message)
            first.set()

    thread = threading.Thread(target=read)
    thread.start()
    first.wait(60)
    reader.close()
    thread.join(60)
    assert not thread.is_alive()
    assert len(got) == 1


def test_a_reader_continues_when_the_dispatcher_comes_back_elsewhere(client, broker):
    send(client, "survives", 20)
    with client.consume("survives", follow=True, max_bytes=500) as reader:
        first = bodies(itertools.islice(reader, 5))
        broker.kill(DISPATCHER)
        broker.start([DISPATCHER])
        rest = bodies(itertools.islice(reader, 15))
    assert sorted(first + rest) == list(range(20))


def test_a_reader_without_retries_reports_that_the_dispatcher_is_away(client, broker):
    send(client, "away", 5)
    reader = client.consume("away", retry_timeout_s=0)
    broker.kill(DISPATCHER)
    try:
        with pytest.raises(UnavailableError):
            list(reader)
    finally:
        broker.start([DISPATCHER])


# --- groups ---


def test_a_group_continues_where_it_was(client):
    send(client, "grouped", 30, queue_id=0)
    with client.consume("grouped", group="g1") as reader:
        assert bodies(itertools.islice(reader, 10)) == list(range(10))
    assert client.committed_offsets("g1", "grouped") == {("grouped", 0): 10}
    with client.consume("grouped", group="g1") as reader:
        assert bodies(reader) == list(range(10, 30))
    assert bodies(client.consume("grouped", group="g1")) == []
    assert bodies(client.consume("grouped", group="g2")) == list(range(30))
    (state,) = [one for one in client.groups() if one.group == "g1"]
    assert (state.offset, state.max_offset, state.lag, state.lag_s) == (30, 30, 0, None)


def test_a_groups_lag_in_seconds_is_the_age_of_the_first_message_it_has_not_read(client):
    first, last, other = (client.send("aged", b"", queue_id=queue) for queue in (0, 0, 1))
    until_dispatched(client, other.physical_offset + other.size)
    places = {("aged", one.queue_id): one.queue_offset for one in (first, other)}
    client.commit_offsets("g-aged", places)
    ages_s = [one.lag_s for one in client.groups("g-aged", with_lag_s=True)]
    # Both were looked at in one moment.
    between_s = (other.store_timestamp_ms - first.store_timestamp_ms) / 1000
    assert ages_s[0] - ages_s[1] == pytest.approx(between_s, abs=0.0001)
    assert ages_s[1] >= 0
    ends = {("aged", one.queue_id): one.queue_offset + 1 for one in (last, other)}
    client.commit_offsets("g-aged", ends)
    assert [one.lag_s for one in client.groups("g-aged", with_lag_s=True)] == [0.0, 0.0]


def test_a_group_of_more_queues_than_a_page_has_is_listed_whole(client):
    offsets = {("many-queues", number): 0 for number in range(PAGE_ENTRIES + 5)}
    client.commit_offsets("g-many", offsets)
    assert client.committed_offsets("g-many") == offsets
    listed = [one for one in client.groups() if one.group == "g-many"]
    assert [(one.topic, one.queue_id) for one in listed] == list(offsets)


def test_a_message_that_was_not_finished_is_given_again(client):
    send(client, "unfinished", 5, queue_id=0)

    def fail_at_third():
        with client.consume("unfinished", group="g3", commit_interval_s=0) as reader:
            for message in reader:
                if int(message.body) == 2:
                    raise ValueError("could not be worked on")

    with pytest.raises(ValueError, match="worked"):
        fail_at_third()
    assert bodies(client.consume("unfinished", group="g3")) == [2, 3, 4]


def until_committed(client, group, expected):
    """Wait for what a group has committed; the test's own time limit ends a wait in vain."""
    while client.committed_offsets(group) != expected:
        continue


def test_a_quiet_group_commits_on_the_interval(client):
    """No further message comes, and the reader does not ask, or waits."""
    send(client, "quiet", 5, queue_id=0)
    with client.consume("quiet", group="q1", follow=True, commit_interval_s=0.05) as reader:
        assert bodies(itertools.islice(reader, 5)) == list(range(5))
        until_committed(client, "q1", {("quiet", 0): 4})
        with ThreadPoolExecutor(1) as pool:
            sixth = pool.submit(next, reader)
            until_committed(client, "q1", {("quiet", 0): 5})
            send(client, "quiet", 1, queue_id=0)
            assert sixth.result(60).queue_offset == 5


def test_a_regular_commit_that_is_refused_ends_the_reading_with_its_error(client):
    send(client, "refused", 1, queue_id=0)
    options = {"group": "q4", "follow": True, "refresh_s": 60, "commit_interval_s": 0.01}
    reader = client.consume("refused", **options)

    def refuse(operation):
        raise InvalidRequestError(f"refused: {operation.method.path}")

    original(reader)._lanes.all[0].run = refuse
    assert int(next(reader).body) == 0
    with pytest.raises(InvalidRequestError, match="CommitOffsets"):
        next(reader)


def test_a_reader_that_acknowledges_commits_that_alone(client):
    send(client, "acknowledged", 5, queue_id=0)
    with client.consume("acknowledged", group="q5", acknowledged=True) as reader:
        messages = list(reader)
        reader.acknowledge(messages[1])
        reader.commit()
    assert client.committed_offsets("q5") == {("acknowledged", 0): 2}
    reader = client.consume("acknowledged", group="q5", acknowledged=True)
    assert bodies(reader) == [2, 3, 4]
    reader.acknowledge(messages[3])
    reader.close()
    assert client.committed_offsets("q5") == {("acknowledged", 0): 4}


def test_closing_commits_what_was_taken(client):
    send(client, "shut", 5, queue_id=0)
    reader = client.consume("shut", group="q2", commit_interval_s=3600)
    assert bodies(itertools.islice(reader, 3)) == [0, 1, 2]
    reader.close()
    assert client.committed_offsets("q2") == {("shut", 0): 2}
    assert bodies(client.consume("shut", group="q2")) == [2, 3, 4]


def test_a_group_is_not_committed_any_more_once_its_reader_is_dropped(client, workers):
    send(client, "dropped", 2, queue_id=0)
    before = workers("stratamq-commit")
    reader = client.consume("dropped", group="q3", follow=True, commit_interval_s=0.01)
    (worker,) = workers("stratamq-commit") - before
    next(reader)
    dropped = weakref.ref(original(reader))
    del reader
    while worker in workers("stratamq-commit"):
        continue
    assert dropped() is None


def test_a_reader_is_one_callers_at_a_time(client):
    send(client, "one-caller", 1, queue_id=0)
    with client.consume("one-caller", follow=True) as reader, ThreadPoolExecutor(1) as pool:
        next(reader)
        waiting = pool.submit(next, reader)
        while not reader._asking:
            continue
        with pytest.raises(RuntimeError, match="another"):
            next(reader)
        client.send("one-caller", b"1", queue_id=0)
        assert waiting.result(60).queue_offset == 1


def test_an_explicit_commit_takes_the_message_in_hand(client):
    send(client, "explicit", 5, queue_id=0)
    reader = client.consume("explicit", group="g4")
    assert int(next(reader).body) == 0
    reader.commit()
    reader.close()
    assert client.committed_offsets("g4") == {("explicit", 0): 1}


def test_offsets_can_be_committed_without_reading(client):
    wait_for(client, send(client, "committed", 1, queue_id=0))
    client.commit_offsets("g5", {("committed", 0): 1})
    assert client.committed_offsets("g5") == {("committed", 0): 1}
    assert client.committed_offsets("g5", "other") == {}


# --- queries ---


def test_messages_are_found_by_key_newest_first(client, numbers):
    found = client.query_key("numbers", "K7")
    assert sorted(bodies(found.messages)) == list(range(70, 80))
    offsets = [message.physical_offset for message in found.messages]
    assert offsets == sorted(offsets, reverse=True)
    oldest = client.query_key("numbers", "K7", oldest_first=True, max_messages=3)
    assert oldest.truncated
    assert [m.physical_offset for m in oldest.messages] == sorted(offsets)[:3]
    assert client.query_key("numbers", "no such key").messages == []
    with pytest.raises(InvalidRequestError):
        client.query_key("numbers", "K7", max_messages=10_001)


def test_a_message_is_found_by_its_unique_key(client, numbers):
    (message,) = client.query_unique_key("numbers", numbers[123].unique_key).messages
    assert int(message.body) == 123
    (same,) = client.query_key("numbers", numbers[123].unique_key).messages
    assert same == message
    assert client.query_unique_key("numbers", "K7").messages == []


def test_messages_are_found_by_offset_and_id(client, numbers):
    message = client.message_at(numbers[5].physical_offset)
    assert int(message.body) == 5
    assert client.message_by_id(message.message_id) == message


def test_messages_are_found_by_time(client, numbers):
    begin, end = numbers[100].store_timestamp_ms, numbers[-100].store_timestamp_ms
    expected = [n for n, result in enumerate(numbers) if begin <= result.store_timestamp_ms <= end]
    assert sorted(bodies(client.between("numbers", begin, end))) == expected
    expected = [number for number in expected if number % 3 == 1]
    assert sorted(bodies(client.between("numbers", begin, end, tags=["T1"]))) == expected


def test_offsets_by_time_have_three_boundaries(client, numbers):
    results = [result for result in numbers if result.queue_id == 0]
    moment = results[len(results) // 2].store_timestamp_ms
    lower = client.offset_at_time("numbers", 0, moment)
    upper = client.offset_at_time("numbers", 0, moment, TimeBoundary.UPPER)
    same = [result.queue_offset for result in results if result.store_timestamp_ms == moment]
    assert (lower, upper) == (min(same), max(same))
    assert client.offset_at_time("numbers", 0, moment, TimeBoundary.NEAREST) in same


def test_units_contain_where_messages_are(client, numbers):
    results = [result for result in numbers if result.queue_id == 1][:3]
    units = client.units("numbers", 1, 0, 3)
    assert [(u.queue_offset, u.physical_offset, u.size) for u in units] == [
        (r.queue_offset, r.physical_offset, r.size) for r in results
    ]


def test_queues_are_listed_with_their_bounds(client, numbers):
    queues = client.queues("numbers")
    assert sum(queue.max_offset - queue.min_offset for queue in queues) == COUNT
    newest = max(queue.newest_store_timestamp_ms for queue in queues)
    assert newest == numbers[-1].store_timestamp_ms
    assert {queue.topic for queue in client.queues()} >= {"numbers"}


# --- what only tasks do ---


@pytest.mark.parametrize("kind", ["asyncio"], indirect=True, scope="module")
def test_an_asyncio_reader_is_iterated_without_a_second_await(client, broker, run):
    send(client, "one-await", 3, queue_id=0)

    async def read():
        async with connect_async(broker.root) as aio:
            plain = [int(m.body) async for m in aio.consume("one-await")]
            waited = [int(m.body) async for m in await aio.consume("one-await")]
            with pytest.raises(NotFoundError):
                async for _ in aio.consume("not-here"):
                    pass
            return plain, waited

    assert run(read()) == ([0, 1, 2], [0, 1, 2])


@pytest.mark.parametrize("kind", ["asyncio"], indirect=True, scope="module")
def test_an_asyncio_reader_outlives_every_cancelled_wait_and_gives_each_message_once(
    client, broker, run
):
    count = 400
    options = {"follow": True, "max_bytes": 500, "refresh_s": 0.2}

    async def read():
        given, timeouts, chance = [], 0, random.Random(5)
        async with (
            connect_async(broker.root) as aio,
            aio.consume("cancelled", group="cg", commit_interval_s=0.05, **options) as reader,
        ):
            while len(given) < count:
                try:
                    message = await asyncio.wait_for(anext(reader), chance.random() * 0.004)
                except TimeoutError:
                    timeouts += 1
                else:
                    given.append(int(message.body))
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(reader), 0.3)
            # Asked for in vain: the message before counts as taken.
            while await aio.committed_offsets("cg") != {("cancelled", 0): count}:
                continue
        return given, timeouts

    send(client, "cancelled", 1, queue_id=0)
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(run, read())
        for number in range(1, count):
            client.send("cancelled", str(number).encode(), queue_id=0)
        given, timeouts = reading.result()
    assert given == list(range(count))
    assert timeouts > 0
