"""Families of cases of one claim: some of them, or each.

`make test` takes a sample, which the commit chooses, so that the next commit takes another; `make
torture-ci` runs the families of crashes with `--every-call`, which takes each case of every family.
CI runs one part of what takes long, with `--slice head/N`.
Where there is no commit (a copy of the tree), the sample is always the same one.
"""

import random
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import TypeVar

MAX_CALLS = 16
AT_EACH_END = 4

every_call = False
"""Set from the command line, in `tests/conftest.py`."""

T = TypeVar("T")


@cache
def _commit() -> str:
    """In hexadecimal digits; empty in a copy without history."""
    if shutil.which("git") is None:
        return ""
    done = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=Path(__file__).parent, capture_output=True, text=True
    )
    return done.stdout.strip()


def one_part(which: str, cases: Sequence[T]) -> Sequence[T]:
    """`K/N`: the K-th of N parts of the cases; `head/N`: the part that the commit chooses."""
    number, _, count = which.partition("/")
    first = int(_commit() or "0", 16) if number == "head" else int(number)
    return cases[first % int(count) :: int(count)]


def few(family: Iterable[T], most: int) -> list[T]:
    """At most `most` of a family of cases, in order."""
    cases = list(family)
    if every_call or len(cases) <= most:
        return cases
    chosen = random.Random(f"{_commit()} {len(cases)}").sample(range(len(cases)), most)
    return [cases[index] for index in sorted(chosen)]


def sampled(calls: Sequence[int]) -> Sequence[int]:
    """The calls to go through, in order; those at both ends are always among them."""
    if every_call or len(calls) <= MAX_CALLS:
        return calls
    between = few(calls[AT_EACH_END:-AT_EACH_END], MAX_CALLS - 2 * AT_EACH_END)
    return [*calls[:AT_EACH_END], *between, *calls[-AT_EACH_END:]]
