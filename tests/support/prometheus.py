"""A real Prometheus for tests: it scrapes every two seconds, and answers over HTTP."""

import json
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest
import yaml
from stratamq_bench.ports import free_port

from tests.support.waiting import until

MONITORING = Path(__file__).resolve().parents[2] / "deploy" / "monitoring"
SCRAPE_S = 2

needs_prometheus = pytest.mark.skipif(
    shutil.which("prometheus") is None, reason="prometheus is not installed (Debian: prometheus)"
)


class Prometheus:
    """By deploy/monitoring's job and rules, at `targets`: labels by `host:port`. Alarms fire after
    two seconds instead of minutes."""

    def __init__(self, directory: Path, targets: Mapping[str, Mapping[str, str]]) -> None:
        directory.mkdir(parents=True)
        self._output = directory / "log"
        config = yaml.safe_load((MONITORING / "prometheus.yml").read_text())
        every = f"{SCRAPE_S}s"
        config["global"] = {"scrape_interval": every, "evaluation_interval": every}
        [job] = config["scrape_configs"]
        job["static_configs"] = [
            {"targets": [address], "labels": dict(labels)} for address, labels in targets.items()
        ]
        rules = yaml.safe_load((MONITORING / "alerts.yml").read_text())
        for rule in rules["groups"][0]["rules"]:
            rule["for"] = every
        (directory / "alerts.yml").write_text(yaml.safe_dump(rules))
        (directory / "prometheus.yml").write_text(yaml.safe_dump(config))
        self.port = free_port()
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                [
                    "prometheus",
                    f"--config.file={directory / 'prometheus.yml'}",
                    f"--storage.tsdb.path={directory / 'data'}",
                    f"--web.listen-address=127.0.0.1:{self.port}",
                ],
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def __enter__(self) -> "Prometheus":
        until(self._ready, "Prometheus is ready")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.wait()
        if error is not None:
            print("--- prometheus wrote:\n", self._output.read_text()[-3000:])

    def series(self, expression: str) -> list[dict[str, Any]]:
        """What an instant query answers: `metric`, the labels, and `value`. ValueError for one that
        Prometheus does not understand."""
        asked = urllib.parse.urlencode({"query": expression})
        try:
            found = self._get(f"/api/v1/query?{asked}")
        except urllib.error.HTTPError as error:
            raise ValueError(f"{expression}: {error.read().decode()}") from error
        result: list[dict[str, Any]] = json.loads(found)["data"]["result"]
        return result

    def firing(self) -> set[str]:
        found = self.series('ALERTS{alertstate="firing"}')
        return {one["metric"]["alertname"] for one in found}

    def _ready(self) -> bool:
        assert self._process.poll() is None, self._output.read_text()[-3000:]
        try:
            self._get("/-/ready")
        except OSError:
            return False
        return True

    def _get(self, path: str) -> bytes:
        url = f"http://127.0.0.1:{self.port}{path}"
        with urllib.request.urlopen(url, timeout=60) as page:
            body: bytes = page.read()
        return body
