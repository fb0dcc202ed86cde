"""A commit log service without followers of its own."""

from collections.abc import Iterator

import pytest

from tests.support.brokers import COMMITLOG, Broker

SEGMENT_BYTES = 1 << 20
LOG_ALONE = (f"commitlog.segment_bytes={SEGMENT_BYTES}", "commitlog.followers=")


@pytest.fixture
def own_log(tmp_path) -> Iterator[Broker]:
    """A commit log service that a test may kill."""
    with Broker(tmp_path / "store", tmp_path / "logs", LOG_ALONE) as broker:
        yield broker.start([COMMITLOG])
