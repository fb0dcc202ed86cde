"""The Helm chart renders the objects of the overlays, and a value changes what it names alone."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from tests.support.tools import tool

ROOT = Path(__file__).resolve().parents[2]
KUBERNETES = ROOT / "deploy" / "kubernetes"
CHART = KUBERNETES / "chart"
SHAPES = ("one", "shard", "gateway-shard", "tiered-shard", "three-shards")


def objects(*command: str) -> dict[tuple[str, str], Any]:
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = [one for one in yaml.safe_load_all(done.stdout) if one]
    named = {(one["kind"], one["metadata"]["name"]): one for one in found}
    assert len(named) == len(found) > 0
    return named


def chart(shape: str, **values: str) -> dict[tuple[str, str], Any]:
    given = [f"--set={name}={value}" for name, value in ({"shape": shape} | values).items()]
    return objects(tool("helm"), "template", "x", str(CHART), *given)


def pod_specs(found: dict[tuple[str, str], Any]) -> list[dict[str, Any]]:
    """Of the brokers."""
    return [
        one["spec"]["template"]["spec"] for (kind, _), one in found.items() if kind == "StatefulSet"
    ]


def refusal(*words: str) -> str:
    """Helm's error about values that it does not take."""
    command = [tool("helm"), "template", "x", str(CHART), *words]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode != 0
    return done.stderr


def checked(tree: Path, kubectl: str) -> "subprocess.CompletedProcess[str]":
    script = str(tree / "scripts" / "gen_chart.py")
    command = [sys.executable, script, "--check", "--kubectl", kubectl]
    return subprocess.run(command, capture_output=True, text=True)


def test_the_chart_is_what_the_overlays_give():
    done = checked(ROOT, tool("kubectl"))
    assert done.returncode == 0, done.stderr


def test_without_kubectl_an_overlay_that_changed_is_noticed(tmp_path):
    assert checked(ROOT, "no-kubectl").returncode == 0
    shutil.copytree(KUBERNETES, tmp_path / "deploy" / "kubernetes")
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "scripts" / "gen_chart.py", tmp_path / "scripts")
    assert checked(tmp_path, "no-kubectl").returncode == 0
    with (tmp_path / "deploy" / "kubernetes" / "shard" / "kustomization.yaml").open("a") as file:
        file.write("# changed\n")
    done = checked(tmp_path, "no-kubectl")
    assert done.returncode == 1
    assert "the overlays have changed: run scripts/gen_chart.py" in done.stderr


@pytest.mark.parametrize("shape", SHAPES)
def test_a_shape_renders_the_objects_of_its_overlay(shape):
    assert chart(shape) == objects(tool("kubectl"), "kustomize", str(KUBERNETES / shape))


@pytest.mark.parametrize("shape", SHAPES)
def test_values_change_what_they_name_and_nothing_else(shape):
    expected = chart(shape)
    for one in expected.values():
        if one["kind"] == "StatefulSet":
            for container in one["spec"]["template"]["spec"]["containers"]:
                container["image"] = "registry/stratamq:7"
            (claim,) = one["spec"]["volumeClaimTemplates"]
            claim["spec"]["resources"]["requests"]["storage"] = "9Gi"
            claim["spec"]["storageClassName"] = "fast"
    given = {"image": "registry/stratamq:7", "storageSize": "9Gi", "storageClass": "fast"}
    assert chart(shape, **given) == expected


@pytest.mark.parametrize("shape", SHAPES)
def test_settings_replace_the_file_under_a_name_of_their_own(shape):
    settings = "[index]\nindex_slots = 9\n"
    digest = hashlib.sha256(settings.encode()).hexdigest()[:10]
    expected = {}
    for (kind, name), one in chart(shape).items():
        if kind == "ConfigMap":
            one["data"] = {"stratamq.toml": settings}
            name = one["metadata"]["name"] = f"{name.rpartition('-')[0]}-{digest}"
        for volume in one["spec"]["template"]["spec"]["volumes"] if kind == "StatefulSet" else ():
            if volume["name"] == "settings":
                before = volume["configMap"]["name"].rpartition("-")[0]
                volume["configMap"]["name"] = f"{before}-{digest}"
        expected[kind, name] = one
    assert chart(shape, settings=settings) == expected


def with_console(place: Path, shape: str) -> str:
    """An overlay of one's own, as docs/kubernetes.md has it."""
    shape_at, console_at = (os.path.relpath(KUBERNETES / one, place) for one in (shape, "console"))
    text = f"kind: Kustomization\nresources: [{shape_at}]\ncomponents: [{console_at}]\n"
    (place / "kustomization.yaml").write_text(text, encoding="utf-8")
    return str(place)


@pytest.mark.parametrize("shape", SHAPES)
def test_with_the_console_each_pod_has_it(shape, tmp_path):
    given = chart(shape, console="true")
    assert given == objects(tool("kubectl"), "kustomize", with_console(tmp_path.resolve(), shape))
    assert pod_specs(given)
    for spec in pod_specs(given):
        assert [one["name"] for one in spec["containers"]].count("console") == 1


@pytest.mark.parametrize("console", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_template_with_the_default_values_is_of_the_api_and_has_the_settings_file(
    shape, console, tmp_path
):
    text = (CHART / "templates" / f"{shape}.yaml").read_text(encoding="utf-8")
    if_console = r"(?s){{- if \.Values\.console }}\n(.*?){{- end }}\n"
    text, found = re.subn(if_console, r"\1" if console else "", text)
    assert found == (3 if shape == "three-shards" else 1)
    values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    text = re.sub(r"{{ with .*?{{ else }}(.*?){{ end }}", r"\1", text)
    text = re.sub(r"(?s) *{{- with .*?(?:{{- else }}\n(.*?))?{{- end }}\n", r"\1", text)
    text = re.sub(r"{{ \.Values\.(\w+) \| quote }}", lambda one: values[one[1]], text)
    of = values["resources"]
    named_resources = r"{{ toJson \.Values\.resources\.(\w+) }}"
    text = re.sub(named_resources, lambda one: json.dumps(of[one[1]]), text)
    text = re.sub(r"(?m)^{{- (if .*|end) }}\n", "", text)
    found = [one for one in yaml.safe_load_all(text) if one]
    for one in found:
        kubernetes_validate.validate(one, "1.33", strict=True)
    settings = (KUBERNETES / "base" / "stratamq.toml").read_text(encoding="utf-8")
    maps = [one["data"] for one in found if one["kind"] == "ConfigMap"]
    assert maps == [{"stratamq.toml": settings}] * (3 if shape == "three-shards" else 1)
    if kubectl := os.environ.get("STRATAMQ_KUBECTL") or shutil.which("kubectl"):
        named = {(one["kind"], one["metadata"]["name"]): one for one in found}
        overlay = with_console(tmp_path.resolve(), shape) if console else str(KUBERNETES / shape)
        assert named == objects(kubectl, "kustomize", overlay)


@pytest.mark.parametrize("shape", SHAPES)
def test_resources_of_a_container_are_merged_into_the_defaults(shape):
    expected = chart(shape)
    for spec in pod_specs(expected):
        of = {one["name"]: one for one in spec["containers"]}
        of["commitlog"]["resources"]["limits"] = {"memory": "9Gi", "cpu": 4}
        of["janitor"]["resources"] = None
        del of["index"]["resources"]["requests"]["cpu"]
    given = {
        "resources.commitlog.limits.memory": "9Gi",
        "resources.commitlog.limits.cpu": "4",
        "resources.janitor": "null",
        "resources.index.requests.cpu": "null",
    }
    assert chart(shape, **given) == expected


def test_every_container_has_a_value_for_its_resources():
    values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))["resources"]
    found = set()
    for shape in SHAPES:
        text = (CHART / "templates" / f"{shape}.yaml").read_text(encoding="utf-8")
        containers = re.findall(r"(?m)^ {8}name: ([a-z]+)\n {8}ports:", text)
        given = re.findall(r"(?m)^ {8}resources: {{ toJson .Values.resources.([a-z]+) }}", text)
        assert given == containers
        found |= set(containers)
    assert found == set(values)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ("shape=two", "'/shape': value must be one of 'one', 'shard'"),
        ("resources.comitlog.limits.memory=1Gi", "additional properties 'comitlog' not allowed"),
        ("resources.ha.limit.memory=1Gi", "additional properties 'limit' not allowed"),
        ("resources.ha.limits.memory=1GB", "'/resources/ha/limits/memory'"),
        ("resources=null", "missing property 'resources'"),
        ("console=yes", "'/console'"),
        ("ressources.ha.limits.memory=1Gi", "additional properties 'ressources' not allowed"),
    ],
)
def test_values_that_are_none_are_refused_by_name(given, reason):
    assert reason in refusal(f"--set={given}")
