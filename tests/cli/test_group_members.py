"""The members of a group on the command line: clients that read now, and none that has ended."""

import json
import subprocess

import pytest

from stratamq.client import connect
from tests.cli.processes import COMMAND, DEADLINE_S, environment, stratamq
from tests.support.brokers import COMMITLOG, DISPATCHER, Broker, broker_fixture
from tests.support.waiting import until, until_dispatched

SETTINGS = ("commitlog.segment_bytes=1048576", "commitlog.followers=dispatcher")
broker = broker_fixture(*SETTINGS, rooms=[COMMITLOG, DISPATCHER], scope="function")


@pytest.fixture
def readers(broker):
    """Two processes that follow the topic `orders` with the group `billing`, and have read."""
    with connect(broker.root, retry_timeout_s=60) as client:
        client.send("orders", b"1", queue_id=0)
    command = [*COMMAND, "consume", "orders", "--group", "billing", "--follow", "--raw"]
    running = [
        subprocess.Popen(
            [*command, "--data", str(broker.root)], stdout=subprocess.PIPE, env=environment()
        )
        for _ in range(2)
    ]
    try:
        for one in running:
            assert one.stdout is not None
            assert one.stdout.readline() == b"1\n"
        yield running
    finally:
        for one in running:
            one.kill()
            one.communicate(timeout=DEADLINE_S)


def described(broker: Broker, kind: str) -> list[dict]:
    done = stratamq("groups", "describe", "billing", "--output", "json", data=broker.root)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    return [one for one in found if one["kind"] == kind]


def test_a_reader_that_was_killed_is_a_member_no_more(broker, readers):
    before = described(broker, "member")
    assert len(before) == 2
    by_process = {one["clientId"].partition("@")[2].partition("#")[0]: one for one in before}
    assert set(by_process) == {str(one.pid) for one in readers}
    for one in before:
        assert one["address"] == "local"
        assert 0 in one["reads"]["orders"]
        assert one["sinceTimestamp"] <= one["lastSeenTimestamp"]
    readers[0].kill()
    # The connection ends with the process; 5 s more if it was between two streams.
    until(lambda: len(described(broker, "member")) == 1, "one member is left")
    (left,) = described(broker, "member")
    assert left["clientId"] == by_process[str(readers[1].pid)]["clientId"]
    assert left["sinceTimestamp"] == by_process[str(readers[1].pid)]["sinceTimestamp"]


def test_members_that_continue_are_listed_again_after_a_start_of_the_dispatcher(broker, readers):
    names = {one["clientId"] for one in described(broker, "member")}
    broker.kill(DISPATCHER)
    broker.start([DISPATCHER])
    until(lambda: {one["clientId"] for one in described(broker, "member")} == names, "both again")


def test_a_group_in_use_is_neither_reset_nor_deleted_unless_forced(broker, readers):
    with connect(broker.root) as client:
        client.commit_offsets("billing", {("orders", 0): 1})
        names = [one.client_id for one in client.group_members("billing")]
        for arguments in (("reset", "billing", "--to", "earliest"), ("delete", "billing", "--yes")):
            done = stratamq("groups", *arguments, data=broker.root)
            assert done.returncode == 1
            assert all(name in done.stderr.decode() for name in names)
            assert b"--force" in done.stderr
            assert client.committed_offsets("billing") == {("orders", 0): 1}
        dry = stratamq(
            "groups", "reset", "billing", "--to", "earliest", "--dry-run", data=broker.root
        )
        assert (dry.returncode, b"warning: the group billing is in use" in dry.stderr) == (0, True)
        # A topic that its members do not read.
        client.send("refunds", b"1", queue_id=0)
        until_dispatched(client)
        arguments = ("reset", "billing", "--to", "latest", "--topic", "refunds")
        assert stratamq("groups", *arguments, data=broker.root).returncode == 0
        assert client.committed_offsets("billing", "refunds") == {("refunds", 0): 1}
        arguments = ("reset", "billing", "--to", "earliest", "--topic", "orders", "--force")
        forced = stratamq("groups", *arguments, data=broker.root)
        assert (forced.returncode, b"warning: " in forced.stderr) == (0, True)


def test_a_reader_that_left_in_order_is_no_member_and_its_group_can_be_reset(broker, readers):
    with connect(broker.root, retry_timeout_s=60) as client:
        for one in readers:
            one.terminate()
            one.wait(DEADLINE_S)
        until(lambda: not client.group_members("billing"), "both have left")
        with client.consume("orders", group="other", client_id="mine", follow=True) as reader:
            next(reader)
            (member,) = client.group_members("other")
            assert (member.client_id, member.streaming) == ("mine", True)
            assert 0 in member.topics["orders"]
        until(lambda: not client.group_members("other"), "it has left")
        assert client.committed_offsets("other") == {("orders", 0): 1}
    done = stratamq("groups", "describe", "other", data=broker.root)
    assert b"no client is reading with this group" in done.stderr
