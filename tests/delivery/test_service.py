"""The service as a process: delayed messages of real producers arrive, once, through kills."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from stratamq.client import Client, Message, connect
from stratamq.formats.delay import DEFAULT_DELAY_LEVELS_MS
from stratamq.formats.source_item import SOURCE_ITEM
from stratamq.formats.store_paths import DELAY_OFFSETS_PATH
from stratamq.formats.topics import TIMER_TOPIC
from tests.cli.processes import stratamq
from tests.support.brokers import COMMITLOG, DISPATCHER, Broker
from tests.support.waiting import json_of, until

DELIVERY = "delivery"
ROOMS = (COMMITLOG, DISPATCHER, DELIVERY)
SETTINGS = (
    "delivery.save_interval_ms=20",
    "delivery.delay_offsets_interval_ms=20",
    "commitlog.segment_bytes=1048576",
)


@pytest.fixture
def broker(tmp_path):
    with Broker(tmp_path / "store", tmp_path / "logs", SETTINGS) as broker:
        yield broker.start(ROOMS)


def arrived(client: Client, topic: str, count: int):
    """The topic's messages, when so many are there."""
    until(lambda: len(list(client.consume(topic))) >= count, f"{count} messages in {topic}")
    return list(client.consume(topic))


def test_messages_of_every_producer_arrive_after_their_delay_and_never_early(broker):
    with connect(broker.root) as client:
        client.send("later", b"by a call", tag="t", keys=["k"], delay_level=1)
        client.send_all([Message("later", b"by a list", delay_level=1), Message("later", b"now")])
        with client.producer() as producer:
            producer.send_message(Message("later", b"by a producer", delay_level=1)).result()
        line, level = b"by the command line\n", ("--delay-level", "1")
        done = stratamq("produce", "later", *level, data=broker.root, stdin=line)
        assert done.returncode == 0, done.stderr
        sent = arrived(client, "SCHEDULE_TOPIC_XXXX", 4)
        stored_ms = {one.body: one.store_timestamp_ms for one in sent}
        assert len(stored_ms) == 4
        messages = arrived(client, "later", 5)
        assert {one.body for one in messages} == {*stored_ms, b"now"}
        for one in messages:
            if one.body != b"now":
                assert SOURCE_ITEM in one.properties
                late_ms = one.store_timestamp_ms - stored_ms[one.body]
                assert late_ms >= DEFAULT_DELAY_LEVELS_MS[0]
        (marked,) = [one for one in messages if one.body == b"by a call"]
        assert (marked.tag, list(marked.keys)) == ("t", ["k"])
        until(lambda: client.admin.delivery_state().parts == 0, "none waits")


def test_messages_for_their_own_times_arrive_then_and_never_early(broker):
    with connect(broker.root) as client:
        soon = datetime.now(UTC) + timedelta(seconds=1, microseconds=1)
        client.send("later", b"for a time", deliver_at=soon)
        client.send("later", b"passed", deliver_at=soon - timedelta(days=1))
        waiting = client.send("later", b"in a year", delay=timedelta(days=365))
        with client.producer() as producer:
            producer.send_message(Message("later", b"by a producer", delay=0.7)).result()
        done = stratamq("produce", "later", "--delay", "1s", data=broker.root, stdin=b"by a line\n")
        assert done.returncode == 0, done.stderr
        at = ("--deliver-at", soon.isoformat())
        done = stratamq("produce", "later", *at, data=broker.root, stdin=b"by another line\n")
        assert done.returncode == 0, done.stderr
        due_ms = {
            one.body: int(one.properties["TIMER_DELIVER_MS"]) for one in client.consume(TIMER_TOPIC)
        }
        messages = arrived(client, "later", 5)
        sent = {b"for a time", b"passed", b"by a producer", b"by a line", b"by another line"}
        assert {one.body for one in messages} == sent
        for one in messages:
            assert one.store_timestamp_ms >= due_ms.get(one.body, 0)
        until(lambda: client.admin.delivery_state().parts == 1, "one waits, for a year")
        assert client.admin.delivery_state().needed_offset == waiting.physical_offset


@pytest.mark.parametrize("how", [{"delay_level": 1}, {"delay": 0.2}], ids=str)
def test_what_was_consumed_can_be_sent_again_as_it_is_shown(broker, how):
    with connect(broker.root) as client:
        client.send("later", b"egg", properties={"mine": "1"}, **how)
        arrived(client, "later", 1)
        shown = stratamq("consume", "later", "-o", "json", data=broker.root)
        assert json.loads(shown.stdout)["properties"] == {"mine": "1"}
        arguments = ("produce", "again", "--format", "json")
        done = stratamq(*arguments, data=broker.root, stdin=shown.stdout)
        assert done.returncode == 0, done.stderr
        (again,) = arrived(client, "again", 1)
        assert again.body == b"egg" and not {"DELAY", "REAL_TOPIC"} & again.properties.keys()


def test_messages_survive_kills_of_both_processes_and_arrive_once(broker):
    with connect(broker.root, timeout_s=60, retry_timeout_s=60) as client:
        for number in range(30):
            how = {"delay": number / 10} if number % 3 == 2 else {"delay_level": 1 + number % 2}
            client.send("later", b"%d" % number, queue_id=0, **how)
            if number % 10 == 5:
                broker.kill(*((DELIVERY,) if number < 20 else (DELIVERY, COMMITLOG)))
                broker.start([room for room in ROOMS if not broker.running(room)])
        bodies = [one.body for one in arrived(client, "later", 30)]
        assert sorted(bodies) == sorted(b"%d" % number for number in range(30))
        for level in (0, 1):
            mine = [int(body) for body in bodies if int(body) % 2 == level and int(body) % 3 < 2]
            assert mine == sorted(mine)

    def written() -> bool:
        document = json_of(broker.root / DELAY_OFFSETS_PATH)
        return document == {"offsetTable": {"1": 10, "2": 10}}

    until(written, "RocketMQ's file says that all are delivered")
