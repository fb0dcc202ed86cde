"""The asyncio reader of topics: an asynchronous iterator of messages."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc

from stratamq.client.consuming import Plan, Range, Reading
from stratamq.client.endpoints import Channels
from stratamq.client.lost import stream_error
from stratamq.client.operations import Operation, commit_offsets
from stratamq.client.received import ReceivedMessage
from stratamq.client.waiting import Patience
from stratamq.client.wire import DISPATCHER, METHODS
from stratamq.errors import StrataError, UnavailableError
from stratamq.files.port import Clock

Run = Callable[[Operation[Any]], Awaitable[Any]]


class AsyncConsumer:
    """Made by `AsyncClient.consume`: iterate, then close, best by `async with`. See `Consumer`."""

    def __init__(
        self,
        channels: Channels,
        run: Run,
        make_plan: Callable[[], Plan],
        reading: Reading,
        *,
        group: str | None,
        follow: bool,
        patience: Patience,
        refresh_s: float,
        commit_interval_s: float,
        clock: Clock,
    ) -> None:
        self._channels = channels
        self._run = run
        self._make_plan = make_plan
        self._reading = reading
        self._group = group
        self._follow = follow
        self._patience = patience
        self._refresh_s = refresh_s
        self._commit_interval_ns = int(commit_interval_s * 1e9)
        self._clock = clock
        self._next_commit_ns = clock.monotonic_ns() + self._commit_interval_ns
        self._call: Any = None
        self._closed = asyncio.Event()
        self._messages = self._read()

    def __aiter__(self) -> AsyncIterator[ReceivedMessage]:
        return self

    async def __anext__(self) -> ReceivedMessage:
        return await anext(self._messages)

    async def commit(self) -> None:
        """Store for the group what was given so far, the last message included."""
        await self._commit(given=True)

    async def _commit(self, *, given: bool) -> None:
        if self._group is None:
            return
        offsets = self._reading.uncommitted(given=given)
        if offsets:
            await self._run(commit_offsets(self._group, offsets))
            self._reading.committed(offsets)
        self._next_commit_ns = self._clock.monotonic_ns() + self._commit_interval_ns

    async def close(self) -> None:
        """Stop reading; a task that waits for a message gets StopAsyncIteration."""
        self._closed.set()
        if self._call is not None:
            self._call.cancel()

    async def __aenter__(self) -> "AsyncConsumer":
        return self

    async def __aexit__(self, error_type: type[BaseException] | None, *_: object) -> None:
        await self.close()
        if error_type is None:
            await self.commit()

    async def _read(self) -> AsyncIterator[ReceivedMessage]:
        while not self._closed.is_set():
            if self._reading.ended and not self._follow:
                break
            try:
                if not self._reading.ranges:  # it follows a topic that is not there yet
                    await self._wait(min(1.0, self._refresh_s))
                    if self._closed.is_set():
                        break
                    self._reading.extend(await plan_run(self._run, self._make_plan()))
                    continue
                async for message in self._stream():
                    yield message
            except grpc.RpcError as failure:
                await self._lost(stream_error(failure))
            except UnavailableError as error:
                await self._lost(error)
            except asyncio.CancelledError:
                if not self._closed.is_set() or _being_cancelled():
                    raise
        await self._commit(given=False)

    async def _stream(self) -> AsyncIterator[ReceivedMessage]:
        """One stream, until it ends or it is time to look for new queues."""
        reading = self._reading
        pull = self._channels.callable(METHODS["PullStream"])
        call = pull(reading.request(), timeout=self._refresh_s if self._follow else None)
        self._call = call
        try:
            while (response := await call.read()) is not grpc.aio.EOF:
                self._patience.reset()
                for message in reading.receive(response):
                    if self._clock.monotonic_ns() >= self._next_commit_ns:
                        await self._commit(given=False)
                    yield message
                    if self._closed.is_set():
                        return
        finally:
            call.cancel()
        if not reading.ended:
            raise UnavailableError("the dispatcher ended the stream")

    async def _lost(self, error: StrataError) -> None:
        if self._closed.is_set():
            return
        if error.fields.get("status") == grpc.StatusCode.DEADLINE_EXCEEDED.name and self._follow:
            await self._look_for_new_queues()
            return
        if not isinstance(error, UnavailableError):
            raise error
        delay_s = self._patience.next_delay_s()
        if delay_s is None:
            raise error
        self._channels.renew(DISPATCHER)
        await self._wait(delay_s)

    async def _look_for_new_queues(self) -> None:
        try:
            self._reading.extend(await plan_run(self._run, self._make_plan()))
        except UnavailableError:
            return  # the next stream will tell, and wait

    async def _wait(self, seconds: float) -> None:
        """Until the reader is closed, at most so long."""
        try:
            await asyncio.wait_for(self._closed.wait(), seconds)
        except TimeoutError:
            return


def _being_cancelled() -> bool:
    """The task itself, and not only the call that it waits for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def plan_run(run: Run, plan: Plan) -> list[Range]:
    """Run a plan's operations one after the other."""
    try:
        operation = next(plan)
        while True:
            try:
                result = await run(operation)
            except StrataError as error:
                operation = plan.throw(error)
            else:
                operation = plan.send(result)
    except StopIteration as end:
        return end.value
