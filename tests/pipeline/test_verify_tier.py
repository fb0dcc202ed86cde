"""`pipeline verify-tier` finds nothing in a good tier, and each planted damage in a bad one."""

import json
import shutil

import pyarrow.parquet as pq
import pytest
from stratamq_pipeline.verify_tier.job import VerifyTierOptions, run_verify_tier

from stratamq.cli import __main__ as command_line
from stratamq.errors import InvalidRequestError, NotFoundError
from stratamq.formats.tier_manifest import MANIFEST_NAME
from stratamq.formats.tier_names import INDEX_TOPIC
from stratamq.tier.driver.opening import open_storage
from stratamq.tier.driver.storage import run
from stratamq.tier.reading.verify import queues_of, verify_queue
from tests.pipeline.job_stores import HERE
from tests.pipeline.tiers import BROKER, CLUSTER, STORE, cut_log, in_tier, indexed, uploaded
from tests.support.fixtures import expected, unpack


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    """A store and its tier."""
    scratch = tmp_path_factory.mktemp("good")
    store = unpack(STORE, scratch)
    return store, indexed(uploaded(store, scratch / "tier"))


@pytest.fixture
def tier(good, tmp_path):
    """To be damaged."""
    shutil.copytree(good[1], tmp_path / "tier")
    return tmp_path / "tier"


def verified(tier, **options):
    return run_verify_tier(VerifyTierOptions(str(tier), part_bytes=40_000, **options), HERE)


def kinds(summary):
    return {row["kind"]: row["faults"] for row in summary.rows}


def folder(tier, *names):
    return next(tier.glob("*_DefaultCluster")) / BROKER / "/".join(names)


def flip(path, position):
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)


def test_a_good_tier_has_no_fault_and_the_log_the_same_messages(spark, good):
    store, tier = good
    lines = [line for line in expected(STORE, "message") if in_tier(line)]
    summary = verified(tier, log=str(store))
    assert not summary.failed
    assert summary.facts["faults"] == 0
    assert summary.facts["messages"] == summary.facts["in_both"] == len(lines)
    assert summary.facts["waiting"] == summary.facts["stale_items"] == 0
    assert summary.facts["keys"] > 0
    with open_storage(str(tier)) as storage:
        found = [
            run(verify_queue(one), storage) for one in run(queues_of(CLUSTER, BROKER), storage)
        ]
    assert summary.facts["bytes"] == sum(one.bytes for one in found)
    assert summary.facts["queues"] == len(found)


@pytest.mark.parametrize("kind", ["COMMIT_LOG", "CONSUME_QUEUE"])
def test_a_flipped_bit_in_records_or_units_is_found(spark, tier, kind):
    (path,) = folder(tier, "orders", "0", kind).iterdir()
    flip(path, 30)
    summary = verified(tier)
    assert summary.failed
    assert kinds(summary).keys() >= {"tier-part"}
    assert "broker-a/orders/0 at 0: tier-part" in " ".join(summary.notes)


def test_every_damage_of_several_is_a_row_and_is_kept(spark, tier, tmp_path):
    (units,) = folder(tier, "orders", "0", "CONSUME_QUEUE").iterdir()
    units.unlink()
    folder(tier, "orders", "1", MANIFEST_NAME).write_bytes(b"{}")
    index = max(folder(tier, INDEX_TOPIC, "0").rglob("*"), key=lambda path: path.stat().st_size)
    index.unlink()
    summary = verified(tier, out=str(tmp_path / "faults"))
    assert kinds(summary).keys() >= {"tier-part", "tier-manifest", "tier-index-file"}
    rows = pq.read_table(tmp_path / "faults").to_pylist()
    assert len(rows) == summary.facts["faults"]
    assert {row["file"] for row in rows} >= {"broker-a/orders/0", "broker-a/orders/1"}


def test_a_key_that_is_in_no_file_is_found(spark, tier):
    manifest = folder(tier, INDEX_TOPIC, "0", MANIFEST_NAME)
    document = json.loads(manifest.read_bytes())
    assert len(document["files"]) > 1
    del document["files"][0]
    manifest.write_text(json.dumps(document))
    summary = verified(tier)
    assert kinds(summary).keys() == {"tier-key-missing"}


def test_messages_that_the_log_has_not_and_that_wait_are_distinguished(spark, good, tmp_path):
    store, whole = good
    cut = cut_log(store, tmp_path / "cut", 1)
    behind = verified(uploaded(cut, tmp_path / "behind"), log=str(store))
    assert not behind.failed
    assert behind.facts["waiting"] > 0
    assert behind.facts["waiting"] + behind.facts["in_both"] == verified(whole).facts["messages"]
    ahead = verified(whole, log=str(cut))
    # Of queues that are not in the log at all everything may have been deleted.
    assert kinds(ahead).keys() == {"tier-unknown"}
    assert 0 < kinds(ahead)["tier-unknown"] <= behind.facts["waiting"]


def test_another_message_than_the_logs_is_found(spark, good, tmp_path):
    store, tier = good
    other = tmp_path / "other"
    shutil.copytree(store, other)
    cut = cut_log(other, tmp_path / "cut", 1)
    (segment,) = (cut / "commitlog").iterdir()
    line = next(one for one in expected(STORE, "message") if in_tier(one))
    flip(segment, line["phyOffset"] + 16)  # the flag, which the body's checksum does not cover
    summary = verified(tier, log=str(cut))
    assert kinds(summary).get("tier-other") == 1


def test_what_is_no_tier_is_refused(tmp_path, good):
    with pytest.raises(NotFoundError, match="no directory"):
        verified(tmp_path / "nowhere")
    with pytest.raises(NotFoundError, match="there are: broker-a"):
        verified(good[1], broker="broker-b")
    (tmp_path / "empty").mkdir()
    with pytest.raises((NotFoundError, InvalidRequestError), match="empty"):
        verified(tmp_path / "empty")


def test_the_command_exits_with_1_for_a_fault(spark, good, tier, capsys):
    words = ["pipeline", "verify-tier", "--output", "json"]
    assert command_line.run([*words, str(good[1])]) == 0
    assert json.loads(capsys.readouterr().out)["faults"] == 0
    (path,) = folder(tier, "orders", "0", "COMMIT_LOG").iterdir()
    flip(path, 200)
    assert command_line.run([*words, str(tier)]) == 1
    assert json.loads(capsys.readouterr().out)["faults"] > 0
