"""A job of the pipeline on Spark's Kubernetes scheduler reads a shard by its name."""

import os
from pathlib import Path

import pytest

from tests.cluster.spark_jobs import SparkJobs

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1200)]


def test_an_export_has_what_was_sent_and_the_next_one_what_came_since(shard, tmp_path):
    image = os.environ.get("STRATAMQ_TEST_SPARK_IMAGE")
    volumes = os.environ.get("STRATAMQ_TEST_VOLUMES")
    if image is None or volumes is None:
        pytest.skip("STRATAMQ_TEST_SPARK=yes and a cluster of our own have an image of Spark")
    jobs = SparkJobs(shard, image, tmp_path, Path(volumes) / f"{shard.namespace}-tables")
    send(shard, range(300))
    jobs.run("export-1")
    assert sorted(map(int, jobs.bodies())) == list(range(300))
    send(shard, range(300, 350))
    jobs.run("export-2")
    assert sorted(map(int, jobs.bodies())) == list(range(350))


def send(shard, numbers: range) -> None:
    lines = f"seq {numbers.start} {numbers.stop - 1}"
    produce = "stratamq produce tables --address stratamq-broker:10911"
    shard.in_pod("client", "client", "sh", "-c", f"{lines} | {produce}")
