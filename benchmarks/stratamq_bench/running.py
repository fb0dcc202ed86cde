"""Runs cases one after the other; one that fails gives no figures and stops no other."""

import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from stratamq.errors import StrataError
from stratamq_bench.catalogue import Entry
from stratamq_bench.checks import Mismatch
from stratamq_bench.plan import Plan
from stratamq_bench.report import Case, Failure, as_json


def run_all(
    entries: Sequence[Entry],
    plan: Plan,
    place: Callable[[], AbstractContextManager[Path]],
    results: Path | None,
) -> tuple[list[Case], list[Failure]]:
    """Each in a fresh directory. `results` is written after each, so that none is lost."""
    cases: list[Case] = []
    failures: list[Failure] = []
    for entry in entries:
        began = time.perf_counter()
        print(f"{entry.name}: {entry.title}", end=" … ", file=sys.stderr, flush=True)
        try:
            plan.make_ready()
            with place() as directory:
                found = entry.run(directory, plan)
        except (Mismatch, StrataError) as error:
            failures.append(Failure(entry.name, f"{type(error).__name__}: {error}"))
            outcome = "failed"
        else:
            cases.append(found)
            outcome = verdict(found)
        print(f"{outcome} ({time.perf_counter() - began:.0f} s)", file=sys.stderr, flush=True)
        if results is not None:
            results.parent.mkdir(parents=True, exist_ok=True)
            results.write_text(as_json(cases, failures) + "\n")
    return cases, failures


def verdict(case: Case) -> str:
    values = ", ".join(f"{bar.measure} {case.value_of(bar):.3g} ({bar})" for bar in case.bars)
    return f"{values} {'met' if case.met else 'NOT met'}" if case.bars else "measured"
