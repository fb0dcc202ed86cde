"""Two brokers of one name and what happens to them: steps by chance, crashes, losses of power,
broken streams, promotions, full disks and clocks that jump.
"""

import asyncio
import random
from collections.abc import Callable, Coroutine

from stratamq_commitlog.replica.role_change import RoleChange

from stratamq.files.simulated import SimulatedCrash
from stratamq.formats.log_state import Role
from stratamq_torture.deliveries.broker import Broker
from stratamq_torture.deliveries.ledger import (
    Ledger,
)
from stratamq_torture.deliveries.service import Service, Settings
from stratamq_torture.trial import Counts, Violation, VirtualLoop

STEPS_OF_A_BROKER = (
    *("follow", "open", "send", "read", "pass", "work", "receive") * 3,
    *("dispatch", "dispatch", "save", "late"),
)
CRASH_POINTS = (
    ("flush", "commitlog/*"),
    ("write", "commitlog/*"),
    ("create.*", "commitlog/*"),
    ("replace", "stratamq/*"),
    ("flush", "stratamq/*"),
)
HOUR_MS, DAY_MS = 3_600_000, 86_400_000
QUIET_ROUNDS = 200
SOON_MS = 60_000


class JumpingClock:
    """A broker's machine: its wall clock is `ahead_ms` ahead."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self.ahead_ms = self.farthest_ms = 0

    def jump(self, by_ms: int) -> None:
        self.ahead_ms += by_ms
        self.farthest_ms = max(self.farthest_ms, self.ahead_ms)

    def wall_ms(self) -> int:
        return self._loop.wall_ms() + self.ahead_ms

    def monotonic_ns(self) -> int:
        return self._loop.monotonic_ns()


class World(Counts):
    """`note`: for the trace."""

    def __init__(
        self, chance: random.Random, loop: VirtualLoop, note: Callable[[str], None]
    ) -> None:
        super().__init__()
        self.chance = chance
        self.settings = settings = Settings(
            flush=chance.choice(("SYNC_FLUSH", "SYNC_FLUSH", "ASYNC_FLUSH")),
            step_messages=chance.choice((2, 64, 64)),
            save_ms=chance.choice((10, 1_000, 20_000)),
            undo_bytes=chance.choice((4_000, 1 << 20)),
            roll_ms=chance.choice((2_000, 36 * HOUR_MS)),
            attempts=chance.choice((2, 3)),
            clock_limit_ms=chance.choice((0, 60_000)),
        )
        self.clock = JumpingClock(loop)
        self.ledger = Ledger()
        self.master, self.slave = (
            Broker(name, role, settings, chance, self.clock)
            for name, role in (("a", Role.ASYNC_MASTER), ("b", Role.SLAVE))
        )
        self.note = note
        self._crash_means_power = False
        self._term = 0

    # --- time and steps ---

    async def steps(self, count: int) -> None:
        for _ in range(count):
            # The slave begins with the first promotion.
            is_slave = self.slave.log is not None and self.chance.random() < 0.1
            broker = self.slave if is_slave else self.master
            self._act(broker, self.chance.choice(STEPS_OF_A_BROKER))
            await asyncio.sleep(0)
        self.require()

    def _act(self, broker: Broker, step: str) -> None:
        try:
            broker.act(step)
        except SimulatedCrash:
            self.ledger.forget_holds()
            self.crash_points += 1
            self.note(f"  {broker.name} meets a crash point at {step}")
            if self._crash_means_power:
                self._lose_power(broker)
            else:
                broker.died()

    async def let_pass(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        for broker in (self.master, self.slave):
            broker.tick()
            if broker.service is not None and self.chance.random() < 0.7:
                broker.service.look_at_clock()
        self.require()

    def until_due_s(self) -> float:
        """Until a millisecond before a delayed message is due; 0: none is soon."""
        service = self.master.service
        now_ms = service.appends.time.now_ms() if service is not None else None
        if service is None or now_ms is None:
            return 0
        times = (service.levels.next_due_ms(), service.timed.next_due_ms())
        left_ms = min([one - now_ms - 1 for one in times if one is not None], default=0)
        return left_ms / 1_000 if 0 < left_ms < SOON_MS else 0

    def require(self) -> None:
        for broker in (self.master, self.slave):
            if broker.service is not None:
                broker.service.require()

    def start(self) -> None:
        self.master.disk.clear_faults()
        self.master.start()

    def up(self) -> Service | None:
        """The service that clients ask. It is started, if it was dead, half of the times."""
        if self.master.service is None or self.master.log is None:
            if self.chance.random() < 0.5:
                return None
            self.start()
        return self.master.service

    async def within(self, *calls: Coroutine[None, None, None]) -> None:
        """Done, while the broker works."""
        done = asyncio.gather(*calls)
        for _ in range(QUIET_ROUNDS):
            await self.quiet()
            if done.done():
                done.result()
                return
            await self.let_pass(0.1)
        raise Violation("rest", "a call has no answer")

    async def quiet(self) -> None:
        """Until nothing moves."""
        broker, service = self.master, self.master.service
        assert broker.log is not None and service is not None
        for _ in range(QUIET_ROUNDS):
            service.follow()
            service.look_at_clock()
            service.open()
            sent, wire = service.send(), service.wire
            while service.wire is not None and service.wire.sent:
                service.read()
            broker.settle_log()
            answered = wire is not None and bool(wire.answers)
            service.receive()
            service.save()
            service.lanes.run_until_idle()
            broker.queues.look()
            await asyncio.sleep(0)
            self.require()
            if not sent and not answered and service.wire is not None:
                return
        raise Violation("rest", "the delivery does not come to rest")

    # --- what happens ---

    def kill_service(self) -> None:
        self.ledger.forget_holds()
        self.master.kill_service()
        self.kills += 1

    def kill_log(self) -> None:
        self.ledger.forget_holds()
        self.master.kill_log()
        self.kills += 1
        if self.chance.random() < 0.6:
            self.start()

    def power(self) -> None:
        self._lose_power(self.master)

    def _lose_power(self, broker: Broker) -> None:
        broker.disk.clear_faults()
        self.ledger.forget_holds()
        self.power_losses += 1
        broker.lose_power()
        broker.start()
        assert broker.log is not None
        if broker is self.master and self.settings.flush == "ASYNC_FLUSH":
            self.ledger.lose(broker.log.offsets.appended)

    def crash_point(self) -> str:
        chance, disk = self.chance, self.master.disk
        disk.clear_faults()
        self._crash_means_power = chance.random() < 0.4
        operation, path = chance.choice(CRASH_POINTS)
        disk.crash_on(operation, path, chance.choice((1, 2, 5)))
        return f"{operation} {path}, {'power' if self._crash_means_power else 'process'}"

    def hang_up(self) -> None:
        if self.master.service is not None:
            self.master.service.hang_up()
            self.situations["streams broken"] += 1

    def dispatcher(self) -> str:
        queues = self.master.queues
        queues.is_up = not queues.is_up
        if queues.is_up:
            queues.restart()
        return "up" if queues.is_up else "down"

    def fill(self) -> None:
        """The log refuses what comes, until it is filled once more, or started."""
        if self.master.log is not None:
            self.master.log.gate.disk_full ^= True
            self.situations["disks full"] += 1

    def jump(self) -> str:
        """The wall clock jumps, with or without the broker up."""
        chance = self.chance
        jump_ms = chance.choice((HOUR_MS, -DAY_MS, -5_000, 50_000))
        if chance.random() < 0.3:
            self.ledger.forget_holds()
            self.master.kill_service()
            self.master.kill_log()
        self.ledger.put_back |= jump_ms < 0
        self.clock.jump(jump_ms)
        self.situations["clocks that jump"] += 1
        return f"{jump_ms} ms"

    def promote(self) -> str:
        """The slave has the master's log, or what it had of it a while ago. Both services run on,
        and what the old one has sent comes late."""
        old, new, chance, ledger = self.master, self.slave, self.chance, self.ledger
        for broker in (old, new):
            broker.disk.clear_faults()
            broker.start()
            broker.settle_log()
            broker.log.gate.disk_full = False
        if chance.random() < 0.8:
            new.take_from(old)
        if new.service is not None and chance.random() < 0.5:
            new.service.follow()
        self._term = max(self._term, old.log.state.highest_term) + 1
        self._set_role(new, RoleChange(Role.ASYNC_MASTER, term=self._term))
        while chance.random() < 0.5 and old.service is not None:
            old.service.read()
        self._set_role(old, RoleChange(Role.SLAVE, term=self._term, master="m:1"))
        ledger.forget_holds()
        had = old.log.offsets.appended
        common = old.take_from(new)
        if common < had:
            ledger.lose(common)
            self.situations["promotions that lose an end"] += 1
        self.master, self.slave = new, old
        if old.service is not None and chance.random() < 0.5:
            old.service.follow()
        # A slave's table of offsets is its master's, or was so a while ago.
        if chance.random() < 0.5:
            new.queues.take_offsets(old.queues)
        new.queues.forget()
        new.queues.look()
        old.queues.take_offsets(new.queues)
        self.promotions += 1
        return f"{new.name} at {common} of {had}"

    def _set_role(self, broker: Broker, change: RoleChange) -> None:
        error = broker.ask(lambda done: broker.log.set_role(change, done))
        if error is not None:
            raise Violation("role", f"{broker.name}: {error}")
