"""`stratamq bench tier`, small: it runs to its end, and its counts of requests hold."""

import json

from tests.cli.processes import stratamq


def test_the_tier_is_measured_and_asks_as_little_of_the_storage_as_it_should():
    done = stratamq(
        "bench", "tier", "--messages", "80000", "--rounds", "1", "--queues", "10",
        "--output", "json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()
    document = json.loads(done.stdout)
    assert document["failed"] == []
    cases = {case["case"]: case for case in document["cases"]}
    rates = [case for case in cases.values() if case["floor"]]
    assert all(case["ratio"] > 0 for case in rates)
    assert len(rates) == 4
    pull = cases["tier: requests of a cold pull of 32 messages"]
    search = cases["tier: requests of a search by time"]
    assert pull["measured"]["most_requests"] <= 2
    assert search["measured"]["most_requests"] <= 3


def test_a_tier_that_stands_still_loses_nothing_and_catches_up():
    """It checks what was deleted meanwhile, and every queue behind it, and fails where it is not
    so; the ratios are a machine's own."""
    done = stratamq("bench", "standing-tier", "--seconds", "4", "--output", "json")
    assert done.returncode == 0, done.stderr.decode()
    document = json.loads(done.stdout)
    (case,) = document["cases"]
    assert case["messages"] > 1_000
    assert case["measured"]["caught_up_s"] > 0
