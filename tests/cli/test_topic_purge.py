"""`stratamq topics purge`: what goes is named, and asked about; it does not come back."""

import json
import shutil
import subprocess

import pytest

from stratamq.client import connect
from tests.cli.processes import stratamq
from tests.support.brokers import COMMITLOG, DISPATCHER, Broker
from tests.support.waiting import until, until_dispatched

SETTINGS = ("commitlog.segment_bytes=1048576", "commitlog.followers=dispatcher")


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    directory = tmp_path_factory.mktemp("broker")
    with Broker(directory / "store", directory / "logs", SETTINGS) as broker:
        broker.start([COMMITLOG, DISPATCHER])
        with connect(broker.root, retry_timeout_s=60) as client:
            for topic in ("kept", "orders", "queued"):
                for n in range(6):
                    client.send(topic, str(n).encode(), queue_id=n % 2)
            until_dispatched(client)
        yield broker


def purge(broker, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    return stratamq("topics", "purge", *arguments, data=broker.root)


def bodies(broker, topic: str) -> list[str]:
    with connect(broker.root, retry_timeout_s=60) as client:
        return sorted(message.body.decode() for message in client.consume(topic))


def test_without_a_terminal_and_without_yes_nothing_goes(broker):
    done = purge(broker, "kept", "--before", "latest")
    assert done.returncode == 1
    assert "6 messages of kept can no longer be consumed" in done.stderr.decode()
    assert "--yes" in done.stderr.decode()
    assert len(bodies(broker, "kept")) == 6


def test_a_dry_run_shows_what_would_go_and_changes_nothing(broker):
    done = purge(broker, "kept", "--before", "-1", "--dry-run", "--output", "json")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(row["queueId"], row["before"], row["offset"], row["messages"]) for row in rows] == [
        (0, 0, 2, 2),
        (1, 0, 2, 2),
    ]
    assert done.stderr == b"nothing was changed (--dry-run)\n"
    assert len(bodies(broker, "kept")) == 6


def test_one_queue_alone(broker):
    done = purge(broker, "queued", "--before", "latest", "--queue", "1", "--yes")
    assert (done.returncode, done.stderr) == (0, b"purged\n")
    until(lambda: bodies(broker, "queued") == ["0", "2", "4"], "queue 1 is purged")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["nothing", "--before", "1"], "there is no topic nothing"),
        (["kept", "--before", "earliest"], "nothing is before the earliest message"),
        (["kept", "--before", "1", "--queue", "9"], "has no queue 9"),
        (["kept", "--before", "soon"], "--before soon"),
    ],
)
def test_what_makes_no_sense_is_an_error(broker, arguments, sentence):
    done = purge(broker, *arguments, "--yes")
    assert done.returncode == 1
    assert sentence in done.stderr.decode()


def test_purged_messages_stay_away_when_services_are_killed_and_queues_are_built_anew(broker):
    with connect(broker.root, retry_timeout_s=60) as client:
        client.commit_offsets("behind", {("orders", 0): 1, ("orders", 1): 1})
    done = purge(broker, "orders", "--before", "2", "--yes")
    assert (done.returncode, done.stderr) == (0, b"purged\n")
    queues = broker.root / "consumequeue"
    until(queues.exists, "the dispatcher has written its queues")
    broker.kill(COMMITLOG)
    broker.kill(DISPATCHER)
    shutil.rmtree(queues)
    broker.start([COMMITLOG, DISPATCHER])
    assert bodies(broker, "orders") == ["4", "5"]
    assert len(bodies(broker, "kept")) == 6
    with connect(broker.root, retry_timeout_s=60) as client:
        client.send("orders", b"6", queue_id=0)
        found = [message.body for message in client.consume("orders", group="behind")]
    assert sorted(found) == [b"4", b"5", b"6"]
