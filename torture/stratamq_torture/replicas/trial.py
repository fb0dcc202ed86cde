"""`stratamq torture replicas`: masters of two real brokers are lost under load."""

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from stratamq.client import Role
from stratamq.errors import StrataError
from stratamq.files.clock import SystemClock
from stratamq_torture.processes.checker import Findings
from stratamq_torture.processes.services import ServiceFailedError
from stratamq_torture.replicas.brokers import BrokersFailedError
from stratamq_torture.replicas.stage import Stage
from stratamq_torture.report import Report

ROUNDS_OF_A_PAIR = 5
DRAWN = ("killed", "killed", "paused", "cut-off")
"""Each once, in a random order, before one comes again."""
LARGEST_SEED = 1 << 31

Progress = Callable[[int, int], None]
"""Told how many rounds are done, and how many lines tell of broken promises."""


@dataclass(frozen=True, slots=True)
class ReplicasOptions:
    """`rounds` or `seconds`, whichever ends first. `loss`: this one only. `role`: what masters are;
    ASYNC_MASTER loses what it had not shipped, which shows that the trial can see it."""

    rounds: int = 20
    seed: int = 1
    seconds: float | None = None
    loss: str = ""
    role: Role = Role.SYNC_MASTER


def run_replicas(options: ReplicasOptions, progress: Progress | None = None) -> Report:
    """The trial. The real processes decide what happens when: a seed brings the same losses after
    the same waits on the same messages, not the same microseconds."""
    return _Trial(options, progress).run()


class _Trial:
    def __init__(self, options: ReplicasOptions, progress: Progress | None) -> None:
        self._options = options
        self._progress = progress
        self._clock = SystemClock()
        self._started_ns = self._clock.monotonic_ns()
        self._report = Report("replicas")
        self._chance = random.Random(options.seed)
        self._waiting: list[str] = []
        self._struck: Counter[str] = Counter()
        self._given_up = 0
        self._round = 0

    def run(self) -> Report:
        report = self._report
        while self._more() and report.passed:
            self._play()
            report.seeds += 1
        report.rounds = self._round
        report.seconds = self._elapsed_s
        struck = ", ".join(f"{name} {count}" for name, count in sorted(self._struck.items()))
        report.notes.append(
            f"{self._round} masters lost by {report.seeds} pairs: {struck}; {self._given_up} had "
            "bytes that nobody was promised, gave them up and keep them aside"
        )
        return report

    @property
    def _elapsed_s(self) -> float:
        return (self._clock.monotonic_ns() - self._started_ns) / 1e9

    def _more(self) -> bool:
        limit_s = self._options.seconds
        in_time = limit_s is None or self._elapsed_s < limit_s
        return in_time and self._round < self._options.rounds

    def _play(self) -> None:
        """One pair of brokers, from its first message to its files: at least one round."""
        stage = Stage(self._chance.randrange(LARGEST_SEED), self._options.role)
        where = "the start of the brokers"
        try:
            with stage:
                for number in range(ROUNDS_OF_A_PAIR):
                    if number and not self._more():
                        break
                    loss = self._next_loss()
                    where = f"master {stage.master} {loss}"
                    stage.lose_master(loss)
                    self._found(stage, stage.check()[0], where)
                    self._round += 1
                    self._struck[loss] += 1
                    if self._progress is not None:
                        self._progress(self._round, len(self._report.failures))
                    if not self._report.passed:
                        return
                where = "the end of the pair"
                self._found(stage, stage.finish(), where)
        except (ServiceFailedError, BrokersFailedError, StrataError) as error:
            self._fail(stage, where, [str(error)])
        finally:
            self._report.kills += stage.brokers.kills
            self._report.promotions += stage.promotions
            self._report.acknowledged_messages += len(stage.ledger.acknowledged)
            self._given_up += stage.given_up

    def _next_loss(self) -> str:
        if self._options.loss:
            return self._options.loss
        if not self._waiting:
            self._waiting = self._chance.sample(DRAWN, len(DRAWN))
        return self._waiting.pop()

    def _found(self, stage: Stage, findings: Findings, where: str) -> None:
        self._report.lost += len(findings.lost)
        if findings.sentences:
            self._fail(stage, where, findings.sentences)

    def _fail(self, stage: Stage, where: str, sentences: list[str]) -> None:
        stage.keep = True
        rounds = max(1, self._round + (where != "the end of the pair"))
        self._report.failures += [f"round {rounds}, {where}: {line}" for line in sentences]
        options = self._options
        loss = f" --loss {options.loss}" if options.loss else ""
        role = " --async-master" if options.role is Role.ASYNC_MASTER else ""
        self._report.failures.append(
            f"the stores and what their services wrote are kept in {stage.directory}; again: "
            f"stratamq torture replicas --seed {options.seed} --rounds {rounds}{loss}{role}"
        )
