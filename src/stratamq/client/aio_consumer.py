"""The asyncio reader of topics: an asynchronous iterator of messages."""

import asyncio
import logging
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import grpc

from stratamq.client.consuming import LOOK_FOR_ENDS_S, Plan, Range, Reading, plan_ends
from stratamq.client.operations import Operation, commit_offsets
from stratamq.client.received import ReceivedMessage
from stratamq.errors import StrataError, UnavailableError
from stratamq.rpc.backoff import Backoff
from stratamq.rpc.endpoints import Channels
from stratamq.rpc.methods import DISPATCHER, METHODS
from stratamq.rpc.stream_errors import stream_error

log = logging.getLogger(__name__)

SHORTEST_COMMIT_INTERVAL_S = 0.01

Run = Callable[[Operation[Any]], Awaitable[Any]]


class AsyncConsumer:
    """Made by `AsyncClient.consume`: iterate, then close, best by `async with`. See `Consumer`.

    A task that waits for a message can be cancelled, by `asyncio.wait_for` for example: what is
    read goes on being read, and the next task that asks gets it, each message once.
    """

    def __init__(
        self,
        channels: Channels,
        run: Run,
        make_plan: Callable[[], Plan],
        reading: Reading,
        *,
        group: str | None,
        follow: bool,
        patience: Backoff,
        refresh_s: float,
        commit_interval_s: float,
    ) -> None:
        self._channels = channels
        self._run = run
        self._make_plan = make_plan
        self._reading = reading
        self._group = group
        self._follow = follow
        self._patience = patience
        self._refresh_s = refresh_s
        self._call: Any = None
        self._closed = asyncio.Event()
        self._given: Iterator[ReceivedMessage] = iter(())
        self._asking = False
        self._next: asyncio.Task[bytes | None] | None = None
        """Fetches the next answer, whoever waits for it."""
        self._committing = asyncio.Lock()
        self._refusal: StrataError | None = None
        """Why the regular commit failed for good."""
        self._commits: _RegularCommits | None = None
        if group is not None:
            self._commits = _RegularCommits(
                weakref.ref(self), max(commit_interval_s, SHORTEST_COMMIT_INTERVAL_S)
            )

    def __aiter__(self) -> AsyncIterator[ReceivedMessage]:
        return self

    async def __anext__(self) -> ReceivedMessage:
        if self._asking:
            raise RuntimeError("another task waits for this reader's next message")
        self._asking = True
        try:
            while not self._closed.is_set():
                # From here to the return nothing waits: no cancellation comes in between.
                message = next(self._given, None)
                if message is not None:
                    return message
                response = await self._answer()
                if response is None:
                    break
                self._given = self._reading.receive(response)
            await self._commit(given=False)
        finally:
            self._asking = False
        raise StopAsyncIteration

    async def commit(self) -> None:
        """Store for the group what was given so far, the last message included."""
        await self._commit(given=True)

    async def close(self) -> None:
        """Stop reading, and commit what was taken; a task that waits for a message gets
        StopAsyncIteration."""
        await self._stop()
        await self._commit(given=False)

    async def __aenter__(self) -> "AsyncConsumer":
        return self

    async def __aexit__(self, error_type: type[BaseException] | None, *_: object) -> None:
        await self._stop()
        try:
            await self._commit(given=error_type is None)
        except StrataError as error:
            if error_type is None:
                raise
            # Whoever leaves by an error hears of that one; the messages come again.
            log.warning("offsets not committed", extra={"error": str(error)})

    async def _stop(self) -> None:
        self._closed.set()
        if self._commits is not None:
            self._commits.stop()
        if self._call is not None:
            self._call.cancel()
        fetching = self._next
        if fetching is not None:
            await asyncio.wait([fetching])
            if not fetching.cancelled():
                fetching.exception()  # of a stream that nobody reads any more

    async def _commit(self, *, given: bool) -> None:
        if self._group is None:
            return
        async with self._committing:  # or an older commit could overtake a newer one
            offsets = self._reading.uncommitted(given=given)
            if offsets:
                await self._run(commit_offsets(self._group, offsets))
                self._reading.committed(offsets)

    async def commit_in_time(self) -> None:
        """What the regular commit does. What is refused ends the reading with that error."""
        try:
            await self._commit(given=False)
        except UnavailableError:
            return  # the reading tells if it lasts; the next commit takes it all
        except StrataError as error:
            self._refusal = error
            if self._call is not None:
                self._call.cancel()

    # --- reading ---

    async def _answer(self) -> bytes | None:
        """As `_next_response`, which goes on when who waits for it here is cancelled."""
        if self._next is None:
            self._next = asyncio.ensure_future(self._next_response())
        await asyncio.wait([self._next])
        done, self._next = self._next, None
        return done.result()

    async def _next_response(self) -> bytes | None:
        """The next answer; None when everything was read, or the reader was closed."""
        reading = self._reading
        while not self._closed.is_set():
            if self._refusal is not None:
                raise self._refusal
            if reading.ended and not self._follow:
                break
            try:
                if not reading.ranges:  # it follows a topic that is not there yet
                    await self._wait(min(1.0, self._refresh_s))
                    if not self._closed.is_set():
                        reading.extend(await plan_run(self._run, self._make_plan()))
                    continue
                response = await self._read()
            except StrataError as error:
                await self._lost(error)
                continue
            if response is not None:
                self._patience.reset()
                return response
            if not reading.ended and self._refusal is None:
                await self._lost(UnavailableError("the dispatcher ended the stream"))
        return None

    async def _read(self) -> bytes | None:
        """The next answer of a stream that ends when it is time to look again."""
        if self._call is None:
            pull = self._channels.callable(METHODS["PullStream"])
            timeout_s = self._refresh_s if self._follow else min(self._refresh_s, LOOK_FOR_ENDS_S)
            self._call = pull(self._reading.request(), timeout=timeout_s)
        call, response = self._call, None
        try:
            answer = await call.read()
            response = None if answer is grpc.aio.EOF else answer
        except grpc.RpcError as failure:
            raise stream_error(failure) from failure
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise  # the loop ends; else the call was cancelled, and only that
        finally:
            if response is None:
                call.cancel()
                self._call = None
        return response

    async def _lost(self, error: StrataError) -> None:
        if self._closed.is_set():
            return
        if error.fields.get("status") == grpc.StatusCode.DEADLINE_EXCEEDED.name:
            await self._look_again()
            return
        if not isinstance(error, UnavailableError):
            raise error
        delay_s = self._patience.next_delay_s()
        if delay_s is None:
            raise error
        self._channels.renew(DISPATCHER)
        await self._wait(delay_s)

    async def _look_again(self) -> None:
        """For queues that are new, or that end earlier than they did."""
        reading = self._reading
        try:
            if self._follow:
                reading.extend(await plan_run(self._run, self._make_plan()))
            else:
                reading.shorten(await plan_run(self._run, plan_ends(reading.unfinished)))
        except UnavailableError:
            return  # the next stream will tell, and wait

    async def _wait(self, seconds: float) -> None:
        """Until the reader is closed, at most so long."""
        try:
            await asyncio.wait_for(self._closed.wait(), seconds)
        except TimeoutError:
            return


class _RegularCommits:
    """Lets a reader commit every so many seconds, until it is closed or dropped by everybody."""

    def __init__(self, reader: "weakref.ref[AsyncConsumer]", interval_s: float) -> None:
        self._reader = reader
        self._interval_s = interval_s
        self._loop = asyncio.get_running_loop()
        self._stopped = False
        self._committing: asyncio.Task[None] | None = None
        self._timer = self._loop.call_later(interval_s, self._due)

    def stop(self) -> None:
        self._stopped = True
        self._timer.cancel()

    def _due(self) -> None:
        reader = self._reader()
        if reader is not None:
            self._committing = self._loop.create_task(reader.commit_in_time())
            self._committing.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._committing = None
        if not task.cancelled():
            task.result()
        if not self._stopped and not task.cancelled():
            self._timer = self._loop.call_later(self._interval_s, self._due)


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
