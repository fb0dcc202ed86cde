"""The jobs of `deploy/kubernetes/spark` beside a shard, and what they have written."""

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds

from tests.cluster.shard import MANIFESTS, TIMEOUT_S, USER, Shard
from tests.support.waiting import until

SMALL = "--conf spark.kubernetes.executor.request.cores=100m --conf spark.executor.memory=512m"
"""For a node of two cores that has a shard already."""


class SparkJobs:
    """`tables`: a directory of the node, in which the claim of that name is."""

    def __init__(self, shard: Shard, image: str, place: Path, tables: Path) -> None:
        self._shard = shard
        self._tables = tables
        tables.mkdir()
        shutil.chown(tables, USER, USER)
        shutil.copytree(MANIFESTS / "spark", place / "spark")
        (place / "volume.json").write_text(json.dumps(_volume(shard.namespace, tables)))
        (place / "kustomization.yaml").write_text(json.dumps(_overlay(shard.namespace, image)))
        shard.kubectl("apply", "--server-side", "-k", str(place))

    def run(self, name: str) -> str:
        """What the job has printed at its end."""
        self._shard.kubectl("create", "job", name, "--from=cronjob/export")
        until(lambda: self._ended(name), "the job ends", deadline_s=TIMEOUT_S)
        text = self._shard.kubectl("logs", f"job/{name}")
        assert self._ended(name) == "Complete", text
        return text

    def _ended(self, name: str) -> str:
        """Complete, Failed; "": it continues."""
        types = "jsonpath={.status.conditions[*].type}"
        words = self._shard.kubectl("get", "job", name, "-o", types).split()
        return next((word for word in words if word in ("Complete", "Failed")), "")

    def bodies(self) -> list[bytes]:
        files = (self._tables / "messages").glob("topic=*/**/*.parquet")
        table = ds.dataset(sorted(map(str, files))).to_table(columns=["body"])
        return [bytes(one) for one in table.column("body").to_pylist()]


def _volume(namespace: str, tables: Path) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": f"{namespace}-tables"},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteMany"],
            "storageClassName": f"{namespace}-tables",
            "persistentVolumeReclaimPolicy": "Retain",
            "hostPath": {"path": str(tables)},
        },
    }


def _overlay(namespace: str, image: str) -> dict[str, Any]:
    container = "/spec/jobTemplate/spec/template/spec/containers/0"
    claim = [
        {"op": "replace", "path": "/spec/resources/requests/storage", "value": "1Gi"},
        {"op": "add", "path": "/spec/storageClassName", "value": f"{namespace}-tables"},
    ]
    job = [
        {"op": "replace", "path": f"{container}/env/0/value",
         "value": f"export stratamq-broker:10911 /tables/messages --topic tables {SMALL}"},
        {"op": "replace", "path": f"{container}/env/1/value", "value": image},
        {"op": "replace", "path": f"{container}/resources/requests/cpu", "value": "10m"},
    ]  # fmt: skip
    name, _, tag = image.rpartition(":")
    return {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "namespace": namespace,
        "resources": ["spark", "volume.json"],
        "images": [{"name": "stratamq-spark", "newName": name, "newTag": tag}],
        "patches": [
            {"target": {"kind": "PersistentVolumeClaim"}, "patch": json.dumps(claim)},
            {"target": {"kind": "CronJob"}, "patch": json.dumps(job)},
        ],
    }
