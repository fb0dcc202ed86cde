"""The Helm chart on a real Kubernetes, by the commands of docs/kubernetes.md."""

import json

import pytest

from tests.cluster.judging import LONGEST_S, healed, judge
from tests.cluster.release import Release
from tests.cluster.shard import PODS, Shard
from tests.support.tools import tool

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]


def limits(shard: Shard) -> list[str]:
    """Of the memory of each pod's log."""
    pods = json.loads(
        shard.kubectl("get", "pods", "-l", "app.kubernetes.io/name=stratamq", "-o", "json")
    )
    return [
        one["resources"]["limits"]["memory"]
        for pod in pods["items"]
        for one in pod["spec"]["containers"]
        if one["name"] == "commitlog"
    ]


def claims(shard: Shard) -> set[str]:
    rows = json.loads(shard.kubectl("get", "pvc", "-o", "json"))["items"]
    return {row["metadata"]["name"] for row in rows}


def test_a_release_is_upgraded_under_load_uninstalled_and_installed_over_its_claims(
    prepared, tmp_path
):
    shard, release = prepared, Release(tool("helm"), prepared, tmp_path)
    release.install()
    healed(shard)
    assert limits(shard) == ["2Gi"] * 3
    with shard.load("upgraded", 900) as load:
        assert load.begun.wait(60)
        release.upgrade()
        load.finish()
    assert limits(shard) == ["4Gi"] * 3
    judge(shard, "upgraded", load.acknowledged, LONGEST_S["handover"])
    release.uninstall()
    for pod in PODS:
        shard.kubectl("wait", "--for=delete", f"pod/{pod}", "--timeout=300s")
    assert claims(shard) == {f"data-{pod}" for pod in PODS}
    release.install()
    healed(shard)
    assert load.acknowledged.confirmed <= set(shard.stored("upgraded"))
