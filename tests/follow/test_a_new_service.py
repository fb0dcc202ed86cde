"""The service of `docs/a-new-service.md` beside a real log."""

import json
from operator import attrgetter
from pathlib import Path

import grpc
import pytest

from stratamq.client import connect
from stratamq.rpc import discovery
from stratamq.rpc.framing import identity
from tests.support.brokers import COMMITLOG, Broker
from tests.support.waiting import until

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "docs" / "examples"
COUNTER = "counter"
SEGMENT_BYTES = 1 << 17
SETTINGS = (
    f"commitlog.segment_bytes={SEGMENT_BYTES}",
    "commitlog.followers=counter",
    "commitlog.follower_stop_timeout_ms=120000",
    "counter.save_interval_ms=10",
)


@pytest.fixture
def broker(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(EXAMPLES))
    with Broker(tmp_path / "store", tmp_path / "logs", SETTINGS) as broker:
        yield broker.start([COMMITLOG, COUNTER])


@pytest.fixture
def client(broker):
    with connect(broker.root, retry_timeout_s=60) as client:
        yield client


def send(client, topic: str, count: int) -> int:
    """Store so many and return the log's end."""
    with client.producer(batch_messages=10) as producer:
        for _ in range(count):
            producer.send(topic, b"x" * 200)
    return client.log_state().appended_offset


def counter_state(client):
    return next(one for one in client.log_state().followers if one.name == COUNTER)


def counts_at(broker, client, end: int, *, durable: bool = False) -> dict[str, int]:
    """The service's answer once it has reported that it has come to `end`."""
    place = attrgetter("durable_offset" if durable else "applied_offset")
    until(lambda: place(counter_state(client)) >= end, f"the counter has come to {end}")
    endpoint = discovery.read(broker.root, COUNTER)
    assert endpoint is not None
    with grpc.insecure_channel(endpoint.address) as channel:
        call = channel.unary_unary("/example.Counter/GetCounts", identity, identity)
        return json.loads(call(b"", timeout=60, wait_for_ready=True))


def test_messages_are_counted_by_topic_across_segments_and_a_kill(broker, client):
    send(client, "orders", 900)
    end = send(client, "payments", 300)
    assert counts_at(broker, client, end) == {"orders": 900, "payments": 300}
    assert len({path.name for path in (broker.root / "commitlog").iterdir()}) > 1
    counts_at(broker, client, end, durable=True)
    broker.kill(COUNTER)
    end = send(client, "orders", 5)
    broker.start([COUNTER])
    assert counts_at(broker, client, end) == {"orders": 905, "payments": 300}


def test_what_was_deleted_from_the_log_is_not_counted_any_more(broker, client):
    end = send(client, "orders", 1_000)
    counted = counts_at(broker, client, end, durable=True)
    assert counted == {"orders": 1_000}
    # The log lets go of it once a snapshot of its queues has been written.
    until(lambda: client.admin.delete_below(SEGMENT_BYTES)[0], "the first segment is deleted")
    left = counts_at(broker, client, send(client, "payments", 1))
    assert 0 < left["orders"] < 1_000
    assert left["payments"] == 1


def test_a_log_that_stops_waits_until_the_counter_has_everything(broker, client):
    end = send(client, "orders", 100)
    broker.terminate(COMMITLOG)
    state = json.loads((broker.root / "stratamq" / "counter.json").read_text())["data"]
    assert state["position"] == end
    assert {"orders": 100} in state["counts"].values()


def test_the_example_is_90_lines_at_most():
    files = sorted((EXAMPLES / "stratamq_counter").glob("*.py"))
    assert sum(len(path.read_text().splitlines()) for path in files) <= 90
