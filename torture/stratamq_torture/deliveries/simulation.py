"""One seed: two brokers whose delivery services run the real code, their clients, and what happens
to them. Delayed messages, transactions and shared groups, over crashes, losses of power, cuts,
promotions, full disks and clocks that jump.

Whatever happens is chosen by the seed. At the end everything works again: then each message that is
to come has come once, and none that is not (`ledger.py`).
"""

import random

from stratamq_delivery.entries import Configured
from stratamq_delivery.waiting_line import Wish

from stratamq.formats.store_paths import DELIVERY_STATE_PATH
from stratamq_torture.deliveries.ledger import tags_of
from stratamq_torture.deliveries.producers import Producers
from stratamq_torture.deliveries.service import Service
from stratamq_torture.deliveries.workers import GROUPS, Workers, is_poison
from stratamq_torture.deliveries.world import QUIET_ROUNDS, World
from stratamq_torture.trial import Outcome, SeedsTrial, Violation, VirtualRun

REST = "rest"
WEIGHTS = {
    "delay": 10,
    "deliver_at": 8,
    "schedule": 4,
    "work": 12,
    "ordered": 10,
    "half": 8,
    "decide": 12,
    "receive": 26,
    "acknowledge": 20,
    "give_back": 6,
    "renew": 2,
    "configure": 2,
    "stop_sharing": 1,
    "listen": 2,
    REST: 14,
    "kill_service": 3,
    "kill_log": 2,
    "power": 2,
    "crash_point": 2,
    "hang_up": 4,
    "dispatcher": 2,
    "promote": 3,
    "fill": 2,
    "jump": 2,
}
FAULTS = ("kill_service", "kill_log", "power", "crash_point", "hang_up", "dispatcher", "promote")
REST_S = (0.01, 0.2, 1.5, 6.0)
SETTLE_ROUNDS, SETTLE_S = 60, 15.0


class Simulation(VirtualRun):
    """`run` once."""

    def __init__(self, seed: int, *, trace: bool = False) -> None:
        super().__init__(seed, trace=trace)
        chance = random.Random(seed)
        self._world = world = World(chance, self.loop, self.note)
        self.outcome.settings = repr(world.settings)
        self._producers, self._workers = Producers(world), Workers(world)
        self._weights = dict(WEIGHTS)
        for fault in FAULTS:
            self._weights[fault] *= chance.choice((0, 1, 1, 2))
        if chance.random() < 0.7:
            self._weights["jump"] = 0

    def run(self, operations: int) -> Outcome:
        outcome, world = self.run_virtually(self._all(operations)), self._world
        outcome.sum(world)
        outcome.acknowledged = world.ledger.counts["acknowledged"]
        outcome.situations.update(world.ledger.counts)
        return outcome

    async def _all(self, operations: int) -> None:
        names, weights, world = list(self._weights), list(self._weights.values()), self._world
        chance, actors = world.chance, (self._producers, self._workers, world)
        acts = {
            one: getattr(actor, one) for actor in actors for one in names if hasattr(actor, one)
        }
        world.start()
        for number in range(operations):
            name = chance.choices(names, weights)[0]
            self.done(number, name, acts[name]() if name in acts else "")
            await world.steps(chance.choice((1, 4, 12, 24)))
            if name == REST:
                soon_s = world.until_due_s() if chance.random() < 0.4 else 0
                await world.let_pass(soon_s or chance.choice(REST_S))
        await self._settle()

    # --- the end ---

    async def _settle(self) -> None:
        self.note("settling")
        self._world.clock.ahead_ms = self._world.clock.farthest_ms
        self._world.start()
        master = self._world.master
        master.queues.is_up = True
        assert master.log is not None and master.service is not None
        master.log.gate.disk_full = False
        for late in master.late:
            while late.sent:
                late.read()
        master.log.store_clock.confirm()
        await self._world.quiet()
        self._producers.listen()
        service = master.service
        configured = [
            service.sharing.configure(group, Configured(group == "line", 2)) for group in GROUPS
        ]
        await self._world.within(*configured)
        for _ in range(SETTLE_ROUNDS):
            await self._world.let_pass(SETTLE_S)
            await self._world.within(*(self._drain(service, *group) for group in GROUPS.items()))
            if not self._left(service):
                break
        else:
            raise Violation("lost", f"{self._left(service)} are left in the end")
        self._world.ledger.check(master, GROUPS)
        self._compare(service)

    def _left(self, service: Service) -> list[object]:
        """What is still to be done."""
        left: list[object] = [
            f"{len(machine)} of {machine.name}"
            for machine in (service.levels, service.timed, service.transactions)
            if len(machine)
        ]
        left += service.groups.dead_letters.owed
        for group, topic in GROUPS.items():
            left += self._world.ledger.unfinished(group, topic, self._world.master)
        return left

    async def _drain(self, service: Service, group: str, topic: str) -> None:
        """A worker takes all there is, and acknowledges what is no poison."""
        for _ in range(QUIET_ROUNDS):
            wish = Wish(group, topic, "the last", 64, 2_000, 0, tags=tags_of(group))
            taken = await self._workers.hand_out(service, wish, again=False)
            good = [one for one in taken if not is_poison(one)]
            if good:
                await self._workers.settle(service, good)
            if not taken:
                return
        raise Violation("rest", f"{group} gets messages again and again")

    def _compare(self, service: Service) -> None:
        """The same log gives the same state, whatever the one who folds it has been through; also
        to one that knows nothing."""
        slave = self._world.slave
        if slave.log is not None and self._world.chance.random() < 0.7:
            slave.start()
            slave.take_from(self._world.master)
            other = slave.service
        else:
            files = self._world.master.disk.files()
            if files.entry(DELIVERY_STATE_PATH) is not None:
                files.unlink(DELIVERY_STATE_PATH)
            other = Service(self._world.master)
        assert other is not None
        other.follow()
        mine, its = _image(service), _image(other)
        if mine != its:
            raise Violation("state", f"another one has {its}, the master {mine}")


def _image(service: Service) -> dict[object, object]:
    groups = service.groups
    image: dict[object, object] = {
        place: [queue.floor, *queue]
        for place in sorted(groups.folded_places())
        if (queue := groups.folded(place)) is not None
    }
    image["settings"] = groups.settings.folded
    image["left"] = [len(one) for one in (service.levels, service.timed, service.transactions)]
    return image


TRIAL = SeedsTrial(
    "delivery-sim", Simulation, frozenset({"lost", "back", "decision", "twice", "audit"})
)
