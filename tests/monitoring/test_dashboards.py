"""The dashboards: their documents are whole, and a real Prometheus answers every expression of
every panel with series of running brokers.

Nothing draws them here: Grafana is no package of Debian's or Python's.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
import yaml
from stratamq_bench.ports import free_port

from stratamq.api.v1 import commitlog_pb2 as log_pb
from stratamq.client import connect
from stratamq.rpc import discovery
from stratamq.rpc.rooms import (
    AGENT,
    COMMITLOG,
    CONSOLE,
    DELIVERY,
    DISPATCHER,
    GATEWAY,
    HA,
    INDEX,
    JANITOR,
    TIER,
)
from tests.ha.pairs import Pair
from tests.support.brokers import Broker
from tests.support.prometheus import MONITORING, Prometheus, needs_prometheus
from tests.support.waiting import until

FILES = sorted((MONITORING / "grafana").glob("*.json"))
UNITS = {
    "short", "s", "bytes", "Bps", "mps", "reqps", "percentunit", "currencyUSD", "dateTimeAsIso",
}  # fmt: skip
"""Of Grafana's, those that the dashboards use."""

MAY_BE_EMPTY = {
    "What is deleted, and why?": "nothing has expired yet",
    "What holds segments back?": "nothing has expired yet",
    "When was all of it verified last?": "the scrubber's first pass has not ended",
    "Which calls fail?": "none has failed",
    "Are requests of RocketMQ's clients answered?": "no client is connected",
}
"""Panels without series on healthy brokers, and why."""


def documents() -> dict[str, dict[str, Any]]:
    return {path.stem: json.loads(path.read_text()) for path in FILES}


def panels(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [one for one in document["panels"] if one["type"] != "row"]


def expressions() -> Iterator[tuple[str, str]]:
    """(panel's title, expression) of every panel, as Grafana sends it for all brokers."""
    for document in documents().values():
        for panel in panels(document):
            for target in panel["targets"]:
                asked = target["expr"].replace("$broker", ".*").replace("$__rate_interval", "1m")
                yield panel["title"], asked


# --- the documents ---


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_dashboard_is_one_that_grafana_can_load(path: Path):
    document = json.loads(path.read_text())
    assert document["uid"] == path.stem and len(document["uid"]) <= 40
    ids = [one["id"] for one in document["panels"]]
    assert len(ids) == len(set(ids)) and all(ids)
    variables = {one["name"]: one for one in document["templating"]["list"]}
    assert variables["datasource"]["type"] == "datasource"
    for panel in panels(document):
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        assert panel["type"] in ("timeseries", "stat")
        assert panel["fieldConfig"]["defaults"]["unit"] in UNITS, panel["title"]
        references = [target["refId"] for target in panel["targets"]]
        assert references and len(references) == len(set(references))
        for target in panel["targets"]:
            assert set(re.findall(r"\$\{?(\w+)", target["expr"])) <= {"broker", "__rate_interval"}
            assert 'job="stratamq",broker=~"$broker"' in target["expr"]
            assert re.sub(r"\{\{\w+\}\}", "", target["legendFormat"]).count("{") == 0


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_no_panel_covers_another_and_each_is_below_its_heading(path: Path):
    taken: dict[tuple[int, int], str] = {}
    for panel in json.loads(path.read_text())["panels"]:
        place = panel["gridPos"]
        assert place["x"] >= 0 and place["x"] + place["w"] <= 24
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                other = taken.setdefault((x, y), panel["title"])
                assert other == panel["title"], f"{panel['title']} covers {other}"


def test_titles_are_questions_and_none_is_asked_twice():
    titles = [panel["title"] for one in documents().values() for panel in panels(one)]
    assert [title for title in titles if not title.endswith("?")] == []
    assert len(titles) == len(set(titles))
    assert set(MAY_BE_EMPTY) <= set(titles)


def test_grafana_is_configured_with_the_directory_of_the_dashboards():
    [provider] = yaml.safe_load((MONITORING / "grafana" / "provisioning.yml").read_text())[
        "providers"
    ]
    assert provider["type"] == "file"
    assert provider["options"]["path"] in (MONITORING / "README.md").read_text()


# --- their questions, asked ---

ROOMS = (DISPATCHER, INDEX)
FURTHER = (JANITOR, DELIVERY, GATEWAY, TIER, AGENT, CONSOLE)


def targets_of(brokers: dict[str, Broker]) -> dict[str, dict[str, str]]:
    """Labels as in prometheus.yml, by the address of the metrics of each service that runs."""
    found = {}
    for member, broker in brokers.items():
        for room in (COMMITLOG, *ROOMS, HA, *FURTHER):
            if broker.running(room):
                endpoint = discovery.read(broker.root, room)
                assert endpoint is not None
                labels = {"broker": "broker-a", "member": member, "service": room}
                found[endpoint.metrics] = labels
    return found


def work(pair: Pair) -> None:
    """Something of everything that the dashboards ask for."""
    with connect(pair.master.root, timeout_s=60, retry_timeout_s=60) as client:
        for number in range(200):
            client.send("t", b"body %d" % number, keys=[f"k{number}"])
        until(lambda: len(list(client.consume("t"))) == 200, "all are dispatched")
        until(lambda: client.query_key("t", "k7").messages, "all are indexed")
        client.commit_offsets("slow", {("t", 0): 1})
        with client.subscribe("t", group="workers") as messages:
            next(iter(messages))
        with urlopen(client.admin.console_state().url, timeout=60) as page:
            assert page.status == 200
    refused = pair.slave.log.Append(
        log_pb.AppendRequest(messages=[log_pb.Message(topic="t", body=b"x")])
    )
    assert refused.results[0].error, "a slave takes no messages"


@needs_prometheus
def test_every_question_of_every_dashboard_has_an_answer_of_running_brokers(tmp_path):
    settings = (
        "gateway.remoting_address=127.0.0.1:0",
        "console.http_address=127.0.0.1:0",
        f"tier.target={tmp_path / 'tier'}",
        f"agent.store=etcd://127.0.0.1:{free_port()}",
    )
    with Pair(tmp_path, rooms=ROOMS, master=settings) as pair:
        pair.start()
        pair.master.start(FURTHER)
        work(pair)
        pair.wire.cut()
        targets = targets_of({"a": pair.master, "b": pair.slave})
        with Prometheus(tmp_path / "prometheus", targets) as prometheus:
            # Each has to be answered once: a busy machine misses scrapes.
            waiting = {one: title for title, one in expressions() if title not in MAY_BE_EMPTY}
            quiet = {"Which alarms fire?"}

            def answered() -> bool:
                for expression in list(waiting):
                    if prometheus.series(expression):
                        del waiting[expression]
                return set(waiting.values()) <= quiet

            try:
                until(answered, "series for every panel", look_s=0.5)
            finally:
                print("no series for:", waiting)
            for title in MAY_BE_EMPTY:
                for asked_title, expression in expressions():
                    if asked_title == title:
                        prometheus.series(expression)  # it is understood
            pair.master.kill(INDEX)
            until(lambda: "StrataMQServiceDown" in prometheus.firing(), "its alarm fires")
            quiet.clear()
            until(answered, "the panel shows it")
