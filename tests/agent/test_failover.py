"""Members with agents and a real etcd: who leads when one is stopped, killed or asked to go."""

import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator

import pytest

from stratamq.client import Client, Message, connect
from stratamq.errors import NotFoundError, NotWritableError
from stratamq.formats.log_state import Role
from tests.agent.members import AGENT, ROOMS, Members, caught_up, store
from tests.support.brokers import COMMITLOG, HA
from tests.support.freezing import freeze, thaw
from tests.support.waiting import until


@pytest.fixture(params=["SYNC_MASTER", "ASYNC_MASTER"])
def members(request, tmp_path, etcd) -> Iterator[Members]:
    started = Members(tmp_path, etcd, request.param).start()
    yield started
    started.close()


class Kept:
    """Messages of topic t that were acknowledged, and have to be there, each once."""

    def __init__(self, members: Members, client: Client) -> None:
        self._members = members
        self._client = client
        self._most: Counter[bytes] = Counter()
        self._by: dict[bytes, str] = {}

    def store(self, *bodies: bytes, leader: str = "") -> None:
        """`leader`: who takes them, and has no slave that is known to have them."""
        for body in bodies:
            self._most[body] += store(self._client, body)
            self._by[body] = leader

    def wait(self) -> None:
        until(self._are_there, "all are there, each once")

    def _are_there(self) -> bool:
        found = Counter(one.body for one in self._client.consume("t"))
        missing = self._most.keys() - found.keys()
        return found <= self._most and all(self._may_be_lost(body) for body in missing)

    def _may_be_lost(self, body: bytes) -> bool:
        """An ASYNC_MASTER acknowledged it, and another member leads now."""
        by = self._by[body]
        is_async = self._members.role == "ASYNC_MASTER"
        return is_async and bool(by) and self._members.leader() not in (by, "")


def next_leader(members: Members, asked: str = "") -> str:
    def leader() -> str:
        found = members.leader(asked)
        return found if found in ("b", "c") else ""

    return until(leader, "another member leads")


def test_a_lost_master_is_replaced_and_nothing_acknowledged_is_lost(members):
    with members.client() as client:
        kept = Kept(members, client)
        kept.store(*[b"%d" % number for number in range(50)])
        caught_up(members)
        members.brokers["a"].kill(*ROOMS)
        kept.store(b"after", leader=next_leader(members))
        kept.wait()
    members.brokers["a"].start(ROOMS)
    until(lambda: members.leader("a") in ("b", "c"), "the old master's agent follows")


def test_a_master_whose_log_alone_is_gone_is_replaced(members):
    """Its replication continues, and does not answer for a log that does not."""
    with members.client() as client:
        kept = Kept(members, client)
        kept.store(b"before")
        caught_up(members)
        members.brokers["a"].kill(COMMITLOG)
        kept.store(b"after", leader=next_leader(members, "b"))
        kept.wait()
    members.brokers["a"].start((COMMITLOG,))
    with connect(members.brokers["a"].root, timeout_s=20) as old:
        until(lambda: old.log_state().role is Role.SLAVE, "the old master follows")


@pytest.mark.parametrize("members", ["SYNC_MASTER"], indirect=True)
def test_a_client_notices_a_frozen_master_whose_connection_stays_open(members):
    with members.client() as client:
        kept = Kept(members, client)
        kept.store(b"before")
        caught_up(members)
        began = time.monotonic()
        with members.frozen("a"):
            kept.store(b"after")
            assert time.monotonic() - began < 50, "gRPC's own limit for a ping is a minute"
        kept.wait()


def test_a_switchover_goes_to_the_member_that_was_named(members):
    with members.client() as client:
        kept = Kept(members, client)
        kept.store(b"before")
        caught_up(members)
        with connect(members.brokers["b"].root, timeout_s=20) as asked:
            asked.admin.switchover("c")
        until(lambda: members.leader() == "c", "c leads")
        kept.store(b"after", leader="c")
        kept.wait()


@pytest.fixture
def patient_members(tmp_path, etcd) -> Iterator[Members]:
    """Their agents have followed the election for less than a ttl."""
    started = Members(tmp_path, etcd, "SYNC_MASTER", ["agent.ttl_ms=120000"]).start()
    yield started
    started.close()


@pytest.mark.parametrize("frozen", [(AGENT,), (AGENT, HA)], ids=["agents", "members"])
def test_a_handover_ends_when_the_next_leader_takes_messages(patient_members, frozen):
    """It has to see first that this broker has stepped down, which answers until then."""
    members = patient_members
    with members.client() as client:
        store(client, b"before")
    caught_up(members)
    others = [members.brokers[name].pid(room) for name in ("b", "c") for room in frozen]
    for other in others:
        freeze(other)
    try:
        waited = handover(members, "--timeout", "10")
        assert waited.returncode == 1
        assert "is to lead, and takes no messages yet" in waited.stderr
    finally:
        for other in others:
            thaw(other)
    done = handover(members)
    assert done.returncode == 0, done.stderr
    leader = done.stdout.split()[0]
    assert leader in ("b", "c")
    with connect(members.brokers[leader].root, timeout_s=20) as found:
        assert found.log_state().role is Role.SYNC_MASTER


def handover(members: Members, *options: str) -> subprocess.CompletedProcess[str]:
    command = ("-m", "stratamq.cli", "cluster", "handover", "--data", members.brokers["a"].root)
    return subprocess.run([sys.executable, *command, *options], capture_output=True, text=True)


def test_a_switchover_to_a_member_without_an_agent_is_refused(members):
    with connect(members.brokers["b"].root, timeout_s=20) as asked:
        with pytest.raises(NotFoundError, match="no agent of a member 'd' is known: a, b, c"):
            asked.admin.switchover("d")
        with pytest.raises(NotWritableError, match="a leads already"):
            asked.admin.switchover("a")


def test_while_failover_is_paused_no_slave_is_promoted(members):
    with members.client() as client:
        store(client, b"one")
    caught_up(members)
    with connect(members.brokers["b"].root, timeout_s=20) as asked:
        asked.admin.set_failover_paused(True)
        members.brokers["a"].kill(*ROOMS)
        until(lambda: "paused" in asked.admin.election().last_action, "the pause is what holds it")
        assert asked.admin.election().leader == "a"
        asked.admin.set_failover_paused(False)
        until(lambda: members.leader("b") in ("b", "c"), "another member leads")


@pytest.mark.parametrize("members", ["ASYNC_MASTER"], indirect=True)
def test_a_master_that_waits_for_no_slave_stops_when_its_agent_does(members):
    with members.client() as client:
        store(client, b"one")
    caught_up(members)
    members.signal_agent("a", signal.SIGSTOP)
    with connect(members.brokers["a"].root, timeout_s=20) as old:
        until(lambda: not old.log_state().writable, "its lease is over")
    until(lambda: members.leader("b") in ("b", "c"), "another member leads")
    members.signal_agent("a", signal.SIGCONT)
    until(lambda: members.leader("a") in ("b", "c"), "it hears of that")


@pytest.mark.parametrize("members", ["SYNC_MASTER"], indirect=True)
def test_a_master_that_waits_for_slaves_continues_without_the_store(members):
    caught_up(members)
    freeze(members.etcd.pid)
    with connect(members.brokers["a"].root, timeout_s=60) as client:
        until(lambda: bool(client.admin.election().store_problem), "the store is away")
        assert client.send_message(Message("t", b"one")).status.name == "PUT_OK"
        assert client.log_state().writable
        thaw(members.etcd.pid)
        until(lambda: not client.admin.election().store_problem, "the store is back")
    assert members.leader() == "a"


@pytest.mark.parametrize("members", ["SYNC_MASTER"], indirect=True)
def test_a_second_agent_of_a_broker_stops_and_the_first_one_continues(members):
    settings = [text for text in members.settings["a"] if text.startswith(("agent.", "ha."))]
    options = [word for text in settings for word in ("--set", text)]
    done = subprocess.run(
        [sys.executable, "-m", "stratamq_agent", "--data", members.brokers["a"].root, *options],
        capture_output=True,
        timeout=120,
    )
    assert done.returncode == 3
    assert b"another agent service runs on this directory" in done.stderr
    assert members.leader("a") == "a"
