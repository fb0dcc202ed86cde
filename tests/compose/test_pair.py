"""A master and its replica: `docker compose -f compose.yaml -f replica.yaml up --build --wait`.

At the end the master's machine is lost: the replica is promoted, and has all acknowledged messages;
the old master returns and follows. Each of these tests changes the two brokers' parts.
"""

import pytest

from stratamq.client import Client, SendStatus
from stratamq.errors import StrataError
from stratamq.formats.log_state import Role
from tests.compose.load import Load, keys_of, lost
from tests.compose.stack import ROOMS, SIDES, Stack, until

pytestmark = pytest.mark.compose

REPLICA = "replica-"
BIG = b"m" * 100_000
"""Eleven of them fill a segment."""


def assert_same(pair: Stack) -> None:
    """The replica gets everything the master has; then their segments are the same bytes."""
    with pair.client() as master, pair.client(REPLICA) as replica:
        end = until(lambda: master.log_state().appended_offset, "the master's end")
        until(lambda: replica.log_state().flushed_offset == end, f"the replica to have {end}")
    segments = pair.segments()
    assert segments and pair.segments(REPLICA) == segments


def until_in_step(pair: Stack) -> None:
    """An append is answered PUT_OK again: the master waits for its replica, and it answers."""
    with pair.client() as master:
        until(
            lambda: master.send("in-step", b"?").status is SendStatus.PUT_OK,
            "an append that the replica has",
        )


def test_the_replica_has_every_byte_and_serves_it(pair: Stack):
    until_in_step(pair)
    with pair.client() as master:
        for number in range(40):
            result = master.send("big", BIG + b"%d" % number, keys=[f"big-{number}"])
            assert result.status is SendStatus.PUT_OK
    assert_same(pair)
    assert len(pair.segments()) >= 4
    with pair.client(REPLICA) as replica:
        until(lambda: len(list(replica.consume("big"))) == 40, "the replica's queues")
        until(lambda: replica.query_key("big", "big-7").messages, "the replica's index")


def test_each_side_reports_which_broker_the_other_is(pair: Stack):
    until_in_step(pair)
    output = pair.execute("commitlog", "stratamq", "replica", "status")
    assert "slaves connect to ha:10912" in output
    assert "ha:10912" in pair.execute("replica-commitlog", "stratamq", "replica", "status")
    # An error for a send to a slave contains the master's address.
    output = pair.run("exec", "-T", "replica-commitlog", "stratamq", "status").stdout
    assert "send them to its master at commitlog:10911" in output


@pytest.mark.parametrize("service", ["replica-commitlog", "replica-ha"])
def test_a_replica_that_crashes_under_load_catches_up(pair: Stack, service: str):
    until_in_step(pair)
    with Load(pair, f"crash-{service}") as load:
        load.continues()
        pair.crash(service)
        load.continues()
    pair.until_healthy(service)
    assert_same(pair)
    assert lost(pair, load, REPLICA) == set()


@pytest.mark.parametrize("service", ["commitlog", "ha"])
def test_a_master_that_crashes_under_load_is_followed_again(pair: Stack, service: str):
    until_in_step(pair)
    with Load(pair, f"crash-{service}") as load:
        load.continues()
        pair.crash(service)
        load.continues()
    pair.until_healthy(service)
    until_in_step(pair)
    assert_same(pair)
    assert lost(pair, load) == set()
    assert lost(pair, load, REPLICA) == set()


@pytest.mark.parametrize("fault", ["pause", "disconnect"])
@pytest.mark.parametrize("service", ["replica-ha", "ha"])
def test_a_silence_longer_than_housekeeping_is_reported_and_caught_up(
    pair: Stack, service: str, fault: str
):
    until_in_step(pair)
    begin, end = (pair.pause, pair.unpause) if fault == "pause" else (pair.disconnect, pair.connect)
    begin(service)
    try:
        with pair.client() as master:
            statuses = {master.send("silence", fault.encode()).status}
            until(
                lambda: (
                    statuses.add(master.send("silence", fault.encode()).status)
                    or SendStatus.SLAVE_NOT_AVAILABLE in statuses
                ),
                "the master reports that no slave is there",
            )
            assert statuses <= {
                SendStatus.FLUSH_SLAVE_TIMEOUT,
                SendStatus.SLAVE_NOT_AVAILABLE,
            }
    finally:
        end(service)
    pair.until_healthy(service)
    until_in_step(pair)
    assert_same(pair)
    with pair.client() as master:
        stored = len(list(master.consume("silence")))
    until(lambda: len(keys_of(pair, "silence", REPLICA)) == stored, "the replica's queues")


def test_down_and_up_keep_both(pair: Stack):
    until_in_step(pair)
    before = pair.segments(REPLICA)
    pair.down()
    pair.up()
    until_in_step(pair)
    assert_same(pair)
    assert set(before) <= set(pair.segments(REPLICA))


# --- the master is lost ---


def lose(stack: Stack, fault: str, side: str) -> None:
    """The whole broker, at once: as if its machine were gone."""
    services = [side + room for room in ROOMS]
    if fault == "kill":
        stack.run("kill", "-s", "SIGKILL", *services)
    elif fault == "pause":
        stack.run("pause", *services)
    else:
        for service in services:
            stack.disconnect(service)


def bring_back(stack: Stack, fault: str, side: str) -> None:
    services = [side + room for room in ROOMS]
    if fault == "kill":
        stack.run("start", *services)
    elif fault == "pause":
        stack.run("unpause", *services)
    else:
        for service in services:
            stack.connect(service)
    for service in services:
        stack.until_healthy(service)


def follows(client: Client, master: str) -> bool:
    """The broker is a slave, connected to that master; a log that is cut does not answer."""
    try:
        following = client.admin.replication_state().following
    except StrataError:
        return False
    return following is not None and following.connected and following.master_address == master


def sent(client: Client, body: bytes) -> SendStatus | None:
    """How the append was answered; None when the broker takes none (yet)."""
    try:
        return client.send("roles", body).status
    except StrataError:
        return None


def master_of(stack: Stack) -> str:
    """The side that is the master and has the other in step."""

    def found() -> list[str]:
        masters = []
        for side in SIDES:
            with stack.client(side) as client:
                if client.log_state().role is Role.SYNC_MASTER:
                    masters.append(side)
        return masters

    (side,) = until(found, "a master")
    with stack.client(side) as client:
        until(lambda: sent(client, b"?") is SendStatus.PUT_OK, "a slave in step")
    return side


@pytest.mark.parametrize("fault", ["kill", "pause", "disconnect"])
def test_what_was_acknowledged_is_on_the_promoted_replica_and_the_old_master_follows(
    pair: Stack, fault: str
):
    old = master_of(pair)
    (new,) = set(SIDES) - {old}
    topic = f"read-{fault}"
    read = {(topic, 0): 7}
    with pair.client(old) as client, pair.client(new) as other:
        for number in range(10):
            assert client.send(topic, b"%d" % number, queue_id=0).status is SendStatus.PUT_OK
        until(lambda: len(list(client.consume(topic))) == 10, "the queue to grow")
        client.commit_offsets("readers", read)
        until(lambda: other.committed_offsets("readers", topic) == read, "the offsets")
    with Load(pair, f"before-{fault}", old) as load:
        load.continues()
        lose(pair, fault, old)
    try:
        output = pair.execute(f"{new}commitlog", "stratamq", "replica", "promote")
        assert "this broker is SYNC_MASTER of term" in output
        assert load.acknowledged
        with pair.client(new) as client:
            assert client.committed_offsets("readers", topic) == read
            # No slave follows it yet: stored, and reported as stored here alone.
            status = until(lambda: sent(client, b"alone"), "the promoted one to take messages")
            assert status is SendStatus.SLAVE_NOT_AVAILABLE
    finally:
        bring_back(pair, fault, old)
    with pair.client(old) as client:
        until(lambda: follows(client, f"{new}ha:10912"), "the old master to follow")
        with pytest.raises(StrataError, match=f"send them to its master at {new}commitlog:10911"):
            client.send("roles", b"to the old one")
    assert master_of(pair) == new
    with pair.client(new) as master, pair.client(old) as slave:
        end = master.log_state().appended_offset
        until(lambda: slave.log_state().flushed_offset == end, f"the old master to have {end}")
    assert pair.segments(old) == pair.segments(new)
    # Consumers of the promoted broker see what its slave has: now all of it.
    assert lost(pair, load, new) == lost(pair, load, old) == set()
