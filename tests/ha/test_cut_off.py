"""A slave without a network for longer than the housekeeping interval: no connection is closed, and
neither side gets an error.
"""

import random
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from stratamq_torture.processes.services import Services

from stratamq.client import Client, Message, ReplicationState, SendStatus, connect
from stratamq.errors import UnavailableError
from stratamq.files.clock import SystemClock
from stratamq.rpc.rooms import COMMITLOG, HA
from tests.ha.pairs import SEGMENT, until
from tests.support import namespaces
from tests.support.namespaces import Link, Machine

ROOMS = (COMMITLOG, HA)
PORT = 10912
"""In a namespace of its own it belongs to no other process."""
HOUSEKEEPING_MS = 3_000
SLAVE_TIMEOUT_MS = 300


class Broker:
    """Log and replication in one namespace. Their gRPC is on Unix sockets, which reach across."""

    def __init__(self, directory: Path, machine: Machine, settings: list[str]) -> None:
        self.root = directory / "store"
        self.root.mkdir(parents=True)
        addresses = [f"{room}.address=unix:{directory}/{room}.sock" for room in ROOMS]
        self.services = Services(
            self.root,
            directory / "logs",
            [
                *addresses,
                "access.open_to_others=true",
                f"commitlog.segment_bytes={SEGMENT}",
                "commitlog.followers=",
                f"ha.replication_address={machine.address}:{PORT}",
                "ha.heartbeat_ms=200",
                f"ha.housekeeping_ms={HOUSEKEEPING_MS}",
                "ha.reconnect_longest_ms=200",
                *settings,
            ],
            prefixes=dict.fromkeys(ROOMS, machine.prefix),
        )
        self.client: Client = connect(self.root)

    def replication(self) -> ReplicationState | None:
        try:
            return self.client.admin.replication_state()
        except UnavailableError:
            return None  # it is on its way

    def segments(self) -> dict[str, bytes]:
        paths = sorted((self.root / "commitlog").iterdir())
        contents = {path.name: path.read_bytes() for path in paths}
        return {name: raw for name, raw in contents.items() if raw.strip(b"\0")}


class CutOff:
    """A SYNC_MASTER, its slave, and the link between them."""

    def __init__(self, directory: Path, link: Link) -> None:
        self.random = random.Random(1)
        self.promised: list[bytes] = []
        self.master = Broker(
            directory / "m",
            link.near,
            [
                "commitlog.role=SYNC_MASTER",
                f"commitlog.slave_timeout_ms={SLAVE_TIMEOUT_MS}",
            ],
        )
        self.slave = Broker(
            directory / "s",
            link.far,
            [
                "commitlog.role=SLAVE",
                "commitlog.broker_id=1",
                f"ha.master={link.near.address}:{PORT}",
            ],
        )

    def send(self) -> SendStatus:
        body = self.random.randbytes(1 + self.random.randrange(3_000))
        status = self.master.client.send_all([Message("t", body)])[0].status
        if status is SendStatus.PUT_OK:
            self.promised.append(body)
        return status

    def promises(self, count: int) -> None:
        """Until so many more were acknowledged: on a busy machine a slave is late with some."""
        wanted = len(self.promised) + count
        until(
            lambda: self.send() is SendStatus.PUT_OK and len(self.promised) >= wanted,
            f"{count} messages are acknowledged",
        )

    def counts(self, slaves: int) -> None:
        """Until the master's log counts so many slaves."""
        until(
            lambda: sum(r.connected for r in self.master.client.log_state().replicas) == slaves,
            f"the master's log counts {slaves} slaves",
        )

    def dropped(self) -> str:
        """Until the master has left its slave; why."""

        def why() -> str:
            state = self.master.replication()
            assert state is not None
            return "".join(one.problem for one in state.slaves if not one.connected)

        return until(why, "the master leaves its slave")

    def slave_left(self) -> str:
        """Until the slave has left its master; why."""

        def why() -> str:
            state = self.slave.replication()
            following = state.following if state is not None else None
            return following.problem if following is not None and not following.connected else ""

        return until(why, "the slave leaves its master")

    def confirmed(self) -> int:
        return self.master.client.log_state().confirmed_offset

    def everything_is_there(self) -> None:
        """Until the slave has acknowledged the master's end and consumers may see it; then segment
        for segment, byte for byte."""
        end = self.master.client.log_state().appended_offset
        until(lambda: self.confirmed() == end, "the slave has everything")
        assert self.slave.client.log_state().flushed_offset == end
        held = self.slave.segments()
        assert held == self.master.segments()
        log = b"".join(held.values())
        assert [body for body in self.promised if body not in log] == []


@pytest.fixture
def link() -> Iterator[Link]:
    if namespaces.obstacle():
        pytest.skip(namespaces.obstacle())
    with Link() as link:
        yield link


@pytest.fixture
def pair(link) -> Iterator[CutOff]:
    """Not under pytest's own directory: a Unix socket's path has room for a hundred bytes."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="stratamq-cut-")))
        pair = CutOff(directory, link)
        for broker in (pair.master, pair.slave):
            stack.enter_context(broker.services)
            stack.callback(broker.client.close)
            broker.services.start(ROOMS)
        pair.counts(1)
        yield pair


@pytest.mark.parametrize("end", ["near", "far"], ids=["master's end", "slave's end"])
def test_a_slave_that_was_cut_off_is_dropped_comes_back_by_itself_and_holds_every_byte(
    pair, link, end
):
    pair.promises(30)
    pair.everything_is_there()
    before = pair.confirmed()
    pids = [broker.services.pid(room) for broker in (pair.master, pair.slave) for room in ROOMS]
    machine: Machine = getattr(link, end)

    clock = SystemClock()
    connected_ns = clock.monotonic_ns()
    link.cut(machine)
    status = pair.send()
    took_ms = (clock.monotonic_ns() - connected_ns) // 1_000_000
    # On a busy machine the master may have left its slave meanwhile.
    assert status is SendStatus.FLUSH_SLAVE_TIMEOUT or took_ms > HOUSEKEEPING_MS // 2
    assert pair.dropped().startswith("the slave has sent nothing for ")
    assert "slave left" in pair.master.services.output(HA)
    assert pair.slave_left()
    pair.counts(0)
    for _ in range(60):  # more than a segment
        assert pair.send() is SendStatus.SLAVE_NOT_AVAILABLE
    assert pair.confirmed() == before

    link.mend(machine)
    pair.counts(1)
    pair.everything_is_there()
    pair.promises(30)
    pair.everything_is_there()
    assert len(pair.slave.segments()) > 2
    assert pids == [
        broker.services.pid(room) for broker in (pair.master, pair.slave) for room in ROOMS
    ]
    assert not any(
        broker.services.ended(room) for broker in (pair.master, pair.slave) for room in ROOMS
    )
