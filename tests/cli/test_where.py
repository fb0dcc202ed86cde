"""`stratamq where`: a verdict first, then what it rests on; by each of a message's names."""

import json

import pytest

from stratamq.client import connect
from tests.cli.processes import stratamq
from tests.support.brokers import COMMITLOG, DISPATCHER, INDEX, broker_fixture
from tests.support.waiting import until_dispatched, until_indexed

broker = broker_fixture(rooms=[COMMITLOG, DISPATCHER, INDEX, "janitor"])


@pytest.fixture(scope="module")
def result(broker):
    with connect(broker.root, retry_timeout_s=60) as client:
        client.send("orders", b"older", keys=["order-1"], queue_id=0)
        result = client.send("orders", b"newer", keys=["order-1"], queue_id=0)
        client.commit_offsets("billing", {("orders", 0): 0})
        until_dispatched(client)
        until_indexed(client)
    return result


def rows(broker, *arguments: str) -> dict[str, dict]:
    """What is said in JSON, by its kind."""
    done = stratamq("where", *arguments, "-o", "json", data=broker.root)
    assert done.returncode == 0, done.stderr.decode()
    return {row["kind"]: row for row in map(json.loads, done.stdout.splitlines())}


def test_each_name_leads_to_the_same_message(broker, result):
    names = [
        ("id", result.message_id),
        ("offset", str(result.physical_offset)),
        ("queue", "orders", "0", "1"),
        ("key", "orders", "order-1"),
    ]
    found = [rows(broker, *name) for name in names]
    assert [one["message"]["phyOffset"] for one in found] == [result.physical_offset] * 4
    assert found[0]["group"] == {
        "kind": "group", "group": "billing", "stage": "not read", "offset": 0, "shared": False,
        "before": 1, "worker": "", "attempt": 0, "untilTimestamp": None, "deadLetter": None,
    }  # fmt: skip
    assert found[0]["key"]["found"] is True
    assert found[0]["retention"]["obstacle"].startswith("its segment is not full yet")


def test_the_verdict_comes_first_and_the_frame_on_request(broker, result):
    done = stratamq("where", "key", "orders", "order-1", "--hex", data=broker.root)
    lines = done.stdout.decode().splitlines()
    assert lines[0].startswith("stored, readable, billing has not read it, kept: its segment")
    assert any("QUEUEOFFSET" in line and line.endswith(" 1") for line in lines)
    assert b"older messages have the key" in done.stderr


def test_what_is_not_there_is_an_error(broker, result):
    done = stratamq("where", "key", "orders", "order-2", data=broker.root)
    assert (done.returncode, done.stdout) == (1, b"")
    assert b"no message of orders has the key order-2" in done.stderr
