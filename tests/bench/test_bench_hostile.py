"""`stratamq bench hostile`, small: a client's waiting beside an attack, and in quiet."""

import json

import pytest
from stratamq_bench.broker import Broker
from stratamq_bench.hostile import Attacker
from stratamq_bench.security import guarded

from stratamq.rpc.endpoints import Endpoints
from tests.cli.processes import stratamq
from tests.support.waiting import until


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
    measured = case["measured"]
    assert measured["p99_over_elsewhere"] == pytest.approx(
        measured["p99_ratio"] / measured["p99_ratio_elsewhere"], rel=0.01
    )
    assert "elsewhere" in case["note"]


@pytest.mark.parametrize("attack", ["refused-calls", "unknown-methods", "reset-streams"])
def test_the_calls_of_an_attack_reach_the_service(tmp_path, attack):
    """gRPC drops by itself what it does not take for a call: then nothing of ours is measured."""
    settings, credentials = guarded(tmp_path, [])
    with Broker(tmp_path, ("commitlog",), {"commitlog.followers": "", **settings}) as broker:
        address = Endpoints(broker.root).listening("commitlog")
        service_log = tmp_path / "store-commitlog.log"
        with Attacker(attack, address, credentials.tls.ca):
            until(lambda: "refused who=''" in service_log.read_text(), f"{attack} is refused")


def test_an_attack_that_is_none_is_refused_by_name():
    done = stratamq("bench", "hostile", "--attack", "rain")
    assert done.returncode == 2
    assert b"rain: there are refused-calls" in done.stderr
