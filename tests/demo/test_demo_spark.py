"""`make demo-spark`: a slice of the flights as a table, asked by Spark and by DuckDB."""

import json
import subprocess
import sys
from dataclasses import replace

import pytest
from demo_delays import Delays, Group, by_duckdb, by_hand, differences, draw
from demo_flights import read
from demo_spark import store_flights

from tests.cli.processes import environment
from tests.demo.sample import SCRIPTS, archive, write_archive

FLIGHTS = 3_000
COMMAND = [sys.executable, str(SCRIPTS / "demo_spark.py")]


@pytest.fixture(scope="module")
def flights(tmp_path_factory):
    return read(write_archive(tmp_path_factory.mktemp("flights"), FLIGHTS))


@pytest.mark.spark
def test_spark_and_duckdb_compute_what_the_flights_contain(tmp_path):
    source = archive(tmp_path, FLIGHTS)
    command = [*COMMAND, "--flights", str(source), "--limit", str(FLIGHTS), "--output", "json"]
    command += ["--picture", str(tmp_path / "delay.svg"), "--keep", str(tmp_path / "kept")]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    outcome = json.loads(done.stdout)
    assert outcome["faults"] == []
    assert outcome["flights"] == FLIGHTS
    assert len(outcome["delays"]["hours"]) > 10
    assert "<svg" in (tmp_path / "delay.svg").read_text()


def test_duckdb_reads_the_log_without_spark(tmp_path, flights):
    store_flights(tmp_path / "store", flights)
    found = by_duckdb(tmp_path / "store", "flights")
    assert differences(found, by_hand(flights)) == []
    assert sum(one.flights for one in found.routes) == sum(one.flights for one in found.hours) > 0


def test_every_difference_is_reported(flights):
    expected = by_hand(flights)
    first, *others = expected.hours
    for hours in (others, [replace(first, minutes=first.minutes + 1), *others]):
        (fault,) = differences(Delays(expected.routes, hours), expected)
        assert "hours differ" in fault
        assert first.name in fault
    (fault,) = differences(Delays([], expected.hours), expected)
    assert f"{len(expected.routes)} routes differ" in fault


def test_the_worst_routes_are_those_with_enough_flights():
    routes = [Group("A–B", 10, 100), Group("A–C", 9, 900), Group("A–D", 20, 400)]
    assert [one.name for one in Delays(routes, []).worst_routes(2)] == ["A–D", "A–B"]


@pytest.mark.parametrize("name", ["delay.svg", "delay.png"])
def test_the_picture_is_of_the_kind_of_its_file_extension(tmp_path, flights, name):
    draw(by_hand(flights), tmp_path / name)
    begin = (tmp_path / name).read_bytes()[:8]
    assert begin == (b"<?xml ve" if name.endswith("svg") else b"\x89PNG\r\n\x1a\n")


def test_a_store_that_holds_something_is_not_touched(tmp_path):
    source = write_archive(tmp_path, 10)
    (tmp_path / "kept" / "store").mkdir(parents=True)
    (tmp_path / "kept" / "store" / "precious").write_bytes(b"x")
    command = [*COMMAND, "--flights", str(source), "--keep", str(tmp_path / "kept")]
    command += ["--picture", str(tmp_path / "delay.svg")]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=60)
    assert done.returncode == 1
    assert "not empty" in done.stderr
