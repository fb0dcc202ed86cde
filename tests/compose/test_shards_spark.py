"""Spark beside three shards: `docker compose --profile shards --profile spark up --build --wait`.
Its jobs read the brokers by the name of all."""

import json
from collections import Counter

import pytest

from stratamq.client import SendStatus, Topic
from tests.compose.shard import leader_of
from tests.compose.stack import SPARK, A, B, C, Stack

JOB_S = 900
pytestmark = [pytest.mark.compose, pytest.mark.timeout(3600)]

SHARDS = {"a": A, "b": B, "c": C}
MESSAGES = 600
ROWS = """
import json, sys
import pyarrow.dataset as dataset
for row in dataset.dataset(sys.argv[1], ignore_prefixes=["_"]).to_table(["body"]).to_pylist():
    print(row["body"].decode())
"""


def job(stack: Stack, *words: str) -> dict:
    """`stratamq pipeline` on the cluster, with the brokers behind their one name; its summary."""
    name, *options = words
    output = stack.execute(
        "spark-master", "stratamq", "pipeline", name, "cluster:10911", *options,
        "--master", "spark://spark-master:7077", "--conf", "spark.executor.memory=512m",
        "--conf", "spark.sql.shuffle.partitions=2", "--output", "json",
        timeout_s=JOB_S,
    )  # fmt: skip
    return json.loads(output.splitlines()[-1])


def test_an_export_of_each_shard_gives_what_was_produced_and_continues_after_that(
    shards_and_spark: Stack,
):
    stack = shards_and_spark
    for members in SHARDS.values():
        leader_of(stack, members)
    produced = []
    for run in (1, 2):
        with stack.client() as client:
            client.admin.create_topic(Topic("orders", 4, 4), if_not_exists=True)
            for number in range(MESSAGES // 2):
                body = f"{run}-{number}"
                assert client.send("orders", body.encode()).status is SendStatus.PUT_OK
                produced.append(body)
            ends = Counter()
            for queue in client.queues("orders"):
                ends[queue.broker] += queue.max_offset
        exported = []
        for name in SHARDS:
            summary = job(stack, "export", f"/data/{name}", "--broker", name, "--topic", "orders")
            assert (summary["run"], summary["result"]) == (run, "published")
            rows = stack.execute("spark-worker", "python3", "-c", ROWS, f"/data/{name}").split()
            assert len(rows) == ends[name] > 0
            exported += rows
        assert sorted(exported) == sorted(produced)


@pytest.mark.parametrize("container", SPARK)
def test_a_spark_container_that_dies_is_started_again_and_jobs_run(
    shards_and_spark: Stack, container: str
):
    stack = shards_and_spark
    with stack.client() as client:
        stored = sum(queue.max_offset for queue in client.queues("orders") if queue.broker == "b")
    stack.crash(container)
    for one in SPARK:
        stack.until_healthy(one)
    summary = job(stack, "stats", "--broker", "b", "--topic", "orders")
    assert summary["messages"] == stored > 0
