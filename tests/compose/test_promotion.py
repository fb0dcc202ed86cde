"""The master's machine is lost: the replica is promoted, and has all acknowledged messages; the
old master returns and follows. Each test changes the two brokers' parts."""

import pytest

from stratamq.client import Client, SendStatus
from stratamq.errors import StrataError
from stratamq.formats.broker_role import Role
from tests.compose.load import Load, lost
from tests.compose.stack import ROOMS, Stack, until

pytestmark = pytest.mark.compose

SIDES = ("", "replica-")


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
    equals: Stack, fault: str
):
    old = master_of(equals)
    (new,) = set(SIDES) - {old}
    topic = f"read-{fault}"
    read = {(topic, 0): 7}
    with equals.client(old) as client, equals.client(new) as other:
        for number in range(10):
            assert client.send(topic, b"%d" % number, queue_id=0).status is SendStatus.PUT_OK
        until(lambda: len(list(client.consume(topic))) == 10, "the queue to grow")
        client.commit_offsets("readers", read)
        until(lambda: other.committed_offsets("readers", topic) == read, "the offsets")
    with Load(equals, f"before-{fault}", old) as load:
        load.goes_on()
        lose(equals, fault, old)
    try:
        told = equals.execute(f"{new}commitlog", "stratamq", "replica", "promote")
        assert "this broker is SYNC_MASTER of term" in told
        assert load.acknowledged
        with equals.client(new) as client:
            assert client.committed_offsets("readers", topic) == read
            # No slave follows it yet: stored, and reported as stored here alone.
            status = until(lambda: sent(client, b"alone"), "the promoted one to take messages")
            assert status is SendStatus.SLAVE_NOT_AVAILABLE
    finally:
        bring_back(equals, fault, old)
    with equals.client(old) as client:
        until(lambda: follows(client, f"{new}ha:10912"), "the old master to follow")
        with pytest.raises(StrataError, match=f"send them to its master at {new}commitlog:10911"):
            client.send("roles", b"to the old one")
    assert master_of(equals) == new
    with equals.client(new) as master, equals.client(old) as slave:
        end = master.log_state().appended_offset
        until(lambda: slave.log_state().flushed_offset == end, f"the old master to have {end}")
    assert equals.segments(old) == equals.segments(new)
    # Consumers of the promoted broker see what its slave has: now all of it.
    assert lost(equals, load, new) == lost(equals, load, old) == set()
