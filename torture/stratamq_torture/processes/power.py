"""`stratamq torture power`: the power goes while the real services work on a forgetful disk.

All services die at once, and of what they had not synced the disk keeps nothing, everything or a
random part, pages torn at sectors among it. Under SYNC_FLUSH nothing acknowledged may be missing.
Under ASYNC_FLUSH what is missing must be the newest part, no older than the flush interval, and is
reported.
"""

import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import grpc

from stratamq.api.v1 import commitlog_pb2
from stratamq.files.clock import SystemClock
from stratamq.rpc.endpoints import CHANNEL_OPTIONS, Endpoints
from stratamq.rpc.methods import COMMITLOG, METHODS, ROOMS
from stratamq_torture.processes import power_supply
from stratamq_torture.processes.checker import Findings, read_range
from stratamq_torture.processes.kill_points import names, state_of, wait
from stratamq_torture.processes.log_image import LogImage
from stratamq_torture.processes.power_supply import DiskFailedError, ForgetfulDisk
from stratamq_torture.processes.services import ServiceFailedError, until
from stratamq_torture.processes.stage import Stage
from stratamq_torture.report import Report

LOSSES_OF_A_STORE = 5
MESSAGES_BEFORE, MESSAGES_AFTER = 200, 50
FLUSH_INTERVAL_MS = 500
SLACK_MS = 600
"""Beside the interval: a tick of the log (100 ms), the flush itself, and a busy machine."""
KEPT = ("nothing", "everything", "random", "random")
PATIENCE_S, LOOK_S = 3.0, 0.001
LARGEST_SEED = 1 << 31

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class PowerOptions:
    """`rounds` or `seconds`, whichever ends first; a round is one power loss, or two where the
    second comes during the recovery from the first."""

    rounds: int = 20
    seed: int = 1
    flush: str = "SYNC_FLUSH"
    seconds: float | None = None


# --- when the power goes ---


def under_load(stage: Stage) -> None:
    wait(stage, 0.5)


def segment_allocated(stage: Stage) -> None:
    changed(stage, lambda: names(stage, "commitlog"))


def snapshot(stage: Stage) -> None:
    changed(stage, lambda: state_of(stage, "stratamq/queue-offsets.journal"))


def dispatcher_watermark(stage: Stage) -> None:
    changed(stage, lambda: state_of(stage, "stratamq/dispatcher.json"))


def index_watermark(stage: Stage) -> None:
    changed(stage, lambda: state_of(stage, "stratamq/index.json"))


def log_restarted(stage: Stage) -> None:
    """After a kill the cache shows what the disk does not have: recovery must not believe it."""
    stage.services.kill(COMMITLOG)
    stage.services.start([COMMITLOG])
    wait(stage, 0.2)


def stopping(stage: Stage) -> None:
    for room in ROOMS:
        stage.services.terminate(room)
    wait(stage, 0.5)


def recovery(stage: Stage) -> None:
    """Of the loss before: the services have just been started again."""
    for room in ROOMS:
        stage.services.spawn(room)
    stage.services.wait_announced(COMMITLOG)
    wait(stage, 0.15)


MOMENTS: dict[str, Callable[[Stage], None]] = {
    "under load": under_load,
    "segment allocated": segment_allocated,
    "snapshot": snapshot,
    "dispatcher watermark": dispatcher_watermark,
    "index watermark": index_watermark,
    "log restarted": log_restarted,
    "stopping": stopping,
}


def changed(stage: Stage, look: Callable[[], object]) -> None:
    before = look()
    until(lambda: look() != before, PATIENCE_S, LOOK_S)


# --- the trial ---


def run_power_losses(options: PowerOptions, progress: Progress | None = None) -> Report:
    reason = power_supply.missing()
    if reason:
        return Report(_name(options), skipped=reason)
    return _Trial(options, progress).run()


def _name(options: PowerOptions) -> str:
    return "power" if options.flush == "SYNC_FLUSH" else "power, async flush"


class _Trial:
    def __init__(self, options: PowerOptions, progress: Progress | None) -> None:
        self._options = options
        self._progress = progress
        self._clock = SystemClock()
        self._started_ns = self._clock.monotonic_ns()
        self._report = Report(_name(options))
        self._chance = random.Random(options.seed)
        self._waiting: list[str] = []
        self._moments: Counter[str] = Counter()
        self._at_stake: Counter[str] = Counter()
        self._cuts_ns: list[tuple[int, int]] = []
        """Of this round: when the power went, and when everything was dead and the disk back."""
        self._forgotten = 0
        self._oldest_ms = 0.0
        self._round = 0

    def run(self) -> Report:
        report = self._report
        while self._more() and report.passed:
            self._play()
            report.seeds += 1
        report.rounds = self._round
        report.seconds = self._elapsed_s
        moments = ", ".join(f"{name} {count}" for name, count in sorted(self._moments.items()))
        report.notes.append(f"power lost: {moments}")
        stake = self._at_stake
        report.notes.append(
            f"not synced when the power went: {stake['page']} pages, {stake['size']} sizes, "
            f"{stake['entry']} directory entries"
        )
        if self._options.flush != "SYNC_FLUSH":
            report.notes.append(
                f"acknowledged under ASYNC_FLUSH and lost with the power, as promised: "
                f"{self._forgotten} messages, the oldest {self._oldest_ms:.0f} ms before "
                f"(flush interval {FLUSH_INTERVAL_MS} ms)"
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
        """One store, from its first message to its files."""
        settings = (
            f"commitlog.flush_disk_type={self._options.flush}",
            f"commitlog.flush_interval_ms={FLUSH_INTERVAL_MS}",
        )
        where = "the start of the store"
        with ForgetfulDisk() as disk:
            # Under ASYNC_FLUSH consumers may see what then goes: nothing is promised to them.
            stage = Stage(
                self._chance.randrange(LARGEST_SEED),
                settings,
                disk.mountpoint / "store",
                consumers=self._options.flush == "SYNC_FLUSH",
            )
            try:
                with stage:
                    for _ in range(LOSSES_OF_A_STORE):
                        if not self._more():
                            break
                        where = self._lose_power(stage, disk)
                        self._found(stage, stage.check(), where)
                        self._round += 1
                        if self._progress is not None:
                            self._progress(self._round, len(self._report.failures))
                        if not self._report.passed:
                            return
                    where = "the end of the store"
                    self._found(stage, stage.finish(), where)
            except (ServiceFailedError, DiskFailedError) as error:
                self._fail(stage, where, [str(error)])
            finally:
                self._report.kills += stage.services.kills
                self._report.acknowledged_messages += len(stage.ledger.acknowledged)

    def _lose_power(self, stage: Stage, disk: ForgetfulDisk) -> str:
        """One round: load, power loss, start; where it was, for people."""
        stage.grow(MESSAGES_BEFORE)
        known = len(history(stage)[1])
        moment = self._next_moment()
        MOMENTS[moment](stage)
        self._cuts_ns = []
        where = f"{moment}, {self._cut(stage, disk)} kept"
        self._moments[moment] += 1
        if self._chance.random() < 0.3:
            recovery(stage)
            where += f"; again in recovery, {self._cut(stage, disk)} kept"
            self._moments["recovery"] += 1
        stage.restore()
        if self._options.flush != "SYNC_FLUSH":
            self._forgive(stage, known)
        # The checker begins anew: its image is of what the disk had before.
        stage.checker.forget()
        stage.grow(MESSAGES_AFTER)
        return where

    def _next_moment(self) -> str:
        """Every moment once, in a random order, before one comes again."""
        if not self._waiting:
            self._waiting = self._chance.sample(sorted(MOMENTS), len(MOMENTS))
        return self._waiting.pop()

    def _cut(self, stage: Stage, disk: ForgetfulDisk) -> str:
        cut_ns = self._clock.monotonic_ns()
        stage.services.kill_all()
        keep = self._chance.choice(KEPT)
        self._at_stake.update(disk.lose_power(keep, self._chance.randrange(LARGEST_SEED)))
        self._cuts_ns.append((cut_ns, self._clock.monotonic_ns()))
        self._report.power_losses += 1
        return keep

    # --- ASYNC_FLUSH ---

    def _forgive(self, stage: Stage, known: int) -> None:
        """Take what may be lost out of the ledger: acknowledged before everything was dead, not in
        the log now, behind the end that a recovery since generation number `known` has found. A
        fault when it was acknowledged longer ago than a flush interval before the power went."""
        stage.workload.pause()
        state = stage.workload.client.log_state()
        if not any("ASYNC_FLUSH" in line for line in state.recovery_report):
            stage.ledger.fault("the recovery report does not say that something may be missing")
        segment_bytes, generations = history(stage)
        start = min(begin for begin in generations[known:])
        image = LogImage(stage.messages, segment_bytes)
        image.read(read_range(stage.root, 0, state.appended_offset))
        acknowledged = stage.ledger.acknowledged
        for key, promise in list(acknowledged.items()):
            cut_ns = next((cut for cut, dead in self._cuts_ns if promise.at_ns <= dead), None)
            if cut_ns is None or promise.physical_offset < start or key in image.by_key:
                continue
            age_ms = (cut_ns - promise.at_ns) / 1e6
            self._oldest_ms = max(self._oldest_ms, age_ms)
            if age_ms > FLUSH_INTERVAL_MS + SLACK_MS:
                stage.ledger.fault(
                    f"{key} was acknowledged {age_ms:.0f} ms before at log offset "
                    f"{promise.physical_offset}, and is lost; recoveries found {generations}"
                )
            del acknowledged[key]
            stage.ledger.perhaps[key] = "acknowledged before the power went"
            self._forgotten += 1
            self._report.acknowledged_messages += 1

    # --- what was found ---

    def _found(self, stage: Stage, findings: Findings, where: str) -> None:
        report = self._report
        report.lost += len(findings.lost)
        if where == "the end of the store":  # each check counts them all: the last one tells
            report.duplicates += findings.duplicates
        if findings.sentences:
            self._fail(stage, where, findings.sentences)

    def _fail(self, stage: Stage, where: str, sentences: Iterable[str]) -> None:
        stage.keep = True
        rounds = self._round + 1
        self._report.failures += [f"round {rounds}, {where}: {line}" for line in sentences]
        stage.services.kill_all()  # or files would come and go under the copy
        shutil.copytree(stage.root, stage.directory / "store", dirs_exist_ok=True)
        flush = "" if self._options.flush == "SYNC_FLUSH" else " --async-flush"
        self._report.failures.append(
            f"the store and what its services wrote are kept in {stage.directory}; again: "
            f"stratamq torture power --seed {self._options.seed} --rounds {rounds}{flush}"
        )


def history(stage: Stage) -> tuple[int, list[int]]:
    """The size of segments, and where each generation begins: the end that a recovery found."""
    address = Endpoints(stage.root).address(COMMITLOG)
    with grpc.insecure_channel(address, options=CHANNEL_OPTIONS) as channel:
        status = METHODS["GetStatus"].on(channel)(commitlog_pb2.GetStatusRequest(), timeout=30)
    return status.segment_bytes, [each.start_offset for each in status.generations]
