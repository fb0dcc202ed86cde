"""The pipeline's jobs on Kubernetes as shipped. A cluster runs one in tests/cluster."""

import re
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
SPARK = DEPLOY / "kubernetes" / "spark"
VERSION = "1.33"


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((SPARK / name).read_text(encoding="utf-8")))


def driver() -> dict[str, Any]:
    (job,) = (one for one in documents("jobs.yaml") if one["kind"] == "CronJob")
    pod: dict[str, Any] = job["spec"]["jobTemplate"]["spec"]["template"]
    return pod


def executor() -> dict[str, Any]:
    (pod,) = documents("executor.yaml")
    return pod


def settings() -> dict[str, str]:
    lines = (SPARK / "spark-defaults.conf").read_text(encoding="utf-8").splitlines()
    pairs = [line.split(maxsplit=1) for line in lines if line and not line.startswith("#")]
    return {key: value.strip() for key, value in pairs}


@pytest.mark.parametrize("name", ["access.yaml", "jobs.yaml", "executor.yaml"])
def test_every_field_is_one_of_the_api(name):
    for one in documents(name):
        if name == "executor.yaml":
            one["spec"]["containers"][0]["image"] = "given by Spark"
        kubernetes_validate.validate(one, VERSION, strict=True)


@pytest.mark.parametrize("pod", [driver(), executor()], ids=["driver", "executor"])
def test_a_pod_is_restricted_and_may_read_from_brokers(pod):
    security = pod["spec"]["securityContext"]
    assert security["runAsNonRoot"] is True
    assert security["seccompProfile"] == {"type": "RuntimeDefault"}
    (container,) = pod["spec"]["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    labels = pod["metadata"]["labels"]
    assert labels == {"stratamq-client": "true", "app.kubernetes.io/name": "stratamq-spark"}
    assert security["fsGroupChangePolicy"] == "OnRootMismatch", "a claim may hold many files"
    writable = {one["mountPath"] for one in container["volumeMounts"] if not one.get("readOnly")}
    assert {"/data", "/tmp"} <= writable


def test_only_driver_and_executors_reach_them():
    (policy,) = (one for one in documents("access.yaml") if one["kind"] == "NetworkPolicy")
    theirs = {"matchLabels": {"app.kubernetes.io/name": "stratamq-spark"}}
    assert policy["spec"]["podSelector"] == theirs
    assert policy["spec"]["policyTypes"] == ["Ingress"]
    assert policy["spec"]["ingress"] == [{"from": [{"podSelector": theirs}]}]
    assert settings()["spark.authenticate"] == "true"


def test_a_driver_may_make_and_delete_pods_and_nothing_else():
    """Brokers' claims are in the same namespace. Spark does without, as these settings ask it."""
    (role,) = (one for one in documents("access.yaml") if one["kind"] == "Role")
    assert {kind for rule in role["rules"] for kind in rule["resources"]} == {"pods"}
    given = settings()
    assert given["spark.kubernetes.executor.disableConfigMap"] == "true"
    for name in (
        "driver.service.deleteOnTermination",
        "driver.ownPersistentVolumeClaim",
        "driver.reusePersistentVolumeClaim",
    ):
        assert given[f"spark.kubernetes.{name}"] == "false"


def test_a_driver_ends_when_its_pod_is_deleted():
    """A process 1 without a handler ignores SIGTERM."""
    assert driver()["spec"]["shareProcessNamespace"] is True


def test_executors_have_no_token():
    assert executor()["spec"]["automountServiceAccountToken"] is False
    assert "token" not in {one["name"] for one in executor()["spec"]["volumes"]}


def test_driver_and_executors_write_to_the_same_claim_and_share_the_image():
    prefix = "spark.kubernetes.executor.volumes.persistentVolumeClaim.tables"
    (claim,) = (one for one in documents("jobs.yaml") if one["kind"] == "PersistentVolumeClaim")
    assert claim["metadata"]["name"] == settings()[f"{prefix}.options.claimName"]
    (container,) = driver()["spec"]["containers"]
    mounted = {one["name"]: one["mountPath"] for one in container["volumeMounts"]}
    assert mounted["tables"] == settings()[f"{prefix}.mount.path"]
    environment = {one["name"]: one.get("value") for one in container["env"]}
    assert environment["SPARK_IMAGE"] == container["image"]
    assert mounted["settings"] == environment["SPARK_CONF_DIR"]


def test_the_executors_program_is_in_the_image():
    (container,) = executor()["spec"]["containers"]
    assert settings()["spark.kubernetes.executor.podTemplateContainerName"] == container["name"]
    image = (DEPLOY / "spark" / "Dockerfile").read_text(encoding="utf-8")
    copied = re.findall(r"^COPY (?:--\S+ )*deploy/spark/executor.sh (\S+)$", image, re.MULTILINE)
    assert container["command"] == copied
