"""A broker for a module, and one event loop for it: grpc.aio must never see two at a time."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from tests.support.brokers import COMMITLOG, Broker

Run = Callable[[Coroutine[Any, Any, Any]], Any]
TIMEOUT_S = 120
SEGMENT_BYTES = 1 << 20
LOG_ALONE = (f"commitlog.segment_bytes={SEGMENT_BYTES}", "commitlog.followers=")


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    """Runs a coroutine on the module's loop and waits for its result."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="test-loop")
    thread.start()
    yield lambda coroutine: asyncio.run_coroutine_threadsafe(coroutine, loop).result(TIMEOUT_S)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


@pytest.fixture(scope="module")
def log_alone(tmp_path_factory) -> Iterator[Broker]:
    """A commit log service without followers, for a whole module."""
    directory = tmp_path_factory.mktemp("broker")
    with Broker(directory / "store", directory / "logs", LOG_ALONE) as broker:
        yield broker.start([COMMITLOG])


@pytest.fixture
def own_log(tmp_path) -> Iterator[Broker]:
    """A commit log service that a test may kill."""
    with Broker(tmp_path / "store", tmp_path / "logs", LOG_ALONE) as broker:
        yield broker.start([COMMITLOG])
