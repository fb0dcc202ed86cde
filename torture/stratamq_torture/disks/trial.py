"""`stratamq torture disk`: acts on bad disks, under both flush modes, and the check after each."""

import shutil
import tempfile
from pathlib import Path

from stratamq_torture.disks.acts import ACTS, Scene
from stratamq_torture.disks.volume import Volume, no_injection, obstacle
from stratamq_torture.processes.harness import LARGEST_SEED, Stage
from stratamq_torture.processes.services import DEFAULT_RATIOS
from stratamq_torture.trial import Options, Progress, Report, Trial, TrialFailedError

FLUSH_TYPES = ("SYNC_FLUSH", "ASYNC_FLUSH")
VOLUME_BYTES = 192 << 20
SETTINGS = ("commitlog.reserve_bytes=1048576", "commitlog.follower_stop_timeout_ms=2000")
LOSING = {("read-only", "ASYNC_FLUSH"), ("log-flush-fails", "ASYNC_FLUSH")}
"""Where the disk loses what was acknowledged from the page cache: ASYNC_FLUSH promises no more."""
BEFORE = 100


def why_not() -> str:
    """Why the trial cannot run here; empty when it can."""
    return obstacle() or no_injection()


def run_disks(
    options: Options, progress: Progress = None, act: str = "", flush: str = ""
) -> Report:
    """Every act on a volume of its own, under each flush mode; or this act or mode only."""
    reason = why_not()
    if reason:
        return Report("disk", skipped=reason)
    trial = Trial("disk", options, progress)
    report = trial.report
    acts = [act] if act else list(ACTS)
    pairs = [(one, mode) for mode in FLUSH_TYPES for one in acts]
    for one, mode in trial.within(pair for pair in pairs if flush in ("", pair[1])):
        _play(one, mode, trial)
        trial.count()
    report.seeds = trial.done
    report.notes.append(f"{trial.done} of {len(pairs)} acts: {', '.join(acts)}")
    return trial.ended()


def _play(act: str, flush: str, trial: Trial) -> None:
    seed, report = trial.chance.randrange(LARGEST_SEED), trial.report
    directory = Path(tempfile.mkdtemp(prefix="stratamq-disk-"))
    settings = (*SETTINGS, *DEFAULT_RATIOS, f"commitlog.flush_disk_type={flush}")
    failures: list[str] = []
    kept = ""
    try:
        with Volume(directory, VOLUME_BYTES) as disk:
            stage = Stage(seed, settings, disk.path / "store", consumers=False)
            with stage:
                try:
                    stage.grow(BEFORE)
                    ACTS[act](Scene(stage, disk))
                    findings = stage.finish()
                    report.acknowledged_messages += findings.acknowledged
                    if (act, flush) in LOSING:
                        report.notes.append(
                            f"{act}, {flush}: {len(findings.lost)} of {findings.acknowledged} "
                            "acknowledged messages lost, as ASYNC_FLUSH allows"
                        )
                        findings.lost.clear()
                    report.lost += len(findings.lost)
                    report.duplicates += findings.duplicates
                    failures += findings.sentences
                finally:
                    report.kills += stage.kills
                    stage.keep = bool(failures)
                    kept = str(stage.directory)
    except TrialFailedError as error:
        failures.append(str(error))
    finally:
        if not (directory / "volume").is_mount():
            shutil.rmtree(directory)
    if failures:
        report.failures += [f"{act}, {flush}: {line}" for line in failures]
        report.failures.append(
            f"what the services wrote is in {kept or 'their logs'}; again: stratamq torture disk "
            f"--act {act} --flush {flush} --seed {trial.options.seed}"
        )
