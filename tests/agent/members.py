"""Three members of one cluster, each a broker with an agent, over a real etcd."""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from stratamq_bench.failover import Etcd
from stratamq_bench.ports import free_port
from stratamq_torture.processes.wire import NOWHERE, Wire

from stratamq.client import Client, Message, SendStatus, connect
from stratamq.errors import NotWritableError, StrataError, UnavailableError
from tests.support.brokers import COMMITLOG, DISPATCHER, HA, Broker
from tests.support.freezing import freeze, thaw
from tests.support.waiting import until

AGENT = "agent"
ROOMS = (COMMITLOG, DISPATCHER, HA, AGENT)
MEMBERS = ("a", "b", "c")
TIMES = ("agent.ttl_ms=8000", "agent.loop_interval_ms=500", "agent.retry_timeout_ms=3000")
"""A leader whose machine is busy is late with a renewal, and not lost."""


class Members:
    """Brokers of one cluster with an agent each; the others find a through `way_to_a`."""

    def __init__(
        self, directory: Path, etcd: Etcd, role: str, settings: Iterable[str] = ()
    ) -> None:
        self.etcd = etcd
        self.role = role
        ports = {name: free_port() for name in MEMBERS}
        where = f"127.0.0.1:{ports['a']}"
        self.way_to_a = Wire(lambda: NOWHERE if self.is_cut else where, resets=True)
        self.is_cut = False
        addresses = {name: f"127.0.0.1:{port}" for name, port in ports.items()}
        named = {
            name: addresses if name == "a" else addresses | {"a": self.way_to_a.address}
            for name in MEMBERS
        }
        common = [
            "commitlog.segment_bytes=1048576",
            "commitlog.followers=dispatcher",
            "commitlog.slave_timeout_ms=60000",
            "commitlog.lease=true",
            "commitlog.wait_for_peers=true",
            "ha.reconnect_longest_ms=200",
            f"agent.store=etcd://127.0.0.1:{etcd.port}",
            *TIMES,
            *settings,
        ]
        self.settings = {
            name: [
                *common,
                f"commitlog.role={role if name == 'a' else 'SLAVE'}",
                f"commitlog.broker_id={MEMBERS.index(name)}",
                f"ha.replication_address=127.0.0.1:{port}",
                "ha.members=" + ",".join(f"{one}={at}" for one, at in named[name].items()),
            ]
            for name, port in ports.items()
        }
        self.brokers = {
            name: Broker(directory / name, directory / f"logs-of-{name}", settings)
            for name, settings in self.settings.items()
        }

    def start(self) -> "Members":
        for broker in self.brokers.values():
            for room in ROOMS:
                broker.spawn(room)
        until(lambda: self.leader() == "a", "the configured master leads")
        with connect(self.brokers["a"].root, timeout_s=60) as client:
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

    def client(self, retry_timeout_s: float = 60) -> Client:
        """Of all members: it finds the master."""
        addresses = [self._address(broker) for broker in self.brokers.values()]
        return connect(
            ",".join(filter(None, addresses)), timeout_s=60, retry_timeout_s=retry_timeout_s
        )

    def _address(self, broker: Broker) -> str:
        try:
            with connect(broker.root, timeout_s=2) as client:
                return client.services()[COMMITLOG]
        except UnavailableError:
            return ""

    @contextmanager
    def frozen(self, name: str) -> Iterator[None]:
        """No process of the member runs meanwhile; its connections stay open."""
        pids = [self.brokers[name].pid(room) for room in ROOMS]
        for pid in pids:
            freeze(pid)
        try:
            yield
        finally:
            for pid in pids:
                thaw(pid)

    @contextmanager
    def a_cut_off(self) -> Iterator[None]:
        """No slave reaches a, which reaches the election store, and is reached by clients."""
        self.is_cut = True
        self.way_to_a.cut()
        try:
            yield
        finally:
            self.is_cut = False

    def signal_agent(self, name: str, number: int) -> None:
        os.kill(self.brokers[name].pid(AGENT), number)

    def close(self) -> None:
        for broker in self.brokers.values():
            broker.__exit__(None, None, None)
        self.way_to_a.close()


def caught_up(members: Members, leader: str = "a") -> None:
    """`lag_bytes` is of what the master's replication knows, which the log tells it at a pace."""
    with connect(members.brokers[leader].root, timeout_s=60) as master:
        end = master.log_state().appended_offset
        until(
            lambda: (
                sum(
                    one.connected and one.counts and one.acknowledged_offset >= end
                    for one in master.admin.replication_state().slaves
                )
                == 2
            ),
            "both slaves have everything",
        )


def store(client: Client, body: bytes) -> int:
    """Of topic t, until it is acknowledged: how often it may be stored.

    On a busy machine a leader's lease ends between: the message is refused, or stored and not
    confirmed, or its answer is lost.
    """
    copies = 0

    def is_acknowledged() -> bool:
        nonlocal copies
        try:
            status = client.send_message(Message("t", body)).status
        except NotWritableError:
            return False
        except UnavailableError as error:
            copies += bool(error.fields.get("perhaps_stored"))
            raise
        copies += 1
        return status is SendStatus.PUT_OK

    until(is_acknowledged, "the leader acknowledges a message")
    return copies
