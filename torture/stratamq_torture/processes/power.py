"""`stratamq torture power`: the power goes while the real services work on a forgetful disk.

All services die at once, and of what they had not synced the disk keeps nothing, everything or a
random part, pages torn at sectors among it. Under SYNC_FLUSH nothing acknowledged may be missing.
Under ASYNC_FLUSH what is missing must be the newest part, no older than the flush interval, and is
reported.
"""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import grpc

from stratamq.api.v1 import commitlog_pb2
from stratamq.rpc.endpoints import CHANNEL_OPTIONS, Endpoints
from stratamq.rpc.methods import METHODS
from stratamq.rpc.rooms import COMMITLOG, ESSENTIAL
from stratamq_torture.processes.checker import read_range
from stratamq_torture.processes.harness import LARGEST_SEED, Rounds, Stage
from stratamq_torture.processes.kill import names, state_of
from stratamq_torture.processes.ledger import LogImage
from stratamq_torture.processes.services import until
from stratamq_torture.trial import Deck, Options, Progress, Report, TrialFailedError

UNMOUNT_S = 20.0


DEVICE = Path("/dev/fuse")


@cache
def missing() -> str:
    """Why there can be no forgetful disk here; empty when there can. Tries one, once."""
    if not (DEVICE.exists() and os.access(DEVICE, os.R_OK | os.W_OK)):
        return f"{DEVICE} is not there or may not be opened (in a container: --device {DEVICE})"
    if shutil.which("fusermount3") is None:
        return "fusermount3 is missing: apt-get install -y --no-install-recommends fuse3"
    if importlib.util.find_spec("mfusepy") is None:
        return 'mfusepy is missing: pip install "stratamq[dev]"'
    try:
        with ForgetfulDisk():
            return ""
    except DiskFailedError as error:
        return f"FUSE cannot be used here (in a container: --cap-add SYS_ADMIN): {error}"


class DiskFailedError(TrialFailedError):
    """The forgetful disk's process did not do what was asked for."""


class ForgetfulDisk:
    """`with ForgetfulDisk() as disk`: an empty file system at `disk.mountpoint`."""

    def __init__(self) -> None:
        self.mountpoint = Path(tempfile.mkdtemp(prefix="stratamq-forgetful-"))
        self._process: subprocess.Popen[str] | None = None

    def lose_power(self, keep: str, seed: int) -> dict[str, int]:
        """`keep` nothing, everything or a random part of what was not synced; the disk is mounted
        again on return. Returns what was at stake: numbers of pages, sizes and directory entries.

        Every process that had files open must be dead.
        """
        self._unmount()
        self._send({"keep": keep, "seed": seed})
        at_stake = self._answer()
        self._wait_mounted()
        return at_stake

    def refuse(self, path: Path, begin: int, end: int) -> None:
        """Bytes of a file below the mountpoint that can no longer be read from the disk (EIO), in
        place of those refused before. What the kernel's page cache has of the file goes."""
        name = path.relative_to(self.mountpoint).as_posix()
        self._send({"refuse": name, "begin": begin, "end": end})
        if self._answer() != {"refused": True}:
            raise DiskFailedError("the forgetful disk refuses nothing")
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)

    def __enter__(self) -> "ForgetfulDisk":
        command = [sys.executable, "-m", "stratamq_torture.processes.forgetful_disk"]
        self._process = subprocess.Popen(
            [*command, str(self.mountpoint)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            self._wait_mounted()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def _end(self) -> None:
        process = self._running
        assert process.stdin is not None and process.stdout is not None
        process.stdin.close()
        try:
            process.wait(UNMOUNT_S)
        except subprocess.TimeoutExpired:
            # A process holds a file; the mount has left the tree, and ends with the process.
            process.kill()
            process.wait()
        process.stdout.close()
        self.mountpoint.rmdir()

    @property
    def _running(self) -> subprocess.Popen[str]:
        assert self._process is not None
        return self._process

    def _unmount(self) -> None:
        def unmounted() -> bool:
            # Busy as long as the kernel still tears down the last process that was killed.
            done = subprocess.run(
                ["fusermount3", "-u", str(self.mountpoint)], check=False, capture_output=True
            )
            return done.returncode == 0

        if not until(unmounted, UNMOUNT_S):
            raise DiskFailedError(f"{self.mountpoint} stays busy")

    def _wait_mounted(self) -> None:
        if self._answer() != {"mounted": True}:
            raise DiskFailedError("the forgetful disk did not mount")
        if not until(self.mountpoint.is_mount, UNMOUNT_S):
            raise DiskFailedError(f"{self.mountpoint} is no mount")

    def _send(self, value: dict[str, Any]) -> None:
        pipe = self._running.stdin
        assert pipe is not None
        pipe.write(json.dumps(value) + "\n")
        pipe.flush()

    def _answer(self) -> dict[str, Any]:
        pipe = self._running.stdout
        assert pipe is not None
        line = pipe.readline()
        if not line:
            raise DiskFailedError("the forgetful disk ended")
        answer: dict[str, Any] = json.loads(line)
        return answer


LOSSES_OF_A_STORE = 5
MESSAGES_BEFORE, MESSAGES_AFTER = 200, 50
FLUSH_INTERVAL_MS = 500
SLACK_MS = 600
"""Beside the interval: a tick of the log (100 ms), the flush itself, and a busy machine."""
KEPT = ("nothing", "everything", "random", "random")
LONGEST_WAIT_S, LOOK_S = 3.0, 0.001


# --- when the power goes ---


Moment = Callable[[Stage], None]


def under_load(stage: Stage) -> None:
    stage.wait(0.5)


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


def changed(look: Callable[[Stage], object]) -> Moment:
    def moment(stage: Stage) -> None:
        before = look(stage)
        until(lambda: look(stage) != before, LONGEST_WAIT_S, LOOK_S)

    return moment


MOMENTS: dict[str, Moment] = {
    "under load": under_load,
    "segment allocated": changed(lambda stage: names(stage, "commitlog")),
    "snapshot": changed(lambda stage: state_of(stage, "stratamq/queue-offsets.journal")),
    "dispatcher watermark": changed(lambda stage: state_of(stage, "stratamq/dispatcher.json")),
    "index watermark": changed(lambda stage: state_of(stage, "stratamq/index.json")),
    "log restarted": log_restarted,
    "stopping": stopping,
}


# --- the trial ---


def run_power_losses(
    options: Options, progress: Progress = None, flush: str = "SYNC_FLUSH"
) -> Report:
    """A round is one power loss, or two where the second comes during the recovery from the
    first."""
    name = "power" if flush == "SYNC_FLUSH" else "power, async flush"
    reason = missing()
    return Report(name, skipped=reason) if reason else _Power(name, options, progress, flush).run()


class _Power:
    def __init__(self, name: str, options: Options, progress: Progress, flush: str) -> None:
        self._flush = flush
        self._sync = flush == "SYNC_FLUSH"
        self._trial = Rounds(name, options, progress, "" if self._sync else " --async-flush")
        self._moments = Deck(self._trial.chance, sorted(MOMENTS))
        self._at_stake: Counter[str] = Counter()
        self._cuts_ns: list[tuple[int, int]] = []
        """Times of this round: when the power went, and when everything was dead and the disk
        back."""
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
            f"commitlog.flush_disk_type={self._flush}",
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
