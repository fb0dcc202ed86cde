"""The Helm chart renders the objects of the overlays, and a value changes what it names alone."""

import hashlib
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

ROOT = Path(__file__).resolve().parents[2]
KUBERNETES = ROOT / "deploy" / "kubernetes"
CHART = KUBERNETES / "chart"
SHAPES = ("one", "shard", "tiered-shard", "three-shards")


def tool(name: str) -> str:
    found = os.environ.get(f"STRATAMQ_{name.upper()}") or shutil.which(name)
    if found is None:
        pytest.skip(
            f"{name} is not here: put it on the PATH, or name it in STRATAMQ_{name.upper()}"
        )
    return found


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


@pytest.mark.parametrize("shape", SHAPES)
def test_a_template_with_the_default_values_is_of_the_api_and_has_the_settings_file(shape):
    text = (CHART / "templates" / f"{shape}.yaml").read_text(encoding="utf-8")
    values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    text = re.sub(r"{{ with .*?{{ else }}(.*?){{ end }}", r"\1", text)
    text = re.sub(r"(?s) *{{- with .*?(?:{{- else }}\n(.*?))?{{- end }}\n", r"\1", text)
    text = re.sub(r"{{ \.Values\.(\w+) \| quote }}", lambda one: values[one[1]], text)
    text = re.sub(r"(?m)^{{- (if .*|end) }}\n", "", text)
    found = [one for one in yaml.safe_load_all(text) if one]
    for one in found:
        kubernetes_validate.validate(one, "1.33", strict=True)
    settings = (KUBERNETES / "base" / "stratamq.toml").read_text(encoding="utf-8")
    maps = [one["data"] for one in found if one["kind"] == "ConfigMap"]
    assert maps == [{"stratamq.toml": settings}] * (3 if shape == "three-shards" else 1)
    if kubectl := os.environ.get("STRATAMQ_KUBECTL") or shutil.which("kubectl"):
        named = {(one["kind"], one["metadata"]["name"]): one for one in found}
        assert named == objects(kubectl, "kustomize", str(KUBERNETES / shape))


def test_a_shape_that_is_none_is_refused():
    command = [tool("helm"), "template", "x", str(CHART), "--set=shape=two"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode != 0
    assert "shape: give one of one, shard" in done.stderr
