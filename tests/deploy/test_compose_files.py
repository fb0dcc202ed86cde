"""The compose files as shipped: one broker starts at once, two are the members of one cluster. What
containers make of them is tests/compose's."""

import re
from dataclasses import fields
from pathlib import Path

import pytest
import yaml
from stratamq_agent.config import AgentConfig
from stratamq_ha.config import HaConfig
from stratamq_janitor.config import JanitorConfig
from stratamq_tier.config import TierConfig

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


def test_the_members_of_a_shard_are_led_by_agents_and_any_one_may_be_lost():
    shard = services("shard.yaml")
    sides = {"": "broker", "replica-": "replica", "replica2-": "replica2"}
    members = {shard[f"{side}ha"]["STRATAMQ_HA_MEMBERS"] for side in sides}
    config = HaConfig(root="x", members=tuple(members.pop().split(",")))
    assert not members and list(config.faults()) == []
    assert [name for name, _ in config.named_members] == list(sides.values())
    assert shard["replica2-ha"]["STRATAMQ_HA_MEMBER"] == "replica2"
    # n = 3 and k = 1: a promotion needs two members, an acknowledgement two.
    assert not any("REQUIRED_REPLICAS" in key for one in shard.values() for key in one)
    assert shard["commitlog"]["STRATAMQ_COMMITLOG_ROLE"] == "SYNC_MASTER"
    for side in sides:
        assert shard[f"{side}commitlog"]["STRATAMQ_COMMITLOG_LEASE"] == "true"
        agent = shard[f"{side}agent"]
        assert list(AgentConfig(root="x", store=agent["STRATAMQ_AGENT_STORE"]).faults()) == []
        assert agent["STRATAMQ_AGENT_ADVERTISED_HOST"] == f"{side}agent"


def test_the_first_two_members_of_a_shard_are_those_of_the_pair():
    """What was a pair becomes a shard: its members and their places stay."""
    pair, shard = services("replica.yaml"), services("shard.yaml")
    members = pair["ha"]["STRATAMQ_HA_MEMBERS"]
    assert shard["ha"]["STRATAMQ_HA_MEMBERS"].startswith(f"{members},")


def test_three_members_of_etcd_know_each_other_and_every_agent_knows_all():
    three = services("etcd3.yaml")
    etcds = ("etcd", "etcd2", "etcd3")
    text = (DEPLOY / "etcd3.yaml").read_text(encoding="utf-8")
    assert ",".join(f"{one}=http://{one}:2380" for one in etcds) in text
    assert f'&store "etcd://{",".join(f"{one}:2379" for one in etcds)}"' in text
    for side in ("", "replica-", "replica2-"):
        assert f"  {side}agent: *agent\n" in text
    assert set(etcds) <= set(three)


@pytest.mark.parametrize(
    ("name", "of", "side"),
    [("tier.yaml", "compose.yaml", ""), ("replica-tier.yaml", "replica.yaml", "replica-")],
)
def test_a_tier_is_a_service_beside_those_of_its_broker_whose_janitor_waits_for_it(name, of, side):
    added = yaml.safe_load((DEPLOY / name).read_text(encoding="utf-8"))["services"]
    broker = yaml.safe_load((DEPLOY / of).read_text(encoding="utf-8"))["services"]
    tier = added.pop(f"{side}tier")
    assert set(added) <= set(broker)
    log = broker[f"{side}commitlog"]
    for key in ("image", "env_file", "volumes", "read_only", "tmpfs", "cap_drop", "security_opt"):
        assert tier[key] == log[key], key
    assert tier["environment"]["STRATAMQ_TIER_ADVERTISED_HOST"] == f"{side}tier"
    given = [key.removeprefix("STRATAMQ_TIER_").lower() for key in tier["environment"]]
    ours = {one for one in given if not one.startswith(("aws_", "azure_", "google_"))}
    assert ours <= {one.name for one in fields(TierConfig)}
    target = tier["environment"]["STRATAMQ_TIER_TARGET"]
    assert target.startswith("${STRATAMQ_TIER_TARGET:?")
    assert added[f"{side}dispatcher"]["environment"]["STRATAMQ_TIER_TARGET"] == target
    hold = added[f"{side}janitor"]["environment"]["STRATAMQ_JANITOR_HOLD"]
    assert list(JanitorConfig(root="x", hold=(hold,)).faults()) == []
    assert added[f"{side}commitlog"]["depends_on"] == [f"{side}tier"]
    ports = [port.rpartition(":")[2] for port in tier["ports"]]
    assert ports == ["10917"]


def test_the_wheels_of_a_build_without_network_are_those_that_the_image_needs():
    needed = re.findall(
        r"\['optional-dependencies'\]\['(\w+)'\]", (DEPLOY / "Dockerfile").read_text()
    )
    for place in (DEPLOY / "wheels" / "README.md", DEPLOY.parent / "scripts" / "with_engine.sh"):
        (extras,) = re.findall(r"hatchling [\"']\.\[([\w,]+)\][\"']", place.read_text())
        assert extras.split(",") == needed, place
