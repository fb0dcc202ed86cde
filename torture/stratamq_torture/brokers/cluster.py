"""Two or three brokers of one name, the network between them, and who looks after them.

`keep` is what the keeper of a replication service does every second, by the same pure policy;
`promote` is a careful operator: it asks everybody but the broker that is lost, and promotes one
that nothing speaks against, as the keeper of that one does it: all that answer promise the term
first, so that the lost one may come back at any moment.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

from stratamq_commitlog.config import CommitLogConfig
from stratamq_commitlog.messages import PutMessage, PutResult, Role
from stratamq_commitlog.replicas import Replica
from stratamq_commitlog.role_change import RoleChange
from stratamq_ha.peer_policy import (
    Answer,
    Follow,
    Forgot,
    Join,
    Open,
    Promise,
    Serve,
    Wait,
    decide,
)
from stratamq_ha.promotion import assess, candidate_term

from stratamq.errors import StrataError
from stratamq.files.simulated import SimulatedClock, SimulatedCrash
from stratamq.formats.hosts import Host
from stratamq.formats.members import configured_members
from stratamq_torture.brokers.ledger import Ledger
from stratamq_torture.brokers.link import Link
from stratamq_torture.brokers.node import Node
from stratamq_torture.brokers.settings import Settings
from stratamq_torture.simulated import log_reader
from stratamq_torture.simulated.model import Violation

TICK_MS = 100
ASKING = "its peers have not been asked yet"
BORN = Host("10.0.0.7", 4711)


class Cluster:
    """`chance` decides every order and every loss."""

    def __init__(self, settings: Settings, chance: random.Random) -> None:
        self.settings = settings
        self.chance = chance
        self.clock = SimulatedClock()
        self.nodes = [
            Node(self, number, settings.role if number == 0 else Role.SLAVE)
            for number in range(settings.brokers)
        ]
        named = [(node.address, node.address) for node in self.nodes]
        self.members = configured_members(named, settings.required)
        self.links = {node.number: Link(self, node) for node in self.nodes}
        self.apart: set[frozenset[int]] = set()
        """Pairs that cannot hear each other."""
        self.ledger = Ledger()
        self.hurt: set[int] = set()
        """Brokers that lost power since all was whole."""
        self.bare: set[int] = set()
        """Brokers whose machine was replaced since all was whole."""
        self.candidate: Node | None = None
        """Who is being promoted to `term`, and waits for the promises of `waiting`."""
        self.term = 0
        self.waiting: set[int] = set()
        self.crash_means_power = False
        self.situations: Counter[str] = Counter()
        self.kills = self.power_losses = self.crash_points = self.promotions = 0
        self.notes: list[str] | None = None
        self._sent = 0

    def note(self, line: str) -> None:
        """For the trace."""
        if self.notes is not None:
            self.notes.append(line)

    def met(self, situation: str) -> None:
        self.situations[situation] += 1

    def fail(self, rule: str, sentence: str) -> None:
        raise Violation(rule, sentence)

    def config(self, role: Role) -> CommitLogConfig:
        return replace(self.settings.log, role=role.value)

    # --- who hears whom ---

    def find(self, address: str) -> Node | None:
        return self.nodes[int(address)] if address else None

    def reach(self, one: Node, other: Node) -> bool:
        return frozenset((one.number, other.number)) not in self.apart

    def masters(self) -> list[Node]:
        return [node for node in self.nodes if node.is_master]

    def report(self, master: Node) -> None:
        """The log hears what its slaves have acknowledged."""
        engine = master.log
        if engine is None or engine.role is Role.SLAVE:
            return
        slaves = [link for link in self.links.values() if link.master is master]
        replicas = [
            Replica(link.slave.address, link.acknowledged, connected=True, counts=link.counts)
            for link in slaves
            if link.acknowledged >= 0
        ]
        engine.report_replication(engine.generation, replicas)

    # --- lives ---

    def start(self, node: Node) -> bool:
        if node.up:
            return False
        try:
            node.start()
        except SimulatedCrash:
            self._died(node)
            return False
        self.note(f"{node.address} is up, {node.engine.role.value if node.engine else ''}")
        return True

    def kill(self, node: Node) -> None:
        self.kills += 1
        node.die()
        self._gone(node)

    def lose_power(self, node: Node) -> None:
        self.power_losses += 1
        node.die()
        if not self.settings.sync_flush:
            self._excuse_unflushed(node)
        node.lose_power()
        self.hurt.add(node.number)
        self._gone(node)

    def replace(self, node: Node, role: Role) -> None:
        """The machine is gone for good, and a new one takes its place, configured as `role`."""
        self.met("an empty broker took a place")
        node.replace(role)
        self.bare.add(node.number)
        self.ledger.excuse(lambda p: not p.replicated and p.broker == node.address)
        self._gone(node)

    def _excuse_unflushed(self, node: Node) -> None:
        lost, durable = node.address, node.flushed
        self.ledger.excuse(lambda p: not p.replicated and p.broker == lost and p.end > durable)
        if self.hurt - {node.number}:
            everywhere = min(self._flushed_of(each) for each in self.nodes)
            self.ledger.excuse(lambda p: p.end > everywhere)

    def _flushed_of(self, node: Node) -> int:
        return node.log.offsets.flushed if node.log is not None else node.flushed

    def heal(self) -> None:
        """The network is whole again."""
        self.apart.clear()

    def _gone(self, node: Node) -> None:
        if node is self.candidate:
            self.candidate = None
        self._heard_of(node.number)
        for link in self.links.values():
            if link.slave is node or link.master is node:
                link.break_off()

    def _died(self, node: Node) -> None:
        """It met a planned crash point."""
        self.crash_points += 1
        if self.crash_means_power:
            self.lose_power(node)
        else:
            self.kill(node)

    def needs_promotion(self, node: Node) -> bool:
        """Under async flush a master that lost its power comes back with less than it promised:
        one of its slaves takes its place before it starts."""
        lost_its_end = not self.settings.sync_flush and node.number in self.hurt
        return lost_its_end and node.was_master and not self.masters()

    def whole(self) -> bool:
        """One broker serves, the others have everything, and all of it is on every disk."""
        serving = [node for node in self.nodes if node.serves]
        if len(serving) != 1 or len(self.masters()) != 1:
            return False
        for node in self.nodes:
            if node.log is None or node.changing or node.log.membership.rejoining:
                return False
            if node.log.offsets.flushed != node.log.offsets.appended:
                return False
            if node is not serving[0] and not self.links[node.number].idle:
                return False
        return not self.apart

    def take_stock(self) -> None:
        """All is whole: what failed before counts no more."""
        if self.whole():
            self.hurt.clear()
            self.bare.clear()

    # --- steps ---

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.step()

    def step(self) -> None:
        """One of the things that could happen next; time passes when nothing does."""
        ready = list(self._ready())
        if not ready or self.chance.random() < 0.05:
            self.tick()
            return
        node, action = self.chance.choice(ready)
        self.act(node, action)

    def act(self, node: Node, action: Callable[[], object]) -> None:
        """Do something; SimulatedCrash is the end of the process that met it."""
        try:
            action()
        except SimulatedCrash:
            dead = next((each for each in self.nodes if each.has_died), node)
            self.note(f"{dead.address} meets a crash point")
            self._died(dead)

    def _ready(self) -> Iterator[tuple[Node, Callable[[], object]]]:
        for node in self.nodes:
            for step in node.steps():
                yield node, step
            for step in self.links[node.number].steps():
                yield node, step

    def tick(self) -> None:
        self.clock.advance_ms(self.chance.choice((TICK_MS, TICK_MS, 10 * TICK_MS)))
        for node in self.nodes:
            self.act(node, node.tick)
            self.links[node.number].tick()
            if self.chance.random() < 0.5:
                self.act(node, partial(self.keep, node))
        self.take_stock()

    # --- the keeper ---

    def keep(self, node: Node) -> None:
        """Ask the others, decide, do it."""
        engine, own = node.log, node.standing()
        if engine is None or own is None or node.changing:
            return
        if own.is_master and not engine.roles.state.peers:
            self._hold(node, ASKING)
            return
        if engine.membership.members is None:
            self._change(node, partial(engine.membership.put, self.members, node.address))
            return
        link, answers = self.links[node.number], self.answers(node)
        if node.joining.has_joined(own, answers, node.safe):
            self.met("a new directory counted as a member")
            link.break_off()
            self._change(node, partial(engine.membership.set_joined, True))
            return
        decision = decide(own, answers, connected=link.connected, longer=node.longer)
        if isinstance(decision, Wait):
            if engine.gate.held != decision.reason and own.is_master:
                self._hold(node, decision.reason)
        elif isinstance(decision, Serve):
            self._hold(node, "")
        elif isinstance(decision, Join):
            self._change(node, partial(engine.membership.set_joined, True))
        elif isinstance(decision, Forgot):
            self.met("a directory had forgotten something")
            self.note(f"{node.address} has forgotten: {decision.reason}")
            link.break_off()
            self._change(node, partial(engine.membership.set_joined, False))
        elif isinstance(decision, Open):
            change = RoleChange(engine.role, decision.term)
            self._change(node, partial(engine.set_role, change))
        elif isinstance(decision, Promise):
            link.break_off()
            self._change(node, partial(engine.set_role, _promise(decision)))
        elif isinstance(decision, Follow):
            if own.is_master:
                self.step_down(node, decision.term, decision.address)
            else:
                self.note(f"{node.address} follows another: {decision.reason}")
                node.override = decision.address
                link.break_off()

    def _change(self, node: Node, call: Callable[[Callable[[StrataError | None], None]], None]):
        """One change of a log's state at a time."""
        node.changing = True

        def done(error: StrataError | None) -> None:
            node.changing = False
            if error is not None:
                self.note(f"{node.address}: {error}")

        call(done)

    def answers(self, node: Node) -> list[Answer]:
        return [
            Answer(other.address, other.standing() if self.reach(node, other) else None, "away")
            for other in self.nodes
            if other is not node
        ]

    def _hold(self, node: Node, reason: str) -> None:
        engine = node.log
        assert engine is not None
        node.changing = True

        def held(error: StrataError | None) -> None:
            node.changing = False
            if not reason and error is None and node.serves:
                self.check(node)

        engine.hold_writes(reason, True, held)

    def step_down(self, node: Node, term: int, master: str) -> None:
        """A master becomes a slave, because another was promoted."""
        engine = node.log
        if engine is None or node.changing:
            return
        self.met("a master heard of a higher term and stepped down")
        self.note(f"{node.address} steps down for term {term}")
        node.changing = True
        node.override = ""

        def done(error: StrataError | None) -> None:
            node.changing = False
            self.note(f"{node.address} is a slave: {error or 'done'}")

        engine.set_role(RoleChange(Role.SLAVE, term, master, "another was promoted"), done)

    # --- the operator ---

    def promote(self, lost: Node) -> str:
        """`lost` cannot be reached by anybody: one of the others takes its place."""
        others = [node for node in self.nodes if node is not lost]
        if any(node.log is None or node.changing for node in others):
            return "not all others answer"
        if any(node.serves for node in others):
            return "there is another master"
        if lost.serves and any(self.reach(lost, node) for node in others):
            return "the master is not lost"
        if not self._may_promote(lost):
            return "more than one failure at a time"
        for node in self.chance.sample(others, len(others)):
            own = node.standing()
            assert own is not None
            answers = self.answers(node)
            against = assess(own, answers, node.heard).against
            if against:
                self.note(f"{node.address} is not promoted: {'; '.join(against)}")
                continue
            self._ask_for_promises(node, candidate_term(own, answers))
            return f"{node.address}, {lost.address} is lost"
        return "none can be promoted"

    def _may_promote(self, lost: Node) -> bool:
        """An empty machine in place of one that had acknowledged, or under async flush one that
        lost its power, is a second failure: what only the lost one has would be gone."""
        failed = self.bare if self.settings.sync_flush else self.bare | self.hurt
        return not failed - {lost.number}

    def _ask_for_promises(self, node: Node, term: int) -> None:
        """Of every slave that answers, before the ends are compared for good."""
        node.changing = True
        self.links[node.number].break_off()

        def promised(number: int, error: StrataError | None) -> None:
            self.nodes[number].changing = self.candidate is self.nodes[number]
            if error is not None:
                self.note(f"{number} promises nothing: {error}")
            self._heard_of(number)

        asked = [
            other
            for other in self.nodes
            if other is not node
            and self.reach(node, other)
            and other.log is not None
            and not other.changing
        ]
        self.candidate, self.term = node, term
        self.waiting = {other.number for other in (node, *asked)}
        for other in (node, *asked):
            assert other.log is not None
            other.changing = True
            self.links[other.number].break_off()
            found = Promise(node.address, term, node.address, "a promotion is under way")
            other.log.set_role(_promise(found), partial(promised, other.number))

    def _heard_of(self, number: int) -> None:
        """A broker has promised, or is gone; once nobody is waited for the candidate goes on."""
        self.waiting.discard(number)
        if self.candidate is None or self.waiting:
            return
        node, self.candidate = self.candidate, None
        self._promote(node, self.term)

    def _promote(self, node: Node, term: int) -> None:
        engine, own = node.log, node.standing()
        assert engine is not None and own is not None
        against = assess(own, self.answers(node), node.heard, term).against
        if against:
            node.changing = False
            self.note(f"{node.address} is not promoted after all: {'; '.join(against)}")
            return

        def promoted(error: StrataError | None) -> None:
            node.changing = False
            if error is not None:
                raise Violation("promote", f"{node.address}: {error}")
            self.promotions += 1
            node.longer = ""
            self.ledger.promoted()
            self.note(f"{node.address} is the master of term {term}")
            self.check(node)

        change = RoleChange(self.settings.role, term, reason="promoted")
        engine.set_role(change, promoted)

    # --- producers and consumers ---

    def send(self, node: Node) -> str:
        engine = node.log
        if engine is None:
            return "not open"
        count = self.chance.randint(1, 3)
        self._sent += count
        messages = [
            PutMessage(
                topic=self.chance.choice(("orders", "things")),
                queue_id=self.chance.randrange(2),
                body=b"%08d" % (self._sent - number)
                + b"." * self.chance.choice((8, 8, 200, self.chance.randrange(600))),
                born_host=BORN,
            )
            for number in range(count)
        ]
        life, sync_master = node.starts, engine.role is Role.SYNC_MASTER

        def answered(results: list[PutResult]) -> None:
            for result in results:
                if result.status.stored and node.log is engine and node.starts == life:
                    raw = engine.read_back(result.physical_offset, result.size)
                    self.met(f"an answer was {result.status.name}")
                    self.ledger.answered(
                        result.status,
                        result.physical_offset,
                        raw,
                        broker=node.address,
                        sync_master=sync_master,
                    )

        engine.put(messages, False, answered)
        return f"{count} to {node.address}"

    def pull(self, node: Node) -> str:
        """A consumer reads everything up to *confirmed*."""
        engine = node.log
        if engine is None or not node.serves:
            return "nobody serves"
        offsets = engine.offsets
        replicated = self.settings.hold and engine.role is Role.SYNC_MASTER
        start = max(self._shown_end(node.address, replicated), offsets.minimum)
        for offset, raw in log_reader.frames(
            node.disk, start, offsets.confirmed, engine.segment_bytes
        ):
            self.ledger.pulled(offset, raw, broker=node.address, replicated=replicated)
        self.check(node)
        return f"{node.address} up to {offsets.confirmed}"

    def _shown_end(self, broker: str, replicated: bool) -> int:
        ends = [
            view.end
            for view in self.ledger.views.values()
            if view.replicated is replicated and (replicated or view.broker == broker)
        ]
        return max(ends, default=0)

    # --- checks ---

    def check(self, node: Node) -> None:
        """What counts is in the log of a broker that serves, and no other of its term does."""
        engine = node.log
        assert engine is not None

        def read(offset: int, size: int) -> bytes | None:
            offsets = engine.offsets
            if not offsets.minimum <= offset <= offset + size <= offsets.appended:
                return None
            return engine.read_back(offset, size)

        term = engine.hub.generations[-1].term
        newer = [
            other
            for other in self.nodes
            if other.log is not None and other.log.hub.generations[-1].term > term
        ]
        if not newer:
            # An old master that is cut off serves what it has, and promises nothing more.
            self.ledger.check(node.address, read)


def _promise(found: Promise) -> RoleChange:
    return RoleChange(
        Role.SLAVE, found.term, found.address, found.reason, candidate=found.candidate
    )
