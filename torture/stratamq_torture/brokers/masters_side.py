"""What a master holds of its slaves: their connections, one of which may be half-open, and how far
each is, by the production's own count."""

from collections.abc import Callable, Iterator

from stratamq_commitlog.replica.replicas import Replica
from stratamq_ha.master_connection import LogView, MasterConnection
from stratamq_ha.peer import Peer
from stratamq_ha.slaves import Slaves

from stratamq.formats.broker_role import Role
from stratamq.formats.replication_opening import SlaveOpening
from stratamq_torture.brokers.node import BROKER_NAME, Node
from stratamq_torture.brokers.world import World


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
    """A master's serving side in one generation."""

    def __init__(self, world: World, master: Node, close: Callable[[Connection], None]) -> None:
        engine = master.log
        assert engine is not None
        self.world = world
        self.master = master
        self.engine = engine
        self.generation = engine.generation
        self.slaves = Slaves(self)
        self._close = close

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

    def has_reported(self, connection: Connection) -> None:
        """It has reported: an older connection of the same slave goes."""
        if connection not in self.slaves.peers():
            self.slaves.joined(connection)
            for older in self.slaves.older(connection):
                self.world.met("an older connection of a member was closed")
                self._close(older)
        known = self.master.remembered.get(connection.has.identity, -1)
        self.master.remembered[connection.has.identity] = max(known, connection.offset)
        self.report()

    def left(self, connection: Connection) -> None:
        if connection in self.slaves.peers():
            self.slaves.left(connection, "lost", self.world.now_ms)
        self.report()

    def report(self) -> None:
        """The log receives the acknowledgements of its slaves."""
        if self.over:
            return
        replicas = [
            Replica(one.address, one.acknowledged, one.connected, counts=one.counts)
            for one in self.slaves.reports(self.world.now_ms)
            if one.acknowledged >= 0
        ]
        self.engine.report_replication(self.generation, replicas)


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
        now_ms = self.serving.world.now_ms
        for _ in self.connection.machine.received(piece, self.serving.view, now_ms):
            self.serving.has_reported(self.connection)


class Masters:
    """What each master holds of its slaves, and the connections of all that are half-open."""

    def __init__(self, world: World) -> None:
        self.half_open: list[HalfOpen] = []
        self._world = world
        self._serving: dict[int, Serving] = {}

    def serving(self, master: Node) -> Serving:
        """What this master holds of its slaves, in its present generation."""
        found = self._serving.get(master.number)
        if found is None or found.over:
            found = self._serving[master.number] = Serving(self._world, master, self.close)
        return found

    def close(self, connection: Connection) -> None:
        """The master closes it."""
        self.half_open = [old for old in self.half_open if old.connection is not connection]

    def gone(self, master: Node) -> None:
        """Its process has ended."""
        self.half_open = [old for old in self.half_open if old.serving.master is not master]

    def steps(self) -> Iterator[tuple[Node, Callable[[], None]]]:
        """What could happen next."""
        for old in self.half_open:
            master = old.serving.master
            if master.number not in self._world.paused:
                yield from ((master, step) for step in old.steps())

    def tick(self) -> None:
        for old in list(self.half_open):
            paused = old.serving.master.number in self._world.paused
            if not paused and old.closes(self._world.now_ms):
                self.close(old.connection)
                old.serving.left(old.connection)
