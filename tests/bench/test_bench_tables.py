"""`stratamq bench scan` and `bench spark`, short runs: the result is complete and is reported."""

import json
import subprocess
import sys

import pyarrow as pa
import pytest
from stratamq_bench.scan import Copy
from stratamq_bench.spark import write_batches
from stratamq_bench.streaming import fill

import stratamq

MESSAGES = 2_000


def bench(*arguments, timeout=240):
    command = [sys.executable, "-m", "stratamq_bench", *arguments]
    command += ["--messages", str(MESSAGES), "--rounds", "1", "--output", "json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["cases"]


def test_scan_is_held_against_copying_the_same_bytes(tmp_path):
    cases = bench("scan", "--dir", str(tmp_path))
    assert [case["bar"] for case in cases] == [0.5, 0.8, None, None, 0.5, None, 0.5]
    for case in cases:
        assert case["messages"] >= MESSAGES
        assert case["ratio"] > 0
        assert case["cpu_us_per_message"]["python"] > 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.spark
def test_spark_is_compared_with_prepared_batches(tmp_path):
    cases = bench("spark", "--dir", str(tmp_path), timeout=280)
    assert [case["bar"] for case in cases] == [0.5, 1.6, 1.0] * 2
    for scan, _, memory in (cases[:3], cases[3:]):
        assert scan["messages"] >= MESSAGES
        assert 0 < memory["pss_mb"] < 500
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return fill(tmp_path_factory.mktemp("bench"), MESSAGES, 100, 1 << 18)


def test_the_floor_of_a_scan_copies_every_frame(store):
    table = Copy(store.root)()
    frames = table["frame"].to_pylist()
    scanned = stratamq.scan(store.root).to_arrow()
    assert [len(frame) for frame in frames] == scanned["size"].to_pylist()
    offsets = [int.from_bytes(frame[28:36], "big") for frame in frames]
    assert offsets == scanned["physicalOffset"].to_pylist()
    assert len(frames) == store.messages >= MESSAGES


def test_the_batches_of_sparks_floor_are_those_of_the_scan(store, tmp_path):
    write_batches(store, tmp_path / "batches")
    paths = sorted((tmp_path / "batches").iterdir())
    tables = [pa.ipc.open_file(path).read_all() for path in paths]
    assert len(tables) == 2
    found = sorted(offset for table in tables for offset in table["physicalOffset"].to_pylist())
    assert found == stratamq.scan(store.root).to_arrow()["physicalOffset"].to_pylist()
