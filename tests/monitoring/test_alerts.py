"""The alert rules: each fires for what it is for, and no other one does.

Prometheus' own `promtool` evaluates them: over series that are written here, and over what real
services answered before and after a fault.
"""

import re
from pathlib import Path

import pytest

from stratamq.client import connect
from stratamq.rpc.rooms import COMMITLOG, DISPATCHER, HA, INDEX, JANITOR
from tests.ha.pairs import Pair
from tests.monitoring.promtool import ENVIRONMENT, GROUP, NAMES, alarms, needs_promtool
from tests.monitoring.scraping import Scraped, metric
from tests.support.brokers import Broker
from tests.support.waiting import until

ROOT = Path(__file__).resolve().parents[2]
WHERE = 'job="stratamq",broker="b",member="a",instance="i"'

HEALTHY = {
    "up": "1x240",
    "service_ready": "1x240",
    "commitlog_flush_failed": "0x240",
    "commitlog_refused_appends_total": "0x240",
    "commitlog_disk_used_ratio": "0.6x240",
    "commitlog_disk_full": "0x240",
    "commitlog_damaged_stretches": "0x240",
    "commitlog_writable": "1x240",
    "commitlog_clock_ahead_seconds": "0x240",
    "commitlog_disk_wait_seconds": "0x240",
    "index_damaged_files": "0x240",
    "dispatcher_stopped": "0x240",
    "index_stopped": "0x240",
    "dispatcher_lag_bytes": "1000x240",
    "index_lag_bytes": "1000x240",
    "ha_slaves": "1x240",
    "ha_slave_lag_bytes": "1000x240",
    "ha_follows": "0x240",
    "ha_stands_still": "0x240",
    "ha_slaves_standing_still": "0x240",
    "delivery_overdue_seconds": "0x240",
    "gateway_failed_requests_total": "3x240",
    "console_failed_requests_total": "3x240",
    "delivery_dead_letters_total": "7x240",
    "delivery_dead_letters_owed": "0x240",
    "janitor_alarm": "0x240",
    "janitor_looks_total": "0+1x240",
    "janitor_failed_looks_total": "0x240",
    "janitor_enabled": "1x240",
    "tier_writing": "1x240",
    "tier_failing_queues": "0x240",
    "tier_lag_seconds": "30x240",
    "tier_lost_messages": "0x240",
    "tier_put_backs": "0x240",
    "service_loop_stalled_seconds": "0x240",
    "agent_store_answers": "1x240",
    "agent_store_steps_back_total": "1x240",
    "agent_has_leader": "1x240",
    "agent_leader_unable": "0x240",
}
"""A value a minute, for four hours."""
FIRING = {
    "StrataMQServiceDown": {"up": "0x240"},
    "StrataMQNotReady": {"service_ready": "0x240"},
    "StrataMQFlushFailed": {
        "commitlog_flush_failed": "1x240",
        "commitlog_writable": "0x240",
        "service_ready": "0x240",
        "commitlog_refused_appends_total": "0+100x240",
    },
    "StrataMQAppendsRefused": {"commitlog_refused_appends_total": "0+100x240"},
    "StrataMQDiskFull": {
        "commitlog_disk_used_ratio": "0.89x240",
        "commitlog_disk_full": "1x240",
        "commitlog_writable": "0x240",
        "commitlog_refused_appends_total": "0+100x240",
        "janitor_alarm": "1x240",
    },
    "StrataMQDiskFillsSoon": {"commitlog_disk_used_ratio": "0.5+0.001x240"},
    "StrataMQDamage": {"index_damaged_files": "1x240"},
    "StrataMQFollowerStopped": {"dispatcher_stopped": "1x240"},
    "StrataMQFollowerBehind": {"index_lag_bytes": "100000000x240"},
    "StrataMQSlaveGone": {"ha_slaves": "2x200 1x40"},
    "StrataMQSlaveBehind": {"ha_slave_lag_bytes": "100000000x240"},
    "StrataMQSlaveStalled": {"ha_slaves_standing_still": "1x240"},
    "StrataMQMasterGone": {"ha_follows": "1x200 0x40", "commitlog_writable": "0x240"},
    "StrataMQDeliveryLate": {"delivery_overdue_seconds": "90x240"},
    "StrataMQGatewayFails": {"gateway_failed_requests_total": "0+60x240"},
    "StrataMQConsoleFails": {"console_failed_requests_total": "0+60x240"},
    "StrataMQDeadLetters": {"delivery_dead_letters_total": "7x220 8x20"},
    "StrataMQDeadLettersOwed": {"delivery_dead_letters_owed": "1x240"},
    "StrataMQJanitorAlarm": {"janitor_alarm": "1x240"},
    "StrataMQJanitorStalled": {"janitor_looks_total": "0+1x200 200x40"},
    "StrataMQRetentionOff": {"janitor_enabled": "0x240"},
    "StrataMQTierFails": {"tier_lag_seconds": "0+60x240"},
    "StrataMQTierPutBack": {"tier_lost_messages": "0x200 174x40"},
    "StrataMQStalled": {"commitlog_disk_wait_seconds": "10x240"},
    "StrataMQClockDoubted": {"commitlog_clock_ahead_seconds": "7200x240"},
    "StrataMQElectionStoreGone": {"agent_store_answers": "0x240", "agent_has_leader": "0x240"},
    "StrataMQElectionStoreWentBack": {"agent_store_steps_back_total": "0x200 1x40"},
    "StrataMQNoLeader": {"agent_has_leader": "0x240"},
    "StrataMQLeaderUnable": {"agent_leader_unable": "1x240"},
}


def labelled(values: dict[str, str]) -> dict[str, str]:
    return {f"{name}{{{WHERE}}}": each for name, each in values.items()}


@needs_promtool
def test_nothing_fires_while_all_is_well(tmp_path):
    assert alarms(tmp_path, labelled(HEALTHY)) == set()


@needs_promtool
@pytest.mark.parametrize("name", NAMES)
def test_each_alarm_fires_for_what_it_is_for_and_no_other_one(tmp_path, name):
    assert alarms(tmp_path, labelled(HEALTHY | FIRING[name])) == {name}


@needs_promtool
def test_a_tier_that_was_put_back_is_told_also_where_nothing_is_lost(tmp_path):
    put_back = {"tier_put_backs": "0x200 1x40"}
    assert alarms(tmp_path, labelled(HEALTHY | put_back)) == {"StrataMQTierPutBack"}


@needs_promtool
def test_a_slaves_tier_service_writes_nothing_and_that_is_no_failure(tmp_path):
    slave = {"tier_writing": "0x240", "commitlog_writable": "0x240", "ha_follows": "1x240"}
    assert alarms(tmp_path / "slave", labelled(HEALTHY | slave)) == set()
    fires = alarms(tmp_path / "master", labelled(HEALTHY | {"tier_writing": "0x240"}))
    assert fires == {"StrataMQTierFails"}


@needs_promtool
@pytest.mark.parametrize(
    ("name", "series"),
    [
        ("StrataMQSlaveGone", {"ha_slaves": "2x20 1x1000"}),
        ("StrataMQMasterGone", {"ha_follows": "1x20 0x1000", "commitlog_writable": "0x1020"}),
        ("StrataMQJanitorStalled", {"janitor_failed_looks_total": "0+1x1020"}),
    ],
    ids=["slave", "master", "every look fails"],
)
def test_an_alarm_lasts_as_long_as_its_cause(tmp_path, name, series):
    well = {each: re.sub(r"x240$", "x1020", values) for each, values in HEALTHY.items()}
    assert alarms(tmp_path / name, labelled(well | series), minute=1_000) == {name}


def test_every_alarm_is_tested_and_contains_what_to_do():
    assert set(FIRING) == set(NAMES)
    for rule in GROUP["rules"]:
        assert set(rule["annotations"]) == {"summary", "description", "action"}
        assert rule["labels"]["severity"] in ("critical", "warning")


def test_every_metric_that_a_rule_names_is_there():
    known = set(
        re.findall(
            r"^\| [^|]+ \| `(\w+)`", (ROOT / "docs" / "metrics.md").read_text(), re.MULTILINE
        )
    )
    for rule in GROUP["rules"]:
        named = set(re.findall(r"(\w+)\{job=", rule["expr"]))
        assert named and named - {"up"} <= known, rule["alert"]


# --- what real services answer ---


ALL = (COMMITLOG, DISPATCHER, INDEX, JANITOR)


@needs_promtool
def test_a_healthy_broker_lets_nothing_fire_and_a_killed_service_one(tmp_path):
    scraped = Scraped()
    with Broker(tmp_path / "store", tmp_path / "logs") as broker:
        broker.start(ALL)
        with connect(broker.root) as client:
            client.send("t", b"x")
            until(lambda: list(client.consume("t")), "it is dispatched")
        until(lambda: metric(broker, JANITOR, "janitor_enabled") == 1, "the janitor has looked")
        scraped.before({"a": broker}, ALL)
        scraped.after({"a": broker}, ALL)
        assert alarms(tmp_path / "well", scraped.series()) <= ENVIRONMENT
        broker.kill(INDEX)
        scraped.after({"a": broker}, ALL)
        assert alarms(tmp_path / "killed", scraped.series()) - ENVIRONMENT == {
            "StrataMQServiceDown"
        }


@needs_promtool
@pytest.mark.parametrize("lost", ["slave", "master"])
def test_a_lost_slave_and_a_lost_master_have_an_alarm_each(tmp_path, lost):
    rooms = (COMMITLOG, HA)
    scraped = Scraped()
    with Pair(tmp_path) as pair:
        pair.start()
        brokers = {"a": pair.master, "b": pair.slave}

        until(lambda: metric(pair.master, HA, "ha_slaves") == 1, "the slave is counted")
        until(lambda: metric(pair.slave, HA, "ha_follows") == 1, "the slave follows")
        scraped.before(brokers, rooms)
        if lost == "slave":
            pair.slave.kill(HA, COMMITLOG)
            until(lambda: metric(pair.master, HA, "ha_slaves") == 0, "the loss is seen")
            fires = {"StrataMQSlaveGone"}
        else:
            pair.master.kill(HA, COMMITLOG)
            until(lambda: metric(pair.slave, HA, "ha_follows") == 0, "the loss is seen")
            fires = {"StrataMQMasterGone"}
        scraped.after(brokers, rooms)
        fired = alarms(tmp_path / "rules", scraped.series())
        assert fired - ENVIRONMENT == fires | {"StrataMQServiceDown"}
