"""A slave's connection to its master, in steps: the real machines of both sides, and a wire.

    apart ──connect──▶ comparing ──Cut──▶ cut ──▶ shipping ──▶ apart
                                                   │ bytes in pieces of any size, both ways

The order of the calls is that of `stratamq_ha.slave` and `stratamq_ha.peer`; what comes when, and
how much of it, is chance. A wire that is cut loses what is under way.
"""

import random
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from stratamq_commitlog.recovery.cut_file import CutOrder
from stratamq_ha.master_agreement import obstacle, served
from stratamq_ha.master_connection import Acknowledged, MasterConnection, MasterSettings
from stratamq_ha.peer_decisions import Forgot
from stratamq_ha.peer_policy import of_slaves_term
from stratamq_ha.promotion import MasterView
from stratamq_ha.slave_agreement import Agreed, NotAgreed, agree, learned, opening_of
from stratamq_ha.slave_connection import Append, Left, SlaveConnection, SlaveSettings

from stratamq.errors import StrataError
from stratamq.formats.generation_number import Generation
from stratamq.formats.log_state import Role
from stratamq.formats.replication_fields import LENGTH
from stratamq.formats.replication_opening import (
    MasterAnswer,
    SlaveOpening,
    decode_master_answer,
    decode_slave_opening,
    encode_master_answer,
    encode_slave_opening,
)
from stratamq_torture.brokers.node import Connection, HalfOpen, Masters, Node, Serving
from stratamq_torture.brokers.world import World
from stratamq_torture.trial import Violation

MASTER_SETTINGS = MasterSettings(
    heartbeat_ms=1_000,
    housekeeping_ms=20_000,
    transfer_bytes=900,
    whole_log=True,
    notices=True,
)
SLAVE_SETTINGS = SlaveSettings(
    report_ms=1_000, housekeeping_ms=20_000, append_bytes=700, notices=True
)

REPORT_BYTES = 8


class Link:
    """Belongs to one slave, whichever master it follows."""

    def __init__(self, world: World, slave: Node, nodes: Sequence[Node], masters: Masters) -> None:
        self.slave = slave
        self.master: Node | None = None
        self.refused: Node | None = None
        """The master that the slave would not follow when it last reached one."""
        self._world = world
        self._nodes = nodes
        self._masters = masters
        self._down = bytearray()
        """On its way to the slave."""
        self._up = bytearray()
        self._of_master: MasterConnection | None = None
        self._of_slave: SlaveConnection | None = None
        self._generation = 0
        self._master_generation = 0
        self._appends: deque[Append] = deque()
        self._appending = False
        self._sent_confirmed: int | None = None
        self._life = 0
        self._serving: Serving | None = None
        self._at_master: Connection | None = None
        """This connection, as its master holds it."""

    @property
    def _news(self) -> bool:
        """The master's confirmed offset is above the one that the slave's log has received."""
        machine = self._of_slave
        return machine is not None and machine.master_confirmed != self._sent_confirmed

    @property
    def connected(self) -> bool:
        return self._of_slave is not None

    @property
    def acknowledged(self) -> int:
        """The last acknowledgement that the master received; −1: none."""
        return self._of_master.acknowledged if self._of_master is not None else -1

    @property
    def under_way(self) -> int:
        """The last acknowledgement on its way to the master; −1: none is, or only a part."""
        whole = self._up and not len(self._up) % REPORT_BYTES
        return int.from_bytes(self._up[-REPORT_BYTES:], "big") if whole else -1

    @property
    def idle(self) -> bool:
        """The slave has all there is, and the master has its acknowledgement."""
        master = self.master.log if self.master is not None else None
        waiting = self._down or self._up or self._appends or self._appending
        return (
            self.connected
            and not waiting
            and master is not None
            and self.acknowledged == master.offsets.appended
        )

    def half_open(self) -> None:
        """The slave gives the connection up; its master receives no notice."""
        if self._serving is not None and self._at_master is not None:
            old = HalfOpen(self._serving, self._at_master, bytes(self._up))
            self._masters.half_open.append(old)
            self._world.met("a connection was half-open")
            self._serving = None
        self.break_off()

    def break_off(self) -> None:
        """What was under way is lost."""
        serving, at_master = self._serving, self._at_master
        self._serving = self._at_master = None
        if self.master is not None:
            self.master = None
            self._life += 1
        self._down.clear()
        self._up.clear()
        self._appends.clear()
        self._of_master = self._of_slave = None
        self._sent_confirmed = None
        self._appending = False
        if serving is not None and at_master is not None:
            serving.left(at_master)

    def steps(self) -> Iterator[Callable[[], None]]:
        """What could happen next."""
        slave = self.slave.log
        if self.master is None:
            if slave is not None and slave.role is Role.SLAVE and not self.slave.changing:
                yield self._connect
            return
        master = self.master.log
        broken = master is None or slave is None or slave.role is not Role.SLAVE
        if broken:
            yield self.break_off
            return
        if not self._world.reach(self.slave.number, self.master.number):
            yield self.half_open if self._world.chance.random() < 0.5 else self.break_off
            return
        if self._of_slave is None or self._of_master is None or master is None:
            return
        if master.generation != self._master_generation or master.role is Role.SLAVE:
            yield self.break_off
            return
        paused = self._world.paused
        if not self._down and self.master.number not in paused:
            yield self._ship
        if self._down and self.slave.number not in paused:
            yield self._receive
        waiting = bool(self._appends) or self._news
        if waiting and not self._appending and self.slave.number not in paused:
            yield self._append
        if self._up and self.master.number not in paused:
            yield self._hear

    def tick(self) -> None:
        now, paused = self._world.now_ms, self._world.paused
        if self._of_slave is not None and self.slave.number not in paused:
            result = self._of_slave.tick(now)
            if isinstance(result, Left):
                self.break_off()
                return
            if result is not None:
                self._up += result.data
        if self._of_master is None or self.master is None or self.master.number in paused:
            return
        if self.master.log is not None:
            closed = self._of_master.tick(self.master.view, now)
            if closed is not None:
                self._world.note(f"{self.master.address} closes {self.slave.address}: {closed}")
                self.break_off()

    # --- the beginning ---

    def _connect(self) -> None:
        slave, follows = self.slave, self.slave.follows
        master = self._nodes[int(follows)] if follows else None
        engine = slave.log
        if master is None or master is slave or not self._world.reach(slave.number, master.number):
            return
        if {slave.number, master.number} & self._world.paused:
            return
        theirs = master.log
        if theirs is None or theirs.role is Role.SLAVE:
            return
        facts = engine.status()
        has = _sent(opening_of(facts))
        keeps = self._answer(master, has)
        if keeps is None:
            return
        if slave.master_view.address != master.address:
            slave.master_view = MasterView(master.address)
        slave.master_view = learned(slave.master_view, keeps)
        agreed = agree(facts, keeps, master.address)
        self.refused = None
        if isinstance(agreed, NotAgreed):
            self._world.note(f"{slave.address} does not follow {master.address}: {agreed.sentence}")
            self.refused = master if agreed.reason == "term" else None
            if agreed.rejoins:
                self._world.met("a master remembered more of a slave than it has")
                slave.set_joined(joined=False)
            return
        self.master = master
        self._master_generation = theirs.generation
        self._cut(keeps, has, agreed)

    def _answer(self, master: Node, has: SlaveOpening) -> MasterAnswer | None:
        """What the master answers, by way of the wire's bytes; None: it serves no slave now."""
        facts, ours = master.log.status(), master.history(master.log)
        found = obstacle(facts, ours, has)
        if found is not None:
            if found.term is not None:
                self._learn_of_term(master, found.term)
            if found.is_longer:
                self._world.met("a master learned of a longer history of its own")
                master.longer = found.sentence
            return None
        acknowledged = master.remembered.by(has.identity, facts.term)
        answer = served(facts, master.address, ours, has, master.view, acknowledged)
        return decode_master_answer(encode_master_answer(answer)[LENGTH.size :])

    def _learn_of_term(self, master: Node, term: int) -> None:
        own = master.peer_status()
        decision = None if own is None else of_slaves_term(own, term, self.slave.address)
        if isinstance(decision, Forgot):
            self._world.met("a directory had forgotten something")
            master.set_joined(joined=False)
        else:
            master.step_down(term, "")

    def _cut(self, keeps: MasterAnswer, has: SlaveOpening, agreed: Agreed) -> None:
        life, empty = self._life, agreed.empty
        generations = tuple(Generation(number, start) for number, start in keeps.generations)
        cut = CutOrder(agreed.offset, empty, generations, keeps.confirmed)
        self._world.note(f"{self.slave.address} follows {keeps.address}: {cut.offset}, {empty=}")

        def cut_done(error: StrataError | None) -> None:
            if life != self._life or self.master is None:
                return
            slave = self.slave.log
            if error is not None or slave is None:
                self._world.note(f"{self.slave.address} is not cut: {error}")
                self.break_off()
                return
            end = slave.offsets.appended
            self._generation = slave.generation
            self._of_master = MasterConnection(MASTER_SETTINGS, self._world.now_ms)
            self._serving = self._masters.serving(self.master)
            self._at_master = Connection(f"{self.slave.address}:{self._life}", has, self._of_master)
            self._of_slave = SlaveConnection(
                SLAVE_SETTINGS, slave.segment_bytes, end, self._world.now_ms
            )
            self._up += self._of_slave.begin(self._world.now_ms).data

        self.slave.cut(cut, cut_done)

    # --- bytes ---

    def _ship(self) -> None:
        """The master writes one transfer."""
        engine = self.master.log
        transfer = self._of_master.next_transfer(self.master.view, self._world.now_ms)
        if transfer is None:
            return
        self._down += transfer.head
        if transfer.length:
            self._down += engine.reads.read_back(transfer.offset, transfer.length)
        self._of_master.written(self._world.now_ms)

    def _receive(self) -> None:
        """A piece of what is under way arrives at the slave."""
        machine = self._of_slave
        piece = self._piece(self._down)
        actions = list(machine.received(piece, self._world.now_ms))
        if not self._down:
            actions += machine.drained()
        self.slave.master_view = replace(self.slave.master_view, received=machine.received_end)
        for action in actions:
            if isinstance(action, Left):
                raise Violation("slave", f"{self.slave.address} leaves: {action.sentence}")
            self._appends.append(action)

    def _append(self) -> None:
        engine, machine, life = self.slave.log, self._of_slave, self._life
        append = self._appends.popleft() if self._appends else Append(machine.appended, b"")
        confirmed = self._sent_confirmed = machine.master_confirmed
        self._appending = True

        def appended(error: StrataError | None) -> None:
            if life != self._life or self._of_slave is None:
                return
            self._appending = False
            if error is not None:
                self._world.note(f"{self.slave.address} does not append: {error}")
                self.break_off()
                return
            end = append.offset + len(append.data)
            report = self._of_slave.was_appended(end, self._world.now_ms)
            if report is not None:
                self._up += report.data

        engine.append_data(self._generation, append.offset, append.data, appended, confirmed)

    def _hear(self) -> None:
        """A piece of what the slave reports arrives at the master."""
        piece = self._piece(self._up)
        view = self.master.view
        for action in self._of_master.received(piece, view, self._world.now_ms):
            if isinstance(action, Acknowledged):
                self._serving.has_reported(self._at_master)
            else:
                raise Violation("master", f"{self.master.address} closes: {action.sentence}")

    def _piece(self, waiting: bytearray) -> bytes:
        chance: random.Random = self._world.chance
        count = chance.choice((1, 7, 8, 100, len(waiting), len(waiting)))
        piece = bytes(waiting[:count])
        del waiting[:count]
        return piece


def _sent(has: SlaveOpening) -> SlaveOpening:
    """By way of the wire's bytes."""
    return decode_slave_opening(encode_slave_opening(has)[LENGTH.size :])
