"""Stacks of containers, each kept for a module. `make test-compose` finds or starts the engine."""

import os
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.compose.stack import (
    BUILD_S,
    PAIR,
    SHARD,
    SHARDS,
    SHARDS_AND_SPARK,
    Stack,
    copy_tree,
    docker,
)

SPARK_BUILD_S = 1200
FAILOVER = {
    "STRATAMQ_AGENT_TTL_MS": "10000",
    "STRATAMQ_AGENT_LOOP_INTERVAL_MS": "2000",
    "STRATAMQ_AGENT_RETRY_TIMEOUT_MS": "3000",
    "STRATAMQ_HA_HEARTBEAT_MS": "1000",
    "STRATAMQ_HA_HOUSEKEEPING_MS": "5000",
}


@pytest.fixture(scope="session")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if "COMPOSE" not in os.environ:
        pytest.skip("`make test-compose` finds or starts the engine that this needs")
    place = tmp_path_factory.mktemp("tree") / "stratamq"
    place.mkdir()
    copy_tree(place, os.environ.get("STRATAMQ_TEST_WHEELS"))
    return place


@pytest.fixture(scope="session")
def session() -> str:
    """Stacks of two runs on one engine do not meet either."""
    return f"stratamq-test-{secrets.token_hex(3)}"


@pytest.fixture(scope="session")
def image(tree: Path, session: str) -> Iterator[str]:
    name = f"{session}:test"
    Stack(tree, f"{session}-build", name).run("build", timeout_s=BUILD_S)
    yield name
    docker("image", "rm", "--force", name)


@pytest.fixture(scope="module")
def broker(tree: Path, session: str, image: str) -> Iterator[Stack]:
    yield from running(Stack(tree, f"{session}-one", image))


@pytest.fixture(scope="module")
def pair(tree: Path, session: str, image: str) -> Iterator[Stack]:
    """A master that waits for its replica, and the replica."""
    settings = {
        "STRATAMQ_COMMITLOG_ROLE": "SYNC_MASTER",
        "STRATAMQ_HA_HEARTBEAT_MS": "1000",
        "STRATAMQ_HA_HOUSEKEEPING_MS": "3000",
    }
    yield from running(Stack(tree, f"{session}-pair", image, settings, PAIR))


@pytest.fixture(scope="module")
def shard(tree: Path, session: str, image: str) -> Iterator[Stack]:
    """Three members with an agent each, and etcd."""
    yield from _shard(Stack(tree, f"{session}-shard", image, FAILOVER, SHARD))


@pytest.fixture(scope="module")
def shards(tree: Path, session: str, image: str) -> Iterator[Stack]:
    """Three such shards over one etcd."""
    yield from _shard(Stack(tree, f"{session}-shards", image, FAILOVER, SHARDS))


@pytest.fixture(scope="module")
def shards_and_spark(tree: Path, session: str, image: str) -> Iterator[Stack]:
    """Three shards, and a Spark master with a worker beside them."""
    stack = Stack(tree, f"{session}-spark", image, FAILOVER, SHARDS_AND_SPARK)
    if "STRATAMQ_TEST_WHEELS" in os.environ:
        if "STRATAMQ_TEST_SPARK_WHEELS" not in os.environ:
            pytest.skip("STRATAMQ_TEST_SPARK is not yes: scripts/with_engine.sh made no base image")
        stack.add_wheels(Path(os.environ["STRATAMQ_TEST_SPARK_WHEELS"]))
    stack.run("build", "etcd1", "spark-master", timeout_s=SPARK_BUILD_S)
    try:
        yield from running(stack, build=False)
    finally:
        docker("image", "rm", "--force", stack.etcd_image, stack.spark_image)


def _shard(stack: Stack) -> Iterator[Stack]:
    try:
        yield from running(stack)
    finally:
        docker("image", "rm", "--force", stack.etcd_image)


def running(stack: Stack, *, build: bool = True) -> Iterator[Stack]:
    """Up until the fixture ends; of one that fails the last lines of its logs are shown."""
    try:
        stack.up(build=build)
        yield stack
    except BaseException:
        print(stack.run("logs", "--tail", "50", check=False).stdout)
        raise
    finally:
        stack.down(volumes=True)
