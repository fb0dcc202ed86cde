"""`stratamq bench gateway`, small: one load at the gateway and at RocketMQ's proxy."""

import json

import pytest
from stratamq_bench import gateway
from stratamq_bench.gateway import Options, measure

from stratamq.errors import StrataError
from tests.cli.processes import stratamq
from tests.support.tools import tool


@pytest.mark.java
def test_the_gateway_is_compared_with_rocketmqs_proxy_under_the_same_load():
    tool("h2load")
    brief = ("--seconds", "1", "--rounds", "1", "--output", "json")
    done = stratamq("bench", "gateway", *brief, "--case", "sends", "--case", "idle")
    assert done.returncode == 0, done.stderr.decode()
    sends, idle = json.loads(done.stdout)["cases"]
    assert sends["messages"] > 0 and sends["ratio"] > 0
    assert sends["floor"]["name"] == "RocketMQ 5.3.3, its proxy"
    assert sends["floor"]["cpu_us_per_message"].keys() == {"broker"}
    assert {"commitlog", "gateway"} <= sends["cpu_us_per_message"].keys()
    assert sends["measured"]["p50_ratio"] > 0
    assert idle["measured"]["gateway_mb"] > 0


@pytest.mark.parametrize("missing", ["java", "mvn", "h2load"])
def test_what_is_missing_is_named(tmp_path, monkeypatch, missing):
    monkeypatch.setattr(gateway.shutil, "which", lambda program: program != missing or None)
    with pytest.raises(StrataError, match=missing):
        measure(tmp_path, Options(1.0, 1, 1024, ("one",)))


def test_a_case_that_is_none_is_refused_by_name():
    done = stratamq("bench", "gateway", "--case", "pulls")
    assert done.returncode == 2
    assert b"there are sends, one, append, idle" in done.stderr
