"""Commands at brokers of several names: one topic to those who send and read, the broker named."""

import json
import subprocess

import pytest

from tests.cli.processes import lines, stratamq
from tests.support.shards import Shards


@pytest.fixture
def shards(tmp_path):
    with Shards(tmp_path) as both:
        yield both


def run(shards: Shards, *arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return stratamq(*arguments, "--address", shards.address, stdin=stdin)


def rows(shards: Shards, *arguments: str, stdin: bytes = b"") -> list[dict]:
    done = run(shards, *arguments, "--output", "json", stdin=stdin)
    assert done.returncode == 0, done.stderr.decode()
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_topic_over_brokers_is_made_written_read_and_described_as_one(shards):
    rows(shards, "topics", "create", "orders", "--queues", "2")
    (summary,) = rows(shards, "produce", "orders", stdin=lines(*range(200)))
    assert summary["stored"] == 200
    listed = rows(shards, "topics", "list")
    assert [(one["broker"], one["readQueues"]) for one in listed] == [("a", 2), ("b", 2)]
    described = run(shards, "topics", "describe", "orders").stdout.decode()
    assert "broker" in described
    found = rows(shards, "consume", "orders", "--group", "billing")
    assert sorted(int(one["body"]) for one in found) == list(range(200))
    assert {one["broker"] for one in found} == {"a", "b"}
    groups = rows(shards, "groups", "list")
    assert {(one["broker"], one["lag"]) for one in groups} == {("a", 0), ("b", 0)}
    rows(shards, "groups", "reset", "billing", "--to", "earliest")
    lag = sum(one["lag"] for one in rows(shards, "groups", "describe", "billing"))
    assert lag == 200
    again = rows(shards, "consume", "orders", "--output", "json")
    back = rows(shards, "produce", "orders", "--format", "json", stdin=lines(json.dumps(again[0])))
    assert back[0]["stored"] == 1
    assert b"a/" in run(shards, "consume", "orders").stdout


def test_keys_keep_their_broker_and_queue(shards):
    rows(shards, "topics", "create", "keyed", "--queues", "2")
    given = lines(*(json.dumps({"body": "x", "key": f"k{number % 10}"}) for number in range(50)))
    rows(shards, "produce", "keyed", "--format", "json", "--key-hash", stdin=given)
    found = rows(shards, "consume", "keyed")
    places = {(one["keys"][0], one["broker"], one["queueId"]) for one in found}
    assert len(found) == 50
    assert len(places) == 10
    assert {broker for _, broker, _ in places} == {"a", "b"}


def test_what_is_of_one_broker_takes_the_option_broker(shards):
    refused = run(shards, "status")
    assert refused.returncode == 1
    assert b"--broker NAME" in refused.stderr
    rows(shards, "topics", "create", "alone", "--broker", "b")
    assert [found["broker"] for found in rows(shards, "topics", "list")] == ["b"]
    assert rows(shards, "topics", "list", "--broker", "a") == []
    missing = run(shards, "topics", "list", "--broker", "c")
    assert (missing.returncode, b"there are a, b" in missing.stderr) == (1, True)
    directory = stratamq("topics", "list", "--broker", "a", data=shards["a"].root)
    assert (directory.returncode, b"is one broker" in directory.stderr) == (1, True)


def test_a_broker_that_is_away_is_mentioned(shards):
    rows(shards, "topics", "create", "orders", "--queues", "2")
    rows(shards, "produce", "orders", stdin=lines(*range(20)))
    shards.kill("b")
    listed = run(shards, "topics", "list", "--output", "json")
    assert listed.returncode == 0
    assert b"a broker is left out" in listed.stderr
    found = run(shards, "consume", "orders", "--output", "json")
    assert found.returncode == 0
    assert b"a broker is left out" in found.stderr
