"""`stratamq torture power`: the power goes while the real services work on a forgetful disk.

All services die at once, and of what they had not synced the disk keeps nothing, everything or a
random part, pages torn at sectors among it. Under SYNC_FLUSH nothing acknowledged may be missing.
Under ASYNC_FLUSH what is missing must be the newest part, no older than the flush interval, and is
reported.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import grpc

from stratamq.api.v1 import commitlog_pb2
from stratamq.rpc.endpoints import CHANNEL_OPTIONS, Endpoints
from stratamq.rpc.methods import METHODS
from stratamq.rpc.rooms import COMMITLOG, ESSENTIAL
from stratamq_torture.processes import power_supply
from stratamq_torture.processes.checker import read_range
from stratamq_torture.processes.harness import LARGEST_SEED, Rounds
from stratamq_torture.processes.kill_points import names, state_of
from stratamq_torture.processes.log_image import LogImage
from stratamq_torture.processes.power_supply import ForgetfulDisk
from stratamq_torture.processes.services import until
from stratamq_torture.processes.stage import Stage
from stratamq_torture.report import Report
from stratamq_torture.trial import Deck, Progress

LOSSES_OF_A_STORE = 5
MESSAGES_BEFORE, MESSAGES_AFTER = 200, 50
FLUSH_INTERVAL_MS = 500
SLACK_MS = 600
"""Beside the interval: a tick of the log (100 ms), the flush itself, and a busy machine."""
KEPT = ("nothing", "everything", "random", "random")
LONGEST_WAIT_S, LOOK_S = 3.0, 0.001


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
    stage.wait(0.5)


def segment_allocated(stage: Stage) -> None:
    changed(stage, lambda: names(stage, "commitlog"))


def snapshot(stage: Stage) -> None:
    changed(stage, lambda: state_of(stage, "stratamq/queue-offsets.journal"))


def dispatcher_watermark(stage: Stage) -> None:
    changed(stage, lambda: state_of(stage, "stratamq/dispatcher.json"))


def index_watermark(stage: Stage) -> None:
    changed(stage, lambda: state_of(stage, "stratamq/index.json"))


def log_restarted(stage: Stage) -> None:
    """After a kill the cache shows what the disk does not have: recovery must not rely on it."""
    stage.services.kill(COMMITLOG)
    stage.services.start([COMMITLOG])
    stage.wait(0.2)


def stopping(stage: Stage) -> None:
    for room in ESSENTIAL:
        stage.services.terminate(room)
    stage.wait(0.5)


def recovery(stage: Stage) -> None:
    """Check the recovery from the last power loss: the services have just been restarted."""
    for room in ESSENTIAL:
        stage.services.spawn(room)
    stage.services.wait_announced(COMMITLOG)
    stage.wait(0.15)


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
    until(lambda: look() != before, LONGEST_WAIT_S, LOOK_S)


# --- the trial ---


def run_power_losses(options: PowerOptions, progress: Progress | None = None) -> Report:
    reason = power_supply.missing()
    if reason:
        return Report(_name(options), skipped=reason)
    return _Power(options, progress).run()


def _name(options: PowerOptions) -> str:
    return "power" if options.flush == "SYNC_FLUSH" else "power, async flush"


class _Power:
    def __init__(self, options: PowerOptions, progress: Progress | None) -> None:
        self._options = options
        self._sync = options.flush == "SYNC_FLUSH"
        flags = "" if self._sync else " --async-flush"
        self._trial = Rounds(_name(options), options, progress, "power", flags)
        self._moments = Deck(self._trial.chance, sorted(MOMENTS))
        self._at_stake: Counter[str] = Counter()
        self._cuts_ns: list[tuple[int, int]] = []
        """Of this round: when the power went, and when everything was dead and the disk back."""
        self._forgotten = 0
        self._oldest_ms = 0.0

    def run(self) -> Report:
        report = self._trial.run(self._play)
        report.notes.append(f"power lost: {self._trial.summary}")
        stake = self._at_stake
        report.notes.append(
            f"not synced when the power went: {stake['page']} pages, {stake['size']} sizes, "
            f"{stake['entry']} directory entries"
        )
        if not self._sync:
            report.notes.append(
                f"acknowledged under ASYNC_FLUSH and lost with the power, as promised: "
                f"{self._forgotten} messages, the oldest {self._oldest_ms:.0f} ms before "
                f"(flush interval {FLUSH_INTERVAL_MS} ms)"
            )
        return report

    def _play(self) -> None:
        """One store."""
        settings = (
            f"commitlog.flush_disk_type={self._options.flush}",
            f"commitlog.flush_interval_ms={FLUSH_INTERVAL_MS}",
        )
        with ForgetfulDisk() as disk:
            # Under ASYNC_FLUSH consumers may see what then goes: nothing is promised to them.
            seed, root = self._trial.next_seed(), disk.mountpoint / "store"
            stage = Stage(seed, settings, root, consumers=self._sync)
            self._trial.play(stage, LOSSES_OF_A_STORE, lambda: self._lose_power(stage, disk))

    def _lose_power(self, stage: Stage, disk: ForgetfulDisk) -> None:
        """One round: load, power loss, start."""
        stage.grow(MESSAGES_BEFORE)
        known = len(history(stage)[1])
        trial, moment = self._trial, self._moments.draw()
        MOMENTS[moment](stage)
        self._cuts_ns = []
        trial.where = f"{moment}, {self._cut(stage, disk)} kept"
        trial.met[moment] += 1
        if trial.chance.random() < 0.3:
            recovery(stage)
            trial.where += f"; again in recovery, {self._cut(stage, disk)} kept"
            trial.met["recovery"] += 1
        stage.restore()
        if not self._sync:
            self._forgive(stage, known)
        # Reset the checker: its image is of what the disk had before.
        stage.checker.forget()
        stage.grow(MESSAGES_AFTER)

    def _cut(self, stage: Stage, disk: ForgetfulDisk) -> str:
        cut_ns = self._trial.clock.monotonic_ns()
        stage.services.kill_all()
        keep = self._trial.chance.choice(KEPT)
        self._at_stake.update(disk.lose_power(keep, self._trial.chance.randrange(LARGEST_SEED)))
        self._cuts_ns.append((cut_ns, self._trial.clock.monotonic_ns()))
        self._trial.report.power_losses += 1
        return keep

    # --- ASYNC_FLUSH ---

    def _forgive(self, stage: Stage, known: int) -> None:
        """Take what may be lost out of the ledger: acknowledged before everything was dead, not in
        the log now, behind the end that a recovery since generation number `known` has found. A
        fault when it was acknowledged longer ago than a flush interval before the power went."""
        stage.workload.pause()
        state = stage.workload.client.log_state()
        if not any("ASYNC_FLUSH" in line for line in state.recovery_report):
            stage.ledger.fault("the recovery report does not contain that something may be missing")
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
            self._trial.report.acknowledged_messages += 1


def history(stage: Stage) -> tuple[int, list[int]]:
    """The size of segments, and where each generation begins: the end that a recovery found."""
    address = Endpoints(stage.root).address(COMMITLOG)
    with grpc.insecure_channel(address, options=CHANNEL_OPTIONS) as channel:
        status = METHODS["GetStatus"].on(channel)(commitlog_pb2.GetStatusRequest(), timeout=30)
    return status.segment_bytes, [each.start_offset for each in status.generations]
