"""Both disks for the engine's tests; an event loop for the servicer's."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from tests.support.disks import Place, real_place, simulated_place

Run = Callable[[Coroutine[Any, Any, Any]], Any]

TIMEOUT_S = 60


@pytest.fixture(params=["simulated", "real"])
def place(request, tmp_path) -> Place:
    return simulated_place() if request.param == "simulated" else real_place(tmp_path)


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    """Runs a coroutine on the module's event loop and waits for its result: grpc.aio must never
    see two loops at a time."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="test-loop")
    thread.start()
    yield lambda coroutine: asyncio.run_coroutine_threadsafe(coroutine, loop).result(TIMEOUT_S)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()
