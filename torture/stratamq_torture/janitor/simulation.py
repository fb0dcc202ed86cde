"""One seed: a log, its janitor, and a wall clock that is put forward and back, within looks too.
No segment expires by a time that the wall clock has shown for less than the grace, and a plan is
what a run does."""

import random
import traceback
from dataclasses import replace
from pathlib import Path

from stratamq_janitor.cleaner import Cleaner, Look
from stratamq_janitor.clock_watch import ClockWatch, Witness
from stratamq_janitor.config import JanitorConfig
from stratamq_janitor.policy import EXPIRED
from stratamq_janitor.retention import Retention

from stratamq.files.metadata import MetadataFile
from stratamq.formats.store_paths import JANITOR_STATE_PATH
from stratamq_torture.janitor.broker import WatchedLog
from stratamq_torture.janitor.clock import JumpingClock
from stratamq_torture.seeds import Outcome
from stratamq_torture.simulated.model import Violation

MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000
JUMPS_MS = (-DAY_MS, -HOUR_MS, HOUR_MS, DAY_MS, 4 * DAY_MS, 365 * DAY_MS)
RULES = {
    "reading": "one reading of the clocks is judged, and decides",
}
WEIGHTS = {"store": 20, "rest": 20, "look": 30, "jump": 6, "put_right": 10, "restart": 4}


class LaxWatch(ClockWatch):
    """One for which a rule may not hold."""

    without: frozenset[str] = frozenset()

    def see(self, newest_message_ms: int | None, *, trust: bool = False) -> Witness:
        seen = super().see(newest_message_ms, trust=trust)
        if "reading" in self.without:
            seen = replace(seen, wall_ms=self._clock.wall_ms())
        return seen


class Simulation:
    """`run` once. `without`: names of `RULES`."""

    def __init__(
        self, seed: int, *, trace: bool = False, without: frozenset[str] = frozenset()
    ) -> None:
        self.outcome = Outcome(seed)
        self._chance = random.Random(seed)
        self._tracing = trace
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
        outcome = self.outcome
        try:
            self._log.store(6)
            self._look()
            names, weights = list(WEIGHTS), list(WEIGHTS.values())
            for number in range(operations):
                name = self._chance.choices(names, weights)[0]
                self._note(f"{number} {name}, {self._clock.wrong_ms / HOUR_MS:+.1f} h")
                getattr(self, f"_{name}")()
        except Violation as violation:
            outcome.violation = violation
        except Exception as error:  # noqa: BLE001 - a defect of any kind is reported by its seed
            outcome.violation = Violation("error", repr(error))
            self._note(traceback.format_exc())
        outcome.acknowledged = self._log.acknowledged
        outcome.situations["jumps of the clock"] += self._clock.jumped
        return outcome

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
        self._note(f"  {look.decision}")
        if plan is not None and plan.decision.deletions != look.decision.deletions:
            raise Violation("plan", f"{plan.decision.deletions} planned, {look.deleted} deleted")
        self._check(look)

    def _check(self, look: Look) -> None:
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
        retention = Retention(files, config.enabled)
        return Cleaner(files, self._log, self._log, config, retention, watch)

    def _note(self, line: str) -> None:
        if self._tracing:
            self.outcome.trace.append(line)
