"""A shard for RocketMQ's own clients, with the console, installed by the chart."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.conftest import in_namespace
from tests.cluster.judging import healed
from tests.cluster.release import Release
from tests.cluster.shard import PODS, Shard
from tests.support.tools import tool

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1200)]

SEND = Path(__file__).with_name("grpc_send.py")
GET = """\
import sys, urllib.error, urllib.request
try:
    answer = urllib.request.urlopen(sys.argv[1], timeout=60)
except urllib.error.HTTPError as error:
    answer = error
print((answer.status, answer.read().decode()))
"""


@pytest.fixture(scope="module")
def shard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shard]:
    with in_namespace(tmp_path_factory.mktemp("gateway")) as shard:
        release = Release(tool("helm"), shard, tmp_path_factory.mktemp("release"))
        release.install("--set=shape=gateway-shard,console=true")
        healed(shard)
        yield shard


def sent(shard: Shard, body: str) -> list[str]:
    """The address that the route named, and the answer's code."""
    asked = ("stratamq-gateway:8081", "shopping", body)
    words = ("python3", "-c", SEND.read_text(encoding="utf-8"), *asked)
    return shard.in_pod("client", "client", *words).split()


def got(shard: Shard, pod: str, container: str, url: str) -> tuple[int, str]:
    status, text = ast.literal_eval(shard.in_pod(pod, container, "python3", "-c", GET, url))
    return int(status), str(text)


def test_clients_of_the_grpc_protocol_go_to_the_leader_of_the_moment(shard):
    shard.client("topics", "create", "shopping")
    for number in range(2):
        leader = PODS[number]
        shard.switch_over(leader)
        healed(shard)
        where = f"{leader}.stratamq-broker.{shard.namespace}.svc:8081"
        assert sent(shard, f"{number}") == [where, "OK"]
    assert shard.stored("shopping") == [0, 1]


def test_each_pod_has_the_pages_for_itself_and_other_pods_are_refused(shard):
    for pod in PODS:
        status, page = got(shard, pod, "console", "http://127.0.0.1:10980/")
        assert status == 200 and "shopping" not in page and "Overview" in page
        inside, _ = got(shard, pod, "console", "http://127.0.0.1:8081/console/")
        outside, _ = got(shard, "client", "client", f"http://{pod}.stratamq-broker:8081/console/")
        assert (inside, outside) == (200, 403)
    assert got(shard, "client", "client", "http://stratamq-gateway:8081/health")[0] == 200
