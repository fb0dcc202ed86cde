"""`stratamq torture damage`: rounds of one damage each, and the table of what they came to.

Rounds run in worker processes: one that hangs is ended and is a broken promise of its own.
"""

import logging
import multiprocessing
import os
import random
import shutil
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, TimeoutError
from dataclasses import dataclass, field
from pathlib import Path

from stratamq_torture.damage.checks import FRAME, PULL, QUERY, Reader, Seen, kept_aside, touched
from stratamq_torture.damage.engines import WHOLE, Template, make_template
from stratamq_torture.damage.kinds import FAMILIES, KINDS, LOG_FAMILIES, Family, name_of, place
from stratamq_torture.trial import Options, Progress, Report, Trial, ranges

OPERATORS = ("room locks", "directory")
"""Families of which a follower may refuse what is in their place."""


MENDED = ("and are taken from the log again", "it is built again")


PAIRS = tuple((family, kind) for family in FAMILIES for kind in KINDS)


@dataclass(slots=True)
class Outcome:
    """What became of one seed."""

    seed: int
    family: str
    kind: str
    what: str = ""
    """The damage in words; empty when the kind does not apply to the file that was chosen."""
    refused: list[str] = field(default_factory=list)
    cut: bool = False
    """The log ends before it did."""
    mended: bool = False
    """Units of a queue, or an index file, were taken from the log again while it ran."""
    unguarded: int = 0
    """Messages that were given with a wrong header or wrong properties; see `Seen`."""
    missing: int = 0
    """Untouched messages that were not given at the first start, or not any more."""
    named: bool = True
    broken: list[str] = field(default_factory=list)
    sentences: list[str] = field(default_factory=list)

    @property
    def summary(self) -> str:
        """What the services reported, in short."""
        return "; ".join(dict.fromkeys(self.sentences))[:400]


def damage_one(template: Template, scratch: Path, seed: int) -> Outcome:
    """Everything of a seed: the pair of family and kind in turn, the rest by chance."""
    family, kind = PAIRS[seed % len(PAIRS)]
    chance = random.Random(seed)
    outcome = Outcome(seed, family.name, name_of(kind))
    root = scratch / f"round-{seed}" / "store"
    root.parent.mkdir()
    try:
        template.copy(root)
        where = place(family, root, template.older, chance)
        what = None if where is None else kind(where, chance)
        if where is None or what is None:
            return outcome
        outcome.what = f"{where.path.relative_to(root)}: {what}"
        _judge(template, root, family, outcome)
        return outcome
    finally:
        shutil.rmtree(root.parent)


CHUNK = 20
ROUND_LIMIT_S = 30.0
"""A round takes a tenth of a second. One that takes so long hangs."""
SHOWN = 12
MEMORY = Path("/dev/shm")
"""Nothing here asks what is durable: a file system in memory does."""


def _judge(template: Template, root: Path, family: Family, outcome: Outcome) -> None:
    gone = touched(template, root)
    before = _bytes_of(root)
    first = Reader(template, root, outcome.seed).run(append=True)
    outcome.refused = sorted(first.refused)
    outcome.broken += first.broken
    outcome.sentences = first.sentences
    if "commitlog" in first.refused:
        _check_untouched(before, root, outcome)
        return
    second = Reader(template, root, outcome.seed).run(append=False)
    outcome.broken += [f"second start: {sentence}" for sentence in second.broken]
    for room in second.refused:
        if room not in first.refused:
            outcome.broken.append(f"second start: {room} refused: {second.refused[room]}")
    outcome.sentences = first.sentences + second.sentences
    outcome.unguarded = len(first.unguarded | second.unguarded)
    outcome.mended = any(line.endswith(MENDED) for line in outcome.sentences)
    _check_log(template, root, gone, first, second, outcome)
    _check_followers(gone, first, second, family, outcome)
    lost = outcome.missing or gone or first.refused
    outcome.named = not lost or any(not _is_usual(line) for line in outcome.sentences)


def _is_usual(sentence: str) -> bool:
    """The sentence for a store that is whole."""
    return sentence.startswith(("recovery begins at", "append:"))


def _check_log(
    template: Template, root: Path, gone: set[int], first: Seen, second: Seen, outcome: Outcome
) -> None:
    outcome.cut = 0 <= first.end < template.end
    aside = kept_aside(root)
    first_gone = min(gone, default=template.end)
    for message in template.messages:
        if message.offset in gone or message.offset in first.given[FRAME]:
            continue
        outcome.missing += 1
        where = f"{message.unique_key} at {message.offset}"
        if message.offset < first.end:
            outcome.broken.append(f"GetFrame does not give {where}, which is untouched")
        elif message.offset < first_gone:
            outcome.broken.append(f"the log ends before {where}, and nothing is damaged there")
        elif not any(message.raw in content for content in aside):
            outcome.broken.append(f"{where} was cut, and is not under stratamq/aside/")
    if not first.given[FRAME] <= second.given[FRAME]:
        outcome.broken.append("the second start does not give what the first one gave")


def _check_followers(
    gone: set[int], first: Seen, second: Seen, family: Family, outcome: Outcome
) -> None:
    """What the log gives must be given by queue and by key, in the end."""
    for way in (PULL, QUERY):
        missing = second.given[FRAME] - second.given[way]
        if not missing:
            continue
        if way in second.away:
            # A lock that cannot be taken is an operator's business; and a follower that has to
            # read the log again stops at a frame that is damaged there.
            refused = {PULL: "dispatcher", QUERY: "index"}[way] in first.refused
            damaged_log = family.name in LOG_FAMILIES and gone
            if not (damaged_log or (refused and family.name in OPERATORS)):
                outcome.broken.append(f"{way} is not served: {second.away[way]}")
            continue
        outcome.missing += len(missing)
        outcome.broken.append(
            f"{way} does not give {len(missing)} messages that the log has, from {min(missing)} on"
        )


def _check_untouched(before: dict[str, bytes], root: Path, outcome: Outcome) -> None:
    """A store that is refused stays as it is."""
    after = _bytes_of(root)
    changed = sorted(
        path for path in before.keys() | after.keys() if before.get(path) != after.get(path)
    )
    if changed:
        outcome.broken.append(f"the log refused, and changed {', '.join(changed[:4])}")


def _bytes_of(root: Path) -> dict[str, bytes]:
    """What a refusal must not change: everything but what followers own, and texts of locks."""
    kept = {}
    for path in sorted(root.glob("commitlog/*")) + sorted(root.glob("config/topics*")):
        if path.is_file() and not path.is_symlink():
            kept[str(path.relative_to(root))] = path.read_bytes()
    return kept


# --- the trial ---


def run_damage(options: Options, progress: Progress = None, *, checksum: bool = True) -> Report:
    """A seed decides family, kind, file and place. `checksum` off: what a store is worth whose
    records have no checksum of their own."""
    trial = Trial("damage", options, progress)
    report, tally = trial.report, trial.met
    for outcomes in _outcomes(trial, checksum):
        for outcome in outcomes:
            _count(outcome, trial, "" if checksum else " --no-checksum")
        trial.count(len(outcomes))
    report.seeds = trial.done
    del report.failures[SHOWN:]
    counts = ", ".join(f"{name} {count}" for name, count in sorted(tally.items()) if count)
    report.notes.append(f"{len(FAMILIES)} families of files: {counts}")
    return trial.ended()


def _outcomes(trial: Trial, checksum: bool) -> Iterator[list[Outcome]]:
    """Chunk after chunk, `jobs` of them at once."""
    jobs, chunks = trial.options.jobs, list(ranges(trial.options, CHUNK))
    memory = MEMORY if MEMORY.is_dir() and os.access(MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="stratamq-damage-", dir=memory) as directory:
        pool = _pool(jobs)
        for batch in trial.within(chunks[at : at + jobs] for at in range(0, len(chunks), jobs)):
            futures = [
                pool.submit(_run_chunk, chunk, Path(directory, f"{chunk[0]}"), checksum)
                for chunk in batch
            ]
            for chunk, future in zip(batch, futures, strict=True):
                try:
                    yield future.result(ROUND_LIMIT_S * len(chunk))
                except TimeoutError:
                    hung = Outcome(chunk[0], "", "", "unknown")
                    hung.broken.append(f"one of the seeds {chunk[0]} to {chunk[-1]} does not end")
                    yield [hung]
                    for process in multiprocessing.active_children():
                        process.kill()
                    pool.shutdown(wait=False, cancel_futures=True)
                    pool = _pool(jobs)
        pool.shutdown()


def _pool(jobs: int) -> ProcessPoolExecutor:
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(jobs, mp_context=context, initializer=logging.disable)


def _run_chunk(seeds: range, directory: Path, checksum: bool) -> list[Outcome]:
    """In a worker: every chunk makes its own stores, stopped in order and killed, so that seeds
    alone decide."""
    templates = []
    try:
        for name, clean in (("killed", False), ("stopped", True)):
            (directory / name).mkdir(parents=True)
            made = make_template(directory / name, 1, clean=clean, property_checksum=checksum)
            templates.append(made)
        # Both variants for every pair of family and kind, sooner or later.
        return [damage_one(templates[seed // 7 % 2 == 0], directory, seed) for seed in seeds]
    finally:
        shutil.rmtree(directory)


def _count(outcome: Outcome, trial: Trial, flags: str) -> None:
    report, tally = trial.report, trial.met
    if not outcome.what:
        tally["does not apply"] += 1
        return
    report.damaged_files += 1
    report.acknowledged_messages += WHOLE
    tally["refused by " + " and ".join(outcome.refused) if outcome.refused else "started"] += 1
    tally["log cut"] += outcome.cut
    tally["mended"] += outcome.mended
    tally["messages given with an unguarded header or properties"] += outcome.unguarded
    if trial.options.trace:
        report.notes.append(f"seed {outcome.seed}: {outcome.what}: {outcome.summary}")
    if not outcome.named:
        outcome.broken.append("messages are missing, and that is not reported")
    if outcome.broken:
        report.failures.append(
            f"seed {outcome.seed}, {outcome.family}, {outcome.what}: {outcome.broken[0]}"
            + (f" (and {len(outcome.broken) - 1} more)" if len(outcome.broken) > 1 else "")
            + f"; again: stratamq torture damage --rounds 1 --first-seed {outcome.seed}{flags}"
        )
