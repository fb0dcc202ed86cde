"""`stratamq groups delete`: what goes is named, and asked about."""

import os
import pty
import subprocess

import pytest

from stratamq.client import connect
from tests.cli.processes import COMMAND, DEADLINE_S, environment, stratamq
from tests.support.brokers import COMMITLOG, DISPATCHER, broker_fixture

SETTINGS = ("commitlog.segment_bytes=1048576", "commitlog.followers=dispatcher")
broker = broker_fixture(*SETTINGS, rooms=[COMMITLOG, DISPATCHER])


@pytest.fixture
def groups(broker):
    """Which (group, topic) have committed something."""
    with connect(broker.root, retry_timeout_s=60) as client:
        for topic in ("orders", "refunds"):
            if not client.topics(topic):
                client.send(topic, b"1", queue_id=0)
        client.commit_offsets("billing", {("orders", 0): 0, ("refunds", 0): 0})
        client.commit_offsets("audit", {("orders", 0): 0})
        yield lambda: {(one.group, one.topic) for one in client.groups()}


def delete(broker, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    return stratamq("groups", "delete", *arguments, data=broker.root)


def test_a_group_is_forgotten_and_others_stay(broker, groups):
    done = delete(broker, "billing", "--yes")
    assert (done.returncode, done.stderr) == (0, b"deleted\n")
    assert b"refunds" in done.stdout
    assert groups() == {("audit", "orders")}


def test_of_one_topic_alone(broker, groups):
    assert delete(broker, "billing", "--topic", "refunds", "--yes").returncode == 0
    assert groups() == {("audit", "orders"), ("billing", "orders")}


def test_without_a_terminal_and_without_yes_nothing_goes(broker, groups):
    before = groups()
    done = delete(broker, "billing")
    assert done.returncode == 1
    assert "was deleted in 2 queues of orders, refunds" in done.stderr.decode()
    assert "--yes" in done.stderr.decode()
    assert groups() == before


@pytest.mark.parametrize("answer, deleted", [(b"n\n", False), (b"y\n", True)])
def test_on_a_terminal_it_asks(broker, groups, answer, deleted):
    ours, theirs = pty.openpty()
    os.write(ours, answer)
    done = subprocess.run(
        [*COMMAND, "groups", "delete", "billing", "--data", str(broker.root)],
        env=environment(),
        stdin=theirs,
        capture_output=True,
        timeout=DEADLINE_S,
        check=False,
    )
    os.close(theirs)
    os.close(ours)
    assert b"Continue?" in done.stderr
    assert (done.returncode == 0) is deleted
    assert (("billing", "orders") not in groups()) is deleted


def test_a_group_or_topic_of_which_nothing_is_known_is_an_error(broker, groups):
    for arguments in (("unknown",), ("billing", "--topic", "nothing")):
        done = delete(broker, *arguments, "--yes")
        assert (done.returncode, b"there is no group" in done.stderr) == (1, True)


def test_describe_shows_when_and_from_where_a_group_committed_last(broker, groups):
    done = stratamq("groups", "describe", "billing", "--output", "json", data=broker.root)
    assert b'"lastClient": "local"' in done.stdout
    assert b'"lastCommitTimestamp": 1' in done.stdout
