"""Families of crashes at every call of the disk: a sample of the calls, or each of them.

`make test` takes a sample, always the same one, with the first and the last calls in it; `make
torture-ci` runs the same tests with `--every-call`.
"""

import random
from collections.abc import Sequence

MOST_CALLS = 32
AT_EACH_END = 6

every_call = False
"""Set from the command line, in `tests/conftest.py`."""


def sampled(calls: Sequence[int]) -> Sequence[int]:
    """The calls to go through, in order; those at both ends are always among them."""
    if every_call or len(calls) <= MOST_CALLS:
        return calls
    chosen = {*calls[:AT_EACH_END], *calls[-AT_EACH_END:]}
    between = calls[AT_EACH_END:-AT_EACH_END]
    chosen |= {*random.Random(len(calls)).sample(between, MOST_CALLS - len(chosen))}
    return sorted(chosen)
