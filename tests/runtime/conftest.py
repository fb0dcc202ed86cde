"""One event loop in a thread for a whole module: grpc.aio must never see two at a time."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

Run = Callable[[Coroutine[Any, Any, Any]], Any]

TIMEOUT_S = 60


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
