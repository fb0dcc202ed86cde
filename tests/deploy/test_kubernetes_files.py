"""The manifests as shipped: of the Kubernetes API to the letter, restricted, and set by settings of
the code. What a cluster makes of them is tests/cluster's."""

import os
import re
import shutil
import subprocess
import tomllib
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from stratamq.election.kubernetes import lease_name
from stratamq.service.config import ServiceConfig
from stratamq.service.installed import installed_rooms

KUBERNETES = Path(__file__).resolve().parents[2] / "deploy" / "kubernetes"
VERSION = "1.33"
CONTAINERS = ("commitlog", "dispatcher", "index", "ha", "janitor", "delivery", "agent")
VARIABLE = re.compile(r"\$\(([A-Z_]+)\)")


def documents(text: str) -> list[dict[str, Any]]:
    return [one for one in yaml.safe_load_all(text) if one]


def files() -> list[Path]:
    return [KUBERNETES / "base" / f"{name}.yaml" for name in ("broker", "services", "policies")] + [
        KUBERNETES / "members" / "agent.yaml",
        KUBERNETES / "gateway" / "services.yaml",
        KUBERNETES / "tier" / "policy.yaml",
        KUBERNETES / "three-shards" / "cluster.yaml",
    ]


def broker() -> dict[str, Any]:
    text = (KUBERNETES / "base" / "broker.yaml").read_text(encoding="utf-8")
    (found,) = (one for one in documents(text) if one["kind"] == "StatefulSet")
    return found


def tier() -> dict[str, dict[str, Any]]:
    return component("tier")


def component(name: str) -> dict[str, dict[str, Any]]:
    """Its containers, by name."""
    (found,) = documents((KUBERNETES / name / "broker.yaml").read_text(encoding="utf-8"))
    return {one["name"]: one for one in found["spec"]["template"]["spec"]["containers"]}


def member() -> dict[str, Any]:
    (found,) = documents((KUBERNETES / "members" / "broker.yaml").read_text(encoding="utf-8"))
    return found


def containers() -> dict[str, list[dict[str, Any]]]:
    """Of each name: as a member's patch has it, then as the base has it."""
    found: dict[str, list[dict[str, Any]]] = {}
    for one in (member(), broker()):
        for container in one["spec"]["template"]["spec"]["containers"]:
            found.setdefault(container["name"], []).append(container)
    return found


def settings(room: str) -> set[str]:
    """Names of a service's settings."""
    (kind,) = (
        one
        for one in vars(import_module(f"stratamq_{room}.config")).values()
        if isinstance(one, type) and issubclass(one, ServiceConfig) and room in one.__module__
    )
    return {one.name for one in fields(kind)}


def test_no_pod_gets_variables_for_the_services_of_its_namespace():
    pods = [pod for path in sorted(KUBERNETES.rglob("*.yaml")) for pod in pods_in(path)]
    assert len(pods) == 3
    assert all(pod["enableServiceLinks"] is False for pod in pods)


def pods_in(path: Path) -> list[dict[str, Any]]:
    """Whole ones, which a patch is not. The chart is made of them."""
    if path.is_relative_to(KUBERNETES / "chart"):
        return []
    found = []
    for one in documents(path.read_text(encoding="utf-8")):
        spec = one.get("spec", {})
        if one["kind"] == "CronJob":
            spec = spec["jobTemplate"]["spec"]["template"]["spec"]
        elif one["kind"] == "StatefulSet":
            spec = spec["template"]["spec"]
        if "securityContext" in spec:
            found.append(spec)
    return found


@pytest.mark.parametrize("path", files(), ids=lambda path: path.name)
def test_every_field_is_one_of_the_api(path):
    found = documents(path.read_text(encoding="utf-8"))
    assert found
    for one in found:
        kubernetes_validate.validate(one, VERSION, strict=True)


def test_every_service_of_a_broker_is_a_container():
    found = containers()
    assert tuple(sorted(found)) == tuple(sorted(CONTAINERS))
    assert set(found) | {"tier", "gateway", "console"} == set(installed_rooms())


@pytest.mark.parametrize("name", CONTAINERS)
def test_a_container_is_restricted_and_limited(name):
    full = containers()[name][-1]
    security = full["securityContext"]
    assert security["allowPrivilegeEscalation"] is False
    assert security["readOnlyRootFilesystem"] is True
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert {"cpu", "memory"} <= set(full["resources"]["requests"])
    assert "memory" in full["resources"]["limits"]
    mounted = {one["mountPath"] for one in full["volumeMounts"]}
    assert {"/data", "/tmp", "/etc/stratamq"} <= mounted


def test_the_pod_runs_as_an_ordinary_user_and_only_the_agent_has_a_token():
    for one in (broker(), member()):
        assert not one["spec"]["template"]["spec"].get("automountServiceAccountToken", False)
    security = broker()["spec"]["template"]["spec"]["securityContext"]
    assert security["runAsNonRoot"] is True
    assert security["runAsUser"] == 10001
    assert security["seccompProfile"] == {"type": "RuntimeDefault"}
    with_token = [
        name
        for name, parts in containers().items()
        if any(one["name"] == "token" for part in parts for one in part.get("volumeMounts", ()))
    ]
    assert with_token == ["agent"]


@pytest.mark.parametrize("name", CONTAINERS)
def test_probes_ask_for_life_and_readiness_at_the_services_port(name):
    full = containers()[name][-1]
    image = (KUBERNETES.parent / "Dockerfile").read_text(encoding="utf-8")
    port = int(re.findall(rf"STRATAMQ_{name.upper()}_ADDRESS=0\.0\.0\.0:(\d+)", image)[0])
    assert full["livenessProbe"]["grpc"] == {"port": port, "service": "liveness"}
    starting = full["startupProbe"]  # on a node with much to do a program begins late
    assert starting["grpc"] == {"port": port, "service": "liveness"}
    assert starting["periodSeconds"] * starting["failureThreshold"] == 3600
    assert full["readinessProbe"]["grpc"] == {"port": port, "service": "readiness"}
    assert {"name": name, "containerPort": port} in full["ports"]


@pytest.mark.parametrize("name", CONTAINERS)
def test_variables_are_settings_of_the_code_and_known_before_they_are_used(name):
    parts = containers()[name]
    known: set[str] = set()
    for part in parts:
        for one in part.get("env", ()):
            used = set(VARIABLE.findall(one.get("value", "")))
            assert used <= known, f"{one['name']} uses {used - known}, which come behind it"
            known.add(one["name"])
    for variable in known:
        if variable.startswith("STRATAMQ_"):
            room, _, setting = variable.removeprefix("STRATAMQ_").lower().partition("_")
            assert room == name
            assert setting in settings(name)


@pytest.mark.parametrize(
    ("name", "port"), [("tier", 10917), ("gateway", 10920), ("console", 10921)]
)
def test_a_further_container_is_as_the_others_are_and_makes_no_pod_unready(name, port):
    ours, log = component(name)[name], containers()["commitlog"][-1]
    for key in ("image", "securityContext", "volumeMounts", "startupProbe", "livenessProbe"):
        assert str(ours[key]) == str(log[key]).replace("10911", str(port)), key
    assert ours["command"] == [word.replace("commitlog", name) for word in log["command"]]
    assert "readinessProbe" not in ours
    assert {"name": name, "containerPort": port} in ours["ports"]
    assert {"cpu", "memory"} <= set(ours["resources"]["requests"])
    assert "memory" in ours["resources"]["limits"]


def test_a_console_is_for_its_own_pod_alone_and_its_other_ports_are_as_the_others():
    (given,) = (
        {one["name"]: one.get("value", "") for one in container["env"]}
        for container in component("console").values()
    )
    assert given["STRATAMQ_CONSOLE_HTTP_ADDRESS"] == "127.0.0.1:10980", "kubectl port-forward"
    for name in given:
        if name.startswith("STRATAMQ_"):
            assert name.removeprefix("STRATAMQ_CONSOLE_").lower() in settings("console")
    (policy,) = (
        one
        for one in documents((KUBERNETES / "base" / "policies.yaml").read_text("utf-8"))
        if one["kind"] == "NetworkPolicy"
    )
    opened = [one for rule in policy["spec"]["ingress"] for one in rule.get("ports", ())]
    for port in (10919, 10920, 10921, 9419, 9420, 9421):
        assert any(one["port"] <= port <= one["endPort"] for one in opened), port
    assert not any(one["port"] <= 10980 <= one["endPort"] for one in opened)


def test_the_tiers_storage_and_credentials_come_from_a_secret_that_no_other_container_has():
    parts = tier()
    assert parts["tier"]["envFrom"] == [{"secretRef": {"name": "tier"}}]
    (target,) = parts["dispatcher"]["env"]
    key = target["name"]
    assert target["valueFrom"] == {"secretKeyRef": {"name": "tier", "key": key}}
    assert parts["janitor"]["env"] == [{"name": "STRATAMQ_JANITOR_HOLD", "value": "tiered"}]
    given = [key, "STRATAMQ_JANITOR_HOLD", *(one["name"] for one in parts["tier"]["env"])]
    for name in given:
        if name.startswith("STRATAMQ_"):
            room, _, setting = name.removeprefix("STRATAMQ_").lower().partition("_")
            assert setting in settings(room)
    assert set(parts) == {"tier", "dispatcher", "janitor"}


def test_gateways_look_at_every_member_and_clients_reach_them_by_the_names_in_routes():
    found = rendered("gateway-shard")
    (broker,) = (one for one in found if one["kind"] == "StatefulSet")
    parts = {one["name"]: one for one in broker["spec"]["template"]["spec"]["containers"]}
    given = {one["name"]: one.get("value", "") for one in parts["gateway"]["env"]}
    known = {"SHARD": "stratamq", "POD_NAMESPACE": "here", "POD_NAME": "stratamq-broker-1"}
    for name, value in given.items():
        assert set(VARIABLE.findall(value)) <= set(known)
        given[name] = VARIABLE.sub(lambda one: known[one[1]], value)
        if name.startswith("STRATAMQ_"):
            assert name.removeprefix("STRATAMQ_GATEWAY_").lower() in settings("gateway")
    of_pods = [
        f"{broker['metadata']['name']}-{number}.{broker['spec']['serviceName']}.here.svc"
        for number in range(broker["spec"]["replicas"])
    ]
    assert given["STRATAMQ_GATEWAY_BROKERS"].split(",") == [f"{one}:10911" for one in of_pods]
    assert given["STRATAMQ_GATEWAY_REMOTING_ADVERTISED"] == f"{of_pods[1]}:9876"
    names = [one["name"] for one in parts["commitlog"]["env"]]
    assert names.index("POD_IP") < names.index("STRATAMQ_COMMITLOG_STORE_HOST")
    (service,) = (one for one in found if one["metadata"]["name"] == "stratamq-remoting")
    assert service["spec"]["selector"].items() <= broker["spec"]["selector"]["matchLabels"].items()
    assert [one["port"] for one in service["spec"]["ports"]] == [9876]


def test_pods_with_a_tier_reach_each_other_names_and_the_ports_of_the_api_and_of_https():
    (policy,) = documents((KUBERNETES / "tier" / "policy.yaml").read_text(encoding="utf-8"))
    assert policy["spec"]["policyTypes"] == ["Egress"]
    among, *outside = policy["spec"]["egress"]
    assert among == {"to": [{"podSelector": policy["spec"]["podSelector"]}]}
    assert {one["port"] for rule in outside for one in rule["ports"]} == {53, 443, 6443}


def test_the_settings_file_names_settings_of_the_code():
    path = KUBERNETES / "base" / "stratamq.toml"
    for room, given in tomllib.loads(path.read_text(encoding="utf-8")).items():
        assert set(given) <= settings(room)


def test_a_pod_that_is_drained_hands_over_within_its_grace():
    spec = broker()["spec"]["template"]["spec"]
    for name in ("commitlog", "ha", "agent"):
        command = containers()[name][0]["lifecycle"]["preStop"]["exec"]["command"]
        assert command[:3] == ["stratamq", "cluster", "handover"]
        assert float(command[-1]) + 60 <= spec["terminationGracePeriodSeconds"]


def test_one_name_stands_for_every_pod_of_every_shard_ready_or_not():
    (service,) = documents((KUBERNETES / "three-shards" / "cluster.yaml").read_text("utf-8"))
    spec = service["spec"]
    assert spec["clusterIP"] == "None"
    assert spec["publishNotReadyAddresses"] is True
    labels = broker()["spec"]["template"]["metadata"]["labels"]
    assert spec["selector"].items() <= labels.items()
    assert "app.kubernetes.io/instance" not in spec["selector"], "a shard's own label"
    (own, _) = documents((KUBERNETES / "base" / "services.yaml").read_text("utf-8"))
    assert spec["ports"] == own["spec"]["ports"]


def rendered(overlay: str) -> list[dict[str, Any]]:
    kubectl = os.environ.get("STRATAMQ_KUBECTL") or shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("kubectl is not here: overlays are rendered in `make test-cluster`")
    done = subprocess.run(
        [kubectl, "kustomize", str(KUBERNETES / overlay)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return documents(done.stdout)


@pytest.mark.parametrize(
    ("overlay", "brokers"),
    [("one", 1), ("shard", 1), ("gateway-shard", 1), ("tiered-shard", 1), ("three-shards", 3)],
)
def test_an_overlay_renders_to_what_the_api_takes(overlay, brokers):
    found = rendered(overlay)
    for one in found:
        kubernetes_validate.validate(one, VERSION, strict=True)
    sets = [one for one in found if one["kind"] == "StatefulSet"]
    assert len(sets) == brokers
    for one in sets:
        terms = one["spec"]["template"]["spec"]["affinity"]["podAntiAffinity"]
        (term,) = terms["requiredDuringSchedulingIgnoredDuringExecution"]
        assert term["labelSelector"]["matchLabels"] == one["spec"]["selector"]["matchLabels"]


@pytest.mark.parametrize("overlay", ["shard", "gateway-shard", "tiered-shard", "three-shards"])
def test_an_agent_may_change_the_lease_and_the_pods_of_its_own_shard_alone(overlay):
    found = rendered(overlay)
    roles = [one for one in found if one["kind"] == "Role"]
    sets = {one["metadata"]["name"]: one for one in found if one["kind"] == "StatefulSet"}
    assert len(roles) == len(sets)
    for role in roles:
        shard = sets[role["metadata"]["name"].removesuffix("agent") + "broker"]
        name = shard["metadata"]["name"]
        lease = lease_name(shard["metadata"]["labels"]["app.kubernetes.io/instance"])
        pods = [f"{name}-{number}" for number in range(shard["spec"]["replicas"])]
        group = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"]}
        assert role["rules"] == [
            {**group, "resourceNames": [lease], "verbs": ["get", "update"]},
            {**group, "verbs": ["create"]},
            {"apiGroups": [""], "resources": ["pods"], "resourceNames": pods, "verbs": ["patch"]},
        ]


def test_an_update_goes_from_the_last_pod_to_the_first_one_at_a_time():
    assert broker()["spec"]["updateStrategy"] == {"type": "RollingUpdate"}
    assert "updateStrategy" not in member()["spec"]
