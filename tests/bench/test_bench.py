"""`stratamq bench` over real services, briefly: what it measures is checked, and it says so."""

import json
import subprocess
import sys

import pytest
from stratamq_bench.append import check_stored
from stratamq_bench.checks import Mismatch
from stratamq_bench.engine_alone import Engine, Load, compare
from stratamq_bench.load import Load as Messages
from stratamq_commitlog.messages import BatchResult, PutStatus

from stratamq.errors import InvalidRequestError

BRIEFLY = ["--seconds", "0.5", "--rounds", "1", "--output", "json"]


def bench(*arguments):
    command = [sys.executable, "-m", "stratamq_bench", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    (case,) = json.loads(done.stdout)["cases"]
    return case


@pytest.mark.parametrize("flush", ["--sync", "--async"])
def test_append_measures_client_and_log_beside_the_floor(tmp_path, flush):
    case = bench("append", flush, "--dir", str(tmp_path), *BRIEFLY)
    assert set(case["cpu_us_per_message"]) == {"client", "commitlog"}
    assert case["messages"] > 0
    assert case["ratio"] > 0
    assert case["bar"] == (0.5 if flush == "--sync" else None)
    assert list(tmp_path.iterdir()) == []


def test_append_with_followers_measures_them_too(tmp_path):
    case = bench("append", "--followers", "--dir", str(tmp_path), *BRIEFLY)
    assert set(case["cpu_us_per_message"]) == {"client", "commitlog", "dispatcher", "index"}
    assert case["bar"] == 0.35


def test_pull_reads_everything_that_was_stored(tmp_path):
    case = bench("pull", "--messages", "2000", "--dir", str(tmp_path), *BRIEFLY)
    assert set(case["cpu_us_per_message"]) == {"client", "dispatcher", "commitlog"}
    assert case["messages"] % 2000 == 0


def test_the_engine_alone_is_held_against_the_floor(tmp_path):
    found = compare(tmp_path, Load(64, 100, 4), rounds=1, seconds=0.05)
    assert found.messages > 0
    assert found.engine_us > found.floor_us * found.passes_ratio * 0.5
    assert 0 < found.passes_ratio <= found.ratio


def stored(offsets=(0,), status=PutStatus.PUT_OK, physical=0, error=None):
    return BatchResult(status, physical, tuple(offsets), error=error)


@pytest.mark.parametrize(
    ("answers", "batches"),
    [
        ([], 1),
        ([stored(offsets=(1,))], 1),
        ([stored(status=PutStatus.MESSAGE_ILLEGAL, error=InvalidRequestError("x"))], 1),
    ],
    ids=["no answer", "an offset too far", "refused"],
)
def test_wrong_answers_of_the_engine_are_a_mismatch(tmp_path, answers, batches):
    engine = Engine(tmp_path / "store", Load(4, 100))
    engine._answers += answers
    try:
        with pytest.raises(Mismatch):
            engine.check_and_forget(batches)
    finally:
        engine.close()


@pytest.mark.parametrize(
    "sent",
    [
        {"messages": 0, "next_offsets": [0] * 16, "next_number": 0, "samples": []},
        {"messages": 16, "next_offsets": [0] * 16, "next_number": 16, "samples": []},
    ],
    ids=["nothing", "offsets that do not add up"],
)
def test_what_a_client_says_is_added_up(sent):
    with pytest.raises(Mismatch):
        check_stored(None, sent, Messages(100), followers=False)
