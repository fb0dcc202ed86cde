"""`stratamq torture sim` as it is typed: what it prints, and how it ends."""

import json
import logging

import pytest

from stratamq.cli.__main__ import run
from stratamq.files.simulated_files import SimulatedFile

SHORT = ["--operations", "30", "--jobs", "1"]


@pytest.fixture(autouse=True)
def loud_again():
    """The command silences the engines for the whole process."""
    yield
    logging.disable(logging.NOTSET)


def sim(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = run(["torture", "sim", *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_json_is_one_object_and_nothing_else(capsys):
    code, out, _ = sim(capsys, "--seeds", "4", *SHORT, "--output", "json")
    found = json.loads(out)
    assert code == 0 and out.count("\n") == 1
    assert (found["seeds"], found["lost"], found["passed"]) == (4, 0, True)
    assert found["acknowledged_messages"] > 0


def test_the_table_names_what_the_seeds_came_through(capsys):
    code, out, _ = sim(capsys, "--seeds", "2", *SHORT)
    assert code == 0
    assert "RocketMQ's rules opened what a power loss had left" in out


def test_a_broken_promise_is_an_exit_code_and_a_command_that_shows_it_in_few_operations(
    capsys, monkeypatch
):
    monkeypatch.setattr(SimulatedFile, "zero", lambda self, position, length: None)
    code, out, _ = sim(capsys, "--seeds", "30", "--operations", "60", "--jobs", "1", "-o", "json")
    assert code == 1
    seed = json.loads(out)["trials"][0]["failures"][0].split()[1].rstrip(":")
    again = ["--seeds", "1", "--first-seed", seed, "--operations", "60", "--jobs", "1"]
    code, out, _ = sim(capsys, *again, "--shrink")
    assert code == 1
    [line] = [line for line in out.splitlines() if "--keep" in line]
    code, out, _ = sim(capsys, *again, "--keep", line.split()[-1], "--trace")
    assert code == 1
    assert f"seed {seed}: " in out


def test_a_workload_is_run_by_its_name(capsys):
    code, out, _ = sim(capsys, "--case", "put,restart_log@3:dies", "--trace")
    assert code == 0
    assert "commitlog dies at a crash point" in out


@pytest.mark.parametrize(
    "wrong", [["--keep", "1,x"], ["--keep", "0"], ["--case", "jump"], ["--seeds", "0"]]
)
def test_what_cannot_be_meant_is_wrong_usage(capsys, wrong):
    code, out, err = sim(capsys, *wrong)
    assert code == 2
    assert out == "" and wrong[0] in err and "Traceback" not in err
