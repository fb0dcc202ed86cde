"""What every service of the register has: a service that is added cannot forget any of it."""

import json
import re
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml

from stratamq.cli.status import DETAILS
from stratamq.rpc.methods import METHODS, service_of
from stratamq.rpc.permissions import RULES
from stratamq.rpc.rooms import AGENT, CONSOLE, GATEWAY, REGISTER, SERVICES, TIER
from stratamq.service.installed import installed_rooms, settings_class
from stratamq.service.metrics import QUESTIONS
from tests.monitoring.test_alerts import FIRING

ROOT = Path(__file__).parents[2]
services = pytest.mark.parametrize("name", SERVICES)


def text_of(*patterns: str) -> str:
    return "\n".join(path.read_text() for one in patterns for path in sorted(ROOT.glob(one)))


def test_the_folders_of_services_are_the_register():
    folders = {path.parent.parent.name for path in ROOT.glob("services/*/*/__main__.py")}
    assert folders == set(SERVICES) == set(installed_rooms())


def test_ports_stay_what_clients_have_written_down():
    ports = {name: one.port_offset for name, one in REGISTER.items()}
    assert ports == {
        "commitlog": 0,
        "dispatcher": 1,
        "index": 2,
        "ha": 3,
        "janitor": 4,
        "delivery": 5,
        "gateway": 6,
        "tier": 7,
        "agent": 9,
        "console": 12,
    }
    assert REGISTER["ha"].further_ports == {"replication_address": 8}
    assert REGISTER["console"].further_ports == {"http_address": 13}


def test_no_port_offset_is_used_twice():
    offsets = [
        offset
        for one in REGISTER.values()
        for offset in (one.port_offset, *one.further_ports.values())
    ]
    assert len(set(offsets)) == len(offsets)


@services
def test_it_is_a_package_with_settings_and_a_readme(name):
    assert find_spec(f"stratamq_{name}.__main__") is not None
    assert settings_class(name).__doc__
    assert (ROOT / "services" / name / "README.md").read_text()


@services
def test_each_of_its_methods_has_a_permission_rule(name):
    methods = {one for one, method in METHODS.items() if method.room == name}
    assert methods and methods <= set(RULES)


@services
def test_its_servicer_has_every_method_of_its_proto(name):
    [servicer] = [
        kind
        for kind in vars(import_module(f"stratamq_{name}.servicer")).values()
        if getattr(kind, "__name__", "").endswith("Servicer")
    ]
    assert {one.name for one in service_of(name).methods} <= set(dir(servicer))


@services
def test_its_main_is_short_and_stands_on_what_gives_every_service_its_guards(name):
    """`Service` gives its server permissions, audit, limits and traces: tests/security and
    tests/service hold them for each method of the register."""
    main = (ROOT / f"services/{name}/stratamq_{name}/__main__.py").read_text()
    assert len(main.splitlines()) <= 80
    assert len(re.findall(r"\bService\(", main)) == 1
    assert not re.findall(r"\bServer\(|grpc\.(aio\.)?server\(", main)


@services
def test_its_metrics_name_the_question_that_they_answer(name):
    import_module(f"stratamq_{name}.metrics")
    asked = {family.name for metric in QUESTIONS for family in metric.describe()}
    assert any(one.startswith(f"{name}_") for one in asked)


@services
def test_an_alert_of_its_metrics_was_made_to_fire(name):
    firing = [metric for values in FIRING.values() for metric in values]
    assert any(metric.startswith(f"{name}_") for metric in firing)


@services
def test_a_rolling_upgrade_starts_it(name):
    """`stratamq up` of two versions runs every service that needs no setting."""
    if REGISTER[name].needed_settings:
        assert name in (GATEWAY, TIER, AGENT, CONSOLE), (
            "tests/cli/test_upgrade.py is to give a new one its setting"
        )


@services
def test_status_describes_it(name):
    assert name in DETAILS


@services
def test_its_metrics_have_an_alert_and_a_dashboard_row(name):
    alerts = yaml.safe_load((ROOT / "deploy/monitoring/alerts.yml").read_text())
    rules = " ".join(rule["expr"] for group in alerts["groups"] for rule in group["rules"])
    assert re.search(rf"\b{name}_\w+", rules)
    expressions = text_of("deploy/monitoring/grafana/*.json")
    assert re.search(rf"\b{name}_\w+", expressions)


@services
def test_compose_and_kubernetes_run_it(name):
    started = re.compile(rf"-m,? stratamq_{name}\b")
    if name != "agent":  # it runs beside its member, in the container of `stratamq up`
        assert started.search(text_of("deploy/*.yaml"))
    if name not in (GATEWAY, CONSOLE):  # beside one broker, by an overlay or by hand
        assert started.search(text_of("deploy/kubernetes/**/broker.yaml"))


@services
def test_the_charts_container_has_resources(name):
    if name in (GATEWAY, CONSOLE):
        return
    schema = json.loads((ROOT / "deploy/kubernetes/chart/values.schema.json").read_text())
    assert name in schema["properties"]["resources"]["properties"]


@services
def test_the_pages_describe_it(name):
    assert f"\n## `[{name}]`" in (ROOT / "docs/configuration.md").read_text()
    assert REGISTER[name].proto in (ROOT / "docs/rpcs.md").read_text()
    assert f"`services/{name}`" in (ROOT / "ARCHITECTURE.md").read_text()
