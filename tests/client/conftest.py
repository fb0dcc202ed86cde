"""Both clients, each with a broker of its own for a module."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from stratamq.client import connect, connect_async
from tests.client.on_loop import OnLoop
from tests.support.brokers import COMMITLOG, Broker

SEGMENT_BYTES = 1 << 20
LOG_ALONE = (f"commitlog.segment_bytes={SEGMENT_BYTES}", "commitlog.followers=")
KINDS = ("synchronous", "asyncio")


@pytest.fixture(scope="module", params=KINDS)
def kind(request) -> str:
    """Which client a test is about."""
    return request.param


@pytest.fixture(scope="module")
def opened(kind, run) -> Callable[..., Any]:
    """`connect`, or what gives an asyncio client the same manners."""
    if kind == "synchronous":
        return connect
    return lambda *arguments, **named: OnLoop(connect_async(*arguments, **named), run)


@pytest.fixture
def workers(kind, run) -> Callable[[str], set[Any]]:
    """The threads or tasks of a name."""

    async def tasks(name: str) -> set[Any]:
        return {one for one in asyncio.all_tasks() if one.get_name() == name}

    def threads(name: str) -> set[Any]:
        return {one for one in threading.enumerate() if one.name == name}

    return threads if kind == "synchronous" else lambda name: run(tasks(name))


@pytest.fixture(scope="module")
def log_alone(kind, tmp_path_factory) -> Iterator[Broker]:
    """A commit log service without followers, for a whole module."""
    directory = tmp_path_factory.mktemp("broker")
    with Broker(directory / "store", directory / "logs", LOG_ALONE) as broker:
        yield broker.start([COMMITLOG])


@pytest.fixture
def own_log(tmp_path) -> Iterator[Broker]:
    """A commit log service that a test may kill."""
    with Broker(tmp_path / "store", tmp_path / "logs", LOG_ALONE) as broker:
        yield broker.start([COMMITLOG])
