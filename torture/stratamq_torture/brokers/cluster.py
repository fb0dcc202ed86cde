"""Two or three brokers of one name, the network between them, and what happens to both.

`keeper` does what each replication service does every second, by the production policy; `operator`
promotes whatever broker at whatever moment. Faults happen here, and what counts is checked here.
"""

import random
from collections.abc import Callable, Iterator
from functools import partial

from stratamq_commitlog.messages import PutMessage, PutResult

from stratamq.files.simulated import SimulatedCrash
from stratamq.files.simulated_faults import keep_everything
from stratamq.formats.hosts import Host
from stratamq.formats.log_state import Role
from stratamq.formats.members import Members
from stratamq.formats.numbers import INT64_MAX
from stratamq.store.identity import mark_restored
from stratamq_torture.brokers.keeper import Keeper, admission, promotion, removal
from stratamq_torture.brokers.link import Link
from stratamq_torture.brokers.node import Masters, Node
from stratamq_torture.brokers.world import Ledger, Promise, Settings, World
from stratamq_torture.simulated.disk import TortureDisk
from stratamq_torture.trial import Violation

TICK_MS = 100
BORN = Host("10.0.0.7", 4711)


class Cluster(World):
    """The world with its brokers in it."""

    def __init__(
        self, settings: Settings, chance: random.Random, notes: list[str] | None = None
    ) -> None:
        super().__init__(settings, chance, notes)
        self.nodes = [
            Node(self, number, settings.role if number == 0 else Role.SLAVE)
            for number in range(settings.brokers)
        ]
        self._masters = Masters(self)
        self.links = {
            node.number: Link(self, node, self.nodes, self._masters) for node in self.nodes
        }
        self._keeper = Keeper(self, self.nodes, self.links, self.check)
        self.ledger = Ledger()
        self.forgetful: set[int] = set()
        """Brokers whose disk was replaced, or put back, since all was whole."""
        self.backups: dict[int, TortureDisk] = {}
        self._lost_copies: dict[int, set[tuple[int, bytes]]] = {
            node.number: set() for node in self.nodes
        }
        """(offset, bytes) of frames that a power loss took from each broker."""
        self.opened: dict[int, str] = {}
        """Who opened each term by a promotion."""
        self.newest = 0
        """The highest term that was opened."""
        self._lists: dict[int, Members | None] = {}
        """By which members each broker went when it was last up."""
        self.crash_means_power = False
        self._sent = 0

    def masters(self) -> list[Node]:
        return [node for node in self.nodes if node.is_master]

    # --- lives ---

    def start(self, node: Node) -> bool:
        if node.up:
            return False
        try:
            node.start()
        except SimulatedCrash:
            self._died(node)
            return False
        engine = node.engine
        self.note(f"{node.address} is up, {engine.role.name}")
        term = engine.state.generations[-1].term if engine.state.generations else 0
        if engine.role is not Role.SLAVE and term > self.newest:
            # It died in its promotion, behind the moment from which it is the master.
            self._promoted(node, term)
        return True

    def kill(self, node: Node) -> None:
        self.kills += 1
        node.die()
        self._gone(node)

    def lose_power(self, node: Node) -> None:
        self.power_losses += 1
        had = self._holding(node)
        frames = set(node.disk.readable(self.settings.log.segment_bytes))
        node.die()
        node.lose_power()
        self._gone(node)
        if not self.settings.sync_flush:
            kept = set(node.disk.readable(self.settings.log.segment_bytes))
            hole = min((offset for offset, _ in frames - kept), default=INT64_MAX)

            def is_lost(one: Promise) -> bool:
                """Recovery ends the log at its first hole, whatever the disk has behind it."""
                return one.offset >= hole or not node.has(one.offset, one.raw)

            self._lost_copies[node.number] |= frames - kept
            self.ledger.forgotten("", lambda one: one in had and is_lost(one), lambda one: False)
            self.ledger.excuse(
                lambda one: not one.replicated and one.broker == node.address and is_lost(one)
            )

    def _is_replicated(self, offset: int, raw: bytes) -> bool:
        """No power loss has taken a copy of the frame from a broker that does not have it again.

        The master still counts what that broker acknowledged, and may answer, and show, the message
        after the loss.
        """
        return not any(
            (offset, raw) in self._lost_copies[node.number] and not node.has(offset, raw)
            for node in self.nodes
        )

    def replace(self, node: Node, role: Role) -> None:
        """The machine is gone for good, and a new one takes its place, configured as `role`."""
        self.met("an empty broker took a place")
        had = self._holding(node)
        node.replace(role)
        self._forgot(node, had)

    def back_up(self, node: Node) -> None:
        """Back up a stopped broker, like an operator."""
        self.backups[node.number] = node.disk.twin(keep_everything, self.chance, self.clock)

    def restore(self, node: Node, *, marked: bool = True) -> None:
        """The directory is put back to its last copy; `marked`: with the command."""
        self.met("a directory was restored")
        had = self._holding(node)
        node.die()
        node.disk = self.backups[node.number].twin(keep_everything, self.chance, self.clock)
        if marked:
            mark_restored(node.disk.files(name=f"{node.address}-restored"), self.chance)
        self._forgot(node, had)

    def _holding(self, node: Node) -> set[Promise]:
        books = (self.ledger.promises, self.ledger.views)
        known = [one for book in books for one in book.values()]
        return {one for one in known if node.has(one.offset, one.raw)}

    def _forgot(self, node: Node, had: set[Promise]) -> None:
        self.forgetful.add(node.number)
        self._gone(node)

        def elsewhere(one: Promise) -> bool:
            return any(each.has(one.offset, one.raw) for each in self.nodes)

        self.ledger.forgotten(node.address, had.__contains__, elsewhere)

    def isolate(self, node: Node) -> None:
        """It is cut off from all others."""
        for other in self.nodes:
            if other is not node:
                self.apart.add(frozenset((node.number, other.number)))

    def heal(self) -> None:
        """The network is whole again, and no broker is paused."""
        self.apart.clear()
        self.paused.clear()

    def _gone(self, node: Node) -> None:
        self.paused.discard(node.number)
        self._masters.gone(node)
        for link in self.links.values():
            if link.slave is node and self.chance.random() < 0.5:
                link.half_open()
            elif link.slave is node or link.master is node:
                link.break_off()

    def _died(self, node: Node) -> None:
        """It met a planned crash point."""
        self.crash_points += 1
        if self.crash_means_power:
            self.lose_power(node)
        else:
            self.kill(node)

    def whole(self) -> bool:
        """One broker serves, its members have everything, and all of it is on every disk."""
        if self.apart or self.paused:
            return False
        serving = [node for node in self.nodes if node.serves]
        if len(serving) != 1 or len(self.masters()) != 1:
            return False
        for node in self.members_of(serving[0]):
            if node.log is None or node.changing or node.log.membership.rejoining:
                return False
            if node.log.offsets.flushed != node.log.offsets.appended:
                return False
            if node is not serving[0] and not self.links[node.number].idle:
                return False
        return True

    def members_of(self, master: Node) -> list[Node]:
        """By its list; all, before it has one."""
        members = master.log.membership.members if master.log is not None else None
        return [n for n in self.nodes if members is None or members.counts(n.address)]

    def removed(self) -> bool:
        """Whether a member does not count by the newest list that is in force anywhere."""
        lists = [members for members in self._lists.values() if members is not None]
        newest = max(lists, key=lambda members: members.version, default=self.members)
        return not all(newest.counts(node.address) for node in self.nodes)

    def least_required(self) -> int:
        """The smallest k that any broker goes by, as far as is known."""
        known = [members.required for members in self._lists.values() if members is not None]
        return min([self.settings.required, *known])

    def take_stock(self) -> None:
        """A disk that was lost counts no more once its broker counts again."""
        for node in self.nodes:
            if node.log is not None:
                self._lists[node.number] = node.log.membership.members
        for node in self.nodes:
            membership = node.log.membership if node.log is not None else None
            if membership is not None and membership.members and not membership.rejoining:
                self.forgetful.discard(node.number)

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

    def act(self, node: Node, action: Callable[[], object]) -> str:
        """Do something, and what it was in words; SimulatedCrash is the end of the process that met
        it."""
        try:
            return str(action() or "")
        except SimulatedCrash:
            dead = next((each for each in self.nodes if each.has_died), node)
            self.note(f"{dead.address} meets a crash point")
            self._died(dead)
            return ""

    def _ready(self) -> Iterator[tuple[Node, Callable[[], object]]]:
        for node in self.nodes:
            yield from ((node, step) for step in self.links[node.number].steps())
            if node.number in self.paused:
                continue
            yield from ((node, step) for step in node.steps())
            if node.looked is not None:
                yield node, partial(self._keeper.act, node)
            elif node.curious and node.promotion is None and not node.changing:
                yield node, partial(self._keeper.look, node)
            if node.promotion is not None:
                yield node, partial(self._go_on, node)
        yield from self._masters.steps()

    def tick(self) -> None:
        self.clock.advance_ms(self.chance.choice((TICK_MS, TICK_MS, 10 * TICK_MS)))
        self._masters.tick()
        for node in self.nodes:
            self.links[node.number].tick()
            if node.number in self.paused:
                continue
            self.act(node, node.tick)
            if self.chance.random() < 0.5:
                self.act(node, partial(self._keeper.look, node))
        self.take_stock()

    # --- the operator ---

    def promote(self, node: Node, *, force: bool = False, succeeds: str = "") -> str:
        """Begin to. `succeeds`: the master that has ended its lead for it."""
        if not self._is_free(node):
            return f"{node.address} does not answer"
        node.promotion = promotion(self, self._keeper, node, force=force, succeeds=succeeds)
        return node.address

    def remove(self, node: Node, name: str) -> None:
        """Begin to, at that master."""
        if self._is_free(node):
            node.promotion = removal(self, self._keeper, self._masters, node, name)

    def admit(self, node: Node, name: str) -> None:
        """Begin to, at that master."""
        if self._is_free(node):
            node.promotion = admission(self, self._keeper, node, name)

    def _is_free(self, node: Node) -> bool:
        """An operator's command is carried out alone."""
        if node.log is None or node.changing or node.promotion is not None:
            return False
        node.looked = None
        return True

    def _go_on(self, node: Node) -> None:
        try:
            next(node.promotion)
        except StopIteration as over:
            if over.value is not None:
                self._promoted(node, over.value)
            node.promotion = None

    def _promoted(self, node: Node, term: int) -> None:
        """A broker is the master of a term."""
        first = self.opened.setdefault(term, node.address)
        if first != node.address:
            raise Violation("term", f"{node.address} and {first} are masters of term {term}")
        self.promotions += 1
        node.longer = ""
        self.newest = max(self.newest, term)
        self.ledger.promoted()
        self.note(f"{node.address} is the master of term {term}")
        self.check(node)

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
                    raw = engine.reads.read_back(result.physical_offset, result.size)
                    self.met(f"an answer was {result.status.name}")
                    self.ledger.answered(
                        result.status,
                        result.physical_offset,
                        raw,
                        broker=node.address,
                        sync_master=sync_master
                        and self._is_replicated(result.physical_offset, raw),
                    )

        engine.put(messages, False, answered)
        return f"{count} to {node.address}"

    def pull(self, node: Node) -> str:
        """A consumer reads everything up to *confirmed*, on a master or a slave."""
        engine = node.log
        if engine is None:
            return "not open"
        settings = self.settings
        offsets, replicated = engine.offsets, settings.sync_master and settings.hold
        for offset, raw in node.disk.frames(
            offsets.minimum, offsets.confirmed, engine.segment_bytes
        ):
            self.ledger.pulled(
                offset,
                raw,
                broker=node.address,
                replicated=replicated and self._is_replicated(offset, raw),
            )
        self.check(node)
        return f"{node.address} up to {offsets.confirmed}"

    # --- checks ---

    def check(self, node: Node) -> None:
        """What counts is in the log of a broker that serves, and no other of its term does."""
        engine = node.log

        def read(offset: int, size: int) -> bytes | None:
            offsets = engine.offsets
            if not offsets.minimum <= offset <= offset + size <= offsets.appended:
                return None
            return engine.reads.read_back(offset, size)

        # An old master that is cut off serves what it has, and promises nothing more.
        if node.serves and engine.state.generations[-1].term >= self.newest:
            self.ledger.check(node.address, read)
