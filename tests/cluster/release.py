"""The chart of `deploy/kubernetes`, installed by Helm in a shard's namespace."""

import json
import shlex
import subprocess
from pathlib import Path

from tests.cluster.page import commands
from tests.cluster.shard import ANYWHERE, MANIFESTS, SIZE, TIMEOUT_S, Shard

CONTAINERS = (
    "commitlog",
    "dispatcher",
    "index",
    "ha",
    "janitor",
    "delivery",
    "agent",
    "gateway",
    "console",
)
CHART = "deploy/kubernetes/chart"
RENDERER = """\
#!/bin/sh
cat > {place}/rendered.yaml && exec kubectl kustomize {place}
"""


class Release:
    """By the commands of docs/kubernetes.md; what a small cluster needs besides is in `place`."""

    def __init__(self, helm: str, shard: Shard, place: Path) -> None:
        self._helm = helm
        ours = {"messages": shard.namespace, "REGISTRY/stratamq:1": shard.image, "500Gi": SIZE}
        self._install, self._upgrade, self._uninstall = commands("With Helm", **ours)
        requests = {name: {"requests": {"cpu": "10m"}} for name in CONTAINERS}
        values = {"storageClass": shard.storage_class, "resources": requests}
        (place / "values.json").write_text(json.dumps(values))
        patch = {"target": {"kind": "StatefulSet"}, "patch": json.dumps([ANYWHERE])}
        overlay = {"resources": ["rendered.yaml"], "patches": [patch]}
        (place / "kustomization.yaml").write_text(json.dumps(overlay))
        renderer = place / "renderer.sh"
        renderer.write_text(RENDERER.format(place=place))
        renderer.chmod(0o755)
        self._values = f"--values={place / 'values.json'}"
        self._always = (f"--post-renderer={renderer}", "--wait", f"--timeout={TIMEOUT_S}s")

    def install(self, *more: str) -> None:
        self._run(self._install, self._values, *self._always, *more)

    def upgrade(self) -> None:
        """The limit of a container is another one."""
        self._run(self._upgrade, *self._always)

    def uninstall(self) -> None:
        self._run(self._uninstall, "--wait", f"--timeout={TIMEOUT_S}s")

    def _run(self, command: str, *more: str) -> None:
        name, *words = shlex.split(command, comments=True)
        assert name == "helm"
        words = [str(MANIFESTS / "chart") if word == CHART else word for word in words]
        done = subprocess.run(
            [self._helm, *words, *more], capture_output=True, text=True, timeout=TIMEOUT_S + 60
        )
        assert done.returncode == 0, f"{command}: {done.stderr}{done.stdout}"
