"""`make mutants`: plants each named mistake in a copy of the tree and reports which test caught it.

    python -m tests.mutants [--room ROOM] [--only NAME ...] [--slice K/N | --slice head/N]
                            [--jobs N] [--anchors] [--lists DIRECTORY] [--json FILE]

The work tree is only read. A mistake counts as caught when a test fails with it, or does not end in
time, and the same test passes in the tree without it. The run fails when an entry no longer fits
the code, when a mistake keeps the code from being imported, or when less than 95 % are caught.
"""

import argparse
import json
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import SimpleQueue

from tests.mutants.catalogue import HERE, AnchorError, Mutant, load
from tests.mutants.private_tree import ROOT, PrivateTree, TestRun
from tests.support.sampling import one_part

LEAST_CAUGHT = 0.95


@dataclass(frozen=True, slots=True)
class Verdict:
    """`state`: caught, survived, anchor (its entry no longer fits the code), broken (the code
    cannot be imported), unsure (what failed or hung does so without the mistake)."""

    name: str
    room: str
    state: str
    detail: str
    seconds: float


def judge(mutant: Mutant, tree: PrivateTree, sound: set[str]) -> Verdict:
    """`sound`: tests that are known to pass without a mistake."""
    began = time.monotonic()

    def verdict(state: str, detail: str) -> Verdict:
        return Verdict(mutant.name, mutant.room, state, detail, time.monotonic() - began)

    try:
        changed = mutant.plant(tree.text(mutant.file))
    except (AnchorError, FileNotFoundError) as error:
        return verdict("anchor", str(error))
    with tree.changed(mutant.file, changed):
        run = tree.test(mutant.tests)
    if run.outcome is TestRun.PASSED:
        return verdict("survived", mutant.claim)
    if run.outcome is TestRun.BROKEN:
        return verdict("broken", run.output)
    if run.outcome is TestRun.HUNG and tree.test(mutant.tests).outcome is not TestRun.PASSED:
        return verdict("unsure", "its tests do not end in time without the mistake either")
    if run.outcome is TestRun.FAILED:
        if run.failed not in sound and tree.test([run.failed]).outcome is not TestRun.PASSED:
            return verdict("unsure", f"{run.failed} also fails without the mistake")
        sound.add(run.failed)
    return verdict("caught", run.failed or "no test ended in time")


def judge_all(mutants: Sequence[Mutant], jobs: int) -> list[Verdict]:
    trees: SimpleQueue[PrivateTree] = SimpleQueue()
    printing = threading.Lock()
    sound: set[str] = set()

    def work(mutant: Mutant) -> Verdict:
        tree = trees.get()
        try:
            verdict = judge(mutant, tree, sound)
        finally:
            trees.put(tree)
        with printing:
            line = f"{verdict.state:9}{verdict.seconds:6.1f} s  {verdict.room}/{verdict.name}"
            print(f"{line}: {verdict.detail}", flush=True)
        return verdict

    with ExitStack() as stack:
        for _ in range(jobs):
            trees.put(stack.enter_context(PrivateTree()))
        with ThreadPoolExecutor(jobs) as pool:
            return list(pool.map(work, mutants))


def chosen(arguments: argparse.Namespace) -> list[Mutant]:
    mutants = load(arguments.lists)
    if arguments.room:
        mutants = [mutant for mutant in mutants if mutant.room == arguments.room]
    if arguments.only:
        mutants = [mutant for mutant in mutants if mutant.name in arguments.only]
    if arguments.slice:
        mutants = list(one_part(arguments.slice, mutants))
    return mutants


def misfits(mutants: Sequence[Mutant]) -> list[str]:
    """Entries that no longer fit the code, with the reason."""
    found = []
    for mutant in mutants:
        try:
            mutant.plant((ROOT / mutant.file).read_text())
        except (AnchorError, FileNotFoundError) as error:
            found.append(f"tests/mutants/{mutant.room}.toml: {mutant.name}: {error}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants")
    parser.add_argument("--room")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME")
    parser.add_argument("--slice", help="K/N, or head/N: a slice that the commit chooses")
    parser.add_argument("--jobs", type=int, default=2, help="copies of the tree at work at once")
    parser.add_argument("--anchors", action="store_true", help="only: do all entries fit the code?")
    parser.add_argument("--lists", type=Path, default=HERE, help="the directory of the lists")
    parser.add_argument("--json", type=Path, help="write the verdicts here")
    arguments = parser.parse_args()
    stale = misfits(load(arguments.lists))
    for line in stale:
        print(line)
    mutants = chosen(arguments)
    if arguments.anchors or not mutants:
        print(f"{len(mutants)} mistakes, {len(stale)} entries do not fit the code")
        return int(bool(stale) or not mutants)
    verdicts = judge_all(mutants, arguments.jobs)
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(verdict) for verdict in verdicts], indent=1))
    return report(verdicts, stale)


def report(verdicts: Sequence[Verdict], stale: Sequence[str]) -> int:
    count = dict.fromkeys(("caught", "survived", "anchor", "broken", "unsure"), 0)
    for verdict in verdicts:
        count[verdict.state] += 1
    print(
        f"of {len(verdicts)} mistakes: " + ", ".join(f"{n} {state}" for state, n in count.items())
    )
    for verdict in verdicts:
        if verdict.state != "caught":
            print(f"{verdict.state:9} {verdict.room}/{verdict.name}: {verdict.detail}")
    enough = count["caught"] >= LEAST_CAUGHT * len(verdicts)
    sound = not stale and not count["broken"] and not count["unsure"]
    return 0 if enough and sound else 1


if __name__ == "__main__":
    sys.exit(main())
