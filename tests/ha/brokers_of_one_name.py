"""Two or three brokers of one name as real processes, any of which may be the master.

    with Brokers(tmp_path, "a", "b") as brokers:
        brokers.start("a", "b")
        brokers.send("a", 50)
        brokers.same("a", "b")
        brokers.promote("b")

Each is reached by the others through a wire of its own, whose address stays when its processes are
started again.
"""

import contextlib
import random
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import grpc
from stratamq_torture.processes.wire import NOWHERE, Wire

from stratamq.api.v1 import common_pb2
from stratamq.api.v1 import replication_pb2 as pb
from stratamq.client import Client, Message, SendStatus, connect
from stratamq.errors import StrataError
from stratamq.rpc.status import from_rpc_error
from tests.ha.pairs import (
    PATIENT,
    PATIENT_DEMOTION,
    SEGMENT,
    ha_status,
    log_status,
    segments,
    until,
)
from tests.support.brokers import COMMITLOG, HA, Broker

SYNC = common_pb2.BROKER_ROLE_SYNC_MASTER
MASTERS = (common_pb2.BROKER_ROLE_ASYNC_MASTER, SYNC)


class Brokers:
    """The first name is the configured master, the others its slaves. `settings` are everybody's,
    `of` adds some to one."""

    def __init__(
        self,
        directory: Path,
        *names: str,
        role: str = "ASYNC_MASTER",
        rooms: Sequence[str] = (),
        members: bool = True,
        settings: Sequence[str] = (),
        of: dict[str, Sequence[str]] | None = None,
    ) -> None:
        self.rooms = [COMMITLOG, *rooms, HA]
        self.has_members = members
        self.wires = {name: Wire(NOWHERE) for name in names}
        self.random = random.Random(1)
        self.sent = 0
        everyone = ",".join(f"{name}={wire.address}" for name, wire in self.wires.items())
        self._all: dict[str, Broker] = {}
        for number, name in enumerate(names):
            own = [
                f"commitlog.segment_bytes={SEGMENT}",
                f"commitlog.followers={','.join(rooms)}",
                f"commitlog.broker_id={number}",
                PATIENT,
                PATIENT_DEMOTION,
                "ha.replication_address=127.0.0.1:0",
                "ha.reconnect_longest_ms=200",
            ]
            if members:
                own += [
                    f"ha.members={everyone}",
                    f"ha.member={name}",
                    "commitlog.wait_for_peers=true",
                ]
            if number == 0:
                own.append(f"commitlog.role={role}")
            else:
                own += ["commitlog.role=SLAVE", f"ha.master={self.wires[names[0]].address}"]
            own += [*settings, *(of or {}).get(name, ())]
            self._all[name] = Broker(directory / name, directory / f"logs-of-{name}", own)

    def __getitem__(self, name: str) -> Broker:
        return self._all[name]

    # --- processes ---

    def start(self, *names: str) -> None:
        for name in names:
            for room in self.rooms:
                self[name].spawn(room)
        for name in names:
            self[name].wait_ready(COMMITLOG)
            self[name].wait_ready(HA)
            self.reachable(name)
            for room in self.rooms:
                # A master that waits for its peers shows nothing, and its dispatcher serves later.
                if room not in (COMMITLOG, HA):
                    self[name].wait_announced(room)

    def reachable(self, name: str) -> None:
        """The wire leads to where the broker's replication listens now."""
        status = until(lambda: self.state(name), f"{name} reports where it listens")
        self.wires[name].lead_to(status.listening_address)

    def kill(self, name: str) -> None:
        """Power and network of a machine at once; what it has written stays."""
        self.wires[name].lead_to(NOWHERE)
        self.wires[name].cut()
        self[name].kill_all()

    def __enter__(self) -> "Brokers":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for wire in self.wires.values():
            wire.close()
        for name, broker in self._all.items():
            broker.__exit__(kind, error, traceback)
            if error is not None:
                print(f"--- {name}'s ha wrote:\n", broker.output(HA)[-5000:])
                print(f"--- {name}'s log wrote:\n", broker.output(COMMITLOG)[-2500:])

    # --- roles ---

    def promote(self, name: str, role: int = 0, *, force: bool = False) -> Any:
        """StrataError as a client sees it."""
        request = pb.PromoteRequest(role=common_pb2.BrokerRole.Name(role), force=force)
        return call(self[name].stub(HA).Promote, request)

    def demote(self, name: str, to: str = "", *, force: bool = False) -> Any:
        address = self.wires[to].address if to else ""
        request = pb.DemoteRequest(master_replication_address=address, force=force)
        return call(self[name].stub(HA).Demote, request)

    def state(self, name: str) -> Any:
        """None while it does not know itself."""
        try:
            return ha_status(self[name])
        except grpc.RpcError as error:
            assert error.code() is grpc.StatusCode.UNAVAILABLE, error
            return None

    def status_of(self, name: str) -> Any:
        """Its status, as soon as it knows it."""
        return until(lambda: self.state(name), f"{name} reports its status")

    def is_master(self, name: str) -> bool:
        try:
            status = log_status(self[name])
        except grpc.RpcError as error:
            assert error.code() is grpc.StatusCode.UNAVAILABLE, error
            return False
        return status.role in MASTERS and status.writable

    def serving(self, name: str) -> None:
        until(lambda: self.is_master(name), f"{name} takes messages")

    def follows(self, name: str, master: str) -> None:
        """Until it is a slave of that one, has the master's last generation, and has joined."""

        def ready() -> bool:
            state = self.state(name)
            if state is None or not state.following.connected:
                return False
            own = log_status(self[name])
            if (self.has_members and not own.HasField("members")) or own.rejoining:
                return False
            return own.generations[-1] == log_status(self[master]).generations[-1]

        until(ready, f"{name} follows {master}")

    def counted(self, name: str, slaves: int = 1) -> None:
        """Until so many slaves count at that master's log."""
        until(
            lambda: (
                sum(r.connected and r.counts for r in log_status(self[name]).replicas) == slaves
            ),
            f"{name} counts {slaves} slaves",
        )

    # --- messages ---

    def send(self, name: str, count: int) -> list[bytes]:
        """So many messages, one by one; the bodies of those that were answered PUT_OK."""
        with connect(self[name].root) as client:
            return [body for _ in range(count) if (body := self.send_one(client)) is not None]

    def send_one(self, client: Client) -> bytes | None:
        """Its body if it was answered PUT_OK."""
        body, status = self.sent_one(client)
        return body if status is SendStatus.PUT_OK else None

    def sent_one(self, client: Client) -> tuple[bytes, SendStatus]:
        self.sent += 1
        body = b"%d-" % self.sent + self.random.randbytes(self.random.randrange(1_500))
        message = Message(f"t{self.sent % 3}", body, keys=[f"k{self.sent}"])
        return body, client.send_all([message])[0].status

    def bodies(self, name: str) -> set[bytes]:
        """Of all messages that its consumers can get."""
        with connect(self[name].root) as client:
            return {m.body for topic in client.topics() for m in client.consume(topic.name)}

    def shows(self, name: str, bodies: Sequence[bytes]) -> None:
        """Until consumers of that broker get all of these."""

        def shown() -> bool:
            try:
                return set(bodies) <= self.bodies(name)
            except StrataError:
                return False  # it is on its way

        until(shown, f"{name} shows {len(bodies)} messages")

    def same(self, master: str, *slaves: str) -> None:
        """Until the slaves have everything; then segment for segment, byte for byte."""
        for slave in slaves:
            self.follows(slave, master)

            def ended(slave: str = slave) -> bool:
                try:
                    ends = {log_status(self[name]).appended_offset for name in (master, slave)}
                except grpc.RpcError as error:
                    assert error.code() is grpc.StatusCode.UNAVAILABLE, error
                    return False
                return len(ends) == 1

            until(ended, f"{slave} has everything")
            assert segments(self[slave]) == segments(self[master])

    def aside(self, name: str) -> list[Path]:
        return list((self[name].root / "stratamq" / "aside").glob("commitlog-*"))


def call(method: Any, request: Any) -> Any:
    try:
        return method(request)
    except grpc.RpcError as failure:
        raise from_rpc_error(failure) from failure


def ignored() -> contextlib.AbstractContextManager[None]:
    """For calls whose failure is one of the outcomes that are tested."""
    return contextlib.suppress(StrataError)
