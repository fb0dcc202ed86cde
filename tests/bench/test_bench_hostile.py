"""`stratamq bench hostile`, small: a client's waiting beside an attack, and in quiet."""

import json

from tests.cli.processes import stratamq


def test_what_a_client_waits_beside_an_attack_is_compared_with_what_it_waits_in_quiet():
    done = stratamq(
        "bench", "hostile", "--seconds", "0.5", "--rounds", "1", "--attack", "reset-streams",
        "--output", "json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()
    (case,) = json.loads(done.stdout)["cases"]
    assert case["case"] == "hostile: reset-streams beside 200 appends/s"
    assert case["measured"]["p99_ratio"] == case["ratio"] > 0
    assert case["messages"] > 200 and case["p99_ms"] >= case["p50_ms"] > 0


def test_an_attack_that_is_none_is_refused_by_name():
    done = stratamq("bench", "hostile", "--attack", "rain")
    assert done.returncode == 2
    assert b"rain: there are refused-calls" in done.stderr
