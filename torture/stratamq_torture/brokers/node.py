"""One broker of several: its disk, its log, what its replication service asks of the log, and what
it holds of its slaves as a master, by the production's own count.

The log is the real one. What its service does with an answer (open again after a cut) is done here
in the same order, one task at a time, so that the process can die between any two.
"""

import random
from collections.abc import Callable, Generator, Iterator
from dataclasses import replace
from typing import Any

from stratamq_commitlog.engine import CommitLog
from stratamq_commitlog.log_parts import ThisProcess, Workers
from stratamq_commitlog.messages import LogListener
from stratamq_commitlog.recovery.cut_file import CutDone, CutOrder
from stratamq_commitlog.replica.role_change import RoleChange
from stratamq_ha.history import History
from stratamq_ha.master_connection import MasterConnection, MasterLogView
from stratamq_ha.peer import Peer
from stratamq_ha.peer_decisions import PeerAnswer
from stratamq_ha.peer_policy import Joining
from stratamq_ha.promotion import MasterView
from stratamq_ha.slaves import AcknowledgedEnds, Slaves

from stratamq.errors import StrataError
from stratamq.files.simulated import CrashChoice, SimulatedScheduler, random_choice
from stratamq.formats.log_state import Role
from stratamq.formats.replication_opening import SlaveOpening
from stratamq.formats.replication_peers import PeerStatus, peer_status_of
from stratamq_torture.brokers.world import World
from stratamq_torture.simulated.disk import TortureDisk
from stratamq_torture.trial import Violation

BROKER_NAME = "broker-a"


class Node:
    """Brokers are addressed by their numbers, as text."""

    def __init__(self, world: World, number: int, role: Role) -> None:
        self.number = number
        self.address = str(number)
        self.world = world
        self.disk = TortureDisk(world.chance, clock=world.clock)
        self.configured = role
        self.files: Any = None
        self.scheduler = SimulatedScheduler(world.chance)
        self.woken = False
        self.refused = ""
        """Why the last change of role has not happened."""
        self.starts = 0
        self._forget()

    def _forget(self) -> None:
        """What is in the memory of a process."""
        self.engine: Any = None
        self.changing = False
        """A change of role, or of what is held back, is under way."""
        self.override = ""
        """A peer that was found to be the master."""
        self.problem = ""
        """What `replica status` shows to its operator."""
        self.master_view = MasterView()
        self.joining = Joining()
        self.longer = ""
        """Why a slave was refused that has more of this log's history."""
        self.remembered = AcknowledgedEnds()
        self.asked_by: dict[int, PeerAnswer] = {}
        """Who asked since the last look and is of a higher term, by instance."""
        self.curious = False
        """It was asked, and looks at once."""
        self.looked: tuple[PeerStatus, list[PeerAnswer]] | None = None
        """How it stood and what was answered when it asked last; nothing was done about it yet."""
        self.slaves = Slaves(self)
        self.promotion: Generator[None, None, int | None] | None = None
        """Under way; it ends in the term that was opened, or None."""
        self._reopened: Callable[[StrataError | None], None] | None = None

    # --- lives ---

    @property
    def up(self) -> bool:
        return self.engine is not None

    @property
    def has_died(self) -> bool:
        """It met a planned crash point, which has not been handled yet."""
        return self.files is not None and self.files.dead and self.engine is not None

    def start(self) -> None:
        """SimulatedCrash when it dies on the way."""
        self.starts += 1
        self.files = self.disk.files(name=f"{self.address}-{self.starts}")
        self.scheduler = SimulatedScheduler(self.world.chance)
        engine = CommitLog(
            self.files,
            replace(self.world.settings.log, role=self.configured.name),
            clock=self.world.clock,
            random=random.Random(self.world.chance.getrandbits(32)),
            workers=Workers(self.scheduler.worker(), self.scheduler.worker()),
            process=ThisProcess(self.starts),
            listener=LogListener(wake=self._wake, idle=self._wake),
        )
        try:
            engine.open()
        except StrataError as error:
            raise Violation("start", f"{self.address} does not start: {error}") from error
        self.engine = engine
        self.woken = True

    def _wake(self) -> None:
        self.woken = True

    def die(self) -> None:
        """SIGKILL: the page cache survives."""
        if self.files is not None:
            self.files.kill()
        self.scheduler.discard()
        self._forget()

    def lose_power(self, choice: CrashChoice | None = None) -> None:
        self.die()
        self.disk.crash(choice or random_choice(self.world.chance))

    def replace(self, role: Role) -> None:
        """A new machine by the same name, with nothing on its disk."""
        self.die()
        self.disk = TortureDisk(self.world.chance, clock=self.world.clock)
        self.configured = role

    def has(self, offset: int, raw: bytes) -> bool:
        """Whether its disk shows these bytes of the log, whichever broker runs on it."""
        size = self.world.settings.log.segment_bytes
        base = offset - offset % size
        if base not in self.disk.segments():
            return False
        return self.disk.read(offset, len(raw), size) == raw

    # --- work ---

    def steps(self) -> Iterator[Callable[[], object]]:
        """What could happen next in this process."""
        if self.engine is None:
            return
        if self.scheduler.pending:
            yield self.scheduler.run_one
        elif self._reopened is not None:
            yield self._reopen
        if self.woken and self.engine.gate.open:
            yield self._run_pass

    def _run_pass(self) -> None:
        self.woken = False
        self.engine.run_pass()

    def tick(self) -> None:
        if self.engine is not None:
            self.engine.tick()
            self.woken |= self.engine.gate.open and self.engine.appender.waiting

    # --- what the replication service asks for ---

    @property
    def log(self) -> Any:
        """The log, while it is open; else None."""
        engine = self.engine
        return engine if engine is not None and engine.gate.open else None

    @property
    def is_master(self) -> bool:
        return self.log is not None and self.log.role is not Role.SLAVE

    @property
    def serves(self) -> bool:
        """It is a master that takes messages."""
        return self.is_master and self.log is not None and self.log.writable[0]

    def history(self, engine: CommitLog) -> History:
        generations = tuple((g.number, g.start) for g in engine.state.generations)
        return History(generations, engine.offsets.minimum, engine.offsets.appended)

    @property
    def lead_ended(self) -> bool:
        """It is a master whose agent has ended its lead."""
        return self.is_master and bool(self.log.gate.lease.ended)

    def end_lead(self) -> None:
        self.log.end_lead("", self.world.clock.monotonic_ns(), "another member takes over")

    def lead_again(self) -> None:
        """Its agent has renewed its lead: no other took over."""
        self.log.grant_lease("", self.world.clock.monotonic_ns() + 1_000_000_000)

    # --- what `Slaves` asks of the log ---

    @property
    def facts(self) -> Any:
        return self.log.membership if self.log is not None else None

    @property
    def view(self) -> MasterLogView:
        offsets = self.log.offsets
        return MasterLogView(
            minimum=offsets.minimum,
            shippable=offsets.replicable,
            appended=offsets.appended,
            segment_bytes=self.log.segment_bytes,
            confirmed=offsets.confirmed,
        )

    def lag_ms(self, acknowledged: int) -> int:
        return 0

    # --- how it stands ---

    def peer_status(self) -> PeerStatus | None:
        """None while it does not answer."""
        if self.log is None:
            return None
        facts, instance = self.log.status(), self.number * 1000 + self.starts
        places = self.address, self.address, self.follows
        return peer_status_of(facts, instance, facts.appended_offset, *places)

    @property
    def safe(self) -> int:
        """Below here its log is as safe as its flush setting makes it."""
        engine = self.log
        if engine is None:
            return 0
        return engine.offsets.flushed if engine.sync_flush else engine.offsets.appended

    @property
    def follows(self) -> str:
        """Return the master: the one it found, was given, or is configured with."""
        assigned_master = self.engine.state.assigned.master if self.engine is not None else ""
        return self.override or assigned_master or "0"

    # --- one change of its state at a time: `changing` while it is under way ---

    def set_role(self, change: RoleChange) -> None:
        """`refused` has the reason why it has not happened."""
        self.log.set_role(change, self.change())

    def set_joined(self, *, joined: bool) -> None:
        """Whether its directory counts as a member."""
        self.log.membership.set_joined(joined, self.change())

    def change(self) -> Callable[[StrataError | None], None]:
        """A change begins; call what is returned at its end."""
        self.changing, self.refused = True, ""

        def done(error: StrataError | None) -> None:
            self.changing = False
            self.refused = str(error or "")

        return done

    def step_down(self, term: int, master: str) -> None:
        """A master becomes a slave, because another was promoted."""
        engine = self.log
        if engine is None or self.changing:
            return
        self.promotion = None
        self.world.met("a master learned of a higher term and stepped down")
        self.world.note(f"{self.address} steps down for term {term}")
        self.changing = True
        self.override = ""

        def done(error: StrataError | None) -> None:
            self.changing = False
            self.world.note(f"{self.address} is a slave: {error or 'done'}")

        engine.set_role(RoleChange(Role.SLAVE, term, master, "another was promoted"), done)

    def cut(self, cut: CutOrder, done: Callable[[StrataError | None], None]) -> None:
        """Cut like the service: `done` is called once the log is open again."""

        def ended(result: CutDone) -> None:
            if result.reopen:
                self._reopened = done
            else:
                done(result.error)

        self.engine.cut(cut, ended)

    def _reopen(self) -> None:
        engine, done = self.engine, self._reopened
        self._reopened = None
        engine.close()
        engine.open()
        self.woken = True
        done(None)


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
        self.world = world
        self.master = master
        self.engine = engine
        self.generation = engine.generation
        self.slaves = master.slaves
        self._close = close
        for one in self.slaves.peers():
            self.slaves.left(one, "another generation has begun", world.now_ms)

    @property
    def over(self) -> bool:
        """The process, the role or the generation is another one."""
        engine = self.master.log
        return (
            engine is not self.engine
            or engine.role is Role.SLAVE
            or engine.generation != self.generation
        )

    def has_reported(self, connection: Connection) -> None:
        """It has reported: an older connection of the same slave goes."""
        if connection not in self.slaves.peers():
            self.slaves.joined(connection)
            for older in self.slaves.older(connection):
                self.world.met("an older connection of a member was closed")
                self._close(older)
        term = self.engine.state.highest_term
        self.master.remembered.heard(connection.has.identity, term, connection.offset)
        self.report()

    def left(self, connection: Connection) -> None:
        if connection in self.slaves.peers():
            self.slaves.left(connection, "lost", self.world.now_ms)
        self.report()

    def report(self) -> None:
        """The log receives the acknowledgements of its slaves."""
        if self.over:
            return
        reports = self.slaves.reports(self.world.now_ms)
        known = [one for one in reports if one.acknowledged_offset >= 0]
        self.engine.report_replication(self.generation, known)


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
        return self.connection.machine.tick(self.serving.master.view, now_ms) is not None

    def _hear(self) -> None:
        piece = bytes(self._up)
        self._up.clear()
        now_ms = self.serving.world.now_ms
        for _ in self.connection.machine.received(piece, self.serving.master.view, now_ms):
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
