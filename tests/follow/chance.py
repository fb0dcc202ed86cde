"""Whatever may happen to two brokers and their services that append: chance decides."""

import random

from stratamq_commitlog.replica.role_change import RoleChange

from stratamq.formats.log_state import Role
from tests.follow.egg_scene import AT, Broker
from tests.support.logs import Store

HOUR_MS = 3_600_000


def jump(store: Store, milliseconds: int) -> None:
    store.clock.set_wall_ms(store.clock.wall_ms() + milliseconds)


ACTS = (
    *("ask",) * 4,
    *("follow", "open", "send", "read", "run", "receive") * 3,
    *("pass", "pass", "save", "flush", "late"),
    *("hang up", "kill service", "kill log", "power", "promote", "full", "jump"),
)


class World:
    """Two brokers; chance decides what happens next."""

    broker_type: type[Broker] = Broker

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        flush = self.chance.choice(("SYNC_FLUSH", "ASYNC_FLUSH"))
        settings = {"flush_disk_type": flush, "flush_interval_ms": HOUR_MS}
        self.master = self.broker_type(seed, **settings)
        self.slave = self.broker_type(seed + 1, role="SLAVE", **settings)
        self.term = 0
        self.put_back = False
        """Whether a wall clock was. Store times stand still then."""

    def act(self) -> None:
        chance, master, service = self.chance, self.master, self.master.service
        match chance.choice(ACTS):
            case "ask":
                self.ask()
            case "follow":
                service.follow(chance.randrange(1, 4))
            case "open":
                service.open()
            case "send":
                service.send()
            case "read":
                if service.wire is not None and service.wire.sent:
                    service.wire.read()
            case "run":
                master.store.step()
            case "flush":
                master.store.settle()
            case "receive":
                service.receive()
            case "pass":
                master.store.clock.advance_ms(chance.randrange(1, 1_500))
            case "jump":
                milliseconds = chance.randrange(-HOUR_MS, 3 * HOUR_MS)
                self.put_back |= milliseconds < 0
                jump(master.store, milliseconds)
            case "save":
                service.save()
            case "late":
                if master.late and (late := chance.choice(master.late)).sent:
                    late.read()
            case "hang up":
                service.hang_up()
            case "kill service":
                master.kill_service()
            case "kill log":
                master.restart_log()
            case "power":
                master.restart_log(chance)
            case "full":
                master.store.log.gate.disk_full ^= True
            case "promote":
                self.promote()

    def ask(self) -> None:
        """A message that is to be delivered comes in."""
        due_ms = self.master.store.log.store_clock.wall_ms() + self.chance.randrange(-100, 3_000)
        self.master.ask(b"%d" % self.chance.getrandbits(32), due_ms)

    def last_due_ms(self) -> int:
        return max((int(one.properties[AT]) for one in self.master.requests().values()), default=0)

    def promote(self) -> None:
        """The slave has the master's log, or what it had of it a while ago; both of the services
        run on, and what they have sent comes late."""
        chance, old, new = self.chance, self.master, self.slave
        if chance.random() < 0.7:
            new.take_from(old)
        if chance.random() < 0.5:
            new.service.follow()
        self.term = max(self.term, old.store.log.state.highest_term) + 1
        new.set_role(RoleChange(Role.ASYNC_MASTER, term=self.term))
        while old.service.wire is not None and old.service.wire.sent and chance.random() < 0.5:
            old.service.wire.read()
        old.set_role(RoleChange(Role.SLAVE, term=self.term, master="m:1"))
        self.master, self.slave = new, old
        old.take_from(new)
        if chance.random() < 0.5:
            old.service.follow()

    def rest(self) -> None:
        master = self.master
        master.store.log.gate.disk_full = False
        master.service.hang_up()
        for late in master.late:
            while late.sent:
                late.read()
        jump(master.store, max(0, self.last_due_ms() - master.store.clock.wall_ms()))
        for _ in range(3):
            master.store.pass_time(HOUR_MS)
            master.store.log.store_clock.confirm()
            master.service.settle()
