"""The dispatcher's servicer behind a real gRPC server, on a log that the test writes."""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import grpc
from stratamq_dispatcher.cold_reads import ColdReads
from stratamq_dispatcher.consumer_offsets import ConsumerOffsets
from stratamq_dispatcher.engine import DispatchEngine, EngineSettings
from stratamq_dispatcher.group_members import GroupMembers
from stratamq_dispatcher.offset_bounds import OffsetBounds
from stratamq_dispatcher.pull import PullLimits
from stratamq_dispatcher.pulling import Puller
from stratamq_dispatcher.servicer import DispatcherServicer
from stratamq_dispatcher.tier_reads import TierReads
from stratamq_dispatcher.use_cases.committing import LastCommits
from stratamq_dispatcher.use_cases.together import use_cases_of

from stratamq.errors import StrataError
from stratamq.files.real import RealFiles
from stratamq.files.simulated import SimulatedClock
from stratamq.follow.followed_topics import FollowedTopics
from stratamq.follow.protocol import Event, Opened
from stratamq.rpc.methods import METHODS, service_of
from stratamq.rpc.status import from_rpc_error
from stratamq.service.server import Server
from stratamq.service.worker import ThreadWorker
from tests.dispatcher.followed_log import WrittenLog
from tests.support.calls import Stub


class RunningService:
    """`async with RunningService(tmp_path)`; its stub knows nothing of our framing."""

    def __init__(
        self, root: Path, limits: PullLimits | None = None, tier: TierReads | None = None
    ) -> None:
        self.files = RealFiles(root)
        self.log = WrittenLog(self.files, segment_bytes=1 << 20)
        self._limits = limits or PullLimits()
        self._tier = tier
        self.not_writable: str | None = None
        """The log's status; None: it does not answer."""
        self.generation = 1
        self.members_clock = SimulatedClock()
        self.members = GroupMembers(self.members_clock)
        self.permissions = FollowedTopics(
            lambda topic, floors: self.engine.queues.hide(topic, floors)
        )
        self.permissions.learned = True

    async def __aenter__(self) -> "RunningService":
        loop = asyncio.get_running_loop()
        self.writing, self.reading = ThreadWorker(loop, "w"), ThreadWorker(loop, "r")
        self.clock = clock = SimulatedClock()
        settings = EngineSettings(queue_file_bytes=2_000)
        self.engine = DispatchEngine(self.files, settings, self.writing, clock)
        self.engine.load()
        self.offsets = ConsumerOffsets(self.files, self.writing, clock, 5_000)
        self.cold = ColdReads(self.files)
        self.puller = Puller(self.engine, self._limits, self.cold, self.reading, self._tier)
        self.bounds = OffsetBounds(self.offsets, self.engine.ends, self.engine.findings)
        use_cases = use_cases_of(
            self.engine,
            self.puller,
            self.offsets,
            self.bounds,
            self.permissions,
            self.members,
            LastCommits(SimulatedClock()),
            self._why_not_writable,
        )
        servicer = DispatcherServicer(
            self.engine, self.puller, self.offsets, use_cases, self.permissions, self.clock
        )
        self.server = Server("dispatcher", stop_grace_ms=1_000)
        self.server.add_servicer(service_of("dispatcher"), servicer)
        await self.server.start("127.0.0.1:0")
        self.channel = grpc.aio.insecure_channel(self.server.address)
        self.stub = Stub(service_of("dispatcher"), self.channel)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        async def drain() -> None:
            self.puller.stop()

        await self.channel.close()
        await self.server.stop(drain)
        closed = asyncio.Event()
        self.engine.close(closed.set)
        await closed.wait()
        await self.writing.close()
        await self.reading.close()

    async def _why_not_writable(self) -> tuple[str, str] | None:
        return None if self.not_writable is None else (self.not_writable, "")

    def connect(
        self,
        *,
        generation: int = 1,
        start: int = 0,
        cut_to: int | None = None,
        is_slave: bool = False,
    ) -> None:
        end, log = self.log.end, self.log
        cut_to = self.engine.followed.applied if cut_to is None else cut_to
        self.engine.fold.opened(
            Opened(generation, start, cut_to, log.minimum, end, end, 1 << 20, is_slave)
        )
        self.generation = generation

    def follow(self) -> None:
        """Apply everything that the log holds."""
        if self.engine.followed.segments is None:
            self.connect()
        start, end = self.engine.followed.applied, self.log.end
        for begin, stop in self.log.ranges(start, end, 1_000):
            for _ in self.engine.fold.apply(
                Event(self.generation, begin, stop, end, end, self.log.minimum)
            ):
                pass

    def _hide(self, topic: str, floors: Mapping[int, int]) -> None:
        self.engine.queues.hide(topic, floors)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Let everything else run until it holds; the module's time-out is the limit."""
        while not condition():
            await asyncio.sleep(0)

    async def raw(self, method: str, request: bytes) -> bytes:
        """A unary call without any codec."""
        return await self.channel.unary_unary(METHODS[method].path)(request)


async def error_of(call: Any) -> StrataError:
    """The error that a call ends with, as our client would raise it."""
    try:
        await call
    except grpc.RpcError as error:
        return from_rpc_error(error)
    raise AssertionError("the call succeeded")
