"""Drives an engine that follows the log: the transport of `follow.protocol`.

    resume_point ──▶ Open ──▶ opened ──▶ apply, apply, …      a report every second
                                  ▲                   │
                                  └── backoff ◀── the log is gone, or breaks the protocol
    Closing ──▶ close_at ──▶ the last report ──▶ the stream ends ──▶ wait for the log's next start
    leave ────▶ close_at ──▶ the last report, which says so ──▶ the end

What the log's bytes or the engine's own files refuse (anything that the engine raises) ends
following for good: the engine receives and reports why; a restart begins again from what is
durable.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Protocol

import grpc
import numpy as np

from stratamq.api.v1 import commitlog_pb2
from stratamq.errors import NotFoundError, StrataError, UnavailableError
from stratamq.files.port import Random
from stratamq.follow.demand import CATCH_UP_S, Demand
from stratamq.follow.protocol import (
    Apply,
    Close,
    Closing,
    Cut,
    Event,
    Follower,
    FollowError,
    Opened,
    Progress,
    Queue,
    ReadAgainError,
    Report,
    Wait,
)
from stratamq.formats.numbers import NextOffset
from stratamq.rpc.asking import ask
from stratamq.rpc.endpoints import Channels
from stratamq.rpc.explaining import stream_error, write
from stratamq.rpc.methods import METHODS
from stratamq.rpc.rooms import COMMITLOG

log = logging.getLogger(__name__)

REPORT_INTERVAL_S = 1.0
FIRST_DELAY_S = 0.05
LONGEST_DELAY_S = 2.0
ANSWER_S = 2.0
LEAVE_S = 5.0
"""A follower that needs longer to make its state durable leaves without telling the log."""

LearnQueues = Callable[[int, list[NextOffset], bool], None]
"""Takes the log's end, a page of its queue table of then, and whether another page follows."""


class FollowerEngine(Protocol):
    """What follows. Its methods run on the event loop and must not block it for long."""

    name: str

    def resume_point(self) -> tuple[int, int]:
        """(generation, position) of what is applied, or after a start durable; (0, 0) nothing."""

    def opened(self, opened: Opened) -> None:
        """Drop everything from `opened.cut_to` on. Called once for each connection."""

    def apply(self, event: Event) -> Iterator[Wait | None]:
        """Do the work of one event in steps of 2 ms or less; an empty range only moves offsets.

        It yields None to give others their turn, or what must be waited for: until then nothing
        more is read, and the log, which sees that its stream has stalled, sends nothing more.
        """

    def report(self) -> Report: ...

    def close_at(self, end: int, done: Callable[[], None]) -> None:
        """The log has flushed all below `end`, and nothing more is applied for now: make durable
        what may be, then call `done`."""

    def stopped(self, error: BaseException) -> None:
        """Following has failed for good."""


async def why_not_writable(channels: Channels) -> tuple[str, str] | None:
    """The log's own sentence, "" when it takes messages, and of a slave where its master's log
    takes them, if that is known. None when the log does not answer."""
    try:
        status = await ask(channels, "GetStatus", commitlog_pb2.GetStatusRequest(), ANSWER_S)
    except StrataError:
        return None
    return status.not_writable_reason, status.master_address


async def confirmed_end(channels: Channels) -> int:
    """How far consumers may see, by the log itself: what was answered to a producer lies before it.
    0 when the log does not answer."""
    try:
        status = await ask(channels, "GetStatus", commitlog_pb2.GetStatusRequest(), CATCH_UP_S)
    except StrataError:
        return 0
    return status.confirmed_offset


class _EngineFailed(Exception):
    """Carries what the engine raised past the handling of the connection's errors."""


class LogFollower:
    """Drives one engine; see this module's picture."""

    def __init__(
        self,
        channels: Channels,
        engine: FollowerEngine,
        *,
        random: Random,
        replicable: bool = False,
        learn_queues: LearnQueues | None = None,
        is_ours: Callable[[int], bool] | None = None,
        report_interval_s: float = REPORT_INTERVAL_S,
        demand: Demand | None = None,
        on_connected: Callable[[bool], None] | None = None,
    ) -> None:
        """`channels` finds the log again wherever it starts. `replicable` follows what slaves may
        get instead of what consumers may see. `learn_queues` is given the pages of the log's queue
        table after each opening. `is_ours` is asked about the generation of a log that answers: one
        that is not ours is left again, before the engine receives it. `demand` None: all is sent
        at once. `on_connected` is called for every connection and at its end."""
        self._channels = channels
        self._engine = engine
        self._random = random
        self._replicable = replicable
        self._horizon = (
            commitlog_pb2.FOLLOW_HORIZON_REPLICABLE
            if replicable
            else commitlog_pb2.FOLLOW_HORIZON_CONFIRMED
        )
        self._learn_queues = learn_queues
        self._is_ours = is_ours
        self._report_interval_s = report_interval_s
        self._demand = demand
        self._on_connected = on_connected
        self._writing = asyncio.Lock()
        self._applying = asyncio.Lock()
        self._call: Any = None
        """The open stream, once the log has answered, and until the last report."""
        self._left = False
        self._connected = False
        """The last connection got as far as the log's answer."""

    async def run(self) -> None:
        """Follow the log until cancelled, until `leave`, or until the engine fails."""
        delay_s = FIRST_DELAY_S
        while not self._left:
            try:
                await self._connect()
                error: StrataError = UnavailableError("the log ended the stream")
            except _EngineFailed as failure:
                self._stopped(failure)
                return
            except grpc.RpcError as failure:
                error = stream_error(failure)
            except StrataError as failure:
                error = failure
            finally:
                if self._connected and self._on_connected is not None:
                    self._on_connected(False)
            if self._left:
                return
            if self._connected:
                delay_s = FIRST_DELAY_S
            level = logging.ERROR
            if isinstance(error, UnavailableError):
                # A new problem is logged once; repeated failures to connect at DEBUG only.
                level = logging.INFO if self._connected else logging.DEBUG
            log.log(level, "log lost", extra={"follower": self._engine.name, "error": str(error)})
            self._channels.renew(COMMITLOG)
            await asyncio.sleep(delay_s * (0.5 + self._random.getrandbits(16) / 2**17))
            delay_s = min(delay_s * 2, LONGEST_DELAY_S)

    async def leave(self) -> None:
        """This service stops: tell the log that all that was applied is durable, and that nothing
        more comes from here. If that is all there is, a log that stops too does not wait for it."""
        self._left = True
        try:
            async with asyncio.timeout(LEAVE_S), self._applying:
                if self._call is not None:
                    await self._finish(0, leaving=True)
        except (TimeoutError, grpc.RpcError, StrataError, _EngineFailed) as error:
            # It waits for this follower when it stops, and keeps `abort`.
            extra = {"follower": self._engine.name, "error": repr(error.__cause__ or error)}
            log.info("the log was not told of the stop", extra=extra)

    def _stopped(self, failure: _EngineFailed) -> None:
        reason = failure.__cause__
        assert reason is not None
        extra = {"follower": self._engine.name, "error": repr(reason)}
        log.critical("following stopped", extra=extra)
        self._engine.stopped(reason)
        if self._demand is not None:
            self._demand.stop()

    async def _connect(self) -> None:
        """One connection from its opening to its end. RpcError and StrataError are the
        connection's, _EngineFailed is the engine's."""
        self._connected = False
        engine = self._engine
        generation, position = engine.resume_point()
        call = await self._channels.open_stream(METHODS["Follow"])
        reporter: asyncio.Task[None] | None = None
        try:
            opening = commitlog_pb2.FollowOpen(
                name=engine.name, horizon=self._horizon, generation=generation, position=position
            )
            await write(call, commitlog_pb2.FollowRequest(open=opening))
            machine = Follower(replicable=self._replicable)
            while (response := await call.read()) is not grpc.aio.EOF:
                action = machine.receive(_message(response))
                if isinstance(action, Cut):
                    self._require_ours(action.opened)
                    with _engine_failures():
                        engine.opened(action.opened)
                    self._connected, self._call = True, call
                    log.info("following", extra=_fields(engine.name, position, action.opened))
                    if self._on_connected is not None:
                        self._on_connected(True)
                    await self._ask_queues()
                    reporter = asyncio.ensure_future(self._report_regularly(call))
                    reporter.add_done_callback(lambda task: died_of(task) and call.cancel())
                    continue
                async with self._applying:
                    if self._left:
                        continue  # it has said so, or is about to
                    if isinstance(action, Close):
                        await self._finish(action.end)
                    else:
                        await self._apply(action)
        except asyncio.CancelledError:
            if reporter is not None and (error := died_of(reporter)):
                raise error from None  # and not this task was cancelled, but the call
            raise
        finally:
            self._call = None
            if reporter is not None:
                reporter.cancel()
            call.cancel()
            if reporter is not None:
                await asyncio.wait([reporter])

    def _require_ours(self, opened: Opened) -> None:
        if self._is_ours is not None and not self._is_ours(opened.generation):
            raise NotFoundError(
                f"the log that answers is in generation {opened.generation}, which the log of this "
                "directory never began: it is another broker's; a run file names an address that "
                "is not that of this directory, and is read again"
            )

    async def _apply(self, action: Apply | Progress) -> None:
        with _engine_failures():
            for wait in self._engine.apply(action.event):
                # Pulls, queries and reports get their turn between two steps.
                if wait is None:
                    await asyncio.sleep(0)
                else:
                    ready = asyncio.Event()
                    wait(ready.set)
                    await ready.wait()
        if self._demand is not None:
            self._demand.moved()

    async def _finish(self, flushed: int, *, leaving: bool = False) -> None:
        """Everything durable that the log has flushed, and reported; nothing more from here."""
        call, durable = self._call, asyncio.Event()
        with _engine_failures():
            self._engine.close_at(flushed, durable.set)
        await durable.wait()
        last = report_message(replace(self._engine.report(), leaving=leaving))
        async with self._writing:
            await write(call, commitlog_pb2.FollowRequest(report=last))
            await call.done_writing()
        self._call = None

    async def _report_regularly(self, call: Any) -> None:
        # The reader detects a broken connection by itself.
        reported: Report | None = None
        if self._demand is not None:
            self._demand.connected()
        with contextlib.suppress(grpc.RpcError, UnavailableError):
            while True:
                report = self._engine.report()
                if self._demand is not None:
                    report = self._demand.tell(report)
                if report != reported:
                    await self._report(call, report)
                    reported = report
                if self._demand is None:
                    await asyncio.sleep(self._report_interval_s)
                else:
                    await self._demand.begun(self._report_interval_s)

    async def _report(self, call: Any, report: Report) -> None:
        async with self._writing:
            await write(call, commitlog_pb2.FollowRequest(report=report_message(report)))

    async def _ask_queues(self) -> None:
        if self._learn_queues is None:
            return
        get_table = self._channels.callable(METHODS["GetQueueTable"])
        request = commitlog_pb2.GetQueueTableRequest()
        while True:
            page = await get_table(request)
            table = [(one.topic, one.queue_id, one.next_queue_offset) for one in page.queues]
            with _engine_failures():
                self._learn_queues(page.appended_offset, table, page.next_position > 0)
            if not page.next_position:
                return
            request.position = page.next_position


def died_of(task: asyncio.Task[None]) -> BaseException | None:
    """What a task ended with that was neither cancelled nor came to its end."""
    return task.exception() if task.done() and not task.cancelled() else None


@contextlib.contextmanager
def _engine_failures() -> Iterator[None]:
    try:
        yield
    except (asyncio.CancelledError, GeneratorExit, ReadAgainError):
        raise
    except Exception as error:
        raise _EngineFailed from error


def _message(response: commitlog_pb2.FollowResponse) -> Opened | Event | Closing:
    """FollowError for what is none of the three."""
    kind = response.WhichOneof("kind")
    if kind == "event":
        return _event(response.event)
    if kind == "closing":
        return Closing(response.closing.end_offset)
    if kind != "opened":
        raise FollowError("the log sent a message of no known kind")
    opened = response.opened
    return Opened(
        generation=opened.generation,
        generation_start=opened.generation_start_offset,
        cut_to=opened.cut_to,
        minimum=opened.minimum_offset,
        confirmed=opened.confirmed_offset,
        flushed=opened.flushed_offset,
        segment_bytes=opened.segment_bytes,
        is_slave=opened.slave,
    )


def _event(event: commitlog_pb2.FollowEvent) -> Event:
    packed = event.packed_lengths
    if len(packed) % 4:
        raise FollowError("an event's packed lengths are not a number of u32")
    return Event(
        generation=event.generation,
        start=event.start_offset,
        end=event.end_offset,
        confirmed=event.confirmed_offset,
        flushed=event.flushed_offset,
        minimum=event.minimum_offset,
        lengths=np.frombuffer(packed, np.dtype(">u4")).astype(np.uint32) if packed else None,
        runs=[(run.topic, run.queue_id, run.first_queue_offset, run.count) for run in event.runs]
        or None,
    )


def report_message(report: Report) -> commitlog_pb2.FollowReport:
    """`unhurried` is for logs that do not know `by_queue`."""
    return commitlog_pb2.FollowReport(
        applied_offset=report.applied,
        durable_offset=report.durable,
        durable_store_timestamp_ms=report.durable_store_timestamp_ms,
        released_offset=report.released,
        unhurried=report.unhurried,
        by_queue=report.by_queue,
        began=_queues(report.began),
        ended=_queues(report.ended),
        leaving=report.leaving,
    )


def _queues(queues: tuple[Queue, ...]) -> list[commitlog_pb2.FollowQueue]:
    return [commitlog_pb2.FollowQueue(topic=topic, queue_id=queue) for topic, queue in queues]


def _fields(name: str, position: int, opened: Opened) -> dict[str, object]:
    return {
        "follower": name,
        "position": position,
        "cut_to": opened.cut_to,
        "confirmed": opened.confirmed,
        "generation": opened.generation,
    }
