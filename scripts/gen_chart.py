"""Generate `deploy/kubernetes/chart` from the overlays, or with --check say what differs.

A template is what `kubectl kustomize` renders of an overlay, with the image, the size and the class
of the volumes, the containers' resources, and the settings as values. Needs kubectl; without it
--check compares the digest of the overlays that the chart was made of.
"""

import argparse
import difflib
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml

KUBERNETES = Path(__file__).resolve().parent.parent / "deploy" / "kubernetes"
CHART = KUBERNETES / "chart"
SHAPES = ("one", "shard", "gateway-shard", "tiered-shard", "three-shards")
HEADER = "# Generated from the overlays by scripts/gen_chart.py.\n"
ABOUT = "apiVersion: v2\nname: stratamq\ndescription: A durable message store\nversion: 0.1.0\n"
SOURCES = "annotations:\n  stratamq/sources: {}\n"
VALUES = f"""\
# An overlay: {", ".join(SHAPES)}.
shape: one
image: stratamq
storageSize: 50Gi
# Empty: the cluster's default class.
storageClass: ""
# The whole of stratamq.toml. Empty: that of deploy/kubernetes/base.
settings: ""
# Whether each pod has the broker's pages, for kubectl port-forward.
console: false
# Of each container. What is given is merged into these; null takes one away.
"""
IMAGE = ("image: stratamq\n", "image: {{ .Values.image | quote }}\n")
SIZE = (
    "          storage: 50Gi\n",
    "          storage: {{ .Values.storageSize | quote }}\n"
    "      {{- with .Values.storageClass }}\n"
    "      storageClassName: {{ . | quote }}\n"
    "      {{- end }}\n",
)
# From a container's name to its resources: `kubectl kustomize` sorts keys.
RESOURCES = re.compile(
    r"(?m)^( {8}name: ([a-z]+)\n(?: {8}.*\n)*? {8}resources:)\n(?: {10}.*\n)+",
)
QUANTITY = {
    "type": ["string", "number"],
    "minimum": 0,
    "pattern": r"^([0-9]+(\.[0-9]*)?|\.[0-9]+)(m|k|Ki|[MGTPE]i?|[eE][+-]?[0-9]+)?$",
}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="change nothing; fail on differences")
    parser.add_argument("--kubectl", default="kubectl", help="its path, if it is not on the PATH")
    arguments = parser.parse_args()
    kubectl = shutil.which(arguments.kubectl)
    sources = SOURCES.format(digest())
    if kubectl is None and arguments.check:
        if sources not in (CHART / "Chart.yaml").read_text(encoding="utf-8"):
            print("the overlays have changed: run scripts/gen_chart.py", file=sys.stderr)
            return 1
        return 0
    if kubectl is None:
        print(f"{arguments.kubectl} is not here: install it, or give --kubectl", file=sys.stderr)
        return 2
    plain = {one: rendered(kubectl, one) for one in SHAPES}
    fresh = chart(plain, {one: rendered_with_console(kubectl, one) for one in SHAPES}, sources)
    there = {
        path.relative_to(CHART).as_posix(): path.read_text(encoding="utf-8")
        for path in CHART.rglob("*")
        if path.is_file()
    }
    differing = sorted(
        name for name in fresh.keys() | there.keys() if fresh.get(name) != there.get(name)
    )
    for name in differing:
        if arguments.check:
            print(f"{name} differs: run scripts/gen_chart.py", file=sys.stderr)
        elif name in fresh:
            (CHART / name).parent.mkdir(parents=True, exist_ok=True)
            (CHART / name).write_text(fresh[name], encoding="utf-8")
        else:
            (CHART / name).unlink()
    return int(arguments.check and bool(differing))


def digest() -> str:
    """Hash everything that the chart is generated from."""
    found = hashlib.sha256(Path(__file__).read_bytes())
    for path in sorted(KUBERNETES.rglob("*")):
        if path.is_file() and not path.is_relative_to(CHART):
            found.update(f"{path.relative_to(KUBERNETES)}\n".encode() + path.read_bytes())
    return found.hexdigest()


def rendered(kubectl: str, overlay: str) -> str:
    return kustomized(kubectl, KUBERNETES / overlay)


def rendered_with_console(kubectl: str, overlay: str) -> str:
    with tempfile.TemporaryDirectory() as place:
        here = Path(place).resolve()
        shape, console = (os.path.relpath(KUBERNETES / one, here) for one in (overlay, "console"))
        (here / "kustomization.yaml").write_text(
            f"kind: Kustomization\nresources: [{shape}]\ncomponents: [{console}]\n",
            encoding="utf-8",
        )
        return kustomized(kubectl, here)


def kustomized(kubectl: str, directory: Path) -> str:
    command = [kubectl, "kustomize", str(directory)]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


def chart(plain: dict[str, str], with_console: dict[str, str], sources: str) -> dict[str, str]:
    """The chart's files, of the rendered overlays."""
    resources = resources_of(with_console)
    given = yaml.safe_dump({"resources": resources}, default_flow_style=None, sort_keys=False)
    fresh = {"Chart.yaml": ABOUT + sources, "values.yaml": VALUES + given}
    for one, text in plain.items():
        merged = merge(template(one, text), template(one, with_console[one]))
        fresh[f"templates/{one}.yaml"] = merged
    fresh = {name: HEADER + text for name, text in fresh.items()}
    schema = json.dumps(values_schema(list(resources)), indent=2)
    return fresh | {"values.schema.json": f"{schema}\n"}


def resources_of(overlays: dict[str, str]) -> dict[str, Any]:
    """Return the resources by container name, which must be the same in every overlay."""
    found: dict[str, Any] = {}
    for shape, text in overlays.items():
        for one in yaml.safe_load_all(text):
            if one["kind"] == "StatefulSet":
                for container in one["spec"]["template"]["spec"]["containers"]:
                    name, resources = container["name"], container["resources"]
                    if found.setdefault(name, resources) != resources:
                        raise ValueError(f"{shape} has other resources for {name}")
    return found


def values_schema(containers: list[str]) -> dict[str, Any]:
    """What Helm checks values by. `global` is what a chart around this one gives it."""
    quantities = {"type": "object", "additionalProperties": QUANTITY}
    container = closed({"requests": quantities, "limits": quantities})
    values = {
        "shape": {"enum": list(SHAPES)},
        "image": {"type": "string", "minLength": 1},
        "storageSize": QUANTITY,
        "storageClass": {"type": "string"},
        "settings": {"type": "string"},
        "console": {"type": "boolean"},
        "resources": closed(dict.fromkeys(containers, container)),
    }
    required = {"required": list(values)}
    values["global"] = {"type": "object"}
    comment = HEADER.removeprefix("# ").strip()
    draft = "http://json-schema.org/draft-07/schema#"
    return {"$schema": draft, "$comment": comment, **closed(values), **required}


def merge(plain: str, with_console: str) -> str:
    """Return a template that renders the one or the other."""
    before, after = plain.splitlines(keepends=True), with_console.splitlines(keepends=True)
    merged: list[str] = []
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    for kind, _, _, first, last in matcher.get_opcodes():
        lines = after[first:last]
        if kind not in ("equal", "insert"):
            raise ValueError("the console changes what is there: say in gen_chart.py how")
        is_new = kind == "insert"
        merged += ["{{- if .Values.console }}\n", *lines, "{{- end }}\n"] if is_new else lines
    return "".join(merged)


def closed(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "properties": properties}


def template(shape: str, text: str) -> str:
    text = text.replace("{{", '{{ "{{" }}')
    for plain, value in (IMAGE, SIZE):
        if plain not in text:
            raise ValueError(f"{shape} has no {plain.strip()!r}: say in gen_chart.py what it is")
        text = text.replace(plain, value)
    text, replaced = RESOURCES.subn(r"\1 {{ toJson .Values.resources.\2 }}\n", text)
    if not replaced:
        raise ValueError(f"{shape} has no resources: say in gen_chart.py where they are")
    # A name of its own for each content: a change of the settings rolls the pods.
    name = r"(name: [a-z-]+-settings-)([a-z0-9]{10})\n"
    own = "{{ with .Values.settings }}{{ sha256sum . | trunc 10 }}{{ else }}"
    text = re.sub(name, rf"\1{own}\2{{{{ end }}}}\n", text)
    given = "{{- with .Values.settings }}\n  stratamq.toml: {{ toJson . }}\n{{- else }}\n"
    file = r"(?m)^(  stratamq\.toml: \|\n(?:(?:    .*)?\n)+)"
    text = re.sub(file, rf"{given}\1{{{{- end }}}}\n", text)
    return f'{{{{- if eq .Values.shape "{shape}" }}}}\n{text}{{{{- end }}}}\n'


if __name__ == "__main__":
    sys.exit(main())
