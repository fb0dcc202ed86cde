"""What cannot be a tier is refused at the start, by a sentence that names who must act."""

import pytest
from stratamq_tier.config import TierConfig

from tests.support.brokers import Broker


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("tier.target={there}/file", "cannot be made a directory: File exists"),
        ("tier.target={there}/file/below", "cannot be made a directory: Not a directory"),
        ("tier.target={there}/store/tier", "is in the store"),
        ("tier.target={there}/store", "is in the store"),
        ("tier.target=s3://", "not the URL of an object store"),
        ("tier.target=ftp://host/tier", "not the URL of an object store"),
        ("tier.cluster=", "no part of a path can have this name"),
        ("tier.cluster=a/b", "no part of a path can have this name"),
        ("tier.broker=..", "no part of a path can have this name"),
        ("tier.provider=org.example.OssFileSegment", "no class of this name"),
        ("tier.metadata_provider=org.example.Other", "DefaultMetadataStore"),
        (
            "tier.provider=org.apache.rocketmq.tieredstore.provider.MemoryFileSegment",
            "name PosixFileSegment",
        ),
    ],
)
def test_a_tier_that_cannot_be_is_refused(tmp_path, given, sentence):
    (tmp_path / "file").touch()
    settings = [f"tier.target={tmp_path / 'tier'}", given.format(there=tmp_path)]
    with Broker(tmp_path / "store", tmp_path / "logs", settings) as broker:
        broker.spawn("tier")
        assert broker.wait_end("tier") == 2
        output = broker.output("tier")
    assert sentence in output
    assert "Traceback" not in output


def config(tmp_path, **settings: object) -> TierConfig:
    return TierConfig(root=tmp_path / "store", target=str(tmp_path / "tier"), **settings)


@pytest.mark.parametrize(
    "name",
    [
        "PosixFileSegment",
        "org.apache.rocketmq.tieredstore.provider.PosixFileSegment",
        "org.apache.rocketmq.tieredstore.provider.posix.PosixFileSegment",
    ],
)
def test_rocketmqs_class_for_a_directory_stands_for_a_directory(tmp_path, name):
    assert list(config(tmp_path, provider=name).faults()) == []
    bucket = TierConfig(root=tmp_path / "store", target="s3://bucket", provider=name)
    assert "writes directories" in " ".join(bucket.faults())


def test_without_batches_no_message_waits(tmp_path):
    assert config(tmp_path).intake_limits.wait_ms == 30_000
    assert config(tmp_path, batches=False).intake_limits.wait_ms == 0


@pytest.mark.parametrize(
    ("settings", "hours"),
    [
        ({}, 24),
        ({"topic_retention_hours": ("orders=720",)}, 180),
        ({"topic_retention_hours": ("orders=0",)}, 0),
        ({"retention_enabled": False}, 0),
    ],
)
def test_a_small_segment_is_rolled_in_a_quarter_of_its_topics_retention(tmp_path, settings, hours):
    limits = config(tmp_path, **settings).limits("orders")
    assert limits.roll_small_after_ms == hours * 3_600_000
    assert limits.roll_after_ms == 24 * 3_600_000
