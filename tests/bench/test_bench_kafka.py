"""`stratamq bench kafka`, small: real brokers of Kafka and RocketMQ beside ours."""

import json

import pytest
from stratamq_bench import remoting
from stratamq_bench.kafka import Options, measure

from stratamq.errors import StrataError
from tests.cli.processes import stratamq


@pytest.mark.java
def test_bulk_and_a_consumer_are_compared_with_kafka_and_rocketmq():
    brief = ("--seconds", "1", "--rounds", "1", "--output", "json")
    done = stratamq("bench", "kafka", *brief, "--case", "large", "--case", "consumer")
    assert done.returncode == 0, done.stderr.decode()
    large, consumer = json.loads(done.stdout)["cases"]
    for case in (large, consumer):
        assert case["messages"] > 0 and case["ratio"] > 0
        assert case["floor"]["name"] == "Kafka 4.3.1"
        assert case["floor"]["cpu_us_per_message"].keys() == {"client", "broker"}
        assert {"client", "commitlog", "dispatcher", "index"} == case["cpu_us_per_message"].keys()
    assert large["measured"]["rocketmq_ratio"] > 0


def test_without_java_it_says_what_is_missing(tmp_path, monkeypatch):
    monkeypatch.setattr(remoting.shutil, "which", lambda program: None)
    with pytest.raises(StrataError, match="Java 17 and Maven"):
        measure(tmp_path, Options(1.0, 1, 1024, ("consumer",)))
