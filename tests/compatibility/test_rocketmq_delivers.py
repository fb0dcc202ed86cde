"""Directories with messages that wait: the real RocketMQ goes on with ours, and ours holds its.

RocketMQ runs its own delivery of delayed messages and its own checks of half messages over the
directory (`broker` of the harness).
"""

from collections import Counter
from pathlib import Path

import pytest

import stratamq
from stratamq.api.v1 import delivery_pb2
from stratamq.client import MessageType, Topic, connect
from stratamq.errors import InvalidRequestError
from stratamq.formats.delay import parse_delay_levels
from stratamq.formats.json_files import parse_json_object
from stratamq.formats.topics import OWN_PREFIX, SCHEDULE_TOPIC
from tests.support import rocketmq
from tests.support.brokers import COMMITLOG, DELIVERY, DISPATCHER, Broker, geometry_settings
from tests.support.fixtures import Geometry
from tests.support.rocketmq import VERSIONS
from tests.support.waiting import until

pytestmark = pytest.mark.java

SIZES = Geometry(log_bytes=1 << 20, queue_units=64, slots=16, items=64)
ROOMS = (COMMITLOG, DISPATCHER, DELIVERY)
LEVELS = "1s " + " ".join(f"{seconds}s" for seconds in range(8, 25))
LEVELS_MS = parse_delay_levels(LEVELS)
LATE = "1h " * 17 + "2h"
"""Levels of which nothing is due while a test runs."""


def broker_of(root: Path, levels: str, transactions: str = "3600000") -> Broker:
    settings = [
        *geometry_settings(SIZES),
        "commitlog.followers=dispatcher,delivery",
        "commitlog.follower_stop_timeout_ms=120000",
        f"commitlog.message_delay_level={levels}",
        f"dispatcher.message_delay_level={levels}",
        f"delivery.message_delay_level={levels}",
        "delivery.delay_offsets_interval_ms=20",
        f"delivery.transaction_timeout_ms={transactions}",
    ]
    return Broker(root, root.parent / "logs", settings)


def fresh(tmp_path: Path) -> Path:
    root = tmp_path / "store"
    root.mkdir()
    rocketmq.geometry_file(root, SIZES)
    return root


def run_rocketmq(version: str, root: Path, **options: rocketmq.Option) -> list[rocketmq.Line]:
    with rocketmq.Running(version, root.parent / version, "broker", str(root), **options) as run:
        return run.finish()


def rows(root: Path, topic: str) -> list[dict]:
    return [row for row in stratamq.scan(root).to_arrow().to_pylist() if row["topic"] == topic]


@pytest.mark.parametrize("version", VERSIONS)
def test_it_delivers_at_its_time_what_waits_in_ours_and_nothing_again(tmp_path, version):
    assert len(LEVELS_MS) == 18
    root = fresh(tmp_path)
    with broker_of(root, LEVELS) as broker:
        broker.start(ROOMS)
        with connect(broker.root) as client:
            client.send("later", b"level 1", queue_id=0, delay_level=1)
            until(lambda: list(client.consume("later")), "level 1 is delivered")
            for level in range(2, 19):
                client.send("later", b"level %d" % level, queue_id=0, delay_level=level)
        broker.stop()
    delivered_by_us = len(rows(root, "later"))
    options = {"topic": "later", "messages": 18, "set": f"messageDelayLevel={LEVELS}"}
    run_rocketmq(version, root, **options)
    waiting = {row["body"]: row["storeTimestamp"] for row in rows(root, SCHEDULE_TOPIC)}
    copies = rows(root, "later")
    assert Counter(row["body"] for row in copies) == Counter(
        b"level %d" % level for level in range(1, 19)
    )
    for row in copies[delivered_by_us:]:
        level = int(row["body"].split()[1])
        late = row["storeTimestamp"] - waiting[row["body"]]
        assert late.total_seconds() * 1_000 >= LEVELS_MS[level - 1], row["body"]
    assert delivered_by_us < 18, "RocketMQ had something to deliver"


@pytest.mark.parametrize("version", VERSIONS)
def test_it_checks_the_halves_that_are_open_and_leaves_our_records_alone(tmp_path, version):
    root = fresh(tmp_path)
    with broker_of(root, LATE) as broker:
        broker.start(ROOMS)
        with connect(broker.root) as client:
            with client.transaction("payers") as transaction:
                transaction.send("orders", b"committed")
            until(lambda: list(client.consume("orders")), "it is there")
            dropped = client.transaction("payers")
            dropped.send("orders", b"rolled back")
            dropped.rollback()
            forgotten = client.transaction("payers")
            forgotten.send("orders", b"open")
            with client.subscribe("orders", "billing") as shared:
                shared.receive()[0].ack()
            # An op message for each decision.
            ended = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
            until(lambda: _count(client, ended) == 2, "both decisions have their op messages")
        broker.stop()
    ours = [row for row in _all_rows(root) if row["topic"].startswith(OWN_PREFIX)]
    assert ours
    lines = run_rocketmq(version, root, checks=2)
    asked = [line for line in lines if line["kind"] == "check"]
    assert {(line["body"], line["topic"], line["group"]) for line in asked} == {
        ("open", "orders", "payers")
    }
    assert [row for row in _all_rows(root) if row["topic"].startswith(OWN_PREFIX)] == ours
    assert [row["body"] for row in rows(root, "orders")] == [b"committed"]


@pytest.mark.parametrize("version", VERSIONS)
def test_it_begins_its_checks_behind_the_halves_that_are_closed(tmp_path, version):
    root = fresh(tmp_path)
    many, topics = 1_500, ("RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC")
    with broker_of(root, LATE) as broker:
        broker.start(ROOMS)
        with connect(broker.root) as client:

            def floor() -> list[int]:
                """Of RocketMQ's group, in the queues of both topics."""
                found = client.committed_offsets("CID_RMQ_SYS_TRANS")
                return [found.get((topic, 0), 0) for topic in topics]

            for _ in range(2):
                with client.transaction("payers") as transaction:
                    for number in range(many // 2):
                        transaction.send("orders", b"%d" % number)
            until(lambda: floor() == [many, many], "all are closed")
            forgotten = client.transaction("payers")
            forgotten.send("orders", b"open")
            with client.transaction("payers") as transaction:
                transaction.send("orders", b"behind it")
            until(lambda: _count(client, topics[1]) == many + 1, "the last one is closed")
            assert floor() == [many, many]
        broker.stop()
    shown = len(rows(root, "orders"))
    lines = run_rocketmq(version, root, checks=2)
    assert {line["body"] for line in lines if line["kind"] == "check"} == {"open"}
    assert len(rows(root, "orders")) == shown == many + 1
    offsets = parse_json_object((root / "config/consumerOffset.json").read_bytes())["offsetTable"]
    checked = offsets[f"{topics[0]}@CID_RMQ_SYS_TRANS"]["0"]
    assert checked > many
    # It put the open one back for each check: what is checked here is what it would check next.
    left = {row["queueOffset"] for row in rows(root, topics[0]) if row["queueOffset"] >= checked}
    with broker_of(root, LATE, transactions="0") as broker:
        broker.start(ROOMS)
        with connect(broker.root, retry_timeout_s=60) as client:
            until(lambda: client.admin.held_schedule().halves > len(left), "they are held")
            client.admin.enable_schedule()
            decided = set()
            for check in client.transaction_checks("payers", ["orders"]):
                check.rollback()
                decided.add(check.message.queue_offset)
                if decided >= left:
                    break
            assert decided == left
        broker.stop()
    assert len(stratamq.pending(root, "transactions")) == 0
    assert len(rows(root, "orders")) == shown


@pytest.mark.parametrize("version", VERSIONS)
def test_ours_holds_what_it_left_in_the_middle(tmp_path, version):
    root = fresh(tmp_path)
    rocketmq.write(version, root, tmp_path / "writing", scenario="rich", seed=3, steps=160)
    # It delivers what is due of its first levels, and ends in the middle.
    before = len(_all_rows(root))
    run_rocketmq(version, root, checks=1, set=f"messageDelayLevel=1s {LATE}")
    theirs = _all_rows(root)
    assert len(theirs) > before, "it has delivered, or put a half message back"
    with broker_of(root, f"1s {LATE}", transactions="0") as broker:
        broker.start(ROOMS)
        with connect(broker.root) as client:
            status = broker.stub(DELIVERY).GetDeliveryStatus(
                delivery_pb2.GetDeliveryStatusRequest()
            )
            delayed = rows(root, SCHEDULE_TOPIC)
            undelivered = sum(row["queueId"] > 0 for row in delayed)
            assert undelivered > 5
            # What it has delivered of level 1 may count as held: its copies name no source.
            assert undelivered <= status.held_messages <= len(delayed)
            client.send("mine", b"ours", delay_level=1)
            until(lambda: list(client.consume("mine")), "what came later is delivered")
        broker.stop()
    added = _all_rows(root)[len(theirs) :]
    assert Counter(row["topic"] for row in added if not row["topic"].startswith(OWN_PREFIX)) == {
        SCHEDULE_TOPIC: 1,
        "mine": 1,
    }


def _all_rows(root: Path) -> list[dict]:
    return stratamq.scan(root).to_arrow().to_pylist()


def _count(client, topic: str) -> int:
    return sum(queue.max_offset for queue in client.queues(topic))


def settings_of(lines: list[rocketmq.Line], kind: str, name: str) -> rocketmq.Line:
    (found,) = [line for line in lines if line["kind"] == kind and line[kind] == name]
    return found


@pytest.mark.parametrize("version", VERSIONS)
def test_it_takes_over_the_settings_of_our_groups_and_the_types_of_our_topics(tmp_path, version):
    root = fresh(tmp_path)
    with broker_of(root, LATE) as broker:
        broker.start(ROOMS)
        with connect(broker.root) as client:
            client.admin.create_topic(Topic("typed", 1, 1, message_type=MessageType.FIFO))
            client.admin.create_group("billing", ordered=True, retries=3, consume_enabled=False)
            client.send("plain", b"x")
        broker.stop()
    lines = run_rocketmq(version, root)
    billing, typed = settings_of(lines, "group", "billing"), settings_of(lines, "topic", "typed")
    assert (billing["retries"], billing["enabled"]) == (3, False)
    has_types = not version.startswith("4.")
    assert billing["ordered"] == (True if has_types else None)
    assert typed["type"] == ("FIFO" if has_types else None)


@pytest.mark.parametrize("version", VERSIONS)
def test_ours_takes_over_the_settings_of_its_groups_and_the_types_of_its_topics(tmp_path, version):
    root = fresh(tmp_path)
    has_types = not version.startswith("4.")
    options: dict[str, rocketmq.Option] = {"group": "billing", "retries": 3, "disabled": True}
    if has_types:
        options |= {"typed_topic": "typed", "type": "TRANSACTION", "ordered": True}
    run_rocketmq(version, root, **options)
    with broker_of(root, LATE) as broker:
        broker.start(ROOMS)
        with connect(broker.root) as client:
            until(lambda: client.group_settings("billing"), "the file is read")
            (settings,) = client.group_settings("billing")
            assert (settings.retries, settings.consume_enabled) == (3, False)
            assert settings.ordered == has_types
            if has_types:
                (topic,) = client.topics("typed")
                assert topic.message_type is MessageType.TRANSACTION
                with pytest.raises(InvalidRequestError, match="typed takes TRANSACTION messages"):
                    client.send("typed", b"x")
        broker.stop()
