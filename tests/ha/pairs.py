"""A master and its slaves as real processes, and a wire between them that can be cut.

with Pair(tmp_path) as pair:
    pair.start()
    pair.send(100)
    pair.caught_up()
    pair.assert_equal()
"""

import contextlib
import random
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import grpc
from stratamq_torture.processes.wire import Wire

from stratamq.api.v1 import commitlog_pb2 as log_pb
from stratamq.api.v1 import replication_pb2 as pb
from stratamq.client import Client, connect
from stratamq.errors import NotFoundError, UnavailableError
from tests.support.brokers import COMMITLOG, HA, INDEX, Broker
from tests.support.logs import read_members
from tests.support.waiting import until, until_indexed

SEGMENT = 1 << 16
PATIENT = "commitlog.slave_timeout_ms=60000"
PATIENT_DEMOTION = "ha.stop_slaves_ms=60000"
"""A slave on a busy machine is late and not lost."""


class Pair:
    """One master, one slave. `rooms` run on both beside the log and replication."""

    def __init__(
        self,
        directory: Path,
        *,
        role: str = "ASYNC_MASTER",
        rooms: Sequence[str] = (),
        master: Sequence[str] = (),
        slave: Sequence[str] = (),
        both: Sequence[str] = (),
        seed: int = 1,
    ) -> None:
        self.rooms = [COMMITLOG, *rooms, HA]
        self.random = random.Random(seed)
        self._directory = directory
        common = [
            f"commitlog.segment_bytes={SEGMENT}",
            f"commitlog.followers={','.join(rooms)}",
            PATIENT,
            "ha.replication_address=127.0.0.1:0",
            "ha.reconnect_longest_ms=200",
            *both,
        ]
        self._common = common
        self.master = Broker(
            directory / "master",
            directory / "logs-of-master",
            [*common, f"commitlog.role={role}", *master],
        )
        self._slave_settings = slave
        self.wire: Wire | None = None
        self.slave: Broker
        self.sent = 0

    # --- processes ---

    def start(self) -> "Pair":
        self.start_master()
        self.start_slave()
        return self

    def start_master(self) -> None:
        self.master.start(self.rooms)
        self.wire = Wire(self.replication_address())
        self.slave = self.new_slave("slave")

    def new_slave(self, name: str, *settings: str) -> Broker:
        assert self.wire is not None
        return Broker(
            self._directory / name,
            self._directory / f"logs-of-{name}",
            [
                *self._common,
                "commitlog.role=SLAVE",
                "commitlog.broker_id=1",
                f"ha.master={self.wire.address}",
                *self._slave_settings,
                *settings,
            ],
        )

    def start_slave(self) -> None:
        self.slave.start(self.rooms)

    def replication_address(self) -> str:
        """As soon as the master's slaves may connect."""
        return until(lambda: slaves_connect_to(self.master), "the master's replication address")

    def __enter__(self) -> "Pair":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self.wire is not None:
            self.wire.close()
            self.slave.__exit__(kind, error, traceback)
            if error is not None:
                print("--- the slave's ha wrote:\n", self.slave.output(HA)[-4000:])
        self.master.__exit__(kind, error, traceback)
        if error is not None:
            print("--- the master's ha wrote:\n", self.master.output(HA)[-4000:])

    def listening(self, broker: Broker) -> str:
        """Where a broker's replication listens, whatever its role."""
        address = broker.output(HA).rpartition("slaves connect here address=")[2]
        return address.split()[0]

    def find_master_again(self) -> None:
        """The master's replication listens elsewhere now: the wire leads there."""
        assert self.wire is not None
        self.wire.lead_to(self.replication_address())

    def resync(self, broker: Broker | None = None) -> None:
        (broker or self.slave).stub(HA).Resync(pb.ResyncRequest())

    # --- messages ---

    def send(self, count: int, largest: int = 3_000, broker: Broker | None = None) -> None:
        """So many messages of random sizes, each call answered."""
        with connect((broker or self.master).root) as client, client.producer() as producer:
            for _ in range(count):
                body = self.random.randbytes(self.random.randrange(largest))
                topic = f"t{self.random.randrange(3)}"
                producer.send(topic, body, keys=[f"k{self.sent}"], tag="x")
                self.sent += 1
            producer.flush()

    def delete_below(self, offset: int) -> None:
        """Until the master's log begins there, and its replication knows: a slave that still
        replicates from a segment, or has not come back to a log that was started again, holds it a
        little longer."""
        request = log_pb.DeleteBelowRequest(offset=offset, max_segments=100, urgent=True)
        until(
            lambda: self.master.log.DeleteBelow(request).minimum_offset == offset,
            f"the master's log begins at {offset}",
        )
        until(lambda: shipped_from(self.master) == offset, "the master's replication knows")

    # --- what there is ---

    def caught_up(self, slave: Broker | None = None) -> None:
        """Until the slave's log ends where the master's does, and the master knows it."""
        slave = slave or self.slave

        def ended() -> bool:
            try:
                end = log_status(self.master).appended_offset
                return log_status(slave).appended_offset == end and any(
                    one.connected and one.acknowledged_offset == end
                    for one in ha_status(self.master).slaves
                )
            except grpc.RpcError as error:
                # A log that is cut is opened again.
                assert error.code() is grpc.StatusCode.UNAVAILABLE, error
                return False

        until(ended, "the slave has everything")

    def assert_equal(self, slave: Broker | None = None) -> None:
        """Segment for segment, byte for byte, blanks and their tails included."""
        ours, theirs = segments(self.master), segments(slave or self.slave)
        assert sorted(theirs) == sorted(ours)
        for name, content in ours.items():
            assert theirs[name] == content, name

    def served_equally(self) -> None:
        """Until the slave's consumers and queries are given what the master's are."""
        with connect(self.master.root) as client, connect(self.slave.root) as slave:
            if INDEX in self.rooms:
                for one in (client, slave):
                    until_indexed(one)

            def equal() -> bool:
                try:
                    return served(slave) == served(client)
                except (UnavailableError, NotFoundError):
                    return False  # it is on its way

            until(equal, "the slave serves the same")
            assert sum(len(found) for found, _ in served(client).values()) > 0

    def assert_equal_from(self, offset: int, slave: Broker | None = None) -> None:
        """The same for a slave whose log begins at `offset`."""
        name = f"{offset:020}"
        ours = {n: raw for n, raw in segments(self.master).items() if n >= name}
        assert segments(slave or self.slave) == ours


def served(client: Client) -> dict[str, tuple[list[Any], list[Any]]]:
    """All messages of every topic by queue and place, and what the index finds of a few keys."""
    found = {}
    for topic in client.topics():
        messages = list(client.consume(topic.name))
        keyed = [
            sorted(m.physical_offset for m in client.query_key(topic.name, f"k{number}").messages)
            for number in range(0, 400, 20)
        ]
        places = [(m.queue_id, m.queue_offset, m.physical_offset, m.body) for m in messages]
        found[topic.name] = (sorted(places), keyed)
    return found


def tail_torn_off(broker: Broker, size: int) -> int:
    """Zero the last bytes of a log that does not run, as a power loss might; where it ends now."""
    last = max((broker.root / "commitlog").iterdir())
    while not (content := last.read_bytes()).strip(b"\0"):
        last = last.with_name(f"{int(last.name) - SEGMENT:020}")
    used = len(content.rstrip(b"\0"))
    whole = [at for at, raw, _ in read_members({int(last.name): content})]
    end = max(at for at in whole if at <= int(last.name) + max(0, used - size))
    at = end - int(last.name)
    with last.open("r+b") as file:
        file.seek(at)
        file.write(bytes(len(content) - at))
    return end


def log_status(broker: Broker) -> Any:
    return broker.log.GetStatus(log_pb.GetStatusRequest())


def ha_status(broker: Broker) -> Any:
    return broker.stub(HA).GetReplicationStatus(pb.GetReplicationStatusRequest())


def slaves_connect_to(broker: Broker) -> str:
    """Empty while it is no master, or does not know that it is."""
    status = known_status(broker)
    return "" if status is None else status.replication_address


def shipped_from(broker: Broker) -> int | None:
    """Where its log begins, for its slaves; None while its log has not answered replication."""
    status = known_status(broker)
    return None if status is None else status.minimum_offset


def known_status(broker: Broker) -> Any:
    """None while its log has not answered replication."""
    try:
        return ha_status(broker)
    except grpc.RpcError as error:
        assert error.code() is grpc.StatusCode.UNAVAILABLE, error
        return None


def segments(broker: Broker) -> dict[str, bytes]:
    """The log's segments; one that was made ahead and holds nothing, or is deleted meanwhile, does
    not count."""
    contents: dict[str, bytes] = {}
    for path in sorted((broker.root / "commitlog").glob("*")):
        with contextlib.suppress(FileNotFoundError):
            contents[path.name] = path.read_bytes()
    return {name: raw for name, raw in contents.items() if raw.strip(b"\0")}
