"""Both clients, each with a broker of its own for a module."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from stratamq.client import connect, connect_async
from tests.client.on_loop import OnLoop
from tests.support.brokers import COMMITLOG, broker_fixture

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


log_alone = broker_fixture(*LOG_ALONE, rooms=[COMMITLOG], of_each_kind=True)
"""A commit log service without followers, for a whole module."""


own_log = broker_fixture(*LOG_ALONE, rooms=[COMMITLOG], scope="function")
"""One that a test may kill."""
