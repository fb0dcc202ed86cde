"""One run of a seed: operations chosen by chance, carried out, checked after every restart.

An operation is a word and a seed of its own, so that a list of operations can be replayed, cut
short and thinned out, and each that is left does what it did.
"""

import errno
import random
from collections.abc import Callable, Sequence
from typing import NamedTuple

from stratamq_torture.simulated import rocketmq
from stratamq_torture.simulated.broker import Broker
from stratamq_torture.simulated.checks import check_at_rest, check_log, remember_deleted
from stratamq_torture.simulated.rooms import COMMITLOG, FOLLOWERS, ROOMS
from stratamq_torture.simulated.world import DEFAULT, Profile, Situation
from stratamq_torture.trial import Outcome, Run, Violation

FINISH_SEED = 0x57A7A
STOP_STEPS = 4_000
CRASH_PATTERNS = (
    ("flush", "commitlog/*"),
    ("create.*", "commitlog/*"),
    ("write", "commitlog/*"),
    ("zero", "commitlog/*"),
    ("unlink", "*"),
    ("sync_directory", "*"),
    ("replace", "stratamq/*"),
    ("write", "consumequeue/*"),
    ("flush", "consumequeue/*"),
    ("create.*", "consumequeue/*"),
    ("write", "index/*"),
    ("flush", "index/*"),
    ("create.*", "index/*"),
    ("flush", "stratamq/*"),
    ("unlink", "abort"),
)
BEFORE_A_SYNC = (
    ("create.sync_target", "commitlog/*"),
    ("sync_directory", "commitlog"),
    ("sync_directory", "stratamq"),
)
"""Directory entries are seen, and not yet durable."""
IN_RECOVERY = (
    ("flush", "commitlog/*"),
    ("zero", "commitlog/*"),
    ("unlink", "commitlog/*"),
    ("sync_directory", "commitlog"),
    ("sync_directory", "stratamq"),
    ("replace", "stratamq/generations.json"),
)
DELETION_TICKS = 20
IN_DELETION = (
    ("unlink", "commitlog/*"),
    ("sync_directory", "commitlog"),
    ("sync_directory", "commitlog"),
)
FAILING = (
    ("flush", "*"),
    ("write", "*"),
    ("replace", "*"),
    ("sync_directory", "*"),
    ("create.*", "*"),
    ("unlink", "*"),
    ("zero", "*"),
)


class Operation(NamedTuple):
    kind: str
    seed: int


class Simulation(Run):
    """`trace` keeps a line for every operation and whatever happened in it."""

    def __init__(self, seed: int, profile: Profile = DEFAULT, *, trace: bool = False) -> None:
        super().__init__(seed, trace=trace)
        self.profile = profile
        self._plan = random.Random(seed)
        self.broker = Broker(
            profile.choose_settings(self._plan),
            random.Random(seed),
            self.notes,
            sizes=profile.choose_sizes(self._plan),
            audits=profile.audits,
        )
        self.broker.on_log_started = check_log
        self._weights = profile.all_weights()

    # --- whole runs ---

    def run(self, operations: int) -> Outcome:
        """Operations by chance, then the end."""
        return self.judged(lambda: self._go(operations))

    def replay(self, operations: Sequence[Operation]) -> Outcome:
        """These operations, then the end."""
        return self.judged(lambda: self._replay(operations))

    def _go(self, count: int) -> None:
        for name in ROOMS:
            self.apply(Operation(f"start_{name}", self._plan.getrandbits(32)))
        for _ in range(count):
            self.apply(self._choose())
        self.finish()

    def _replay(self, operations: Sequence[Operation]) -> None:
        for operation in operations:
            self.apply(operation)
        self.finish()

    def judged(self, work: Callable[[], None]) -> Outcome:
        outcome, broker = self.guarded(work), self.broker
        outcome.sum(broker)
        met = outcome.situations
        met[Situation.TORN_COPY] = broker.disk.stores_cut_off["copy"]
        met[Situation.BEFORE_PUBLISH] = broker.disk.stores_cut_off["publish"]
        met[Situation.STALE_ALIGNED] = broker.model.aligned
        outcome.situations = +met
        return outcome

    # --- operations ---

    def apply(self, operation: Operation) -> None:
        """Do one operation; one that makes no sense now does nothing."""
        self.outcome.operations.append(operation)
        broker = self.broker
        broker.chance.seed(operation.seed)
        room = operation.kind.removeprefix("start_")
        detail = self._start_room(room) if room in ROOMS else getattr(self, f"_{operation.kind}")()
        self.done(len(self.outcome.operations), operation.kind, detail)

    def _choose(self) -> Operation:
        kinds = [kind for kind in self._weights if self._makes_sense(kind)]
        weights = [self._weights[kind] for kind in kinds]
        kind = self._plan.choices(kinds, weights)[0]
        return Operation(kind, self._plan.getrandbits(32))

    def _makes_sense(self, kind: str) -> bool:
        broker = self.broker
        up = [name for name in ROOMS if broker.rooms[name].running]
        match kind:
            case "send":
                return broker.log.engine is not None and not broker.log.stopping
            case "pull":
                return broker.dispatcher.engine is not None
            case "ask":
                return broker.index.engine is not None and broker.index.engine.followed.serving
            case "start":
                return len(up) < len(ROOMS) or any(r.failed for r in broker.followers)
            case "start_crash":
                return not broker.log.running
            case "overgrow":
                return broker.log.engine is not None and not broker.starved
            case "stop" | "kill" | "kill_all" | "disconnect":
                return bool(up)
            case "delete":
                return broker.log.engine is not None and len(broker.log.engine.segments.offsets) > 1
            case "feed":
                return broker.starved
            case "starve":
                return not broker.starved
            case "rocketmq":
                return not up
        return True

    def _send(self) -> str:
        broker = self.broker
        if not self._makes_sense("send"):
            return "no log"
        kind = broker.chance.choice(self.profile.kinds)
        return broker.act(broker.log, lambda: broker.producers.send(kind, broker.chance))

    def _run(self) -> str:
        steps = self.broker.chance.choice(self.profile.steps)
        self.broker.run(steps)
        return f"{steps} steps"

    def _tick(self) -> None:
        self.broker.tick()

    def _pull(self) -> str:
        broker = self.broker
        if broker.dispatcher.engine is None:
            return "no dispatcher"
        return broker.act(broker.dispatcher, lambda: broker.consumers.pull(broker.chance))

    def _ask(self) -> str:
        broker = self.broker
        if broker.index.engine is None:
            return "no index"
        return broker.act(broker.index, lambda: broker.consumers.ask(broker.chance))

    def _rest(self) -> str:
        """Let it come to rest, and look at everything."""
        broker = self.broker
        healthy = all(broker.rooms[name].running for name in ROOMS)
        healthy = healthy and not any(room.failed or room.excused for room in broker.followers)
        engine = broker.log.engine
        if not healthy or broker.starved or engine is None or engine.commit.failure is not None:
            return "not now"
        if broker.disk.faults or any(room.stopping for room in broker.rooms.values()):
            return "not now"
        starts = broker.log_starts
        if not broker.settle():
            if broker.log_starts == starts and self._all_follow():
                raise Violation("rest", self._unrest())
            return "interrupted"
        # The checks read through the rooms' own descriptors: no crash point is theirs.
        broker.disk.clear_faults()
        check_at_rest(broker)
        return "all is well"

    def _all_follow(self) -> bool:
        """No follower has ended, or was allowed to stop following."""
        rooms = self.broker.rooms.values()
        return all(r.running and getattr(r, "failed", None) is None for r in rooms)

    def _unrest(self) -> str:
        broker = self.broker
        engine = broker.log.engine
        where = [f"log {engine.offsets}" if engine else "no log"]
        for room in broker.followers:
            if room.engine is not None:
                where.append(f"{room.name} {room.engine.fold.report()}")
        return f"the broker does not come to rest: {', '.join(where)}"

    # --- rooms come and go ---

    def _start(self) -> str:
        """One that is down, or that has stopped following."""
        broker = self.broker
        down = [name for name in ROOMS if not broker.rooms[name].running]
        down += [room.name for room in broker.followers if room.failed is not None]
        if not down:
            return "all run"
        name = broker.chance.choice(down)
        return self._start_room(name)

    def _overgrow(self) -> str:
        """The log loses what was never synced, its followers live on, and it grows past them
        before they are back."""
        broker = self.broker
        if broker.log.engine is None or broker.starved:
            return "not now"
        broker.disk.clear_faults()
        self._send()
        broker.run(broker.chance.randint(0, 30))
        broker.kill(COMMITLOG)
        broker.lose_unsynced()
        for _ in range(broker.chance.choice((1, 1, 2))):
            broker.kill(COMMITLOG)
            if not broker.start(COMMITLOG):
                return "the log did not start"
            for _ in range(broker.chance.randint(1, 6)):
                self._send()
                if broker.log.engine is not None and broker.log.woken:
                    broker.act(broker.log, broker.log.run_pass)
        return f"the log continues: {broker.log.engine.offsets if broker.log.engine else 'dead'}"

    def _start_crash(self) -> str:
        """The log begins to start, and does not come to the end of it."""
        broker = self.broker
        if broker.log.running:
            return "it runs"
        broker.disk.clear_faults()
        broker.crash_means_power = broker.chance.random() < self.profile.power
        operation, path = broker.chance.choice(IN_RECOVERY)
        nth = broker.chance.randint(1, 3)
        broker.disk.crash_on(operation, path, nth)
        detail = self._start_room(COMMITLOG)
        broker.disk.clear_faults()
        return f"{detail}, crash point at {operation} {path}, {nth} calls from its beginning"

    def _start_room(self, name: str) -> str:
        broker = self.broker
        broker.kill(name)
        if name == COMMITLOG:
            rocketmq.check(broker)
        return f"{name}: {'up' if broker.start(name) else 'not up'}"

    def _stop(self) -> str:
        broker = self.broker
        up = [n for n in ROOMS if broker.rooms[n].running and not broker.rooms[n].stopping]
        if not up:
            return "nothing to stop"
        room = broker.rooms[broker.chance.choice(up)]
        broker.act(room, room.begin_stop)
        return room.name

    def _kill(self) -> str:
        broker = self.broker
        up = [name for name in ROOMS if broker.rooms[name].running]
        if not up:
            return "nothing to kill"
        name = broker.chance.choice(up)
        broker.kill(name)
        return name

    def _kill_all(self) -> None:
        for name in ROOMS:
            self.broker.kill(name)

    def _power_loss(self) -> None:
        self.broker.power_loss()

    def _crash_point(self) -> str:
        """The process that makes some call soon dies there, or the power fails."""
        broker = self.broker
        chance, disk = broker.chance, broker.disk
        disk.clear_faults()
        broker.crash_means_power = chance.random() < self.profile.power
        what = "the power fails" if broker.crash_means_power else "the process dies"
        if not self.profile.crash_points and chance.random() < 0.2:
            broker.crash_means_power = True
            operation, path = chance.choice(BEFORE_A_SYNC)
            disk.crash_on(operation, path)
            return f"the power fails at the next {operation} {path}"
        patterns = self.profile.crash_points or CRASH_PATTERNS
        if not self.profile.crash_points and chance.random() < 0.5:
            ahead = chance.randint(1, chance.choice((5, 40)))
            disk.crash_at(disk.calls + ahead)
            return f"{what} {ahead} calls from now"
        operation, path = chance.choice(patterns)
        nth = chance.choice((1, 1, 2, 4))
        disk.crash_on(operation, path, nth)
        return f"{what} at {operation} {path}, {nth} calls from now"

    def _disconnect(self) -> str:
        broker = self.broker
        name = broker.chance.choice(FOLLOWERS)
        broker.connections[name].break_off(broker.chance)
        return name

    def _delete(self) -> str:
        broker = self.broker
        engine = broker.log.engine
        if engine is None or broker.cache_lies:
            return "not now"
        offsets_before = engine.offsets.minimum
        below = broker.chance.randint(offsets_before, engine.offsets.appended)
        urgent = broker.chance.random() < 0.3
        minimum, deleted = engine.delete_below(below, broker.chance.randint(1, 3), urgent)
        remember_deleted(broker, offsets_before, minimum)
        if deleted and broker.chance.random() < 0.5:
            broker.crash_means_power = broker.chance.random() < max(self.profile.power, 0.7)
            broker.disk.crash_on(*broker.chance.choice(IN_DELETION))
            # Until all have let go of it, or the time for that is over.
            for _ in range(DELETION_TICKS):
                broker.tick()
                broker.run(3)
        broker.unsure_queues |= urgent and bool(deleted)
        return f"below {below}{', urgently' if urgent else ''}: {len(deleted)} segments"

    # --- what goes wrong ---

    def _flush_fails(self) -> str:
        broker = self.broker
        partial = broker.chance.random() < 0.5
        broker.disk.fail("flush", "commitlog/*", broker.chance.randint(1, 3), partial=partial)
        return "partly" if partial else "wholly"

    def _call_fails(self) -> str:
        broker = self.broker
        operation, path = broker.chance.choice(FAILING)
        number = broker.chance.choice((errno.EIO, errno.ENOSPC))
        nth = broker.chance.randint(1, 12)
        broker.disk.fail(operation, path, nth, number)
        return f"{operation} {path}, {nth} calls from now, {errno.errorcode[number]}"

    def _write_back(self) -> None:
        self.broker.disk.write_back(self.broker.chance)

    def _write_back_fails(self) -> None:
        broker = self.broker
        broker.disk.write_back(broker.chance, errno.EIO)
        for room in broker.rooms.values():
            room.starved = True

    def _evict(self) -> str:
        return f"{self.broker.evict()} pages show something else"

    def _starve(self) -> str:
        broker = self.broker
        used = broker.disk.used_bytes()
        left = broker.chance.choice((0, 1, 2, 6, 20)) * 4096
        broker.disk.capacity_bytes = used + left
        for room in broker.rooms.values():
            room.starved = True
        return f"{left} bytes left"

    def _feed(self) -> None:
        self.broker.disk.capacity_bytes = self.broker.settings.capacity_bytes

    def _clock_jumps(self) -> str:
        broker = self.broker
        by = broker.chance.choice((-3_600_000, -5_000, 5_000, 86_400_000))
        broker.clock.set_wall_ms(broker.clock.wall_ms() + by)
        return f"by {by} ms"

    def _rocketmq(self) -> str:
        broker = self.broker
        if any(broker.rooms[name].running for name in ROOMS):
            return "not now"
        return rocketmq.use(broker)

    # --- the end ---

    def finish(self) -> None:
        """All faults over, everything up: it comes to rest, stops cleanly, and is all there."""
        broker = self.broker
        broker.chance.seed(FINISH_SEED)
        broker.disk.clear_faults()
        self._feed()
        self._all_up()
        settled = broker.settle()
        if not settled and not self._all_follow():
            # An event had been under way that named bytes which the log has lost since.
            self._all_up()
            settled = broker.settle()
        if not settled:
            raise Violation("rest", self._unrest())
        check_at_rest(broker)
        self._stop_all()
        self.done(len(self.outcome.operations), "finish", "stopped")
        rocketmq.check(broker)
        broker.power_loss()
        rocketmq.check(broker)
        if not broker.start(COMMITLOG):
            raise Violation("start", "the log does not start after a clean stop")
        self.done(len(self.outcome.operations), "finish", "the power failed, the log started")

    def _all_up(self) -> None:
        """Start everything that can run; restart what has failed or met a failure."""
        broker = self.broker
        for name in ROOMS:
            room = broker.rooms[name]
            failed = room.running and (room.excused or room.stopping)
            if failed or getattr(room, "failed", None) is not None:
                broker.kill(name)
        broker.disk.forget_errors()
        for name in ROOMS:
            if not broker.rooms[name].running:
                self._start_room(name)
        self.done(len(self.outcome.operations), "finish", "all up")

    def _stop_all(self) -> None:
        broker = self.broker
        for name in ROOMS:
            room = broker.rooms[name]
            broker.act(room, room.begin_stop)
            for _ in range(STOP_STEPS):
                if not room.running:
                    break
                broker.step()
        if any(broker.rooms[name].running for name in ROOMS):
            raise Violation("stop", "a room does not stop")
        if broker.disk.tree.find("abort") is not None:
            raise Violation("stop", "abort is there after a clean stop")
