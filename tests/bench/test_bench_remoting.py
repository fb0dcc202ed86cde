"""`stratamq bench remoting`, small: RocketMQ's client at both, and a missing Java is named."""

import json

import pytest
from stratamq_bench import remoting
from stratamq_bench.remoting import Options, measure

from stratamq.errors import StrataError
from tests.cli.processes import stratamq


@pytest.mark.java
def test_the_gateway_is_compared_with_rocketmq_under_the_same_client():
    brief = ("--seconds", "1", "--rounds", "1", "--output", "json")
    done = stratamq("bench", "remoting", *brief, "--case", "singles", "--case", "one")
    assert done.returncode == 0, done.stderr.decode()
    singles, one = json.loads(done.stdout)["cases"]
    for case in (singles, one):
        assert case["messages"] > 0 and case["ratio"] > 0
        assert case["floor"]["name"] == "RocketMQ 5.3.3"
        assert case["floor"]["cpu_us_per_message"].keys() == {"client", "broker"}
        assert {"client", "commitlog", "gateway"} <= case["cpu_us_per_message"].keys()
    assert one["measured"]["p50_ratio"] > 0


def test_without_java_it_says_what_is_missing(tmp_path, monkeypatch):
    monkeypatch.setattr(remoting.shutil, "which", lambda program: None)
    with pytest.raises(StrataError, match="Java 17 and Maven"):
        measure(tmp_path, Options(1.0, 1, 1024, ("one",)))


def test_a_case_that_is_none_is_refused_by_name():
    done = stratamq("bench", "remoting", "--case", "sends")
    assert done.returncode == 2
    assert b"there are singles, one, batches, pulls, push, idle" in done.stderr
