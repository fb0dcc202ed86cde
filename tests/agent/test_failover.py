"""Members with agents and a real etcd: who leads when one is stopped, killed or asked to go."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from stratamq_bench.etcd_server import Etcd

from stratamq.client import Client, Message, connect
from stratamq.errors import NotFoundError, NotWritableError, StrataError, UnavailableError
from stratamq.formats.broker_role import Role
from tests.support.brokers import COMMITLOG, DISPATCHER, HA, Broker
from tests.support.s3_servers import free_port
from tests.support.waiting import until

AGENT = "agent"
ROOMS = (COMMITLOG, DISPATCHER, HA, AGENT)
MEMBERS = ("a", "b", "c")
TIMES = ("agent.ttl_ms=2000", "agent.loop_interval_ms=500", "agent.retry_timeout_ms=700")


class Members:
    """Brokers of one cluster with an agent each."""

    def __init__(self, directory: Path, etcd: Etcd, role: str) -> None:
        self.etcd = etcd
        ports = {name: free_port() for name in MEMBERS}
        named = ",".join(f"{name}=127.0.0.1:{port}" for name, port in ports.items())
        common = [
            "commitlog.segment_bytes=1048576",
            "commitlog.followers=dispatcher",
            "commitlog.slave_timeout_ms=60000",
            "commitlog.lease=true",
            "commitlog.wait_for_peers=true",
            f"ha.members={named}",
            "ha.reconnect_longest_ms=200",
            f"agent.store=etcd://127.0.0.1:{etcd.port}",
            *TIMES,
        ]
        self.brokers = {
            name: Broker(
                directory / name,
                directory / f"logs-of-{name}",
                [
                    *common,
                    f"commitlog.role={role if name == 'a' else 'SLAVE'}",
                    f"commitlog.broker_id={MEMBERS.index(name)}",
                    f"ha.replication_address=127.0.0.1:{port}",
                ],
            )
            for name, port in ports.items()
        }

    def start(self) -> "Members":
        for broker in self.brokers.values():
            for room in ROOMS:
                broker.spawn(room)
        until(lambda: self.leader() == "a", "the configured master leads")
        with connect(self.brokers["a"].root, timeout_s=20) as client:
            until(lambda: len(client.admin.election().agents) == len(MEMBERS), "all are known")
        return self

    def leader(self, asked: str = "") -> str:
        """By the agent of `asked`, or of any that answers."""
        for name in [asked] if asked else MEMBERS:
            try:
                with connect(self.brokers[name].root, timeout_s=2) as client:
                    return client.admin.election().leader
            except StrataError:
                continue
        return ""

    def client(self) -> Client:
        """Of all members: it finds the master."""
        addresses = [self._address(broker) for broker in self.brokers.values()]
        return connect(",".join(filter(None, addresses)), timeout_s=60, patience_s=60)

    def _address(self, broker: Broker) -> str:
        try:
            with connect(broker.root, timeout_s=2) as client:
                return client.services()[COMMITLOG]
        except UnavailableError:
            return ""

    def signal_agent(self, name: str, number: int) -> None:
        os.kill(self.brokers[name].pid(AGENT), number)

    def close(self) -> None:
        for broker in self.brokers.values():
            broker.__exit__(None, None, None)


@pytest.fixture(params=["SYNC_MASTER", "ASYNC_MASTER"])
def members(request, tmp_path, etcd) -> Iterator[Members]:
    started = Members(tmp_path, etcd, request.param).start()
    yield started
    started.close()


def bodies(client: Client) -> list[bytes]:
    return sorted(one.body for one in client.consume("t"))


def test_a_lost_master_is_replaced_and_nothing_acknowledged_is_lost(members):
    sent = sorted(b"%d" % number for number in range(50))
    with members.client() as client:
        for body in sent:
            client.send_message(Message("t", body))
        caught_up(members)
        members.brokers["a"].kill(*ROOMS)
        until(lambda: members.leader() in ("b", "c"), "another member leads")
        client.send_message(Message("t", b"after"))
        until(lambda: bodies(client) == [*sent, b"after"], "all are there, each once")
    members.brokers["a"].start(ROOMS)
    until(lambda: members.leader("a") in ("b", "c"), "the old master's agent follows")


def test_a_master_whose_log_alone_is_gone_is_replaced(members):
    """Its replication goes on, and does not speak for a log that does not answer."""
    with members.client() as client:
        client.send_message(Message("t", b"before"))
        caught_up(members)
        members.brokers["a"].kill(COMMITLOG)
        until(lambda: members.leader("b") in ("b", "c"), "another member leads")
        client.send_message(Message("t", b"after"))
        until(lambda: bodies(client) == [b"after", b"before"], "both are there, each once")
    members.brokers["a"].start((COMMITLOG,))
    with connect(members.brokers["a"].root, timeout_s=20) as old:
        until(lambda: old.log_state().role is Role.SLAVE, "the old master follows")


def test_a_switchover_goes_to_the_member_that_was_named(members):
    with members.client() as client:
        client.send_message(Message("t", b"before"))
        caught_up(members)
        with connect(members.brokers["b"].root, timeout_s=20) as asked:
            asked.admin.switchover("c")
        until(lambda: members.leader() == "c", "c leads")
        client.send_message(Message("t", b"after"))
        until(lambda: bodies(client) == [b"after", b"before"], "both are there, each once")


def test_a_switchover_to_a_member_without_an_agent_is_refused(members):
    with connect(members.brokers["b"].root, timeout_s=20) as asked:
        with pytest.raises(NotFoundError, match="no agent of a member 'd' is known: a, b, c"):
            asked.admin.switchover("d")
        with pytest.raises(NotWritableError, match="a leads already"):
            asked.admin.switchover("a")


def test_while_failover_is_paused_nobody_is_promoted(members):
    with members.client() as client:
        client.send_message(Message("t", b"one"))
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
        client.send_message(Message("t", b"one"))
    caught_up(members)
    members.signal_agent("a", signal.SIGSTOP)
    with connect(members.brokers["a"].root, timeout_s=20) as old:
        until(lambda: not old.log_state().writable, "its lease is over")
    until(lambda: members.leader("b") in ("b", "c"), "another member leads")
    members.signal_agent("a", signal.SIGCONT)
    until(lambda: members.leader("a") in ("b", "c"), "it hears of that")


@pytest.mark.parametrize("members", ["SYNC_MASTER"], indirect=True)
def test_a_master_that_waits_for_slaves_goes_on_without_the_store(members):
    caught_up(members)
    members.etcd.signal(signal.SIGSTOP)
    with connect(members.brokers["a"].root, timeout_s=60) as client:
        until(lambda: bool(client.admin.election().store_problem), "the store is away")
        assert client.send_message(Message("t", b"one")).status.name == "PUT_OK"
        assert client.log_state().writable
        members.etcd.signal(signal.SIGCONT)
        until(lambda: not client.admin.election().store_problem, "the store is back")
    assert members.leader() == "a"


def caught_up(members: Members) -> None:
    with connect(members.brokers["a"].root, timeout_s=20) as master:
        until(
            lambda: (
                sum(
                    one.connected and one.counts and not one.lag_bytes
                    for one in master.admin.replication_state().slaves
                )
                == 2
            ),
            "both slaves have everything",
        )
