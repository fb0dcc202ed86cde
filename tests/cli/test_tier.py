"""`stratamq up` with a tier, and what its commands show of it."""

import json

import pytest

from tests.cli.processes import SMALL, Up, stratamq
from tests.support.waiting import until

QUICK = ("--set", "tier.scan_interval_ms=50", "--set", "tier.batch_wait_ms=100",
         "--set", "tier.index_interval_ms=500")  # fmt: skip


@pytest.fixture
def tier(tmp_path):
    return tmp_path / "tier"


@pytest.fixture
def up(tmp_path, tier):
    with Up(tmp_path / "store", *SMALL, *QUICK, "--set", f"tier.target={tier}") as up:
        up.wait_ready()
        yield up


def test_a_broker_with_a_tier_shows_how_far_it_is_and_what_it_costs(up, tier):
    with up.client() as client:
        for number in range(20):
            client.send("t", b"x" * number, keys=[f"k{number}"])
        end = client.log_state().appended_offset
        until(lambda: client.admin.tier_state().committed_offset == end, "all is in the tier")
        until(lambda: client.admin.tier_state().index_items == 40, "all keys are indexed")
    shown = json.loads(stratamq("tier", "status", "--output", "json", data=up.data).stdout)
    assert shown["state"] == "writes"
    assert (shown["committedMessages"], shown["waitingMessages"]) == (20, 0)
    assert shown["storage"] == str(tier)
    assert shown["requests"] > 0
    rows = [
        json.loads(line)
        for line in stratamq("status", "--output", "json", data=up.data).stdout.splitlines()
    ]
    (row,) = [row for row in rows if row.get("service") == "tier" and row["kind"] == "service"]
    assert (row["state"], row["lag"], row["applied"]) == ("ready", 0, end)
    assert row["detail"].startswith("writes, queues: ")
    offline = stratamq("tier", "status", str(tier), "--output", "json")
    assert json.loads(offline.stdout)["messages"] == 20
    table = stratamq("tier", "status", data=up.data).stdout.decode()
    assert "requests.swap" in table


def test_the_status_of_a_broker_without_a_tier_contains_what_to_do(tmp_path):
    with Up(tmp_path / "store", *SMALL) as up:
        up.wait_ready()
        done = stratamq("tier", "status", data=up.data)
    assert done.returncode != 0
    assert b"tier" in done.stderr


def test_verify_reads_the_key_index_too_and_finds_what_does_not_belong(up, tier):
    with up.client() as client:
        for number in range(20):
            client.send("t", b"x" * number, keys=[f"k{number}"])

        def is_indexed() -> bool:
            return client.admin.tier_state().index_items == 40 and items(tier) == 40

        until(is_indexed, "all keys are in files, twenty of them given, twenty the client's")
        assert up.stop() == 0
    whole = verified(tier)
    assert all(row["ok"] for row in whole)
    (index,) = [row for row in whole if row["kind"] == "verifiedIndex"]
    assert index["items"] == items(tier)
    (*_, name), *_ = index_files(tier)
    file = tier / name
    raw = bytearray(file.read_bytes())
    raw[-20] ^= 1
    file.write_bytes(raw)
    (index,) = [row for row in verified(tier, 1) if row["kind"] == "verifiedIndex"]
    assert not index["ok"]
    assert index["faults"]


def index_files(tier) -> list[list]:
    """The files that the manifest lists (`formats/tier_index_manifest.py`)."""
    (path,) = tier.glob("*/broker-a/rmq_sys_INDEX/0/stratamq-manifest.json")
    return json.loads(path.read_text())["files"]


def items(tier) -> int:
    return sum(file[3] for file in index_files(tier))


def verified(tier, code: int = 0) -> list[dict[str, object]]:
    done = stratamq("tier", "verify", str(tier), "--output", "json")
    assert done.returncode == code, done.stderr.decode()
    return [json.loads(line) for line in done.stdout.splitlines()]
