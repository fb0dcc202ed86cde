"""What is delivered later, over simulated disks in simulated time: nothing is early, lost, twice or
out of order; with a mistake in one of the delivery's rules a seed finds it.

The mistakes are those of `tests/mutants/delivery.toml`, by name.
"""

import importlib
import sys
import types
from pathlib import Path

import pytest
from stratamq_torture.deliveries.simulation import TRIAL, Simulation
from stratamq_torture.trial import Options

from tests.mutants.catalogue import load
from tests.support.sampling import few

ROOT = Path(__file__).resolve().parents[2]
OPERATIONS = 60
MISTAKES = {one.name: one for one in load() if one.room == "delivery"}


def test_what_is_to_come_comes_once_and_nothing_else():
    report = TRIAL.simulate(Options(8, 0, operations=OPERATIONS))
    assert (report.failures, report.lost) == ([], 0)
    assert report.kills and report.power_losses and report.promotions
    assert report.acknowledged_messages > 100


def test_a_seed_does_the_same_again():
    first, again = (Simulation(3, trace=True).run(OPERATIONS) for _ in range(2))
    assert len(first.trace) > OPERATIONS
    assert first.trace == again.trace
    assert Simulation(4, trace=True).run(OPERATIONS).trace != first.trace


def plant(patch: pytest.MonkeyPatch, name: str) -> None:
    """Make this mistake in the module that is loaded: in the methods of its classes, and in its
    functions and numbers wherever they were imported."""
    mistake = MISTAKES[name]
    path = ROOT / mistake.file
    module = importlib.import_module(f"{path.parent.name}.{path.stem}")
    changed = types.ModuleType(module.__name__)
    patch.setitem(sys.modules, module.__name__, changed)
    exec(compile(mistake.plant(path.read_text()), mistake.file, "exec"), vars(changed))
    patch.setitem(sys.modules, module.__name__, module)
    for key, value in [*vars(changed).items()]:
        known = getattr(module, key, None)
        if getattr(value, "__module__", "") != module.__name__ or key.startswith("__"):
            continue
        if isinstance(value, type):
            for attribute, made in vars(value).items():
                if isinstance(made, types.FunctionType | property):
                    patch.setattr(known, attribute, made)
            setattr(changed, key, known)
        else:
            for other in [one for one in sys.modules.values() if vars(one).get(key) is known]:
                patch.setattr(other, key, value)


FOUND_BY = {
    "attempt-not-counted": 2,
    "broken-stream-frees-what-workers-have": 40,
    "copy-is-no-proof": 0,
    "decided-otherwise-is-taken": 26,
    "delayed-a-millisecond-early": 7,
    "floor-beyond-what-is-finished": 2,
    "transactions-never-given-up": 0,
    "two-decisions-under-way": 106,
}
"""The mistake, and the first seed that finds it."""


@pytest.mark.parametrize(("name", "seed"), few(FOUND_BY.items(), 3))
def test_a_seed_fails_with_the_mistake(name, seed, monkeypatch):
    assert Simulation(seed).run(OPERATIONS).violation is None
    plant(monkeypatch, name)
    assert Simulation(seed).run(OPERATIONS).violation is not None
