"""The second service of `docs/a-new-service.md` beside a real log, as processes."""

from pathlib import Path

import pytest

from stratamq.client import connect
from stratamq.files.clock import SystemClock
from stratamq.formats.source_item import SOURCE_ITEM
from tests.support.brokers import COMMITLOG, DISPATCHER, Broker
from tests.support.waiting import until

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "docs" / "examples"
EGG_TIMER = "egg_timer"
REQUESTS, RECORDS = "rmq_sys_EGG_TIMER", "rmq_sys_STRATAMQ_EGG_TIMER"
SETTINGS = (
    "commitlog.segment_bytes=1048576",
    "commitlog.followers=dispatcher,egg_timer",
    "commitlog.follower_stop_timeout_ms=120000",
    "egg_timer.save_interval_ms=10",
)


@pytest.fixture
def broker(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(EXAMPLES))
    with Broker(tmp_path / "store", tmp_path / "logs", SETTINGS) as broker:
        yield broker.start([COMMITLOG, DISPATCHER, EGG_TIMER])


@pytest.fixture
def client(broker):
    with connect(broker.root, retry_timeout_s=60) as client:
        yield client


def ask(producer, number: int, at_ms: int) -> None:
    properties = {"RING_TO": "eggs", "RING_AT": str(at_ms)}
    producer.send(REQUESTS, b"%d" % number, properties=properties)


def messages(client, topic: str) -> list:
    return [
        message
        for known in client.topics(topic)
        for queue in range(known.read_queue_count)
        for message in client.pull(topic, queue, 0, max_messages=1_000, max_bytes=1 << 20).messages
    ]


def test_messages_are_forwarded_at_their_times_once_across_kills(broker, client):
    start_ms = SystemClock().wall_ms()
    with client.producer() as producer:
        for number in range(200):
            ask(producer, number, start_ms + 10 * number)
    until(lambda: messages(client, "eggs"), "the first ones are forwarded")
    broker.kill(EGG_TIMER)
    broker.start([EGG_TIMER])
    until(lambda: len(messages(client, RECORDS)) >= 60, "more are forwarded")
    broker.kill(EGG_TIMER, COMMITLOG)
    broker.start([COMMITLOG, EGG_TIMER])
    until(lambda: len(messages(client, RECORDS)) >= 200, "all are forwarded")
    eggs = messages(client, "eggs")
    assert sorted(int(one.body) for one in eggs) == list(range(200))
    for one in eggs:
        assert one.store_timestamp_ms >= start_ms + 10 * int(one.body)
        assert SOURCE_ITEM in one.properties and "RING_AT" not in one.properties


def test_the_example_is_150_lines_at_most():
    files = sorted((EXAMPLES / "stratamq_egg_timer").glob("*.py"))
    assert sum(len(path.read_text().splitlines()) for path in files) <= 150
