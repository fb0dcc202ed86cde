"""Generate what the documentation takes from the code, or with --check say what differs.

docs/configuration.md   the tables between its markers, from each room's settings
docs/metrics.md         from the metric modules
docs/rpcs.md            from the protos and their comments
docs/cli.md             from the commands of `stratamq`
docs/python.md          the reference between its markers, from the client's docstrings
docs/alarms.md          from the alert rules
…/console/alarms.json   the same sentences, for the console
"""

import argparse
import importlib
import importlib.util
import json
import sys
from pathlib import Path

import yaml
from docs_markdown import code, number, table
from docs_of_commands import commands_page
from docs_of_protos import rpcs_page
from docs_of_python import python_reference

from stratamq.service.config import ServiceConfig, Setting, describe
from stratamq.service.installed import SHARED, installed_rooms, settings_class
from stratamq.service.metrics import QUESTIONS

ROOT = Path(__file__).resolve().parent.parent
RULES = "deploy/monitoring/alerts.yml"
SENTENCES = "services/console/stratamq_console/alarms.json"
BEGIN = "<!-- generated from the settings by scripts/gen_docs.py: begin -->"
END = "<!-- generated from the settings by scripts/gen_docs.py: end -->"
REFERENCE_BEGIN = "<!-- generated from the docstrings by scripts/gen_docs.py: begin -->"
REFERENCE_END = "<!-- generated from the docstrings by scripts/gen_docs.py: end -->"
RUNTIME_METRICS = (
    "stratamq.service.guarded_handlers",
    "stratamq.service.loop_watch",
    "stratamq.service.recorder",
    "stratamq.service.server",
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="change nothing; fail on differences")
    arguments = parser.parse_args()
    stale = [(path, text) for path, text in pages().items() if content(path) != text]
    for path, text in stale:
        name = path.relative_to(ROOT)
        if arguments.check:
            print(f"gen_docs: {name} is not what the code gives", file=sys.stderr)
        else:
            path.write_text(text, encoding="utf-8")
            print(f"gen_docs: wrote {name}")
    if arguments.check and stale:
        print("gen_docs: run `make docs` and commit the result", file=sys.stderr)
        return 1
    return 0


def pages() -> dict[Path, str]:
    """Every generated file with what it should hold. A room that is not there yet is left out."""
    docs = ROOT / "docs"
    configuration = docs / "configuration.md"
    found = {
        configuration: with_settings(content(configuration) or f"{BEGIN}\n{END}\n"),
        docs / "metrics.md": metrics_page(),
        docs / "rpcs.md": rpcs_page(ROOT / "protos"),
        docs / "alarms.md": alarms_page(),
        ROOT / SENTENCES: alarm_sentences(),
    }
    python = docs / "python.md"
    found[python] = between(
        content(python) or f"{REFERENCE_BEGIN}\n{REFERENCE_END}\n",
        REFERENCE_BEGIN,
        REFERENCE_END,
        python_reference(),
    )
    if importlib.util.find_spec("stratamq.cli.__main__"):
        found[docs / "cli.md"] = commands_page()
    return found


def content(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None


# --- settings ---------------------------------------------------------------------------------


def configs() -> dict[str, type[ServiceConfig]]:
    """The settings class of every room that is there, by section."""
    return {room: settings_class(room) for room in installed_rooms()}


def with_settings(page: str) -> str:
    shared = describe(ServiceConfig)
    parts = ["## Every service", "These stand in every section.", settings_table(shared)]
    for section, own_cls in SHARED.items():
        parts += [f"## `[{section}]`", own_cls.__doc__.strip(), settings_table(describe(own_cls))]
    for section, cls in configs().items():
        own = [row for row in describe(cls) if row not in shared]
        parts += [f"## `[{section}]`", *([cls.__doc__.strip()] if cls.__doc__ else [])]
        parts.append(settings_table(own))
    return between(page, BEGIN, END, "\n\n".join(parts))


def between(page: str, begin: str, end: str, text: str) -> str:
    """The page with `text` between its markers."""
    before, first, rest = page.partition(begin)
    _, last, after = rest.partition(end)
    if not (first and last):
        raise SystemExit(f"a page has lost its markers: {begin} … {end}")
    return f"{before}{begin}\n\n{text}\n\n{end}{after}"


def settings_table(rows: list[Setting]) -> str:
    header = ("Setting", "Default", "Unit", "Bound", "RocketMQ's name", "Meaning")
    cells = [
        (code(row.name), default(row), row.unit, bound(row), code(row.rocketmq), row.doc)
        for row in rows
    ]
    return table(header, cells)


def default(row: Setting) -> str:
    if row.required:
        return "none: must be set"
    if row.default is None:
        return "not set"
    if isinstance(row.default, bool):
        return code(str(row.default).lower())
    if isinstance(row.default, int | float):
        return code(number(row.default))
    if isinstance(row.default, tuple):
        return code("[" + ", ".join(f'"{item}"' for item in row.default) + "]")
    return code(f'"{row.default}"')


def bound(row: Setting) -> str:
    if row.choices:
        return ", ".join(code(choice) for choice in row.choices)
    if row.minimum is not None and row.maximum is not None:
        return f"{number(row.minimum)} to {number(row.maximum)}"
    if row.minimum is not None:
        return f"at least {number(row.minimum)}"
    return "" if row.maximum is None else f"at most {number(row.maximum)}"


# --- metrics ----------------------------------------------------------------------------------


def metric_modules() -> dict[str, object]:
    """Modules that declare metrics at their top level, under a title."""
    found: dict[str, object] = {}
    for section in installed_rooms():
        module = optional_module(f"stratamq_{section}", "metrics")
        if module is not None:
            found[f"The {section} service"] = module
    return found


def metrics_page() -> str:
    parts = [
        "# Metrics",
        "Generated by `make docs`. Every process serves these in Prometheus's text format on its "
        "`metrics_address`, beside the usual `process_*` and `python_*`. Each answers a question "
        "of an operator; the dashboards of [deploy/monitoring](../deploy/monitoring/README.md) ask "
        "them, and [alarms.md](alarms.md) has what is watched.",
        "## Every service",
        metrics_table([importlib.import_module(name) for name in RUNTIME_METRICS]),
    ]
    for title, module in metric_modules().items():
        parts += [f"## {title}", metrics_table([module])]
    return "\n\n".join(parts) + "\n"


def metrics_table(modules: list[object]) -> str:
    rows = []
    for module in modules:
        for value in vars(module).values():
            if hasattr(value, "describe") and hasattr(value, "collect"):
                [family] = value.describe()
                name = f"{family.name}_total" if family.type == "counter" else family.name
                labels = ", ".join(code(label) for label in value._labelnames)
                question, meaning = QUESTIONS[value], family.documentation
                rows.append((question, code(name), family.type, labels, meaning))
    return table(("Question", "Metric", "Kind", "Labels", "Meaning"), sorted(rows))


# --- alerts -----------------------------------------------------------------------------------


def alarm_sentences() -> str:
    """What the console says of an alert, by its name."""
    groups = yaml.safe_load((ROOT / RULES).read_text(encoding="utf-8"))["groups"]
    found = {
        rule["alert"]: {
            "severity": rule["labels"]["severity"],
            "description": rule["annotations"]["description"],
            "action": rule["annotations"]["action"],
        }
        for group in groups
        for rule in group["rules"]
    }
    return json.dumps(found, indent=1, ensure_ascii=False) + "\n"


def alarms_page() -> str:
    """A section for each rule, whose anchor is its name in small letters."""
    [group] = yaml.safe_load((ROOT / RULES).read_text(encoding="utf-8"))["groups"]
    parts = [
        "# How to respond to an alert",
        f"Generated by `make docs` from `{RULES}`, which Prometheus loads; "
        "`deploy/monitoring/prometheus.yml` shows how it scrapes a broker, and "
        "[metrics.md](metrics.md) explains each metric.",
    ]
    for rule in group["rules"]:
        notes = rule["annotations"]
        lasts = f", for {rule['for']}" if "for" in rule else ", immediately"
        parts += [
            f"## {rule['alert']}",
            f"*{rule['labels']['severity']}*, when `{rule['expr']}`{lasts}.",
            notes["description"],
            f"**Do:** {notes['action']}",
        ]
    return "\n\n".join(parts) + "\n"


def optional_module(package: str, name: str) -> object | None:
    """None while the package or its module is not written yet; its own faults are raised."""
    if importlib.util.find_spec(package) is None:
        return None
    module = f"{package}.{name}"
    return importlib.import_module(module) if importlib.util.find_spec(module) else None


if __name__ == "__main__":
    sys.exit(main())
