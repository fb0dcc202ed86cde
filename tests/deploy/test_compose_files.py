"""The compose files as shipped: one broker starts at once, two are the members of one cluster. What
containers make of them is tests/compose's."""

import re
from dataclasses import fields
from pathlib import Path

import pytest
import yaml
from stratamq_agent.config import AgentConfig
from stratamq_commitlog.config import CommitLogConfig
from stratamq_console.config import ConsoleConfig
from stratamq_delivery.config import DeliveryConfig
from stratamq_dispatcher.config import DispatcherConfig
from stratamq_gateway.config import GatewayConfig
from stratamq_ha.config import HaConfig
from stratamq_index.config import IndexConfig
from stratamq_janitor.config import JanitorConfig
from stratamq_tier.config import TierConfig

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
ROOMS = {"commitlog", "dispatcher", "index", "ha", "janitor", "delivery"}
CLUSTER = "ETCD_INITIAL_CLUSTER"


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
            continue  # what is before the first one
        found[service[1]] = {key: anchors.get(value[1:], value) for key, value in pairs}
    return found


def test_one_broker_waits_for_no_other():
    alone = {name: one["environment"] for name, one in compose().items() if name in ROOMS}
    assert set(alone) == ROOMS
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


def compose() -> dict[str, dict]:
    """The services of the main file, as a YAML parser gives them."""
    return yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))["services"]


def of_profile(name: str) -> set[str]:
    return {service for service, one in compose().items() if name in one["profiles"]}


def test_every_service_is_in_a_profile_and_one_broker_is_what_up_means():
    members = {shard: {f"{shard}{number}" for number in (1, 2, 3)} for shard in "abc"}
    etcds = {"etcd1", "etcd2", "etcd3"}
    assert of_profile("broker") == ROOMS
    assert of_profile("shard") == members["a"] | etcds
    assert of_profile("shards") == set().union(*members.values()) | etcds
    assert of_profile("spark") == {"spark-master", "spark-worker"}
    assert "\nCOMPOSE_PROFILES=broker\n" in (DEPLOY / ".env").read_text(encoding="utf-8")


@pytest.mark.parametrize("shard", ["a", "b", "c"])
def test_any_member_of_a_shard_may_be_lost_and_agents_choose_who_leads(shard):
    names = [f"{shard}{number}" for number in (1, 2, 3)]
    found = {name: compose()[name]["environment"] for name in names}
    for number, (name, one) in enumerate(found.items()):
        config = HaConfig(
            root="x",
            members=tuple(one["STRATAMQ_HA_MEMBERS"].split(",")),
            member=one["STRATAMQ_HA_MEMBER"],
        )
        assert list(config.faults()) == []
        # n = 3 and k = 1: a promotion needs two members, an acknowledgement two.
        assert list(config.named_members) == [(each, f"{each}:10912") for each in names]
        assert config.member == one["STRATAMQ_AGENT_ADVERTISED_HOST"] == name
        assert one["STRATAMQ_COMMITLOG_BROKER_NAME"] == shard
        assert one["STRATAMQ_COMMITLOG_BROKER_ID"] == str(number)
        assert one["STRATAMQ_COMMITLOG_ROLE"] == ("SLAVE" if number else "SYNC_MASTER")
        agent = AgentConfig(root="x", store=one["STRATAMQ_AGENT_STORE"])
        assert list(agent.faults()) == []
        for etcd in ("etcd1", "etcd2", "etcd3"):
            assert f"{etcd}:2379" in agent.store
            assert f"{etcd}=http://{etcd}:2380" in compose()[etcd]["environment"][CLUSTER]


def test_members_have_the_same_ports_a_name_for_all_and_an_address_each():
    hosts = set()
    for name in of_profile("shards") - {"etcd1", "etcd2", "etcd3"}:
        one = compose()[name]
        assert one["networks"]["default"]["aliases"] == ["cluster"]
        (port,) = one["ports"]
        host, published, inside = port.rsplit(":", 2)
        assert published == inside == "10911-10919"
        assert one["environment"]["STRATAMQ_COMMITLOG_STORE_HOST"] == f"{host}:10911"
        assert host == f"${{STRATAMQ_MEMBERS:-127.0.0}}.{'abc'.index(name[0]) + 1}{name[1]}"
        hosts.add(host)
    assert len(hosts) == 9


SECTIONS = {
    "AGENT": AgentConfig,
    "COMMITLOG": CommitLogConfig,
    "CONSOLE": ConsoleConfig,
    "DELIVERY": DeliveryConfig,
    "DISPATCHER": DispatcherConfig,
    "GATEWAY": GatewayConfig,
    "HA": HaConfig,
    "INDEX": IndexConfig,
    "JANITOR": JanitorConfig,
    "TIER": TierConfig,
}


OVERLAYS = ("replica.yaml", "tier.yaml", "replica-tier.yaml", "gateway.yaml", "console.yaml")


@pytest.mark.parametrize("name", ["compose.yaml", *OVERLAYS])
def test_every_setting_is_one_of_the_code(name):
    found = yaml.safe_load((DEPLOY / name).read_text(encoding="utf-8"))["services"]
    keys = [key for one in found.values() for key in one.get("environment", {})]
    lines = (DEPLOY / "broker.env").read_text(encoding="utf-8").splitlines()
    keys += [line.partition("=")[0] for line in lines]
    ours = [key.removeprefix("STRATAMQ_") for key in keys if key.startswith("STRATAMQ_")]
    assert ours
    for key in ours:
        section, _, setting = key.partition("_")
        assert setting.lower() in {field.name for field in fields(SECTIONS[section])}, key


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
    same = ("image", "env_file", "volumes", "read_only", "tmpfs", "cap_drop", "security_opt")
    for key in (*same, "profiles"):
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


def test_a_gateway_is_a_service_beside_its_broker_whose_message_ids_name_it():
    added = yaml.safe_load((DEPLOY / "gateway.yaml").read_text(encoding="utf-8"))["services"]
    gateway, log = added.pop("gateway"), compose()["commitlog"]
    for key in ("image", "env_file", "volumes", "read_only", "tmpfs", "cap_drop", "security_opt"):
        assert gateway[key] == log[key], key
    given = gateway["environment"]
    assert given["STRATAMQ_GATEWAY_ADVERTISED_HOST"] == "gateway"
    listening = given["STRATAMQ_GATEWAY_REMOTING_ADDRESS"]
    advertised = re.sub(r"\$\{\w+:-(.*)\}", r"\1", given["STRATAMQ_GATEWAY_REMOTING_ADVERTISED"])
    config = GatewayConfig(root="x", remoting_address=listening, remoting_advertised=advertised)
    assert list(config.faults()) == []
    changed = added.pop("commitlog")
    (store_host,) = changed["environment"].values()
    assert store_host == given["STRATAMQ_GATEWAY_REMOTING_ADVERTISED"]
    assert changed["depends_on"] == ["gateway"] and not added
    assert [port.rpartition(":")[2] for port in gateway["ports"]] == ["9876", "8081"]


def test_a_console_is_a_service_beside_its_broker_that_this_machine_alone_reaches():
    found = yaml.safe_load((DEPLOY / "console.yaml").read_text(encoding="utf-8"))["services"]
    console, log = found.pop("console"), compose()["commitlog"]
    for key in ("image", "env_file", "volumes", "read_only", "tmpfs", "cap_drop", "security_opt"):
        assert console[key] == log[key], key
    listening = console["environment"]["STRATAMQ_CONSOLE_HTTP_ADDRESS"]
    assert list(ConsoleConfig(root="x", http_address=listening).faults()) == []
    (port,) = console["ports"]
    assert port.startswith("127.0.0.1:") and port.endswith(f":{listening.rpartition(':')[2]}")
    assert not found


def test_the_wheels_of_sparks_image_are_those_that_it_needs():
    dockerfile = (DEPLOY / "spark" / "Dockerfile").read_text()
    needed = set(re.findall(r"\*x\['(\w+)'\]", dockerfile))
    (extras,) = re.findall(
        r"hatchling \"\.\[([\w,]+)\]", (DEPLOY.parent / "scripts" / "spark_base.sh").read_text()
    )
    assert needed == {*extras.split(","), "arrow"}  # which `pipeline` names first


def test_the_wheels_of_a_build_without_network_are_those_that_the_image_needs():
    needed = re.findall(
        r"\['optional-dependencies'\]\['(\w+)'\]", (DEPLOY / "Dockerfile").read_text()
    )
    for place in (DEPLOY / "wheels" / "README.md", DEPLOY.parent / "scripts" / "with_engine.sh"):
        (extras,) = re.findall(r"hatchling [\"']\.\[([\w,]+)\][\"']", place.read_text())
        assert extras.split(",") == needed, place
