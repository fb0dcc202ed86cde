"""Shards on a real Kubernetes, each kept for a module. `make test-cluster` finds or starts one."""

import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.shard import Shard


@contextmanager
def in_namespace(
    place: Path, shape: str = "shard", patches: Sequence[dict[str, Any]] = ()
) -> Iterator[Shard]:
    """A namespace of its own with what a shard needs."""
    if not (os.environ.get("KUBECONFIG") and os.environ.get("STRATAMQ_TEST_IMAGE")):
        pytest.skip("`make test-cluster` finds or starts the cluster that this needs")
    volumes = os.environ.get("STRATAMQ_TEST_VOLUMES")
    shard = Shard(
        f"stratamq-{secrets.token_hex(3)}",
        os.environ["STRATAMQ_TEST_IMAGE"],
        place,
        Path(volumes) if volumes else None,
        shape,
        patches,
    )
    try:
        shard.prepare()
        yield shard
    finally:
        shard.delete()


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shard]:
    """A namespace with what a shard needs."""
    with in_namespace(tmp_path_factory.mktemp("overlay")) as shard:
        yield shard


@pytest.fixture(scope="module")
def shard(prepared: Shard) -> Shard:
    """By the overlay."""
    prepared.apply()
    return prepared
