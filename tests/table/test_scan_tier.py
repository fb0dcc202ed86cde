"""A scan of a tier, and of a log together with its tier: each message once, whatever is deleted."""

import shutil
from collections import Counter
from pathlib import Path

import pytest

import stratamq
from stratamq.cli.tier_backfill import backfill
from stratamq.errors import (
    CorruptionError,
    InvalidRequestError,
    NotFoundError,
    OffsetOutOfRangeError,
)
from stratamq.formats.store_paths import COMMIT_LOG
from stratamq.tier.containers.place import QueuePlace, broker_folder
from stratamq.tier.driver.opening import open_storage
from stratamq.tier.driver.storage import run
from stratamq.tier.writing.claim import claim
from tests.support import s3_servers
from tests.table.conftest import QUEUES, TOPICS

CLUSTER, BROKER = "DefaultCluster", "broker-a"
PLACE = ("physicalOffset", "msgId")
"""Of a message in the tier they are others than in the log."""


@pytest.fixture(scope="module")
def moto():
    with s3_servers.moto_server() as server:
        yield server


@pytest.fixture
def store(filled, tmp_path):
    """A copy to be changed."""
    shutil.copytree(filled.root, tmp_path / "store")
    return tmp_path / "store"


def segments(store):
    return sorted((store / COMMIT_LOG).iterdir())


def upload(store, target, broker=BROKER, topics=()):
    with open_storage(str(target), for_writing=broker_folder(CLUSTER, broker)) as storage:
        backfill(store, storage, CLUSTER, broker, list(topics))


def upload_first(store, target, count, scratch):
    """Of a log that ends behind `count` segments."""
    (scratch / COMMIT_LOG).mkdir(parents=True)
    (scratch / "config").mkdir()
    for path in segments(store)[:count]:
        shutil.copy(path, scratch / COMMIT_LOG)
    upload(scratch, target)


def rows(*arguments, **options):
    return stratamq.scan(*arguments, **options).to_arrow().to_pylist()


def queue_order(found):
    """Without what depends on where a message is."""
    kept = [{name: row[name] for name in row if name not in PLACE} for row in found]
    for row in kept:
        # A record's checksum covers its place.
        row["properties"] = [pair for pair in row["properties"] if pair[0] != "__CRC32#"]
    return sorted(kept, key=lambda row: (row["topic"], row["queueId"], row["queueOffset"]))


def in_order(found):
    """Whether each queue's messages come in their order, each once."""
    ends = Counter()
    for row in found:
        queue = row["topic"], row["queueId"]
        if row["queueOffset"] != ends[queue]:
            return False
        ends[queue] += 1
    return True


def test_a_tier_alone_gives_what_the_log_gave(filled, tmp_path):
    upload(filled.root, tmp_path / "tier")
    found = rows(tmp_path / "tier")
    assert queue_order(found) == queue_order(filled.rows)
    assert {row["physicalOffset"] for row in found} == {-1}
    assert in_order(found)


def test_so_does_one_in_a_bucket(filled, tmp_path, moto, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT", moto.endpoint)
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3_servers.ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3_servers.SECRET_KEY)
    target = f"s3://{moto.new_bucket()}/tiers"
    upload(filled.root, target)
    assert queue_order(rows(target)) == queue_order(filled.rows)
    assert queue_order(rows(filled.root, tier=target)) == queue_order(filled.rows)


def test_of_log_and_tier_each_message_comes_once(filled, store, tmp_path):
    upload_first(store, tmp_path / "tier", 3, tmp_path / "first")
    found = rows(store, tier=tmp_path / "tier")
    assert queue_order(found) == queue_order(filled.rows)
    assert in_order(found)
    local = [row for row in found if row["physicalOffset"] >= 0]
    assert 0 < len(local) < len(found)
    assert local == [row for row in filled.rows if row in local]


def test_what_the_log_has_deleted_comes_from_the_tier(filled, store, tmp_path):
    upload_first(store, tmp_path / "tier", 3, tmp_path / "first")
    for path in segments(store)[:2]:
        path.unlink()
    found = rows(store, tier=tmp_path / "tier")
    assert queue_order(found) == queue_order(filled.rows)
    assert in_order(found)


def test_files_that_are_deleted_while_the_log_is_read_leave_no_gap_and_nothing_twice(
    filled, store, tmp_path
):
    """After each batch of the log a later segment goes into the tier and is deleted."""
    upload_first(store, tmp_path / "tier", 1, tmp_path / "first")
    found, deleted = [], 0
    last = segments(store)[-1]
    for batch in stratamq.scan(store, tier=tmp_path / "tier"):
        found += batch.to_pylist()
        if found[-1]["physicalOffset"] >= 0 and len(segments(store)) > 2:
            deleted += 1
            upload(store, tmp_path / "tier")
            for path in segments(store)[:3]:
                if path != last:
                    path.unlink()
    assert deleted
    assert queue_order(found) == queue_order(filled.rows)
    assert in_order(found)


def test_what_is_in_neither_is_an_error_and_no_gap(store, tmp_path):
    upload_first(store, tmp_path / "tier", 2, tmp_path / "first")
    for path in segments(store)[:4]:
        path.unlink()
    with pytest.raises(OffsetOutOfRangeError, match="neither in the tier nor in the log"):
        rows(store, tier=tmp_path / "tier")


def test_topics_that_are_not_in_the_tier_come_from_the_log(filled, store, tmp_path):
    upload(store, tmp_path / "tier", topics=TOPICS[:1])
    assert queue_order(rows(store, tier=tmp_path / "tier")) == queue_order(filled.rows)


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"topic": "orders"}, lambda row: row["topic"] == "orders"),
        ({"queues": 1}, lambda row: row["queueId"] == 1),
        ({"offsets": (50, 120)}, lambda row: 50 <= row["queueOffset"] < 120),
        (
            {"offsets": {("orders", 1): (10, 60)}},
            lambda row: (
                (row["topic"], row["queueId"]) == ("orders", 1) and 10 <= row["queueOffset"] < 60
            ),
        ),
    ],
    ids=["topic", "queue", "offsets", "offsets of a queue"],
)
def test_filters_choose_in_both(filled, store, tmp_path, options, wanted):
    upload_first(store, tmp_path / "tier", 3, tmp_path / "first")
    for path in segments(store)[:2]:
        path.unlink()
    found = rows(store, tier=tmp_path / "tier", **options)
    assert queue_order(found) == queue_order(filled.where(wanted))


def test_times_choose_in_both(filled, store, tmp_path):
    upload_first(store, tmp_path / "tier", 3, tmp_path / "first")
    low, high = (filled.rows[number]["storeTimestamp"] for number in (100, 700))
    found = rows(store, tier=tmp_path / "tier", since=low, until=high)
    expected = filled.where(lambda row: low <= row["storeTimestamp"] < high)
    assert queue_order(found) == queue_order(expected)


def damaged_object(tier: Path) -> Path:
    place = QueuePlace(CLUSTER, BROKER, "orders", 1)
    content = bytearray((tier / place.record_segment(0)).read_bytes())
    content[300] ^= 1
    (tier / place.record_segment(0)).write_bytes(content)
    return tier / place.record_segment(0)


def test_damage_in_the_tier_is_an_error_or_passed_over_with_its_message_alone(filled, tmp_path):
    tier = tmp_path / "tier"
    upload(filled.root, tier)
    path = damaged_object(tier)
    with pytest.raises(CorruptionError, match=path.name):
        rows(tier)
    seen = []
    found = rows(tier, on_damage=lambda name, damage: seen.append((name, damage.reason)))
    assert [(name.rsplit("/", 1)[-1], reason) for name, reason in seen] == [(path.name, "part_crc")]
    assert len(found) == len(filled.rows) - 1


def test_one_of_several_brokers_has_to_be_named(filled, tmp_path):
    for broker in (BROKER, "broker-b"):
        upload(filled.root, tmp_path / "tier", broker, TOPICS[:1])
    with pytest.raises(InvalidRequestError, match="broker-a of DefaultCluster, broker-b"):
        rows(tmp_path / "tier")
    assert len(rows(tmp_path / "tier", broker="broker-b")) == len(filled.rows) // len(TOPICS)
    with pytest.raises(NotFoundError, match="there are: broker-a of"):
        rows(tmp_path / "tier", broker="broker-c")


def test_what_cannot_be_joined_with_a_tier_is_refused(filled, tmp_path):
    with pytest.raises(InvalidRequestError, match="reads its tier itself"):
        stratamq.scan("localhost:10911", tier=tmp_path / "tier")
    with pytest.raises(InvalidRequestError, match="tier="):
        stratamq.scan(filled.root, broker="broker-a")
    with pytest.raises(NotFoundError, match="empty"):
        rows(filled.root, tier=tmp_path / "tier")


def test_a_claimed_tier_without_messages_is_an_empty_table(filled, tmp_path):
    with open_storage(str(tmp_path / "tier")) as storage:
        run(claim(CLUSTER, BROKER, 0), storage)
    assert rows(tmp_path / "tier") == []
    assert queue_order(rows(filled.root, tier=tmp_path / "tier")) == queue_order(filled.rows)
    assert len({(row["topic"], row["queueId"]) for row in filled.rows}) == len(TOPICS) * QUEUES
