"""The compose files as shipped: one broker starts at once, two are the members of one cluster. What
containers make of them is tests/compose's."""

import re
from pathlib import Path

from stratamq_ha.config import HaConfig

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"


def services(name: str) -> dict[str, dict[str, str]]:
    """The environment of each service, as the file gives it; aliases are followed."""
    text = (DEPLOY / name).read_text(encoding="utf-8")
    anchors = dict(re.findall(r"^x-\w+: &(\w+) \"(.*)\"$", text, re.MULTILINE))
    body = text.partition("\nservices:\n")[2].partition("\nvolumes:")[0]
    found = {}
    for block in re.split(r"\n(?=  [\w-]+:\n)", body):
        service = re.search(r"^  ([\w-]+):$", block, re.MULTILINE)
        pairs = re.findall(r"(STRATAMQ_\w+): \"?([^\n\"}]+)\"?", block)
        if service is None:
            continue  # what stands before the first one
        found[service[1]] = {key: anchors.get(value[1:], value) for key, value in pairs}
    return found


def test_one_broker_waits_for_no_other():
    alone = services("compose.yaml")
    assert set(alone) == {"commitlog", "dispatcher", "index", "ha", "janitor"}
    assert not any("MEMBER" in key or "WAIT" in key for one in alone.values() for key in one)


def test_a_broker_and_its_replica_are_members_of_one_cluster_and_wait_for_each_other():
    both = services("replica.yaml")
    members = {both[name]["STRATAMQ_HA_MEMBERS"] for name in ("ha", "replica-ha")}
    assert members == {"broker=ha:10912,replica=replica-ha:10912"}
    config = HaConfig(root="x", members=tuple(members.pop().split(",")))
    assert list(config.faults()) == []
    names = [both[name]["STRATAMQ_HA_MEMBER"] for name in ("ha", "replica-ha")]
    assert names == [name for name, _ in config.named_members]
    for name in ("commitlog", "replica-commitlog"):
        assert both[name]["STRATAMQ_COMMITLOG_WAIT_FOR_PEERS"] == "true"
    assert both["replica-commitlog"]["STRATAMQ_COMMITLOG_ROLE"] == "SLAVE"
