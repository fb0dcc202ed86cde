"""The list of named mistakes is sound, and its runner distinguishes caught from survived."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutants.catalogue import AnchorError, Mutant, load

ROOT = Path(__file__).resolve().parent.parent
LEAST = 150


def mutant(**fields) -> Mutant:
    given = {"room": "r", "name": "n", "claim": "c", "file": "f.py", "tests": ("t.py",)}
    return Mutant(**{**given, "old": "a < b", "new": "a <= b", **fields})


def test_there_are_enough_of_them_and_each_names_a_file_a_claim_and_tests_of_its_room():
    mutants = load()
    assert len(mutants) >= LEAST
    for each in mutants:
        assert (ROOT / each.file).is_file(), each.name
        assert each.claim.endswith("."), each.name
        for test in each.tests:
            assert (ROOT / test.partition("::")[0]).is_file(), (each.name, test)


def test_a_mistake_is_planted_in_its_one_place():
    assert mutant().plant("if a < b:\n    a < c") == "if a <= b:\n    a < c"
    text = "def one():\n  a < b\ndef two():\n  a < b\n  a < b\n"
    planted = mutant(within="def two():").plant(text)
    assert planted == "def one():\n  a < b\ndef two():\n  a <= b\n  a < b\n"


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({}, "nothing like it"),
        ({}, "a < b and a < b"),
        ({"within": "def f"}, "a < b"),
        ({"within": "def f"}, "def f: a < b; def f: a < b"),
        ({"within": "def f"}, "a < b; def f: pass"),
    ],
)
def test_a_text_that_does_not_stand_in_one_place_is_an_error(fields, text):
    with pytest.raises(AnchorError):
        mutant(**fields).plant(text)


def test_an_entry_that_is_wrong_is_named(tmp_path):
    entry = '[[mutant]]\nname = "m"\nclaim = "c."\nfile = "f"\nold = "a"\nnew = "{new}"\n'
    entry += 'tests = ["t"]\n'
    for content, what in (
        (entry.format(new="a"), "changes nothing"),
        (entry.format(new="b") * 2, "two mistakes are named m"),
        (entry.format(new="b") + 'color = "red"\n', "color"),
    ):
        (tmp_path / "room.toml").write_text('folder = "tests"\n' + content)
        with pytest.raises(ValueError, match=what):
            load(tmp_path)


def test_a_mistake_is_caught_by_its_room_and_a_change_without_meaning_survives(tmp_path):
    """The runner over the tree as it is: the code of the work tree is not changed by it."""
    target = ROOT / "src/stratamq/formats/queue_growth.py"
    before = target.read_bytes()
    lists = tmp_path / "lists"
    lists.mkdir()
    finalizer = '__import__("multiprocessing.util").util.Finalize'
    aborts = f'{finalizer}(None, __import__("os").abort, exitpriority=0)'
    entries = [
        (
            "caught-and-aborts",
            'searchsorted(end_offset, "right")',
            f'searchsorted(end_offset, {aborts} and "left")',
        ),
        ("caught", 'searchsorted(end_offset, "right")', 'searchsorted(end_offset, "left")'),
        (
            "survives",
            "first, units = run.first_queue_offset, run.units",
            "first, units = (run.first_queue_offset, run.units)",
        ),
        ("cannot-be-imported", "class Growth(enum.Enum):", "class Growth(enum.Enum"),
        ("does-not-fit", "no such text", ""),
    ]
    (lists / "formats.toml").write_text(
        'folder = "tests/formats"\n'
        + "".join(
            f"[[mutant]]\nname = '{name}'\nclaim = 'c.'\nold = '{old}'\nnew = '{new}'\n"
            "file = 'src/stratamq/formats/queue_growth.py'\ntests = ['test_queue_growth.py']\n"
            for name, old, new in entries
        )
    )
    command = [sys.executable, "-m", "tests.mutants", "--lists", str(lists), "--jobs", "1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    states = {line.split()[0]: line for line in done.stdout.splitlines() if " s  formats/" in line}
    assert "formats/caught-and-aborts: tests/formats/test_queue_growth.py::" in done.stdout
    assert "formats/caught: tests/formats/test_queue_growth.py::" in states["caught"], done.stdout
    assert "formats/survives" in states["survived"]
    assert "formats/cannot-be-imported" in states["broken"]
    assert "formats/does-not-fit" in states["anchor"]
    assert done.returncode == 1
    assert target.read_bytes() == before
