"""`stratamq bench` over real services, with short runs: each case measures, checks and reports.

Of the cases that share their code the commit chooses one.
"""

import json
from itertools import groupby

import pytest
from stratamq_bench.catalogue import ENTRIES, GROUPS, Entry, chosen
from stratamq_bench.commands import QUESTIONS

from tests.cli.processes import stratamq
from tests.support.sampling import few

SHAPE = {
    "case": str,
    "title": str,
    "messages_per_s": (int, float),
    "bytes_per_s": (int, float),
    "cpu_us_per_message": dict,
    "bar": (int, float),
    "bars": list,
    "met": bool,
    "measured": dict,
    "messages": int,
}
MAYBE = ("ratio", "p50_ms", "p99_ms", "p999_ms", "pss_mb")


def one_of_each() -> list[Entry]:
    """Of the entries with the same code, one: they differ in numbers."""

    def code(entry: Entry) -> tuple[str, bool]:
        return entry.work, "consumer" in entry.options

    groups = groupby(sorted(ENTRIES, key=code), key=code)
    return [entry for _, alike in groups for entry in few(alike, 1)]


def bench(tmp_path, *arguments):
    short = ["--seconds", "0.2", "--rounds", "1"]
    return stratamq("bench", *arguments, "--dir", str(tmp_path), *short, "--output", "json")


@pytest.mark.parametrize("entry", one_of_each(), ids=lambda entry: entry.name)
def test_every_case_measures_what_it_is_held_to(tmp_path, entry):
    done = bench(tmp_path, entry.group, "--case", entry.name)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["machine"]["cpu"]
    (case,) = found["cases"]
    for name, kind in SHAPE.items():
        assert isinstance(case[name], kind), name
    for name in MAYBE:
        assert case[name] is None or case[name] > 0, name
    assert case["case"] == entry.name
    assert case["messages"] > 0
    assert [(bar["measure"], bar["limit"]) for bar in case["bars"]] == [
        (bar.measure, bar.limit) for bar in entry.bars
    ]
    assert case["met"] is all(bar["met"] for bar in case["bars"])
    if any(bar.measure == "ratio" for bar in entry.bars):
        assert case["floor"]["name"]
        assert case["floor"]["messages_per_s"] > 0
        assert case["ratio"] > 0
    assert list(tmp_path.iterdir()) == []


def test_results_are_written_after_each_case(tmp_path):
    results = tmp_path / "kept" / "results.json"
    place = tmp_path / "stores"
    done = bench(
        place, "engine", "--case", "engine-64", "--case", "engine-256", "--results", str(results)
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(results.read_text()) == json.loads(done.stdout)
    assert len(json.loads(results.read_text())["cases"]) == 2


def test_an_unknown_case_is_refused(tmp_path):
    done = bench(tmp_path, "append", "--case", "append-sideways")
    assert done.returncode == 2
    assert b"append-sideways" in done.stderr


def test_every_row_of_the_table_has_its_bar():
    """The table of the speed issue, and replication's: no row may lose its case or its bar."""
    bars = {entry.name: {str(bar) for bar in entry.bars} for entry in ENTRIES}
    assert bars == {
        "engine-64": {"≤ 1.6"},
        "engine-256": {"≤ 1.6"},
        "append-async": {"≥ 0.75"},
        "append-async-default": {"≥ 0.75"},
        "append-uneven": {"≥ 0.75"},
        "append-sync": {"≥ 0.8"},
        "append-single": {
            "≥ 0.8",
            "threads_ratio ≥ 0.8",
            "log_us ≤ 60",
            "one_p50_of_a_call ≤ 1",
            "found_at_once ≥ 1",
        },
        "append-unary": {"≥ 0.5", "p99_ms < 20"},
        "follow-both": {"≥ 0.6", "dispatch_age_ms < 1000"},
        "follow-consumer": {"≥ 0.35"},
        "follow-uneven": {"≥ 0.5", "dispatch_age_ms < 1000"},
        "follow-small": {"≥ 0.5"},
        "follow-rebuild": {"≥ 1", "p99_times ≤ 2"},
        "queues-topics": {"≥ 0.25"},
        "queues-10000": {"≥ 0.2", "dispatcher_descriptors < 1000"},
        "pull-stream": {"≥ 0.4"},
        "pull-uneven": {"≥ 0.25"},
        "latency-append": {"p50_ms < 1.5"},
        "latency-consumer": {"p99_ms < 20"},
        "recover-scan": {"≥ 0.7"},
        "recover-scan-small": {"≥ 0.7"},
        "recover-scan-uneven": {"≥ 0.7"},
        "recover-two-cores": {"≥ 1.5"},
        "recover-two-cores-small": {"≥ 1.5"},
        "replicate-catch-up": {"≥ 0.5"},
        "replicate-sync": {"≥ 0.5"},
        "replicate-single": {"services_us < 7250"},
        "replicate-lag": {"lag_ms < 1000"},
        "idle-broker": {"cpu_percent < 2", "pss_mb < 350", "first_put_s < 5"},
        "delivery-batches": {"≥ 0.4", "bytes_per_message ≤ 40", "state_bytes ≤ 16384"},
        "delivery-singles": {"p99_ms < 200", "state_bytes ≤ 16384"},
        "delivery-transactions": {"log_ratio ≤ 2.5"},
        "delivery-delayed": {"≥ 0.5"},
        "delivery-error": {"p99_ms < 200"},
        "delivery-standby": {"append_cpu_ratio ≤ 1.05", "pull_cpu_ratio ≤ 1.05"},
    }


def test_every_group_is_a_command():
    assert set(QUESTIONS) == set(GROUPS) == {entry.group for entry in ENTRIES}
    assert chosen(("idle",)) == [entry for entry in ENTRIES if entry.name == "idle-broker"]
