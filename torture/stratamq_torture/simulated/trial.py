"""Many seeds of the simulated broker, a seed that fails made short, and every workload of up to
three operations with every crash point of the last one.

A workload begins with a small broker at rest: two segments, every queue dispatched, everything
durable. Its operations are words; nothing in them is left to chance, so that two runs of the same
words make the same calls. Crash points are the calls that change the disk: a crash before a call
that only reads leaves the same disk as one before the next change, and the broker may have promised
more by then.

Whatever happens, the end is that of every simulated run: all rooms are started, come to rest, and
are compared with what was promised; they stop, the power fails, and the log is started once more.
"""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice

from stratamq.files.simulated import CrashChoice, PortCall, keep_everything, keep_nothing
from stratamq_torture.simulated import rocketmq
from stratamq_torture.simulated.checks import remember_deleted
from stratamq_torture.simulated.rooms import COMMITLOG, DISPATCHER, INDEX, ROOMS
from stratamq_torture.simulated.simulation import Operation, Simulation
from stratamq_torture.simulated.world import DEFAULT, EACH, Profile, Sizes, standard
from stratamq_torture.trial import (
    Options,
    Outcome,
    Progress,
    Report,
    Tally,
    Trial,
    Violation,
    gather,
    ranges,
)

READS = frozenset({"entry", "list", "space", "read", "open", "map", "view"})
PASS_STEPS = 3
TICKS = 12

SMALL = standard(segment_bytes=1024, max_message_bytes=400, max_batch_bytes=900)
PROFILE = Profile(
    settings=replace(SMALL, index=replace(SMALL.index, index_items=60)),
    sizes=Sizes(bodies=(40,), odd=0, alike=True),
)


def keep_every_other() -> CrashChoice:
    """A crash that keeps the first thing at stake, loses the second, and so on."""
    kept = itertools.cycle((True, False))
    return lambda item: next(kept)


OUTCOMES = ("dies", "nothing", "everything")
"""What a crash point is: the process dies, or the power fails and so much survives."""


@dataclass(frozen=True, slots=True)
class Case:
    """A workload. `call`: the crash point, as a number of calls since the last operation began;
    0 for none."""

    words: tuple[str, ...]
    call: int = 0
    outcome: str = ""

    def __str__(self) -> str:
        text = ",".join(self.words)
        return f"{text}@{self.call}:{self.outcome}" if self.call else text

    @classmethod
    def parse(cls, text: str) -> "Case":
        """What `str` gave. ValueError for anything else."""
        words, _, crash = text.partition("@")
        call, _, outcome = crash.partition(":")
        case = cls(tuple(words.split(",")), int(call or 0), outcome)
        if set(case.words) - set(WORDS) or (case.call and outcome not in OUTCOMES):
            raise ValueError(f"{text!r} is no workload")
        return case


class Workload:
    """A broker, its small beginning, and the operations by their words."""

    def __init__(self, profile: Profile = PROFILE, *, trace: bool = False) -> None:
        self.simulation = Simulation(0, profile, trace=trace)
        self.broker = self.simulation.broker

    def begin(self) -> None:
        broker = self.broker
        for name in ROOMS:
            broker.start(name)
        for _ in range(3):
            self.put()
            self.put_delayed()
        self.settle()

    def do(self, word: str) -> None:
        """One operation. The scheduler's order is the same whatever came before."""
        self.broker.chance.seed(len(word))
        getattr(self, word)()
        self.simulation.done(0, word, "")

    # --- messages ---

    def put(self) -> None:
        self._send("one")

    def put_many(self) -> None:
        """A batch that is stored whole or not at all."""
        self._send("batch")

    def put_delayed(self) -> None:
        self._send("delayed")

    def _send(self, kind: str) -> None:
        """Stored at once, flushed when the next `run` lets that happen."""
        broker = self.broker
        log = broker.log
        if log.engine is None or log.stopping:
            return
        broker.act(log, lambda: broker.producers.send(kind, broker.chance))
        if log.engine is not None and log.woken:
            broker.act(log, log.run_pass)

    def roll(self) -> None:
        """Fill the segment, into the next one."""
        first = self._segment
        for _ in range(6):
            if self._segment == first:
                self.put()

    @property
    def _segment(self) -> int:
        """The one with the log's end; −1 without a log."""
        engine = self.broker.log.engine
        return -1 if engine is None else engine.offsets.appended // engine.segment_bytes

    def settle(self) -> None:
        """Flush, dispatch and make durable whatever there is."""
        self.broker.settle()

    def flush_alone(self) -> None:
        """The log flushes; its followers have not received it yet."""
        log = self.broker.log
        for _ in range(20):
            if log.engine is not None and log.scheduler.pending:
                self.broker.act(log, log.work)

    def follow_alone(self) -> None:
        """The followers receive and apply what they may; the log's flush has not begun."""
        broker = self.broker
        for _ in range(40):
            for room in broker.followers:
                for step in broker.connections[room.name].steps()[:1]:
                    broker.act(room, step)

    def pull(self) -> None:
        broker = self.broker
        engine = broker.dispatcher.engine
        if engine is not None and DISPATCHER not in broker.uncut:
            for key in sorted((queue.topic, queue.queue_id) for queue in engine.queues):
                broker.consumers.pull_all(engine, key)

    def delete(self) -> None:
        """The oldest segment goes, as soon as all agree."""
        broker = self.broker
        engine = broker.log.engine
        if engine is None or broker.cache_lies:
            return
        before = engine.offsets.minimum
        minimum, _ = engine.delete_below(engine.offsets.appended, 1, False)
        remember_deleted(broker, before, minimum)
        for _ in range(TICKS):
            broker.tick()
            broker.run(PASS_STEPS)

    # --- ends and beginnings ---

    def restart_log(self) -> None:
        """Killed and started; its followers run on."""
        self._restart(COMMITLOG)

    def restart_dispatcher(self) -> None:
        self._restart(DISPATCHER)

    def restart_index(self) -> None:
        self._restart(INDEX)

    def _restart(self, name: str) -> None:
        self.broker.kill(name)
        self._start(name)

    def _start(self, name: str) -> None:
        if name == COMMITLOG:
            rocketmq.check(self.broker)
        self.broker.start(name)

    def stop_log(self) -> None:
        """In order; its followers run on."""
        broker = self.broker
        if broker.log.engine is not None:
            broker.act(broker.log, broker.log.begin_stop)
            self._settle_stop()

    def _settle_stop(self) -> None:
        for _ in range(400):
            if not self.broker.log.running:
                return
            self.broker.step()

    def power_nothing(self) -> None:
        """The power fails, nothing un-synced survives; everything is started again."""
        self._power(keep_nothing)

    def power_half(self) -> None:
        self._power(keep_every_other())

    def power_everything(self) -> None:
        self._power(keep_everything)

    def _power(self, choice: CrashChoice) -> None:
        self.broker.power_loss(choice)
        for name in ROOMS:
            self._start(name)

    # --- what goes wrong ---

    def flush_fails(self) -> None:
        """The next flush of the log."""
        self.broker.disk.fail("flush", "commitlog/*")

    def evict(self) -> None:
        """The kernel drops every clean page."""
        self.broker.evict(all_pages=True)


WORDS = tuple(word for word in vars(Workload) if word[0] != "_" and word not in ("begin", "do"))


def workloads(most: int) -> Iterator[tuple[str, ...]]:
    """Short ones first."""
    for count in range(1, most + 1):
        yield from itertools.product(WORDS, repeat=count)


def run_case(case: Case, *, trace: bool = False) -> Outcome:
    """Carry it out, and look at what it came to."""
    workload = Workload(trace=trace)
    workload.simulation.outcome.name = str(case)
    return workload.simulation.judged(lambda: _carry_out(workload, case))


def crash_points(words: Sequence[str]) -> list[int]:
    """Calls since the last operation began before which a crash makes a difference, and the one
    behind it."""
    workload = Workload()
    disk = workload.broker.disk
    calls: list[PortCall] = []
    try:
        _do_all(workload, words[:-1])
        before = disk.calls
        disk.trace = calls
        workload.do(words[-1])
    except Violation:
        # The case without a crash point reports it.
        return []
    return [call.number - before for call in calls if call.operation not in READS]


def cases(words: tuple[str, ...]) -> Iterator[Case]:
    """The workload itself, and with each crash point and outcome."""
    yield Case(words)
    for call in crash_points(words):
        for outcome in OUTCOMES:
            yield Case(words, call, outcome)


def _do_all(workload: Workload, words: Sequence[str]) -> None:
    workload.begin()
    for word in words:
        workload.do(word)


def _carry_out(workload: Workload, case: Case) -> None:
    broker = workload.broker
    _do_all(workload, case.words[:-1])
    if case.call:
        broker.crash_means_power = case.outcome != "dies"
        broker.power_choice = {
            "nothing": keep_nothing,
            "everything": keep_everything,
        }.get(case.outcome)
        broker.disk.crash_at(broker.disk.calls + case.call)
    workload.do(case.words[-1])
    broker.power_choice = None
    workload.simulation.finish()


SEEDS_OF_A_TASK, WORKLOADS_OF_A_TASK = 10, 4
LOSSES = frozenset({"lost", "seen", "rocketmq"})
REPLAYS = 1_500
"""So many at most: a few minutes."""


def simulate(
    options: Options,
    progress: Progress = None,
    *,
    shorten: bool = False,
    keep: tuple[int, ...] = (),
) -> Report:
    """Run the seeds. `keep`: only these operations of the first seed, by their numbers in its
    trace; none: all."""
    trial = Trial("sim", options, progress)
    work = partial(run_seeds, operations=options.operations, keep=keep)
    tally = gather(trial, work, ranges(options, SEEDS_OF_A_TASK), LOSSES)
    trial.report.notes += _situations(tally)
    for outcome in tally.failed:
        trial.report.failures.append(f"seed {outcome.seed}: {outcome.violation}")
        numbers = keep or tuple(shrink(outcome) if shorten else ())
        if numbers != keep:
            count = f"{len(numbers)} of its {len(outcome.operations)}"
            trial.report.failures.append(f"  {count} operations are enough:")
        trial.report.failures += _how_to_see(options, outcome.seed, numbers)
    return trial.ended()


def run_seeds(
    seeds: Iterable[int],
    operations: int,
    profile: Profile = DEFAULT,
    *,
    keep: tuple[int, ...] = (),
    trace: bool = False,
) -> Tally:
    """In this process, one after the other."""
    tally = Tally()
    for seed in seeds:
        simulation = Simulation(seed, profile, trace=trace)
        if keep:
            whole = Simulation(seed, profile).run(operations)
            tally.take(simulation.replay(kept(whole, keep)))
        else:
            tally.take(simulation.run(operations))
    return tally


def _situations(tally: Tally) -> list[str]:
    return [f"{tally.seeds_that_met[each]:,} of them: {each}" for each in EACH]


def _how_to_see(options: Options, seed: int, numbers: tuple[int, ...]) -> Iterator[str]:
    """The command that runs a failing seed again, and what it would show if that was asked for."""
    command = f"stratamq torture sim --seeds 1 --first-seed {seed}"
    command += f" --operations {options.operations} --trace"
    yield "  " + command + (" --keep " + ",".join(map(str, numbers)) if numbers else "")
    if options.trace:
        again = run_seeds([seed], options.operations, keep=numbers, trace=True)
        yield from ("  " + line for line in again.failed[0].trace)


def shrink(outcome: Outcome, replays: int = REPLAYS) -> list[int]:
    """Numbers (from 1) of operations of a failed run that fail by the same rule."""
    assert outcome.violation is not None
    rule = outcome.violation.rule

    def fails(numbers: Sequence[int]) -> bool:
        violation = Simulation(outcome.seed, DEFAULT).replay(kept(outcome, numbers)).violation
        return violation is not None and violation.rule == rule

    numbers = list(range(1, len(outcome.operations) + 1))
    piece = len(numbers)
    while piece and replays > 0:
        start = 0
        shorter = False
        while start < len(numbers) and replays > 0:
            left = numbers[:start] + numbers[start + piece :]
            replays -= 1
            if fails(left):
                numbers, shorter = left, True
            else:
                start += piece
        if not (shorter and piece == 1):
            piece //= 2
    return numbers


def kept(outcome: Outcome, numbers: Sequence[int]) -> list[Operation]:
    """The operations of these numbers."""
    return [outcome.operations[number - 1] for number in numbers]


# --- enumerated workloads ---


def enumerate_all(
    options: Options, progress: Progress = None, *, crashed: int = 2, case: str = ""
) -> Report:
    """Every workload of up to `options.operations`; those of up to `crashed` have a case for each
    crash point of their last operation. Crashes between operations are operations themselves.
    `case`: only this one, as a failure names it."""
    trial = Trial("sim, enumerated", replace(options, jobs=1) if case else options, progress)
    report, shown = trial.report, list[str]()

    def run_one(task: Case) -> Tally:
        tally, outcome = Tally(), run_case(task, trace=options.trace)
        tally.take(outcome)
        shown.extend(outcome.trace)
        return tally

    if case:
        tally = gather(trial, run_one, [Case.parse(case)], LOSSES)
    else:
        words = workloads(options.operations)
        tasks = iter(lambda: list(islice(words, WORKLOADS_OF_A_TASK)), [])
        tally = gather(trial, partial(run_workloads, crashed=crashed), tasks, LOSSES)
    report.notes = [f"{tally.seeds:,} cases; the column of seeds counts them", *_situations(tally)]
    for outcome in tally.failed:
        report.failures.append(f"{outcome.name}: {outcome.violation}")
        report.failures.append(f"  stratamq torture sim --case {outcome.name} --trace")
    report.notes += shown
    return trial.ended()


def run_workloads(words: Iterable[tuple[str, ...]], crashed: int) -> Tally:
    """All cases of some workloads, in this process."""
    tally = Tally()
    for each in words:
        for case in cases(each) if len(each) <= crashed else (Case(each),):
            tally.take(run_case(case))
    return tally
