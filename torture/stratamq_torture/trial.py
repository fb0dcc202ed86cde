"""What every trial is run by: what is asked of it, its time, chance and progress, and its report;
the run of one seed, in a virtual time where coroutines are run; and many seeds in worker processes.

Each seed is run in one process from its first operation to its last, so that one that fails does so
again wherever it runs.
"""

import asyncio
import json
import logging
import random
import selectors
import traceback
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from functools import partial
from itertools import islice
from multiprocessing import get_context
from typing import Any, TypeVar

from rich.console import Console
from rich.table import Table

from stratamq.files.clock import SystemClock
from stratamq.files.simulated import SimulatedCrash

Task = TypeVar("Task")
Result = TypeVar("Result")

Progress = Callable[[int, int], None] | None
"""Called with how many (seeds, rounds, …) are done, and how many lines report broken promises."""


class TrialFailedError(Exception):
    """Services, disks or wires of a trial did not do what they were to do; the sentence names what
    that was, and holds what they wrote."""


class Violation(Exception):
    """A promise that was broken. `rule` is one of a few words; `sentence` names the case."""

    def __init__(self, rule: str, sentence: str) -> None:
        super().__init__(rule, sentence)
        self.rule = rule
        self.sentence = sentence

    def __str__(self) -> str:
        return f"{self.rule}: {self.sentence}"


@dataclass(frozen=True, slots=True)
class Options:
    """What every command may ask of its trial. `count` of seeds, rounds, files or messages, or
    `seconds`, whichever ends first; 0 seconds: no end. `seed`: the first one. `jobs`: processes.
    `without`: names of rules that do not hold."""

    count: int = 1
    seed: int = 1
    seconds: float = 0
    jobs: int = 1
    operations: int = 60
    trace: bool = False
    without: tuple[str, ...] = ()


@dataclass(slots=True)
class Report:
    """One trial. Numbers of things that were done, and `lost`, which must stay 0."""

    trial: str
    seeds: int = 0
    rounds: int = 0
    crash_points: int = 0
    kills: int = 0
    power_losses: int = 0
    promotions: int = 0
    damaged_files: int = 0
    acknowledged_messages: int = 0
    lost: int = 0
    duplicates: int = 0
    """Copies of messages beyond the first: there are none."""
    seconds: float = 0.0
    failures: list[str] = field(default_factory=list)
    """Each broken promise in a sentence with the command that repeats it."""
    skipped: str = ""
    """Why this trial did not run here; empty when it did."""
    notes: list[str] = field(default_factory=list)
    """What a reader should know beside the numbers."""
    interrupted: bool = False
    """It ended by Ctrl-C: the numbers are of what was done until then."""

    @property
    def passed(self) -> bool:
        return not self.failures and self.lost == 0


COUNTS = tuple(each.name for each in fields(Report) if each.type in (int, "int"))


def total(reports: Iterable[Report]) -> dict[str, Any]:
    """The object that every `stratamq torture` command prints last: sums, and each trial."""
    trials = list(reports)
    sums: dict[str, Any] = {name: sum(getattr(t, name) for t in trials) for name in COUNTS}
    sums["passed"] = all(trial.passed for trial in trials)
    sums["trials"] = [asdict(trial) for trial in trials]
    return sums


def as_json(reports: Iterable[Report]) -> str:
    """One line."""
    return json.dumps(total(reports), separators=(",", ":"))


def print_table(reports: Iterable[Report], console: Console) -> None:
    """A row for each trial, then what failed, was skipped, or should be known."""
    table = Table(title="Nothing acknowledged is ever lost")
    table.add_column("trial")
    for name in COUNTS:
        table.add_column(name.replace("_", " "), justify="right")
    table.add_column("seconds", justify="right")
    table.add_column("result")
    remarks: list[str] = []
    for trial in reports:
        numbers = [f"{getattr(trial, name):,}" if not trial.skipped else "" for name in COUNTS]
        result = "skipped" if trial.skipped else "passed" if trial.passed else "[bold red]FAILED"
        table.add_row(trial.trial, *numbers, f"{trial.seconds:.0f}", result)
        if trial.skipped:
            remarks.append(f"{trial.trial}: skipped: {trial.skipped}")
        remarks += [f"{trial.trial}: {line}" for line in (*trial.failures, *trial.notes)]
    console.print(table)
    for remark in remarks:
        console.print(remark, markup=False, highlight=False, soft_wrap=True)


class Trial:
    """One run, within the time of its options: nothing begins after that."""

    def __init__(self, name: str, options: Options, progress: Progress) -> None:
        self.report = Report(name)
        self.options = options
        self.chance = random.Random(options.seed)
        self.clock = SystemClock()
        self.done = 0
        self.met: Counter[str] = Counter()
        """What was done, and how often."""
        self._progress = progress
        self._started_ns = self.clock.monotonic_ns()

    @property
    def in_time(self) -> bool:
        return not self.options.seconds or self._elapsed_s < self.options.seconds

    def within(self, tasks: Iterable[Task]) -> Iterator[Task]:
        """Tasks, until the time is over."""
        for task in tasks:
            if not self.in_time:
                return
            yield task

    def count(self, done: int = 1, failed: int | None = None) -> None:
        """So many more are done; `failed`: so many of all have, other than by report."""
        self.done += done
        if self._progress is not None:
            self._progress(self.done, len(self.report.failures) if failed is None else failed)

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """Ctrl-C ends the block, and the report tells what was done until then."""
        try:
            yield
        except KeyboardInterrupt:
            self.report.interrupted = True
            self.report.notes.append("interrupted: the last store was not judged at its end")

    @property
    def summary(self) -> str:
        """What was done, for people."""
        return ", ".join(f"{name} {count}" for name, count in sorted(self.met.items()))

    def ended(self) -> Report:
        self.report.seconds = self._elapsed_s
        return self.report

    @property
    def _elapsed_s(self) -> float:
        return (self.clock.monotonic_ns() - self._started_ns) / 1e9


class Deck:
    """Each card once, in a random order, before one comes again."""

    def __init__(self, chance: random.Random, cards: Sequence[str]) -> None:
        self._chance = chance
        self._cards = cards
        self._left: list[str] = []

    def draw(self) -> str:
        if not self._left:
            self._left = self._chance.sample(self._cards, len(self._cards))
        return self._left.pop()


def spread(work: Callable[[Task], Result], tasks: Iterable[Task], jobs: int) -> Iterator[Result]:
    """`work` of every task, in no order. `tasks` is asked for more only while workers are short of
    them, so that it can end early; what has begun is waited for. One job works in this process.

    Workers log nothing: the engines warn about every fault that is planned for them.
    """
    if jobs <= 1:
        yield from map(work, tasks)
        return
    with ProcessPoolExecutor(jobs, get_context("spawn"), initializer=logging.disable) as pool:
        left = iter(tasks)
        running: set[Future[Result]] = set()
        while True:
            for task in islice(left, 2 * jobs - len(running)):
                running.add(pool.submit(work, task))
            if not running:
                return
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                yield future.result()


COUNTED = ("crash_points", "kills", "power_losses", "promotions", "acknowledged")
START_MS = 1_700_000_000_000


@dataclass(slots=True, kw_only=True)
class Counts:
    """How often something happened. `situations`: by their names."""

    crash_points: int = 0
    kills: int = 0
    power_losses: int = 0
    promotions: int = 0
    acknowledged: int = 0
    situations: Counter[str] = field(default_factory=Counter)

    def sum(self, other: "Counts") -> None:
        for name in COUNTED:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.situations.update(other.situations)


@dataclass(slots=True)
class Outcome(Counts):
    """What one seed came to. Crosses process borders. `name`: of an enumerated workload;
    `settings`: what the seed chose, for people; `operations`: those that replay it."""

    seed: int
    name: str = ""
    settings: str = ""
    violation: Violation | None = None
    operations: list[Any] = field(default_factory=list)
    trace: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Tally(Counts):
    """What some seeds came to. Crosses process borders, and adds up."""

    seeds: int = 0
    seeds_that_met: Counter[str] = field(default_factory=Counter)
    """In how many seeds each situation came up."""
    failed: list[Outcome] = field(default_factory=list)
    """Those with a violation."""

    def take(self, outcome: Outcome) -> None:
        self.seeds += 1
        self.sum(outcome)
        self.seeds_that_met.update(outcome.situations.keys())
        if outcome.violation is not None:
            self.failed.append(outcome)

    def add(self, other: "Tally") -> None:
        self.seeds += other.seeds
        self.sum(other)
        self.seeds_that_met.update(other.seeds_that_met)
        self.failed += other.failed


class Run:
    """One seed, run once. Whatever is raised in it is reported by its seed: the others go on."""

    def __init__(self, seed: int, *, trace: bool) -> None:
        self.outcome = Outcome(seed)
        self.notes: list[str] | None = [] if trace else None
        """What happened within the present operation."""

    def note(self, line: str) -> None:
        """For the trace."""
        if self.notes is not None:
            self.outcome.trace.append(line)

    def done(self, number: int, kind: str, detail: object) -> None:
        """An operation, with what happened within it."""
        self.note(f"{number:4d} {kind}{f': {detail}' if detail else ''}")
        for line in self.notes or ():
            self.note(f"       {line}")
        if self.notes is not None:
            self.notes.clear()

    def guarded(self, work: Callable[[], object]) -> Outcome:
        try:
            work()
        except Violation as violation:
            self.outcome.violation = violation
        except (Exception, SimulatedCrash) as error:  # noqa: BLE001 - a defect of any kind
            self.note(traceback.format_exc())
            self.outcome.violation = Violation("raised", repr(error))
        return self.outcome


class VirtualRun(Run):
    """One whose coroutines run in a time of their own, which passes only while nothing can be
    done."""

    def __init__(self, seed: int, *, trace: bool) -> None:
        super().__init__(seed, trace=trace)
        self.loop = VirtualLoop()

    def run_virtually(self, work: Coroutine[None, None, None]) -> Outcome:
        """No task outlives it; what ends one is for `work` to look at."""
        loop = self.loop
        loop.set_exception_handler(lambda loop, context: None)
        outcome = self.guarded(lambda: loop.run_until_complete(work))
        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()
        if tasks:
            loop.run_until_complete(asyncio.wait(tasks))
        loop.close()
        return outcome


class VirtualLoop(asyncio.SelectorEventLoop):
    """Also the `Clock` of all that runs in it. Nothing in it may use threads or sockets."""

    def __init__(self) -> None:
        self._now_s = 0.0
        super().__init__(_Jumping(self))

    def time(self) -> float:
        return self._now_s

    def pass_by(self, seconds: float) -> None:
        self._now_s += seconds

    def wall_ms(self) -> int:
        # From the other clock: two roundings of one float can be a millisecond apart.
        return START_MS + self.monotonic_ns() // 1_000_000

    def monotonic_ns(self) -> int:
        return int(self._now_s * 1e9)


class _Jumping(selectors.SelectSelector):
    """No file is ever ready; a wait is over at once, at its end."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise TrialFailedError("everything waits for something that never comes")
        self._loop.pass_by(max(0.0, timeout))
        return []


def gather(
    trial: Trial, work: Callable[[Task], Tally], tasks: Iterable[Task], losses: frozenset[str]
) -> Tally:
    """The sum of all tasks that begin in time, with its numbers in the report; the failures are the
    caller's to name. `losses`: rules whose violation means that a message is lost that a client
    relies on."""
    whole = Tally()
    for tally in spread(work, trial.within(tasks), trial.options.jobs):
        whole.add(tally)
        trial.count(tally.seeds, len(whole.failed))
    report = trial.report
    report.seeds, report.acknowledged_messages = whole.seeds, whole.acknowledged
    for name in COUNTED[:-1]:
        setattr(report, name, getattr(whole, name))
    whole.failed.sort(key=lambda outcome: outcome.seed)
    report.lost = sum(
        one.violation is not None and one.violation.rule in losses for one in whole.failed
    )
    return whole


def ranges(options: Options, size: int) -> Iterator[range]:
    """The seeds, `size` to a task."""
    end = options.seed + options.count
    for begin in range(options.seed, end, size):
        yield range(begin, min(begin + size, end))


@dataclass(frozen=True, slots=True)
class SeedsTrial:
    """A trial `stratamq torture NAME` of simulations by their seeds.

    `new(seed, trace=…, without=…)` makes one, whose `run(operations)` returns an `Outcome`; it
    crosses process borders. `losses`: see `gather`. `rules`: those that can be switched off, and
    what they are for. `at_once`: seeds of a task of a worker.
    """

    name: str
    new: Callable[..., Any]
    losses: frozenset[str]
    rules: Mapping[str, str] = field(default_factory=dict)
    at_once: int = 20

    def simulate(self, options: Options, progress: Progress = None) -> Report:
        """Run the seeds. `progress` is called with how many are done, and how many failed."""
        trial = Trial(self.name, options, progress)
        work = partial(self._run, options=options)
        tally = gather(trial, work, ranges(options, self.at_once), self.losses)
        report = trial.report
        situations = sorted(tally.situations.items())
        report.notes += [f"{count:,} times: {what}" for what, count in situations]
        for outcome in tally.failed:
            report.failures.append(f"seed {outcome.seed}, {outcome.settings}: {outcome.violation}")
            report.failures += self._how_to_see(options, outcome.seed)
        return trial.ended()

    def _run(self, seeds: Iterable[int], options: Options) -> Tally:
        """In this process, one after the other."""
        tally = Tally()
        for seed in seeds:
            tally.take(self._one(seed, options, trace=False))
        return tally

    def _one(self, seed: int, options: Options, *, trace: bool) -> Outcome:
        rules = {"without": frozenset(options.without)} if options.without else {}
        outcome: Outcome = self.new(seed, trace=trace, **rules).run(options.operations)
        return outcome

    def _how_to_see(self, options: Options, seed: int) -> Iterator[str]:
        """The command that runs a failing seed again, and what it would show if that was asked."""
        command = f"stratamq torture {self.name} --seeds 1 --first-seed {seed}"
        rules = "".join(f" --without {name}" for name in options.without)
        yield f"  {command} --operations {options.operations}{rules} --trace"
        if options.trace:
            yield from ("  " + line for line in self._one(seed, options, trace=True).trace)
