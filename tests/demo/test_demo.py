"""A slice of `make demo`, whole: services, a kill in the middle, everything compared."""

import json
import signal
import subprocess
import sys

from tests.cli.processes import environment
from tests.demo.sample import SCRIPTS, archive

FLIGHTS = 5_000
COMMAND = [sys.executable, str(SCRIPTS / "demo.py")]


def test_a_slice_of_the_flights_survives_a_kill_and_compares_equal(tmp_path):
    source = archive(tmp_path, FLIGHTS)
    command = [*COMMAND, "--flights", str(source), "--limit", str(FLIGHTS), "--output", "json"]
    command += ["--keep", str(tmp_path / "kept")]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    outcome = json.loads(done.stdout)
    compared = [step for step in outcome["steps"] if step["faults"] is not None]
    assert len(compared) == 5
    assert all(step["faults"] == [] for step in compared)
    (read_back,) = (step for step in compared if step["what"].startswith("read "))
    assert (read_back["count"], outcome["duplicates"]) == (FLIGHTS, 0)
    assert outcome["acknowledged_and_missing"] == 0
    half = outcome["acknowledged_before_kill"] + outcome["sent_again"]
    assert half == FLIGHTS // 2
    assert (tmp_path / "kept" / "store" / "commitlog").is_dir()


def test_a_store_that_holds_something_is_not_touched(tmp_path):
    source = archive(tmp_path, 10)
    (tmp_path / "kept" / "store").mkdir(parents=True)
    (tmp_path / "kept" / "store" / "precious").write_bytes(b"x")
    command = [*COMMAND, "--flights", str(source), "--limit", "10", "--keep", tmp_path / "kept"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=60)
    assert done.returncode == 1
    assert "not empty" in done.stderr
    assert [path.name for path in (tmp_path / "kept" / "store").iterdir()] == ["precious"]


def test_interrupt_stops_the_demo_and_every_service(tmp_path):
    source = archive(tmp_path, 40_000)
    command = [*COMMAND, "--flights", str(source), "--keep", str(tmp_path / "kept")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment()) as demo:
        assert demo.stdout is not None
        while "start log" not in (line := demo.stdout.readline()):
            assert line, "the demo ended before its broker ran"
        demo.send_signal(signal.SIGINT)
        demo.stdout.read()
        assert demo.wait(120) == 130
    log = (tmp_path / "kept" / "up.log").read_text()
    assert "stopped" in log.splitlines()[-1]
    assert not list((tmp_path / "kept" / "store" / "stratamq" / "run").glob("*.json"))
