"""One broker, every service in a container of its own: `docker compose up --build --wait`."""

import json
import subprocess
import sys

import pytest

from stratamq.client import SendStatus
from stratamq.errors import StrataError
from tests.compose.load import Load, keys_of, lost
from tests.compose.stack import ROOMS, Stack, until

pytestmark = pytest.mark.compose

CALM_S = 120


def stratamq(broker: Stack, *arguments: str, stdin: str = "") -> list[dict]:
    """A command of this machine over the published ports; its rows."""
    command = [sys.executable, "-m", "stratamq.cli", *arguments, "--output", "json"]
    done = subprocess.run(
        [*command, "--address", broker.address()],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=CALM_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("room", ROOMS)
def test_a_service_is_healthy_and_may_do_nothing_but_its_work(broker: Stack, room: str):
    container = broker.inspect(room)
    assert container["State"]["Health"]["Status"] == "healthy"
    assert container["Config"]["User"] == "10001:10001"
    host = container["HostConfig"]
    assert host["ReadonlyRootfs"] and host["CapDrop"] == ["ALL"]
    assert "no-new-privileges:true" in host["SecurityOpt"]
    refused = broker.run("exec", "-T", room, "touch", "/opt/stratamq/x", check=False)
    assert refused.returncode != 0 and "Read-only file system" in refused.stderr


def test_messages_go_in_and_come_out_through_the_published_ports(broker: Stack):
    lines = "".join(
        json.dumps({"body": f"order {number}", "keys": [f"key-{number}"]}) + "\n"
        for number in range(100)
    )
    (sent,) = stratamq(broker, "produce", "orders", "--format", "json", stdin=lines)
    assert (sent["stored"], sent["failed"]) == (100, 0)
    rows = stratamq(broker, "consume", "orders")
    assert sorted(row["body"] for row in rows) == sorted(f"order {number}" for number in range(100))

    def found() -> list[dict]:
        return stratamq(broker, "query", "key", "orders", "key-42")

    (row, *_) = until(found, "the index to catch up")
    assert row["body"] == "order 42"


def test_status_is_the_same_inside_and_outside(broker: Stack):
    inside = broker.execute("index", "stratamq", "status", "--output", "json")
    for rows in ([json.loads(line) for line in inside.splitlines()], stratamq(broker, "status")):
        services = {row["service"]: row for row in rows if row["kind"] == "service"}
        states = {name: row["state"] for name, row in services.items()}
        assert states == dict.fromkeys(ROOMS, "ready")
        assert services["ha"]["replicationAddress"] == "ha:10912"


@pytest.mark.parametrize("room", ["commitlog", "dispatcher", "index"])
def test_a_crash_under_load_loses_nothing_acknowledged(broker: Stack, room: str):
    with Load(broker, f"crash-{room}") as load:
        load.continues()
        broker.crash(room)
        load.continues()
    broker.until_healthy(room)
    assert lost(broker, load) == set()
    keys = keys_of(broker, load.topic)
    assert len(keys) == len(set(keys))
    with broker.client() as client:
        newest = max(load.acknowledged, key=lambda key: int(key.rpartition("-")[2]))
        until(lambda: client.query_key(load.topic, newest).messages, "the index to catch up")


def test_a_paused_log_answers_nothing_and_continues_where_it_was(broker: Stack):
    with broker.client() as client:
        assert client.send("pause", b"before").status is SendStatus.PUT_OK
    broker.pause("commitlog")
    try:
        with (
            broker.client(timeout_s=2.0, retry_timeout_s=5.0) as client,
            pytest.raises(StrataError),
        ):
            client.send("pause", b"meanwhile")
    finally:
        broker.unpause("commitlog")
    broker.until_healthy("commitlog")
    with broker.client() as client:
        assert client.send("pause", b"after").status is SendStatus.PUT_OK
        until(
            lambda: {b"before", b"after"} <= {one.body for one in client.consume("pause")},
            "both messages",
        )


def test_a_dispatcher_cut_off_from_the_log_catches_up(broker: Stack):
    with Load(broker, "cut-off") as load:
        load.continues(100)
        broker.disconnect("dispatcher")
        load.continues()
        broker.connect("dispatcher")
        load.continues(100)
    broker.until_healthy("dispatcher")
    assert lost(broker, load) == set()


def test_down_closes_the_store_cleanly_and_up_finds_everything(broker: Stack):
    with broker.client() as client:
        result = client.send("kept", b"kept")
        assert result.status is SendStatus.PUT_OK
    broker.run("stop", timeout_s=CALM_S)
    assert broker.exit_codes() == dict.fromkeys(ROOMS, 0)
    kept = broker.look("ls /data /data/stratamq/run")
    assert "checkpoint" in kept.split() and "abort" not in kept.split()
    assert ".json" not in kept
    broker.down()
    broker.up()
    with broker.client() as client:
        assert client.message_at(result.physical_offset).body == b"kept"
        assert b"kept" in {one.body for one in client.consume("kept")}


def test_a_wrong_setting_is_named_in_the_log_and_mended_by_another_up(broker: Stack):
    broker.set({"STRATAMQ_INDEX_SYNC_INTERVAL_MS": "soon"})
    wait = "--wait" if broker.waits else "--detach"
    broker.run("up", wait, "--no-deps", "index", timeout_s=CALM_S, check=False)
    until(
        lambda: "index.sync_interval_ms = 'soon'" in broker.run("logs", "index").stdout,
        "the fault in the log",
    )
    broker.set({"STRATAMQ_INDEX_SYNC_INTERVAL_MS": "1000"})
    broker.up()
