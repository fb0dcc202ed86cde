"""The janitor beside a real broker: what goes, what stays, and what readers find afterwards."""

import pytest

from stratamq.client import Client, connect
from stratamq.client.values import Queue
from stratamq.errors import StrataError
from stratamq.formats.message_status import PullStatus
from tests.support.brokers import ROOMS, broker_fixture
from tests.support.waiting import until, until_dispatched, until_indexed

JANITOR = "janitor"
SETTINGS = (
    "commitlog.segment_bytes=65536",
    "dispatcher.queue_file_bytes=400",
    "index.index_slots=64",
    "index.index_items=128",
    "commitlog.release_timeout_ms=0",
    "janitor.interval_ms=3600000",  # it looks once when it starts, then when asked
    "janitor.retention_ms=0",
    "janitor.delete_when=",
    "janitor.disk_clean_ratio=1.0",
    "janitor.disk_force_ratio=1.0",
)


broker = broker_fixture(*SETTINGS, scope="function")


@pytest.fixture
def client(broker):
    with connect(broker.root, retry_timeout_s=60) as client:
        yield client


def fill(client: Client, count: int = 400) -> None:
    """So many messages of 1 KiB, each with its number as key, over two queues."""
    with client.producer() as producer:
        for number in range(count):
            body = b"%d" % number + bytes(1024)
            producer.send("t", body, queue_id=number % 2, keys=[f"key-{number}"])
    until_dispatched(client)
    until_indexed(client)


def clean(client: Client) -> tuple[int, int]:
    """Run until nothing more goes; the log's minimum before and after."""
    before = client.log_state().minimum_offset
    until(lambda: not client.admin.run_cleaning().deletions, "nothing more goes")
    return before, client.log_state().minimum_offset


def wait_for_followers(client: Client) -> None:
    """Until the dispatcher knows the log's minimum."""
    minimum = client.log_state().minimum_offset
    until(
        lambda: all(first_place(client, queue) >= minimum for queue in client.queues("t")),
        "the dispatcher knows the minimum",
    )


def first_place(client: Client, queue: Queue) -> int:
    """Log offset of its first message; -1 when the queue was shortened meanwhile."""
    units = client.units(queue.topic, queue.queue_id, queue.min_offset, 1)
    return units[0].physical_offset if units else -1


def last_look(client: Client):
    return until(lambda: client.admin.janitor_state().last, "the janitor has looked")


def test_expired_segments_go_when_asked_and_readers_find_the_new_minimum(broker, client):
    fill(client)
    broker.start([JANITOR])
    plan = client.admin.plan_cleaning(manual=True)
    assert plan.deletions and not plan.deleted
    assert client.log_state().minimum_offset == 0, "a plan changes nothing"
    before, after = clean(client)
    state = client.log_state()
    assert before == 0 < after
    assert state.segment_count == 1, "all but the last"
    assert after == state.appended_offset - state.appended_offset % 65536
    wait_for_followers(client)
    for queue in client.queues("t"):
        pulled = client.pull("t", queue.queue_id, 0)
        assert pulled.status is PullStatus.OFFSET_TOO_SMALL
        assert pulled.next_offset == queue.min_offset
        first = next(iter(client.pull("t", queue.queue_id, queue.min_offset).messages))
        assert first.queue_offset == queue.min_offset
        assert first.physical_offset >= after
        assert queue.max_offset == 200, "an idle queue keeps its maximum"
    until(lambda: not client.query_key("t", "key-0").messages, "the index knows the minimum")
    assert len(client.query_key("t", "key-399").messages) == 1
    total = client.admin.janitor_state()
    assert total.deleted_segments == after // 65536
    assert total.freed_bytes == after


def test_by_itself_it_deletes_nothing_outside_its_hours(broker, client):
    fill(client)
    broker.start([JANITOR])
    assert last_look(client).deletions == ()
    assert client.log_state().minimum_offset == 0


def test_what_a_group_has_not_consumed_is_held_back_until_it_has(broker, client):
    fill(client)
    client.commit_offsets("billing", {("t", 0): 100, ("t", 1): 120})
    broker._settings += ["janitor.hold=consumed", "janitor.hold_groups=billing"]
    broker.start([JANITOR])
    _, after = clean(client)
    needed = client.units("t", 0, 100, 1)[0].physical_offset
    assert 0 < after <= needed < after + 65536
    held = client.admin.plan_cleaning(manual=True).held
    assert [one.reason for one in held] == ["consumed"]
    assert "group billing in topic t queue 0, at offset 100" in held[0].sentence
    client.commit_offsets("billing", {("t", 0): 200, ("t", 1): 200})
    clean(client)
    assert client.log_state().segment_count == 1


def test_a_group_that_never_committed_holds_everything(broker, client):
    fill(client)
    broker._settings += ["janitor.hold=consumed", "janitor.hold_groups=unknown"]
    broker.start([JANITOR])
    assert clean(client) == (0, 0)
    (held,) = client.admin.plan_cleaning(manual=True).held
    assert "group unknown has never committed an offset" in held.sentence


def test_the_store_continues_after_a_restart_with_the_new_minimum(broker, client):
    fill(client)
    broker.start([JANITOR])
    _, after = clean(client)
    broker.kill(JANITOR)
    broker.stop()
    assert not (broker.root / "abort").exists()
    broker.start(ROOMS)
    assert client.log_state().minimum_offset == after
    result = client.send("t", b"next", queue_id=0)
    assert result.queue_offset == 200


def test_a_second_janitor_on_the_same_store_is_refused(broker):
    broker.start([JANITOR])
    first = broker._processes.pop(JANITOR)
    try:
        with pytest.raises(AssertionError, match="in use"):
            broker.start([JANITOR])
    finally:
        broker._processes.pop(JANITOR, None)
        first.kill()
        first.wait()


def test_a_log_that_does_not_answer_is_reported_and_nothing_breaks(broker, client):
    broker.start([JANITOR])
    last_look(client)
    broker.kill("commitlog")
    with connect(broker.root) as impatient, pytest.raises(StrataError):
        impatient.admin.run_cleaning()
    broker.start(["commitlog"])
    assert client.admin.run_cleaning().deletions == ()
