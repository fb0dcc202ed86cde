"""The transport of `follow.own_appends`: an append stream of the log service, opened again and
again."""

import asyncio
import contextlib
import logging
from collections.abc import Iterable, Iterator
from typing import Any

import grpc

from stratamq.api.v1 import commitlog_pb2 as pb
from stratamq.errors import BusyError, StrataError, UnavailableError
from stratamq.files.port import Clock, Random
from stratamq.follow.demand import Demand
from stratamq.follow.driver import died_of
from stratamq.follow.own_appends import LOOK_S, AppendLimits, OwnAppends, OwnBatch, is_final
from stratamq.formats.message_status import SendStatus
from stratamq.rpc.appending import refusal_of, shape_of
from stratamq.rpc.asking import ask
from stratamq.rpc.backoff import Backoff
from stratamq.rpc.endpoints import Channels
from stratamq.rpc.explaining import stream_error, write
from stratamq.rpc.framing import APPEND_STREAM_REQUEST
from stratamq.rpc.methods import METHODS
from stratamq.rpc.rooms import COMMITLOG

log = logging.getLogger(__name__)

ANSWER_S = 10.0


class OwnStream:
    """One service's."""

    def __init__(
        self,
        channels: Channels,
        appends: OwnAppends,
        clock: Clock,
        random: Random,
        demand: Demand,
    ) -> None:
        """`demand`: of the fold, which reads what was appended."""
        self._channels = channels
        self._demand = demand
        self._appends = appends
        self._backoff = Backoff(None, clock, random)
        self._moved = asyncio.Event()

    def moved(self) -> None:
        """The fold has come further, or the author's state has changed."""
        self._moved.set()

    async def run(self) -> None:
        """Append until cancelled. Raises what the author raises."""
        appends = self._appends
        while True:
            while not appends.may_open:
                await self._wait(LOOK_S)
            try:
                await self._exchange()
                error = appends.refusal or UnavailableError("the log ended the stream")
            except _AuthorFailed as failure:
                assert failure.__cause__ is not None
                raise failure.__cause__ from None
            except grpc.RpcError as failure:
                error = stream_error(failure)
            except StrataError as failure:
                error = failure
            finally:
                appends.ended()
            if isinstance(error, UnavailableError):
                self._channels.renew(COMMITLOG)
            if not is_final(error):
                log.info("appends wait", extra={"writer": appends.writer, "error": str(error)})
                delay_s = self._backoff.next_delay_s() or LOOK_S
                busy_s = error.retry_after_ms / 1000 if isinstance(error, BusyError) else 0
                await asyncio.sleep(max(delay_s, busy_s))

    async def _exchange(self) -> None:
        """One stream from its opening to its end."""
        appends = self._appends
        opening = pb.AppendOpen(writer=appends.writer, generation=appends.opening())
        call = await self._channels.open_stream(METHODS["AppendStream"])
        tasks: list[asyncio.Task[None]] = []
        try:
            head = pb.AppendStreamRequest(open=opening)
            await write(call, APPEND_STREAM_REQUEST.encode(head, b"", b""))
            while (response := await call.read()) is not grpc.aio.EOF:
                if response.HasField("opened"):
                    opened = response.opened
                    appends.opened(limits_of(opened), opened.appended_offset, opened.store_time_ms)
                    for work in (self._send(call), self._look()):
                        tasks.append(asyncio.ensure_future(work))
                        tasks[-1].add_done_callback(lambda task: died_of(task) and call.cancel())
                self._take_answers(response.results)
        except asyncio.CancelledError:
            for task in tasks:
                if error := died_of(task):
                    raise error from None  # and not this task was cancelled, but the call
            raise
        finally:
            for task in tasks:
                task.cancel()
            call.cancel()
            if tasks:
                await asyncio.wait(tasks)

    def _take_answers(self, results: Iterable[pb.AppendBatchResult]) -> None:
        for result in results:
            status = SendStatus(result.status or SendStatus.UNKNOWN_ERROR.value)
            with _author_failures():
                self._appends.answered(status, refusal_of(status, result))
            if self._appends.refusal is None:
                self._backoff.reset()
            self._moved.set()

    async def _send(self, call: Any) -> None:
        appends, number = self._appends, 0
        while not appends.is_over:
            with _author_failures():
                batch = appends.next()
                pause_s = appends.pause_s() if batch is None else 0
            if batch is None:
                await self._wait(pause_s)
            else:
                await write(call, request_of(batch, number))
                self._demand.expect()  # the fold decides by what it has read
                number += 1
        await call.done_writing()

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            status = await ask(self._channels, "GetStatus", pb.GetStatusRequest(), ANSWER_S)
            self._appends.time.learn(status.store_time_ms)
            self._moved.set()

    async def _wait(self, timeout_s: float) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                await self._moved.wait()
        except TimeoutError:
            return
        self._moved.clear()


class _AuthorFailed(Exception):
    """Carries what the author raised past the handling of the stream's errors."""


@contextlib.contextmanager
def _author_failures() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise _AuthorFailed from error


def limits_of(opened: pb.AppendOpened) -> AppendLimits:
    """UnavailableError for a log whose frames this service cannot make."""
    return AppendLimits(
        shape=shape_of(opened),
        batch_bytes=opened.max_batch_bytes,
        batch_records=opened.max_batch_messages,
        body_bytes=opened.max_message_bytes,
        sync_flush=opened.sync_flush,
    )


def request_of(batch: OwnBatch, number: int) -> bytes:
    head = pb.AppendStreamRequest(
        sequence=number,
        runs=[
            pb.AppendRun(topic=topic, queue_id=queue_id, count=count)
            for topic, queue_id, count in batch.runs
        ],
    )
    lengths = b"".join([length.to_bytes(4, "big") for length in batch.lengths])
    return APPEND_STREAM_REQUEST.encode_pieces(head, batch.pieces, sum(batch.lengths), [lengths])
