"""Tiers that we write, read by the real RocketMQ."""

import json
import time
from pathlib import Path

import numpy as np
import pytest

from stratamq.cli.__main__ import main
from stratamq.files.real import RealFiles
from stratamq.formats import frame as frames
from stratamq.formats.javahash import tags_code
from stratamq.formats.properties import encode_properties
from stratamq.formats.property_crc import fill_property_crc, reserve
from stratamq.formats.tier_manifest import Manifest
from stratamq.formats.tier_metadata import format_tier_metadata
from stratamq.tier.containers.place import QueuePlace, TierLimits
from stratamq.tier.driver.posix import PosixStorage
from stratamq.tier.driver.storage import run
from stratamq.tier.reading.key_index import load_index
from stratamq.tier.writing.batch import TierBatch
from stratamq.tier.writing.claim import claim
from stratamq.tier.writing.export import add_index, metadata_of
from stratamq.tier.writing.index_writer import IndexWriter
from stratamq.tier.writing.queue_writer import TierQueueWriter
from tests.support import rocketmq_tier
from tests.tier.differences import allowed, compare

pytestmark = pytest.mark.java

CLUSTER, BROKER = "DefaultCluster", "broker-a"
LIMITS = TierLimits(record_segment_bytes=6_000, unit_segment_bytes=400, roll_min_bytes=1_000)
TIME = 1_700_000_000_000
QUEUES = (("orders", 0, 0), ("orders", 1, 1_000), ("%RETRY%billing", 0, 7), ("naïve.主题", 2, 30))
"""Topic, queue id, first queue offset."""


def message(topic: str, queue_id: int, offset: int) -> tuple[bytes, str]:
    """Bodies from none to more than a segment has; a checksum of the whole record in half of them;
    some without any property; some from IPv6 hosts. And the tags."""
    tags = ("", "TagA", "支付")[offset % 3]
    properties = {} if offset % 7 == 0 else {"KEYS": f"k{offset}", "UNIQ_KEY": f"u{offset}"}
    if tags and properties:
        properties["TAGS"] = tags
    raw = encode_properties(properties)
    sealed = bool(properties) and offset % 2 == 0
    body = b"" if offset % 11 == 0 else bytes(7_000 if offset % 40 == 39 else offset * 37 % 400)
    record = bytearray(
        frames.encode(
            topic=topic.encode(),
            body=body,
            born_host=bytes(range(16)) + b"\0\0\x27\x10"
            if offset % 13 == 5
            else b"\x7f\0\0\x01\0\0\x27\x10",
            store_host=b"\x7f\0\0\x01\0\0\x2a\x9f",
            properties=reserve(raw) if sealed else raw,
            queue_id=queue_id,
            queue_offset=offset,
            physical_offset=123_456,
            store_timestamp_ms=TIME + offset * 10,
            born_timestamp_ms=TIME + offset * 10 - 1,
        )
    )
    if sealed:
        fill_property_crc(record)
    return bytes(record), properties.get("TAGS", "")


def batch(topic: str, queue_id: int, start: int, end: int) -> TierBatch:
    found = [message(topic, queue_id, offset) for offset in range(start, end)]
    return TierBatch(
        start,
        b"".join(record for record, _ in found),
        np.array([len(record) for record, _ in found], np.int64),
        np.array([tags_code(tags) for _, tags in found], np.int64),
        TIME + np.arange(start, end, dtype=np.int64) * 10,
    )


def write_tier(root: Path, count: int, step: int) -> list[Manifest]:
    storage = PosixStorage(RealFiles(root / "tier"), time.sleep)
    epoch = run(claim(CLUSTER, BROKER, 1), storage)
    manifests = []
    for topic, queue_id, first in QUEUES:
        writer = TierQueueWriter(QueuePlace(CLUSTER, BROKER, topic, queue_id), epoch, True, LIMITS)
        for start in range(first, first + count, step):
            end = min(first + count, start + step)
            run(writer.commit(batch(topic, queue_id, start, end), TIME), storage)
        assert writer.manifest is not None
        manifests.append(writer.manifest)
    describe(root, manifests)
    return manifests


def describe(root: Path, manifests: list[Manifest]) -> None:
    """What RocketMQ needs beside the tier itself."""
    ids = {topic: number for number, topic in enumerate(sorted({topic for topic, _, _ in QUEUES}))}
    (root / "local/config").mkdir(parents=True)
    (root / "local/config/tieredStoreMetadata.json").write_bytes(
        format_tier_metadata(metadata_of(manifests, ids, TIME))
    )
    scenario = {"seed": 1, "messages": 0, "cluster": CLUSTER, "broker": BROKER, "slots": 97,
                "items": 400, "segmentBytes": 6_000, "queueBytes": 400}  # fmt: skip
    (root / "scenario.json").write_text(json.dumps(scenario))


def ours(root: Path, capsys: pytest.CaptureFixture[str]) -> list[dict]:
    with pytest.raises(SystemExit) as ended:
        main(["tier", "dump", str(root), "--output", "json"])
    assert ended.value.code == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


@pytest.mark.parametrize("version", rocketmq_tier.VERSIONS)
def test_rocketmq_reads_a_tier_of_ours_as_we_do(version, tmp_path, capsys):
    write_tier(tmp_path / "tier", 120, 9)
    mine = ours(tmp_path / "tier", capsys)
    theirs = rocketmq_tier.dump(version, tmp_path / "tier", tmp_path / "scratch")
    comparison = compare(theirs, mine, "ours")
    assert not comparison.unexplained, comparison.unexplained[:3]
    assert comparison.seen == allowed("ours")
    assert sum(line["kind"] == "message" for line in mine) == 120 * len(QUEUES)


def test_rocketmq_reads_the_messages_on_both_sides_of_a_gap(tmp_path, capsys):
    storage = PosixStorage(RealFiles(tmp_path / "tier/tier"), time.sleep)
    epoch = run(claim(CLUSTER, BROKER, 1), storage)
    writer = TierQueueWriter(QueuePlace(CLUSTER, BROKER, "orders", 0), epoch, True, LIMITS)
    for start, end in ((0, 20), (35, 60)):
        manifest = run(writer.commit(batch("orders", 0, start, end), TIME), storage)
    describe(tmp_path / "tier", [manifest])
    wanted = [*range(20), *range(35, 60)]
    for lines in (
        ours(tmp_path / "tier", capsys),
        rocketmq_tier.dump("5.3.3", tmp_path / "tier", tmp_path / "scratch"),
    ):
        found = [line["queueOffset"] for line in lines if line["kind"] == "message"]
        assert found == wanted


@pytest.mark.parametrize("version", rocketmq_tier.VERSIONS)
def test_rocketmq_finds_messages_by_key_in_an_index_of_ours(version, tmp_path):
    root = tmp_path / "tier"
    manifests = write_tier(root, 60, 9)
    storage = PosixStorage(RealFiles(root / "tier"), time.sleep)
    epoch = run(claim(CLUSTER, BROKER, 1), storage)
    writer = IndexWriter(CLUSTER, BROKER, epoch, positions=True, slots=97)
    run(writer.open(), storage)
    for topic, queue_id, _ in QUEUES:
        run(writer.catch_up(QueuePlace(CLUSTER, BROKER, topic, queue_id)), storage)
        run(writer.flush(), storage)
    index = run(load_index(CLUSTER, BROKER), storage)
    assert index is not None
    assert len(index.files) == len(QUEUES)
    metadata = metadata_of(manifests, index.topics, TIME)
    add_index(metadata, index, TIME)
    (root / "local/config/tieredStoreMetadata.json").write_bytes(format_tier_metadata(metadata))
    lines = rocketmq_tier.dump(version, root, tmp_path / "scratch")
    found = {
        (line["topic"], line["key"]): len(line["messages"])
        for line in lines
        if line["kind"] == "query" and line["messages"]
    }
    wanted = {
        (topic, f"{letter}{offset}")
        for topic, _, first in QUEUES
        for offset in range(first, first + 60)
        if offset % 7
        for letter in "ku"
    }
    assert found.keys() == wanted
    assert set(found.values()) == {1}
