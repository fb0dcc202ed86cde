"""`stratamq torture damage`: rounds of one damage each, and the table of what they came to.

Rounds run in worker processes: one that hangs is ended and is a broken promise of its own.
"""

import logging
import multiprocessing
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, TimeoutError
from dataclasses import dataclass
from pathlib import Path

from stratamq_torture.damage.families import FAMILIES
from stratamq_torture.damage.round import Outcome, damage_one
from stratamq_torture.damage.store import WHOLE, Template, make_template
from stratamq_torture.report import Report
from stratamq_torture.trial import Progress, Trial

CHUNK = 20
ROUND_LIMIT_S = 30.0
"""A round takes a tenth of a second. One that takes so long hangs."""
SHOWN = 12
MEMORY = Path("/dev/shm")
"""Nothing here asks what is durable: a file system in memory does."""
VARIANTS = (True, False)
"""Stopped in order, and killed."""


@dataclass(frozen=True, slots=True)
class DamageOptions:
    """Seeds `first_seed` … +`rounds`−1: a seed decides family, kind, file and place."""

    rounds: int = 400
    first_seed: int = 0
    jobs: int = 1
    seconds: float | None = None
    property_checksum: bool = True
    """Off: what a store is worth whose records have no checksum of their own."""
    trace: bool = False
    """Report every round."""


def run_damage(options: DamageOptions, progress: Progress | None = None) -> Report:
    """The trial."""
    trial = Trial("damage", options.seconds, progress)
    report = trial.report
    for outcomes in _outcomes(options, trial):
        for outcome in outcomes:
            _count(outcome, options, report, trial.met)
        trial.count(len(outcomes))
    report.seeds = trial.done
    report.notes += _notes(report, trial.met)
    return trial.ended()


def _outcomes(options: DamageOptions, trial: Trial) -> Iterator[list[Outcome]]:
    """Chunk after chunk, `jobs` of them at once."""
    seeds = range(options.first_seed, options.first_seed + options.rounds)
    chunks = [seeds[at : at + CHUNK] for at in range(0, len(seeds), CHUNK)]
    memory = MEMORY if MEMORY.is_dir() and os.access(MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="stratamq-damage-", dir=memory) as name:
        directory = Path(name)
        pool = _pool(options)
        for at in range(0, len(chunks), options.jobs):
            if not trial.in_time:
                break
            batch = chunks[at : at + options.jobs]
            futures = [
                pool.submit(_run_chunk, chunk, directory / f"{chunk[0]}", options)
                for chunk in batch
            ]
            for chunk, future in zip(batch, futures, strict=True):
                try:
                    yield future.result(ROUND_LIMIT_S * len(chunk))
                except TimeoutError:
                    yield [_hung(chunk)]
                    _end(pool)
                    pool = _pool(options)
        pool.shutdown()


def _pool(options: DamageOptions) -> ProcessPoolExecutor:
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(options.jobs, mp_context=context, initializer=_quiet)


def _end(pool: ProcessPoolExecutor) -> None:
    for process in multiprocessing.active_children():
        process.kill()
    pool.shutdown(wait=False, cancel_futures=True)


def _quiet() -> None:
    """The engines report every damage; here they are asked."""
    logging.disable(logging.CRITICAL)


def _run_chunk(seeds: range, directory: Path, options: DamageOptions) -> list[Outcome]:
    """In a worker: every chunk makes its own stores, so that seeds alone decide."""
    try:
        templates = {clean: _template(directory, options, clean) for clean in VARIANTS}
        return [damage_one(templates[_is_clean(seed)], directory, seed) for seed in seeds]
    finally:
        shutil.rmtree(directory)


def _template(directory: Path, options: DamageOptions, clean: bool) -> Template:
    target = directory / ("stopped" if clean else "killed")
    target.mkdir(parents=True)
    return make_template(target, 1, clean=clean, property_checksum=options.property_checksum)


def _is_clean(seed: int) -> bool:
    """Both variants for every pair of family and kind, sooner or later."""
    return (seed // 7) % 2 == 0


def _hung(seeds: range) -> Outcome:
    outcome = Outcome(seeds[0], "", "", "unknown")
    outcome.broken.append(f"one of the seeds {seeds[0]} to {seeds[-1]} does not end")
    return outcome


# --- the report ---


def _count(outcome: Outcome, options: DamageOptions, report: Report, tally: Counter[str]) -> None:
    if not outcome.what:
        tally["does not apply"] += 1
        return
    report.damaged_files += 1
    report.acknowledged_messages += WHOLE
    tally["refused by " + " and ".join(outcome.refused) if outcome.refused else "started"] += 1
    tally["log cut"] += outcome.cut
    tally["mended"] += outcome.mended
    tally["messages given with an unguarded header or properties"] += outcome.unguarded
    if options.trace:
        report.notes.append(f"seed {outcome.seed}: {outcome.what}: {outcome.summary}")
    if not outcome.named:
        outcome.broken.append("messages are missing, and that is not reported")
    if outcome.broken:
        report.failures.append(
            f"seed {outcome.seed}, {outcome.family}, {outcome.what}: {outcome.broken[0]}"
            + (f" (and {len(outcome.broken) - 1} more)" if len(outcome.broken) > 1 else "")
            + f"; again: stratamq torture damage --rounds 1 --first-seed {outcome.seed}"
            + ("" if options.property_checksum else " --no-checksum")
        )


def _notes(report: Report, tally: Counter[str]) -> list[str]:
    del report.failures[SHOWN:]
    counts = ", ".join(f"{name} {count}" for name, count in sorted(tally.items()) if count)
    return [f"{len(FAMILIES)} families of files: {counts}"]
