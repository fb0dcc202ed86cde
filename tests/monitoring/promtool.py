"""Prometheus' own `promtool` evaluates deploy/monitoring's alert rules over series."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

RULES = Path(__file__).resolve().parents[2] / "deploy" / "monitoring" / "alerts.yml"
[GROUP] = yaml.safe_load(RULES.read_text())["groups"]
NAMES = [rule["alert"] for rule in GROUP["rules"]]
ENVIRONMENT = {"StrataMQDiskFillsSoon"}
"""Of the volume that the tests run on."""

needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool is not installed (Debian: prometheus)"
)


def alarms(directory: Path, series: dict[str, str], minute: int = 230) -> set[str]:
    """Which fire then. `series` by `name{labels}`, each with promtool's values."""
    directory.mkdir(exist_ok=True)
    tests = directory / "rules.test.yml"
    document = {
        "rule_files": [str(RULES)],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [
                    {"series": name, "values": values} for name, values in series.items()
                ],
                "alert_rule_test": [
                    {"eval_time": f"{minute}m", "alertname": name, "exp_alerts": []}
                    for name in NAMES
                ],
            }
        ],
    }
    tests.write_text(yaml.safe_dump(document))
    done = subprocess.run(
        ["promtool", "test", "rules", str(tests)], capture_output=True, text=True, timeout=60
    )
    output = done.stdout + done.stderr
    fired = set(re.findall(r"alertname: ?(\w+)", output)) if "FAILED" in output else set()
    assert fired or done.returncode == 0, output
    return fired
