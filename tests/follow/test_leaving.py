"""A follower whose service stops, while its log does."""

import asyncio
import random
from collections.abc import Callable
from typing import Any

import grpc
import pytest

from stratamq.api.v1 import commitlog_pb2 as pb
from stratamq.follow.driver import LogFollower
from stratamq.follow.protocol import Report

pytestmark = pytest.mark.anyio


class ScriptedLog:
    """The stream of a log, and the channels to it. What it says is put into `says`."""

    def __init__(self) -> None:
        self.says: asyncio.Queue[Any] = asyncio.Queue()
        self.reports: list[pb.FollowReport] = []
        self.half_closed = False

    async def open_stream(self, _: Any) -> "ScriptedLog":
        return self

    def renew(self, _: str) -> None:
        pass

    async def read(self) -> Any:
        return await self.says.get()

    async def write(self, request: pb.FollowRequest) -> None:
        assert not self.half_closed
        if request.HasField("report"):
            self.reports.append(request.report)

    async def done_writing(self) -> None:
        self.half_closed = True
        self.says.put_nowait(grpc.aio.EOF)

    def cancel(self) -> None:
        pass


class Waiting:
    """An engine that becomes durable when the test says so."""

    name = "waiting"

    def __init__(self) -> None:
        self.opened_at = asyncio.Event()
        self.closing = asyncio.Event()
        self.closed_at: list[int] = []
        self.done: Callable[[], None] = lambda: None

    def resume_point(self) -> tuple[int, int]:
        return 0, 0

    def opened(self, opened: Any) -> None:
        self.opened_at.set()

    def report(self) -> Report:
        return Report(0, 0, 0, 0)

    def close_at(self, end: int, done: Callable[[], None]) -> None:
        self.closed_at.append(end)
        self.done = done
        self.closing.set()


async def test_a_log_that_closes_while_its_follower_leaves_is_told_once():
    log, engine = ScriptedLog(), Waiting()
    follower = LogFollower(log, engine, random=random.Random(1))  # type: ignore[arg-type]
    running = asyncio.create_task(follower.run())
    opened = pb.FollowOpened(generation=1, segment_bytes=4096)
    log.says.put_nowait(pb.FollowResponse(opened=opened))
    await engine.opened_at.wait()
    leaving = asyncio.create_task(follower.leave())
    await engine.closing.wait()
    log.says.put_nowait(pb.FollowResponse(closing=pb.FollowClosing(end_offset=0)))
    while not log.says.empty():
        await asyncio.sleep(0)
    engine.done()
    async with asyncio.timeout(60):
        await asyncio.gather(leaving, running)
    assert engine.closed_at == [0]
    assert [one.leaving for one in log.reports].count(True) == 1
