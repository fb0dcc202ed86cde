"""deploy/monitoring/grafana/*.json, made of `dashboards`: documents of Grafana 10 (schema 39)."""

import json
from itertools import count
from pathlib import Path
from typing import Any

from dashboards import DASHBOARDS, Dashboard, Panel

DIRECTORY = Path("deploy/monitoring/grafana")
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
COLUMNS, WIDTH, HEIGHT, STAT_HEIGHT = 24, 12, 8, 5
STAT_WIDTH = 8
WANTED = ("up", "_ready", "_writable", "_enabled", "_answers", "_has_leader")
UNWANTED = ("_disk_full", "_alarm", "_paused")
EITHER = ("_follows", "_leads")
"""Ends of names of metrics that are 0 or 1, by whether a person wants the 1."""


def dashboard_files(root: Path) -> dict[Path, str]:
    return {
        root / DIRECTORY / f"{one.uid}.json": json.dumps(document(one), indent=1) + "\n"
        for one in DASHBOARDS
    }


def document(dashboard: Dashboard) -> dict[str, Any]:
    return {
        "uid": dashboard.uid,
        "title": dashboard.title,
        "tags": ["stratamq"],
        "schemaVersion": 39,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "15s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [_source_variable(), _broker_variable()]},
        "links": [
            {
                "type": "dashboards",
                "title": "StrataMQ",
                "tags": ["stratamq"],
                "keepTime": True,
                "includeVars": True,
            }
        ],
        "panels": _panels(dashboard),
    }


def _source_variable() -> dict[str, Any]:
    return {
        "name": "datasource",
        "label": "Prometheus",
        "type": "datasource",
        "query": "prometheus",
    }


def _broker_variable() -> dict[str, Any]:
    return {
        "name": "broker",
        "label": "Broker",
        "type": "query",
        "datasource": SOURCE,
        "query": 'label_values(up{job="stratamq"}, broker)',
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


def _panels(dashboard: Dashboard) -> list[dict[str, Any]]:
    """Headings over their panels, from left to right, in lines as high as their highest."""
    found: list[dict[str, Any]] = []
    ids, x, y, high = count(1), 0, 0, 0
    for heading, panels in dashboard.rows:
        if x:
            x, y = 0, y + high
        place = {"x": 0, "y": y, "w": COLUMNS, "h": 1}
        found.append(
            {"id": next(ids), "type": "row", "title": heading, "gridPos": place, "panels": []}
        )
        x, y, high = 0, y + 1, 0
        for panel in panels:
            width, height = (STAT_WIDTH, STAT_HEIGHT) if panel.stat else (WIDTH, HEIGHT)
            if x + width > COLUMNS:
                x, y, high = 0, y + high, 0
            found.append(_panel(next(ids), panel, {"x": x, "y": y, "w": width, "h": height}))
            x, high = x + width, max(high, height)
    return found


def _panel(number: int, panel: Panel, place: dict[str, int]) -> dict[str, Any]:
    return {
        "id": number,
        "type": "stat" if panel.stat else "timeseries",
        "title": panel.title,
        "description": panel.note,
        "datasource": SOURCE,
        "gridPos": place,
        "fieldConfig": {
            "defaults": {"unit": panel.unit, "min": 0, "mappings": _mappings(panel)},
            "overrides": [],
        },
        "options": _options(panel),
        "targets": [
            {
                "refId": chr(ord("A") + at),
                "datasource": SOURCE,
                "expr": expression,
                "legendFormat": legend,
                **({"instant": True} if panel.stat else {}),
            }
            for at, (expression, legend) in enumerate(panel.asks)
        ],
    }


def _options(panel: Panel) -> dict[str, Any]:
    if panel.stat:
        shown = {"calcs": ["lastNotNull"]}
        return {"textMode": "value_and_name", "colorMode": "value", "reduceOptions": shown}
    return {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}}


def _mappings(panel: Panel) -> list[dict[str, Any]]:
    """Show 0 and 1 as words, and the undesired one in red."""
    name = panel.asks[0][0].partition("{")[0]
    if not (panel.stat and name.endswith((*WANTED, *UNWANTED, *EITHER))):
        return []
    no, yes = ("red", "green") if name.endswith(WANTED) else ("green", "red")
    if name.endswith(EITHER):
        no = yes = "text"
    words = {"0": {"text": "no", "color": no}, "1": {"text": "yes", "color": yes}}
    return [{"type": "value", "options": words}]
