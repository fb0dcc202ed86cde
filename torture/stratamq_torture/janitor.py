"""One seed: a log, its janitor, and a wall clock that is put forward and back, within looks too.
No segment expires by a time that the wall clock has shown for less than the grace, and a plan is
what a run does."""

import random
from dataclasses import replace
from pathlib import Path

from stratamq_commitlog.config import CommitLogConfig
from stratamq_commitlog.engine import CommitLog
from stratamq_commitlog.log_parts import ThisProcess, Workers
from stratamq_commitlog.messages import PutMessage, PutResult
from stratamq_janitor.cleaner import Check, Cleaner, RetentionSwitch
from stratamq_janitor.clock_watch import ClockWatch, Witness
from stratamq_janitor.config import JanitorConfig
from stratamq_janitor.policy import EXPIRED

from stratamq.client.values import FollowerServiceState, GroupQueue, Unit
from stratamq.errors import UnavailableError
from stratamq.files.metadata import MetadataFile
from stratamq.files.simulated import SimulatedClock, SimulatedDisk, SimulatedScheduler
from stratamq.formats.hosts import Host
from stratamq.formats.log_state import LogState
from stratamq.formats.store_paths import JANITOR_STATE_PATH
from stratamq.rpc.rooms import JANITOR
from stratamq_torture.trial import Outcome, Run, SeedsTrial, Violation


class JumpingClock(SimulatedClock):
    """`arm` plans a jump: so many touches later, a touch being a reading of a clock or a call to
    another service. The monotonic clock tells the true time."""

    def __init__(self) -> None:
        super().__init__()
        self.jumped = 0
        self._began_ms = super().wall_ms()
        self._touches = self._by_ms = 0
        self._wrong = [(self._began_ms, 0)]

    @property
    def true_ms(self) -> int:
        return self._began_ms + super().monotonic_ns() // 1_000_000

    @property
    def wrong_ms(self) -> int:
        """How far the wall clock is ahead of the truth."""
        return super().wall_ms() - self.true_ms

    def wall_ms(self) -> int:
        self.touch()
        return super().wall_ms()

    def monotonic_ns(self) -> int:
        self.touch()
        return super().monotonic_ns()

    def arm(self, touches: int, by_ms: int) -> None:
        self._touches, self._by_ms = touches, by_ms

    def disarm(self) -> None:
        """What has not come until now does not come."""
        self._touches = 0

    def touch(self) -> None:
        if self._touches:
            self._touches -= 1
            if not self._touches:
                self.jump(self._by_ms)

    def jump(self, by_ms: int) -> None:
        self.jumped += 1
        self.set_wall_ms(super().wall_ms() + by_ms)
        self._wrong.append((self.true_ms, self.wrong_ms))

    def most_wrong_ms(self, first_ms: int, last_ms: int) -> int:
        """The furthest ahead of the truth that the wall clock was between two true times."""
        before = [wrong for at, wrong in self._wrong if at < first_ms][-1:]
        return max([*before, *(wrong for at, wrong in self._wrong if first_ms <= at <= last_ms)])


MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000


JUMPS_MS = (-DAY_MS, -HOUR_MS, HOUR_MS, DAY_MS, 4 * DAY_MS, 365 * DAY_MS)


RULES = {
    "reading": "one reading of the clocks is judged, and decides",
}


WEIGHTS = {"store": 20, "rest": 20, "look": 30, "jump": 6, "put_right": 10, "restart": 4}


SEGMENT_BYTES = 2048


BODY_BYTES = 700


class WatchedLog:
    """`stored_ms`: by the start of each segment, when its newest message was stored, by the wall or
    in truth, whichever is the earlier."""

    def __init__(self, chance: random.Random, clock: JumpingClock) -> None:
        self.stored_ms: dict[int, int] = {}
        self.acknowledged = 0
        self._clock = clock
        self._disk = SimulatedDisk(chance.getrandbits(32), clock=clock)
        self._scheduler = SimulatedScheduler(chance)
        config = CommitLogConfig(
            root=Path("store"),
            segment_bytes=SEGMENT_BYTES,
            followers=(),
            reserve_bytes=0,
            clock_jump_limit_ms=0,  # messages too are stored under any time
        )
        self._engine = CommitLog(
            self._disk.files(),
            config,
            clock=clock,
            random=chance,
            workers=Workers(self._scheduler.worker(), self._scheduler.worker()),
            process=ThisProcess(1),
        )
        self._engine.open()
        self.files = self._disk.files()

    def store(self, count: int) -> None:
        for _ in range(count):
            message = PutMessage(
                topic="orders",
                body=bytes(BODY_BYTES),
                queue_id=0,
                born_host=Host("10.1.2.3", 4567),
                born_timestamp_ms=1,
            )
            self._engine.put([message], False, self._stored)
            self._settle()

    def pass_time(self, milliseconds: int) -> None:
        self._clock.advance_ms(milliseconds)
        for _ in range(5):  # the checkpoint, which the janitor reads, is written by a later tick
            self._clock.advance_ms(1_000)
            self._engine.tick()
            self._settle()

    def _stored(self, results: list[PutResult]) -> None:
        (result,) = results
        assert result.physical_offset is not None
        start = result.physical_offset - result.physical_offset % SEGMENT_BYTES
        self.stored_ms[start] = self._clock.true_ms + min(0, self._clock.wrong_ms)
        self.acknowledged += 1

    def _settle(self) -> None:
        while True:
            self._engine.run_pass()
            if not self._scheduler.run_until_idle() and not self._engine.appender.waiting:
                return

    # --- what a janitor asks ---

    def log_state(self) -> LogState:
        self._clock.touch()
        return self._engine.status()

    def groups(self) -> list[GroupQueue]:
        return []

    def units(self, topic: str, queue_id: int, offset: int, count: int = 32) -> list[Unit]:
        return []

    def delivery_state(self) -> FollowerServiceState:
        raise UnavailableError("there is no delivery service")

    def delete_below(
        self, offset: int, *, max_segments: int, urgent: bool
    ) -> tuple[int, tuple[str, ...]]:
        self._clock.touch()
        minimum, deleted = self._engine.delete_below(offset, max_segments, urgent)
        return minimum, tuple(deleted)


class LaxWatch(ClockWatch):
    """One for which a rule may not hold."""

    without: frozenset[str] = frozenset()

    def see(self, newest_message_ms: int | None, *, trust: bool = False) -> Witness:
        seen = super().see(newest_message_ms, trust=trust)
        if "reading" in self.without:
            seen = replace(seen, wall_ms=self._clock.wall_ms())
        return seen


class Simulation(Run):
    """`run` once. `without`: names of `RULES`."""

    def __init__(
        self, seed: int, *, trace: bool = False, without: frozenset[str] = frozenset()
    ) -> None:
        super().__init__(seed, trace=trace)
        self._chance = random.Random(seed)
        self._without = without
        self._clock = JumpingClock()
        self._log = WatchedLog(self._chance, self._clock)
        hold_hours = self._chance.choice((12, 72))
        self._config = JanitorConfig(root=Path("store"), retention_ms=hold_hours * HOUR_MS)
        self.outcome.settings = f"retention {hold_hours} h"
        self._janitor = self._start_janitor()
        self._looks_ms: list[int] = []
        """True times."""

    def run(self, operations: int) -> Outcome:
        outcome = self.guarded(lambda: self._all(operations))
        outcome.acknowledged = self._log.acknowledged
        outcome.situations["jumps of the clock"] += self._clock.jumped
        return outcome

    def _all(self, operations: int) -> None:
        self._log.store(6)
        self._look()
        names, weights = list(WEIGHTS), list(WEIGHTS.values())
        for number in range(operations):
            name = self._chance.choices(names, weights)[0]
            self.note(f"{number} {name}, {self._clock.wrong_ms / HOUR_MS:+.1f} h")
            getattr(self, f"_{name}")()

    # --- what happens ---

    def _store(self) -> None:
        self._log.store(self._chance.randint(1, 8))

    def _rest(self) -> None:
        self._log.pass_time(self._chance.choice((10_000, MINUTE_MS, 70 * MINUTE_MS, 13 * HOUR_MS)))

    def _jump(self) -> None:
        self._clock.jump(self._chance.choice(JUMPS_MS))

    def _put_right(self) -> None:
        if self._clock.wrong_ms:
            self._clock.jump(-self._clock.wrong_ms)

    def _restart(self) -> None:
        self._janitor = self._start_janitor()

    def _look(self) -> None:
        """A plan and a run, or a run in which the clock jumps."""
        chance, clock = self._chance, self._clock
        manual = chance.random() < 0.7
        plan = None
        if chance.random() < 0.5:
            clock.arm(chance.randint(1, 12), chance.choice(JUMPS_MS))
        else:
            plan = self._janitor.plan(manual=manual)
        self._looks_ms.append(clock.true_ms)
        look = self._janitor.run(manual=manual)
        clock.disarm()
        self.note(f"  {look.decision}")
        if plan is not None and plan.decision.deletions != look.decision.deletions:
            raise Violation("plan", f"{plan.decision.deletions} planned, {look.deleted} deleted")
        self._check(look)

    def _check(self, look: Check) -> None:
        """What the wall showed a grace ago, or at the last look before, is believed; no more."""
        clock, config = self._clock, self._config
        now_ms = clock.true_ms
        last_ms = now_ms - config.clock_grace_ms
        first_ms = max([self._looks_ms[0], *(at for at in self._looks_ms if at <= last_ms)])
        believed_ms = now_ms + clock.most_wrong_ms(first_ms, max(first_ms, last_ms))
        for gone in look.decision.deletions[: len(look.deleted)]:
            self.outcome.situations[f"segments deleted: {gone.reason}"] += 1
            age_ms = believed_ms - self._log.stored_ms.pop(gone.segment.start)
            if gone.reason == EXPIRED and age_ms < config.retention_ms - config.clock_tolerance_ms:
                raise Violation(
                    "too early",
                    f"segment {gone.segment.start} is {age_ms} ms old at most: {gone.sentence}",
                )

    # --- parts ---

    def _start_janitor(self) -> Cleaner:
        files, config = self._log.files, self._config
        watch = LaxWatch(
            MetadataFile(files, JANITOR_STATE_PATH),
            "boot",
            config.clock_tolerance_ms,
            config.clock_grace_ms,
            self._clock,
        )
        watch.without = self._without
        retention = RetentionSwitch(files, config.enabled)
        return Cleaner(files, self._log, self._log, config, retention, watch)


TRIAL = SeedsTrial(JANITOR, Simulation, frozenset({"too early"}), RULES)
