"""Shards on a real Kubernetes, each kept for a module. `make test-cluster` finds or starts one."""

import os
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.shard import Shard


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shard]:
    """A namespace with what a shard needs."""
    if not (os.environ.get("KUBECONFIG") and os.environ.get("STRATAMQ_TEST_IMAGE")):
        pytest.skip("`make test-cluster` finds or starts the cluster that this needs")
    volumes = os.environ.get("STRATAMQ_TEST_VOLUMES")
    shard = Shard(
        f"stratamq-{secrets.token_hex(3)}",
        os.environ["STRATAMQ_TEST_IMAGE"],
        tmp_path_factory.mktemp("overlay"),
        Path(volumes) if volumes else None,
    )
    try:
        shard.prepare()
        yield shard
    finally:
        shard.delete()


@pytest.fixture(scope="module")
def shard(prepared: Shard) -> Shard:
    """By the overlay."""
    prepared.apply()
    return prepared
