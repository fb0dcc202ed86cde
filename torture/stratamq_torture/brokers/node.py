"""One broker of several: its disk, its log, and what its replication service asks of the log.

The log is the real one. What its service does with an answer (open again after a cut) is done here
in the same order, one task at a time, so that the process can die between any two.
"""

import random
from collections.abc import Callable, Generator, Iterator
from dataclasses import replace

from stratamq_commitlog.engine import CommitLog
from stratamq_commitlog.log_parts import Workers
from stratamq_commitlog.recovery.cut_file import Cut, CutDone
from stratamq_commitlog.replica.role_change import RoleChange
from stratamq_ha.history import History
from stratamq_ha.master_connection import LogView
from stratamq_ha.peer_decisions import Answer
from stratamq_ha.peer_policy import Joining
from stratamq_ha.promotion import MasterView

from stratamq.errors import StrataError
from stratamq.files.simulated import CrashChoice, SimulatedFiles, SimulatedScheduler, random_choice
from stratamq.formats.broker_role import Role
from stratamq.formats.replication_peers import PeerStatus
from stratamq_torture.brokers.world import World
from stratamq_torture.simulated import log_reader
from stratamq_torture.simulated.disk import TortureDisk
from stratamq_torture.simulated.model import Violation

BROKER_NAME = "broker-a"


class Node:
    """Brokers are addressed by their numbers, as text."""

    def __init__(self, world: World, number: int, role: Role) -> None:
        self.number = number
        self.address = str(number)
        self.world = world
        self.disk = TortureDisk(world.chance, clock=world.clock)
        self.configured = role
        self.engine: CommitLog | None = None
        self.files: SimulatedFiles | None = None
        self.scheduler = SimulatedScheduler(world.chance)
        self.woken = False
        self.changing = False
        """A change of role, or of what is held back, is under way."""
        self.override = ""
        """A peer that was found to be the master."""
        self.master_view = MasterView()
        self.joining = Joining()
        self.longer = ""
        """Why a slave was refused that has more of this log's history."""
        self.remembered: dict[int, int] = {}
        """Of a master: how much each directory has acknowledged, by identity."""
        self.asked_by: dict[int, Answer] = {}
        """Who asked since the last look and is of a higher term, by instance."""
        self.curious = False
        """It was asked, and looks at once."""
        self.looked: tuple[PeerStatus, list[Answer]] | None = None
        """How it stood and what was answered when it asked last; nothing was done about it yet."""
        self.promotion: Generator[None, None, int | None] | None = None
        """Under way; it ends in the term that was opened, or None."""
        self.refused = ""
        """Why the last change of role has not happened."""
        self.starts = 0
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
            pid=self.starts,
        )
        try:
            engine.open()
        except StrataError as error:
            raise Violation("start", f"{self.address} does not start: {error}") from error
        self.engine = engine
        self._wire(engine)

    def _wire(self, engine: CommitLog) -> None:
        engine.wake = self._wake
        engine.commit.on_idle = self._wake
        self.woken = True

    def _wake(self) -> None:
        self.woken = True

    def die(self) -> None:
        """SIGKILL: the page cache survives."""
        if self.files is not None:
            self.files.kill()
        self.scheduler.discard()
        self.engine = None
        self.changing = False
        self.override = ""
        self.master_view = MasterView()
        self.joining, self.longer, self.remembered = Joining(), "", {}
        self.asked_by, self.looked, self.promotion = {}, None, None
        self.curious = False
        self._reopened = None

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
        if base not in log_reader.segments(self.disk):
            return False
        return log_reader.read(self.disk, offset, len(raw), size) == raw

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
        assert self.engine is not None
        self.woken = False
        self.engine.run_pass()

    def tick(self) -> None:
        if self.engine is not None:
            self.engine.tick()
            self.woken |= self.engine.gate.open and self.engine.appender.waiting

    # --- what the replication service asks for ---

    @property
    def log(self) -> CommitLog | None:
        """The log, while it is open."""
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

    def view(self, engine: CommitLog) -> LogView:
        offsets = engine.offsets
        return LogView(
            minimum=offsets.minimum,
            shippable=offsets.replicable,
            appended=offsets.appended,
            segment_bytes=engine.segment_bytes,
            confirmed=offsets.confirmed,
        )

    def peer_status(self) -> PeerStatus | None:
        """None while it does not answer."""
        engine = self.log
        if engine is None:
            return None
        history = self.history(engine)
        return PeerStatus(
            instance=self.number * 1000 + self.starts,
            role=engine.role,
            held=bool(engine.state.held),
            term=engine.state.highest_term,
            minimum=history.minimum,
            end=history.end,
            name=BROKER_NAME,
            log_address=self.address,
            replication_address=self.address,
            follows=self.follows if engine.role is Role.SLAVE else "",
            generations=history.generations,
            identity=engine.membership.identity.number,
            member=engine.membership.member,
            promised_to=engine.state.assigned.candidate,
            rejoining=engine.membership.rejoining,
            confirmed=max(engine.offsets.confirmed, engine.master_confirmed.value or 0),
            members=engine.membership.members,
        )

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
        assert self.log is not None
        self.log.set_role(change, self.change())

    def set_joined(self, *, joined: bool) -> None:
        """Whether its directory counts as a member."""
        assert self.log is not None
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

    def cut(self, cut: Cut, done: Callable[[StrataError | None], None]) -> None:
        """Cut like the service: `done` is called once the log is open again."""
        assert self.engine is not None

        def ended(result: CutDone) -> None:
            if result.reopen:
                self._reopened = done
            else:
                done(result.error)

        self.engine.cut(cut, ended)

    def _reopen(self) -> None:
        engine, done = self.engine, self._reopened
        assert engine is not None and done is not None
        self._reopened = None
        engine.close()
        engine.open()
        self._wire(engine)
        done(None)
