"""One seed: brokers of one name, and what happens to them, one operation after the other.

Whatever happens is chosen by the seed, so that a seed that fails does so again. Each operation has
a seed of its own.
"""

import random
from dataclasses import replace

from stratamq_ha.promotion import reach

from stratamq.formats.frame import Frame, decode
from stratamq.formats.log_state import Role
from stratamq.formats.replication_peers import PeerStatus
from stratamq.store.confirmed import LOCK_PATH
from stratamq_torture.brokers import episodes
from stratamq_torture.brokers.cluster import Cluster
from stratamq_torture.brokers.node import Node
from stratamq_torture.brokers.world import chosen
from stratamq_torture.trial import Outcome, Run, SeedsTrial, Violation

WEIGHTS = {
    "send": 30,
    "run": 40,
    "tick": 10,
    "pull": 12,
    "start": 20,
    "kill": 4,
    "power_loss": 3,
    "crash_point": 3,
    "cut_off": 4,
    "part": 3,
    "pause": 3,
    "half_open": 2,
    "heal": 10,
    "promote": 12,
    "replace": 3,
    "back_up": 4,
    "restore": 4,
    "put_back": 4,
    "rest": 12,
}
FAULTS = (
    "kill",
    "power_loss",
    "crash_point",
    "cut_off",
    "part",
    "pause",
    "half_open",
    "replace",
    "restore",
    "put_back",
)
"""A seed meets some of them, so that what needs many of one kind happens as well."""
CHANGES = {"remove": 5, "admit": 8, "readmit": 3, "relieve": 4}
CRASH_PATTERNS = (
    ("replace", "*"),
    ("replace", "stratamq/role.json*"),
    ("replace", "stratamq/generations.json*"),
    ("sync_directory", "stratamq*"),
    ("flush", "commitlog/*"),
    ("create", "*"),
    ("unlink", "*"),
)
STEPS = (5, 20, 60, 200)
REST_STEPS = 4_000
NEW_DIRECTORY = "start this broker with a new directory"
"""What an empty slave of a second master tells its operator."""
FINISH_SEED = 4711


def _has(own: PeerStatus) -> tuple[bool, bool, bool, tuple[int, int, int]]:
    """How much an operator can rely on a broker, where all are seen."""
    is_member = own.members is None or own.members.counts(own.member)
    return is_member, not own.is_empty, not own.rejoining, reach(own)


class Simulation(Run):
    """`run` once. `changes`: members are removed and admitted, leads end."""

    def __init__(self, seed: int, *, trace: bool = False, changes: bool = True) -> None:
        super().__init__(seed, trace=trace)
        self._plan = random.Random(seed)
        self.cluster = Cluster(chosen(self._plan), random.Random(seed), self.notes)
        self._weights = dict(WEIGHTS)
        for fault in FAULTS:
            self._weights[fault] *= self._plan.choice((0, 1, 2))
        if changes:
            self._weights |= CHANGES
        self._number = 0
        self.outcome.settings = str(self.cluster.settings)

    def run(self, operations: int) -> Outcome:
        outcome = self.guarded(lambda: self._all(operations))
        outcome.sum(self.cluster)
        outcome.acknowledged = self.cluster.ledger.acknowledged
        return outcome

    def _all(self, operations: int) -> None:
        for node in self.cluster.nodes:
            self.cluster.start(node)
        self._apply("rest", self._plan.getrandbits(32))
        for _ in range(operations):
            kind = self._plan.choices(list(self._weights), list(self._weights.values()))[0]
            self._apply(kind, self._plan.getrandbits(32))
        self._finish()

    # --- operations ---

    def _apply(self, kind: str, seed: int) -> None:
        self._number += 1
        self.cluster.chance.seed(seed)
        self.done(self._number, kind, getattr(self, f"_{kind}")())

    @property
    def _chance(self) -> random.Random:
        return self.cluster.chance

    def _any(self) -> Node:
        return self._chance.choice(self.cluster.nodes)

    def _serving(self) -> Node | None:
        serving = [node for node in self.cluster.nodes if node.serves]
        return self._chance.choice(serving) if serving else None

    def _send(self) -> str:
        masters = self.cluster.masters()
        node = self._chance.choice(masters) if masters else self._any()
        return self.cluster.act(node, lambda: self.cluster.send(node))

    def _run(self) -> str:
        steps = self._chance.choice(STEPS)
        self.cluster.run(steps)
        return f"{steps} steps"

    def _tick(self) -> None:
        self.cluster.tick()

    def _pull(self) -> str:
        return self.cluster.pull(self._any())

    def _start(self) -> str:
        down = [node for node in self.cluster.nodes if not node.up]
        if not down:
            return "all are up"
        node = self._chance.choice(down)
        return f"{node.address}: {'up' if self.cluster.start(node) else 'died on the way'}"

    def _kill(self) -> str:
        node = self._any()
        if not node.up:
            return "it is down"
        self.cluster.kill(node)
        return node.address

    def _power_loss(self) -> str:
        node = self._any()
        self.cluster.lose_power(node)
        return node.address

    def _crash_point(self) -> str:
        cluster, node = self.cluster, self._any()
        node.disk.clear_faults()
        cluster.crash_means_power = self._chance.random() < 0.5
        operation, path = self._chance.choice(CRASH_PATTERNS)
        nth = self._chance.choice((1, 1, 2, 4))
        node.disk.crash_on(operation, path, nth)
        return f"{node.address} at {operation} {path}, {nth} calls from now"

    def _cut_off(self) -> str:
        """One broker, often the master, is cut off from all others."""
        masters = self.cluster.masters()
        node = self._chance.choice(masters) if masters else self._any()
        self.cluster.isolate(node)
        return node.address

    def _part(self) -> str:
        one, other = self._chance.sample(self.cluster.nodes, 2)
        self.cluster.apart.add(frozenset((one.number, other.number)))
        return f"{one.address} and {other.address}"

    def _heal(self) -> None:
        self.cluster.heal()

    def _pause(self) -> str:
        """A broker is paused while time passes for the others."""
        node = self._any()
        self.cluster.paused.add(node.number)
        return node.address

    def _half_open(self) -> str:
        node = self._any()
        self.cluster.links[node.number].half_open()
        return f"{node.address} leaves its master, who does not notice"

    def _promote(self) -> str:
        """One of them, or two at once; often the reason is that it cannot reach the master."""
        cluster = self.cluster
        slaves = [node for node in cluster.nodes if not node.serves] or cluster.nodes
        wanted = self._chance.sample(slaves, min(len(slaves), self._chance.choice((1, 1, 1, 2))))
        if self._chance.random() < 0.7:
            for node in wanted:
                for master in cluster.masters():
                    if master is not node:
                        cluster.apart.add(frozenset((node.number, master.number)))
        return ", ".join(cluster.promote(node) for node in wanted)

    def _remove(self) -> str:
        """A member is removed at a master. One that may come back, by itself or when the network is
        whole, only where k + 1 of the members that are left remain; else its machine is gone."""
        cluster, master = self.cluster, self._serving()
        members = master.log.membership.members if master is not None and master.log else None
        left = [node for node in cluster.members_of(master) if node is not master] if master else []
        if members is None or not left:
            return "no master, or no other member"
        gone = self._chance.choice(left)
        if members.required > members.count - 2:
            if not self._may_forget(gone):
                return "not so many at a time"
            cluster.replace(gone, Role.SLAVE)
        elif self._chance.random() < 0.5:
            cluster.kill(gone)
        else:
            cluster.isolate(gone)
        cluster.remove(master, gone.address)
        return f"{gone.address} at {master.address}"

    def _admit(self) -> str:
        """A removed member is taken in again, often at a master that does not reach all others."""
        cluster, master = self.cluster, self._serving()
        members = cluster.members_of(master) if master is not None else cluster.nodes
        removed = [node for node in cluster.nodes if node not in members]
        if master is None or not removed:
            return "no master, or none is removed"
        node = self._chance.choice(removed)
        if self._chance.random() < 0.3:
            other = self._chance.choice(members)
            if other is not master:
                cluster.apart.add(frozenset((master.number, other.number)))
        cluster.admit(master, node.address)
        return f"{node.address} at {master.address}"

    def _readmit(self) -> str:
        return episodes.readmit(self.cluster, self._serving())

    def _relieve(self) -> str:
        return episodes.relieve(self.cluster, self._serving())

    def _replace(self) -> str:
        cluster, node = self.cluster, self._any()
        if not self._may_forget(node):
            return "not so many at a time"
        role = cluster.settings.role if self._chance.random() < 0.3 else Role.SLAVE
        cluster.replace(node, role)
        return f"{node.address}, configured as {role.name}"

    def _back_up(self) -> str:
        down = [
            node for node in self.cluster.nodes if not node.up and node.disk.tree.find(LOCK_PATH)
        ]
        if not down:
            return "no store is at rest"
        node = self._chance.choice(down)
        self.cluster.back_up(node)
        return node.address

    def _restore(self) -> str:
        cluster = self.cluster
        copied = [node for node in cluster.nodes if node.number in cluster.backups]
        if not copied:
            return "nothing was copied"
        node = self._chance.choice(copied)
        if not self._may_forget(node):
            return "not so many at a time"
        cluster.restore(node)
        return node.address

    def _put_back(self) -> str:
        """The same without the command, while all others are there to notice it: the directory
        rejoins by itself, or, when it has forgotten a generation without a message, no slave
        follows it, and the operator gives the command then."""
        cluster = self.cluster
        copied = [node for node in cluster.nodes if node.number in cluster.backups]
        if not copied or cluster.forgetful or not cluster.whole() or cluster.removed():
            return "not now"
        node = self._chance.choice(copied)
        cluster.restore(node, marked=False)
        misses, cluster.settings = cluster.settings, replace(cluster.settings, misses=0.0)
        for each in cluster.nodes:
            each.disk.clear_faults()
        cluster.start(node)
        for _ in range(REST_STEPS):
            cluster.step()
            if cluster.whole() or (node.log is not None and node.log.membership.rejoining):
                break
        else:
            others = [cluster.links[each.number] for each in cluster.nodes if each is not node]
            held = node.log is not None and node.log.state.held
            if not held and any(link.refused is not node for link in others):
                raise Violation("unnoticed", f"{node.address} has forgotten: {self._where()}")
            cluster.met("slaves refused a master that had forgotten a generation")
            cluster.restore(node)
            cluster.start(node)
        cluster.settings = misses
        return node.address

    def _may_forget(self, node: Node) -> bool:
        """k disks may be lost at a time: k + 1 have what was acknowledged."""
        others = self.cluster.forgetful - {node.number}
        return len(others) < self.cluster.least_required()

    def _rest(self) -> str:
        """Nothing happens for a while."""
        cluster = self.cluster
        for _ in range(REST_STEPS):
            cluster.step()
            if cluster.whole():
                cluster.take_stock()
                return "all is whole"
        return "not whole"

    # --- the end ---

    def _finishing(self, detail: str) -> None:
        self.done(self._number, "finish", detail)

    def _finish(self) -> None:
        """All faults over, everything up: one master, all logs equal, all there is there."""
        cluster = self.cluster
        self._chance.seed(FINISH_SEED)
        cluster.settings = replace(cluster.settings, misses=0.0)
        for node in cluster.nodes:
            node.disk.clear_faults()
        cluster.run(200)
        cluster.heal()
        for number in range(10):
            self._all_up()
            if number > 4:
                self._force()
            self._finishing(self._rest())
            if cluster.whole() and not cluster.removed():
                break
        else:
            raise Violation("rest", f"the brokers do not come to rest: {self._where()}")
        self._finishing("whole")
        self._check_equal()

    def _all_up(self) -> None:
        """What a patient operator does."""
        cluster = self.cluster
        for node in cluster.nodes:
            if not node.up:
                cluster.start(node)
            elif node.lead_ended:
                node.lead_again()
        cluster.run(400)
        for node in cluster.nodes:
            if not any(each.serves for each in cluster.nodes):
                self._finishing(f"promote {cluster.promote(node)}")
                cluster.run(400)
        for node in cluster.nodes:
            if NEW_DIRECTORY in node.problem:
                cluster.met("an empty slave of a second master began again")
                cluster.replace(node, Role.SLAVE)
                cluster.start(node)
                cluster.run(400)
        for master in [node for node in cluster.nodes if node.serves]:
            for node in cluster.nodes:
                if node not in cluster.members_of(master):
                    is_empty = not master.log.offsets.appended
                    if is_empty and node.log is not None and node.log.offsets.appended:
                        # It was forced, and refuses a slave with messages of another history.
                        cluster.replace(node, Role.SLAVE)
                        cluster.start(node)
                    self._finishing(f"admit {node.address} at {master.address}")
                    cluster.admit(master, node.address)
                    cluster.run(400)

    def _force(self) -> None:
        """All are up, and none can be promoted: more is unknown than k allows for."""
        cluster = self.cluster
        if any(node.serves for node in cluster.nodes):
            return
        peer_statuses = [(node.peer_status(), node.number) for node in cluster.nodes]
        _, most = max((_has(own), number) for own, number in peer_statuses if own is not None)
        cluster.met("a promotion was forced")
        self.done(
            self._number, "finish", f"force {cluster.promote(cluster.nodes[most], force=True)}"
        )
        cluster.run(400)

    def _where(self) -> str:
        parts = []
        for node in self.cluster.nodes:
            engine, link = node.log, self.cluster.links[node.number]
            parts.append(
                f"{node.address}: down"
                if engine is None
                else f"{node.address}: {engine.role.name} {engine.offsets} {engine.writable[1]} "
                f"link {link.connected} {link.acknowledged} follows {node.follows}"
            )
        return "; ".join(parts)

    def _check_equal(self) -> None:
        cluster = self.cluster
        master = next(node for node in cluster.nodes if node.serves)
        cluster.check(master)
        end, size = master.log.offsets.appended, master.log.segment_bytes
        for node in cluster.nodes:
            if node.log.offsets.appended != end:
                raise Violation("equal", f"{node.address} ends at {node.log.offsets.appended}")
            for base in node.disk.segments():
                if base >= end or base < master.log.offsets.minimum:
                    continue
                length = min(size, end - base)
                if bytes(node.disk.shown(base)[:length]) != bytes(master.disk.shown(base)[:length]):
                    raise Violation(
                        "equal", f"the segment at {base} of {node.address} is not the master's"
                    )
        frames = master.disk.frames(master.log.offsets.minimum, end, size)
        self._check_queues([raw for _, raw in frames])

    def _check_queues(self, frames: list[bytes]) -> None:
        """Queue offsets are dense and unique."""
        following: dict[tuple[bytes, int], int] = {}
        for raw in frames:
            frame = decode(raw)
            assert isinstance(frame, Frame)
            key = frame.topic, frame.queue_id
            if key in following and frame.queue_offset != following[key]:
                raise Violation(
                    "queue", f"{key} goes from {following[key]} to {frame.queue_offset}"
                )
            following[key] = frame.queue_offset + 1


TRIAL = SeedsTrial("brokers", Simulation, frozenset({"lost", "seen", "replaced"}), at_once=5)
