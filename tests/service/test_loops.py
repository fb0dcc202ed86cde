"""Services read gRPC's wake-ups together, however many there are."""

import asyncio
import threading
from pathlib import Path

import grpc
import pytest

from stratamq.service.loops import ServiceLoop
from stratamq.service.server import run_service

CALLS, LIMIT_S, MOST_TURNS = 600, 0.1, 100


def test_a_loop_that_was_busy_gets_all_events_of_grpc_in_a_few_turns(tmp_path: Path) -> None:
    """With a wake-up for each event it would take more than a turn for each call."""
    with asyncio.Runner(loop_factory=ServiceLoop) as runner:
        assert runner.run(_turns(f"unix:{tmp_path}/nobody")) <= MOST_TURNS


async def _turns(address: str) -> int:
    """Turns of the loop until calls are over, whose time had passed while the loop was busy."""
    elsewhere = threading.Event()  # is never set: a wait that lets other threads run
    async with grpc.aio.insecure_channel(address) as channel:
        call = channel.unary_unary("/nobody/answers")
        calls = [call(b"", timeout=LIMIT_S, wait_for_ready=True) for _ in range(CALLS)]
        await asyncio.sleep(0)
        elsewhere.wait(2 * LIMIT_S)
        turns = 0
        while not all(one.done() for one in calls):
            turns += 1
            elsewhere.wait(0.001)
            await asyncio.sleep(0)
        with pytest.raises(grpc.aio.AioRpcError) as failure:
            await calls[-1]
        assert failure.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        return turns


def test_services_run_on_it() -> None:
    async def main() -> int:
        return 0 if type(asyncio.get_running_loop()) is ServiceLoop else 99

    with pytest.raises(SystemExit) as ended:
        run_service(main)
    assert ended.value.code == 0
