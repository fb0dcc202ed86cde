"""What a master holds of its slaves: their connections, one of which may be half-open, and how far
each is, by the production's own count."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from stratamq_commitlog.messages import Role
from stratamq_commitlog.replica.replicas import Replica
from stratamq_ha.master_connection import LogView, MasterConnection
from stratamq_ha.peer import Peer
from stratamq_ha.slaves import Slaves

from stratamq.formats.replication_opening import SlaveOpening
from stratamq_torture.brokers.node import BROKER_NAME, Node

if TYPE_CHECKING:
    from stratamq_torture.brokers.cluster import Cluster


class Connection:
    """A slave's connection, as `stratamq_ha.slaves` sees one of `stratamq_ha.peer`."""

    name = BROKER_NAME
    is_same = Peer.is_same
    member = Peer.member

    def __init__(self, address: str, has: SlaveOpening, machine: MasterConnection) -> None:
        self.address = address
        self.has = has
        self.machine = machine

    @property
    def offset(self) -> int:
        return self.machine.acknowledged


class Serving:
    """Of one master in one generation."""

    def __init__(self, cluster: "Cluster", master: Node) -> None:
        engine = master.log
        assert engine is not None
        self.master = master
        self.engine = engine
        self.generation = engine.generation
        self.slaves = Slaves(self)
        self._cluster = cluster

    @property
    def over(self) -> bool:
        """The process, the role or the generation is another one."""
        engine = self.master.log
        return (
            engine is not self.engine
            or engine.role is Role.SLAVE
            or engine.generation != self.generation
        )

    # --- what `Slaves` asks of the log ---

    @property
    def facts(self) -> "Serving":
        return self

    @property
    def members(self) -> object:
        return self.engine.membership.members

    @property
    def view(self) -> LogView:
        return self.master.view(self.engine)

    def lag_ms(self, acknowledged: int) -> int:
        return 0

    # --- what happens ---

    def heard(self, connection: Connection) -> None:
        """It has reported: an older connection of the same slave goes."""
        if connection not in self.slaves.peers():
            self.slaves.joined(connection)
            for older in self.slaves.older(connection):
                self._cluster.met("an older connection of a member was closed")
                self._cluster.close(older)
        known = self.master.remembered.get(connection.has.identity, -1)
        self.master.remembered[connection.has.identity] = max(known, connection.offset)
        self.report()

    def left(self, connection: Connection) -> None:
        if connection in self.slaves.peers():
            self.slaves.left(connection, "lost", self._now_ms())
        self.report()

    def report(self) -> None:
        """The log hears what its slaves have acknowledged."""
        if self.over:
            return
        replicas = [
            Replica(one.address, one.acknowledged, one.connected, counts=one.counts)
            for one in self.slaves.reports(self._now_ms())
            if one.acknowledged >= 0
        ]
        self.engine.report_replication(self.generation, replicas)

    def _now_ms(self) -> int:
        return self._cluster.clock.monotonic_ns() // 1_000_000


class HalfOpen:
    """A connection that its slave has given up and its master has not: what was under way to the
    master still arrives, and counts until the master misses the slave's reports."""

    def __init__(self, serving: Serving, connection: Connection, up: bytes) -> None:
        self.serving = serving
        self.connection = connection
        self._up = bytearray(up)

    def steps(self) -> Iterator[Callable[[], None]]:
        if self._up and not self.serving.over:
            yield self._hear

    def closes(self, now_ms: int) -> bool:
        """The master has noticed."""
        if self.serving.over:
            return True
        return self.connection.machine.tick(self.serving.view, now_ms) is not None

    def _hear(self) -> None:
        piece = bytes(self._up)
        self._up.clear()
        now_ms = self.serving._now_ms()
        for _ in self.connection.machine.received(piece, self.serving.view, now_ms):
            self.serving.heard(self.connection)
