"""Which tests `make test` leaves to `make test-slow`: `tests/slow.txt`, by what they cost."""

import subprocess
import sys

from tests.support import costs
from tests.support.costs import ROOT, SLOW

SLOW_TEST = "tests/torture/test_simulation.py::test_workloads_of_three_operations_are_survived"


def test_every_name_is_that_of_a_test_once_in_order():
    names = SLOW.read_text().split()
    assert [name for name in (*names, *costs.KEPT) if not costs.is_test(name)] == [], (
        "a test was renamed or removed: change its line in tests/slow.txt"
    )
    assert names == sorted({*names})
    files = {name for name in names if "::" not in name}
    assert not [name for name in names if name not in files and costs.file_of(name) in files]
    assert not files & {costs.file_of(name) for name in costs.KEPT}
    assert not {*names} & {*costs.KEPT}


def test_a_name_that_is_no_tests_is_found():
    assert costs.is_test(SLOW_TEST)
    assert costs.is_test("tests/commitlog/test_model.py::TestCommitLogModel::runTest")
    assert not costs.is_test(SLOW_TEST + "_twice")
    assert not costs.is_test("tests/test_nowhere.py::test_nothing")


def test_what_was_measured_decides_and_what_was_not_stays():
    measured = costs.by_function({"t::a[1]": 0.7, "t::a[2]": 0.7, "t::b": 0.9, costs.KEPT[0]: 9.0})
    assert measured["t::a"] == 1.4
    assert costs.chosen(["t::b", "t::c"], measured) == {"t::a", "t::c"}
    assert costs.chosen(["t"], measured) == {"t"}, "all of a file"


def test_a_run_without_slow_tests_leaves_them_out_and_writes_what_the_others_cost(tmp_path):
    path, _ = SLOW_TEST.split("::")
    file = tmp_path / "costs.txt"
    chosen = ["-m", "not slow", "--costs", str(file), "-k", "same_run or three_operations"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", path, *chosen],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    (line,) = file.read_text().splitlines()
    cost_s, name = line.split(" ", 1)
    assert float(cost_s) > 0
    assert name.endswith("::test_a_seed_is_the_same_run_wherever_it_runs")
