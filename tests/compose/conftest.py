"""Stacks of containers, each kept for a module. `make test-compose` finds or starts the engine."""

import os
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.compose.stack import BUILD_S, ETCD3, PAIR, SHARD, Stack, copy_tree, docker

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
    yield from _running(Stack(tree, f"{session}-one", image))


@pytest.fixture(scope="module")
def pair(tree: Path, session: str, image: str) -> Iterator[Stack]:
    """A master that waits for its replica, and the replica."""
    settings = {
        "STRATAMQ_COMMITLOG_ROLE": "SYNC_MASTER",
        "STRATAMQ_HA_HEARTBEAT_MS": "1000",
        "STRATAMQ_HA_HOUSEKEEPING_MS": "3000",
    }
    yield from _running(Stack(tree, f"{session}-pair", image, settings, PAIR))


@pytest.fixture(scope="module")
def equals(tree: Path, session: str, image: str) -> Iterator[Stack]:
    """Two brokers that ask each other who is the master."""
    settings = {
        "STRATAMQ_HA_HEARTBEAT_MS": "1000",
        "STRATAMQ_HA_HOUSEKEEPING_MS": "3000",
        "STRATAMQ_COMMITLOG_ROLE": "SYNC_MASTER",
    }
    yield from _running(Stack(tree, f"{session}-equals", image, settings, PAIR))


@pytest.fixture(scope="module")
def shard(tree: Path, session: str, image: str) -> Iterator[Stack]:
    """Three members with an agent each, and etcd."""
    yield from _shard(Stack(tree, f"{session}-shard", image, FAILOVER, SHARD))


@pytest.fixture(scope="module")
def etcd3(tree: Path, session: str, image: str) -> Iterator[Stack]:
    """The same over three members of etcd."""
    yield from _shard(Stack(tree, f"{session}-etcd3", image, FAILOVER, ETCD3))


def _shard(stack: Stack) -> Iterator[Stack]:
    try:
        yield from _running(stack)
    finally:
        docker("image", "rm", "--force", stack.etcd_image)


def _running(stack: Stack) -> Iterator[Stack]:
    try:
        stack.up(build=True)
        yield stack
    except BaseException:
        print(stack.run("logs", "--tail", "50", check=False).stdout)
        raise
    finally:
        stack.down(volumes=True)
