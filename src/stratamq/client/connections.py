"""A client's channels and open streams: `Connections` over gRPC's threads, `AsyncConnections` over
an event loop.

gRPC handles a synchronous call's events on a thread of its own, under a lock of the call, and a
call that is dropped takes that lock. When the interpreter ends, such threads are stopped wherever
they are, with the lock held if that is where they are: a call, or a channel with calls, that is
dropped after that waits forever. So calls end, and are let go, while threads still run: when a
reader or a client is closed, and at the latest when the interpreter begins to end.
"""

import asyncio
import atexit
import os
import threading
from collections.abc import Callable
from concurrent import futures
from typing import Any, TypeVar
from weakref import WeakSet

import grpc

from stratamq.client import forks
from stratamq.client.primitives import AsyncEvent, AsyncLock, Event, Lock
from stratamq.client.questions import AsyncQuestions, Questions, cancelled, reply_of
from stratamq.errors import InvalidRequestError, NotWritableError, StrataError, UnavailableError
from stratamq.rpc.endpoints import Channels, Endpoints
from stratamq.rpc.explaining import stream_error
from stratamq.rpc.locating import FoundBroker
from stratamq.rpc.methods import Method
from stratamq.rpc.names import LONGEST_RESOLUTION_S
from stratamq.rpc.questions import LONGEST_ANSWER_S, Plan
from stratamq.rpc.refusals import NO_MASTER
from stratamq.rpc.rooms import COMMITLOG

R = TypeVar("R")
Done = Callable[[Any, StrataError | None], None]
"""Gets a call's answer, or the error instead."""
_NOTHING_STORED = "SERVICE_NOT_AVAILABLE"
"""The status, in band, of an append that was refused before anything was stored."""


class _Stream:
    """One call, of which this is the only owner. Read by one caller; ended by any."""

    def __init__(self, call: Any) -> None:
        forks.watch(self)
        self._call = call

    def end(self) -> None:
        """Cancel and let go of the call, if that has not been done."""
        call, self._call = self._call, None
        if call is not None:
            call.cancel()


class Stream(_Stream):
    def read(self) -> Any:
        """The next message; None behind the last, and once the stream was ended here.

        Raises what the service raised; UnavailableError for a connection that broke.
        """
        call = self._call
        if call is None:
            return None
        try:
            return next(call, None)
        except grpc.RpcError as failure:
            error = stream_error(failure)
            # What gRPC raises is the call itself, and a traceback holds the frames that hold it.
            failure.__traceback__ = None
        if self._call is None:
            return None  # ended meanwhile
        raise error

    def abandon(self) -> None:
        """End it on a thread of its own: after an interrupt gRPC has been seen to wait forever
        for the call's lock."""
        threading.Thread(target=self.end, name="stratamq-end", daemon=True).start()


class AsyncStream(_Stream):
    async def read(self) -> Any:
        """See `Stream.read`."""
        call = self._call
        if call is None:
            return None
        try:
            answer = await call.read()
        except grpc.RpcError as failure:
            raise stream_error(failure) from failure
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            return None  # the call was cancelled, not the task
        return None if answer is grpc.aio.EOF else answer

    def abandon(self) -> None:
        self.end()


class _Connections:
    """What is looked up is looked up by one caller at a time, and for all who wait meanwhile."""

    closed: Event | AsyncEvent
    waits = False
    """Whether a broker that is away is waited for: the client's `retry_timeout_s`."""

    def __init__(self, endpoints: Endpoints, channels: Channels) -> None:
        forks.watch(self)
        self._endpoints = endpoints
        self._channels = channels
        self._lock = threading.Lock()
        self._open: WeakSet[Any] = WeakSet()
        self._looks = 0
        self._look_error: StrataError | None = None
        """The last look's error."""
        self._begun = False
        """Channels have been made, or are about to be."""

    def _callable(self, method: Method) -> Any:
        self.require_open()
        return self._channels.callable(method)

    def require_open(self) -> None:
        if self.closed.is_set():
            raise InvalidRequestError("this client was closed: make another one")
        if not self._begun:
            self._begin()

    def _begin(self) -> None:
        """Before the first channel is made."""
        forks.require_usable()
        self._begun = True

    def leads(self, error: BaseException | None) -> bool:
        """Another broker may take what this one has refused, and is known, or may be found; or
        this one itself once it has started again, by a client that waits for a broker that is
        away."""
        if isinstance(error, UnavailableError):  # it stops, or its role changes
            possible = self.waits or (self._endpoints.searched and self._endpoints.several)
            return possible and error.fields.get("status") == _NOTHING_STORED
        if self._endpoints.searched and isinstance(error, NotWritableError):
            known = self._endpoints.several or bool(error.master)
            return known and error.reason in NO_MASTER
        return False

    def address(self, room: str) -> str | None:
        """Where a service is, as far as is known."""
        return self._endpoints.known().get(room)

    def _looked(self, found: FoundBroker | StrataError) -> None:
        self._looks += 1
        if isinstance(found, StrataError):
            self._look_error = found
            return
        self._look_error = None
        self._endpoints.found(found)
        self._channels.renew_all()

    def _opened(self, stream: Any) -> Any:
        with self._lock:
            self._open.add(stream)
        return stream

    def _end_streams(self) -> None:
        with self._lock:
            streams = list(self._open)
        for stream in streams:
            stream.end()


class Connections(_Connections):
    """Thread-safe. Closed when the interpreter ends, if that has not been done."""

    def __init__(self, endpoints: Endpoints, timeout_s: float = LONGEST_ANSWER_S) -> None:
        super().__init__(endpoints, Channels(endpoints, grpc))
        self._questions = Questions(self._channels, endpoints.silence, timeout_s)
        self.closed = Event()
        self._looking = Lock()
        _all.add(self)

    def callable(self, method: Method) -> Any:
        """UnavailableError when the address of the method's service is not known,
        InvalidRequestError after `close`."""
        if self._endpoints.unknown(method.room) and not self.closed.is_set():
            self.require_open()
            self._look(self._looks)
        return self._callable(method)

    def renew(self, room: str) -> bool:
        """After a service did not answer: look for it again. True when it has moved."""
        if not self._endpoints.searched:
            return self._channels.renew(room)
        if self._endpoints.unknown(room):
            return False  # the next call looks
        before = self._endpoints.known().get(room)
        try:
            self._look(self._looks)
        except StrataError:
            return False  # it is where it was, as far as is known
        return self._endpoints.known().get(room) != before

    def follow(self, error: StrataError | None) -> bool:
        """After a refusal that `leads`: look for the master, where the error names one, too. True
        when it is another broker than before."""
        if isinstance(error, NotWritableError) and error.master:
            self._endpoints.hint(error.master)
        return self.renew(COMMITLOG)

    def refresh(self) -> bool:
        """With several brokers, look for a new master. True when another one has become it."""
        return self._endpoints.several and self.renew(COMMITLOG)

    def addresses(self) -> dict[str, str]:
        """By service, all that are known. Raises why an address led to no broker."""
        self.require_open()
        if self._endpoints.searched:
            self._look(self._looks)
        return self._endpoints.listed()

    def _look(self, seen: int) -> None:
        """Search, unless another caller has since `seen`. Raises why it found nothing."""
        with self._looking:
            if self._looks == seen:
                self._looked(self._search())
            if self._look_error is not None:
                raise self._look_error

    def ask(self, plan: Callable[[Endpoints], Plan[R]]) -> R:
        """What a plan of the endpoints ends with; raises its error."""
        self.require_open()
        self._resolve()
        found = self._questions.ask(plan(self._endpoints))
        if isinstance(found, StrataError):
            raise found
        return found

    def _search(self) -> FoundBroker | StrataError:
        self._resolve()
        return self._questions.ask(self._endpoints.plan())

    def _resolve(self) -> None:
        """Names are resolved as far as the resolver answers in time."""
        futures.wait(self._endpoints.resolving(), LONGEST_RESOLUTION_S)

    def open(self, method: Method, request: Any, timeout_s: float | None = None) -> Stream:
        """A stream of answers to one request, or to an iterator of them. UnavailableError when the
        address of the method's service is not known."""
        return self._opened(Stream(self.callable(method)(request, timeout=timeout_s)))

    def start(self, call: Any, request: Any, timeout_s: float, done: Done) -> None:
        """Make a call, a method's `callable`, and `done` with its end, on another thread."""
        caller = threading.get_ident()

        def ended(call: Any) -> None:
            # gRPC runs a callback that is added after the call's end at once, in its caller.
            if threading.get_ident() == caller:
                threading.Thread(target=finish, args=(call,), daemon=True).start()
            else:
                finish(call)

        def finish(call: Any) -> None:
            reply = reply_of(call)
            done(None, reply) if isinstance(reply, StrataError) else done(reply, None)

        call.future(request, timeout=timeout_s).add_done_callback(ended)

    def close(self) -> None:
        self.closed.set()
        self._end_streams()
        for channel in self._channels.close():
            channel.close()


class AsyncConnections(_Connections):
    def __init__(self, endpoints: Endpoints, timeout_s: float = LONGEST_ANSWER_S) -> None:
        super().__init__(endpoints, Channels(endpoints, grpc.aio))
        self._questions = AsyncQuestions(self._channels, endpoints.silence, timeout_s)
        self.closed = AsyncEvent()
        self._looking = AsyncLock()
        self._calls: set[asyncio.Task[None]] = set()

    def _begin(self) -> None:
        super()._begin()
        forks.asyncio_begins()

    async def callable(self, method: Method) -> Any:
        """See `Connections.callable`."""
        if self._endpoints.unknown(method.room) and not self.closed.is_set():
            self.require_open()
            await self._look(self._looks)
        return self._callable(method)

    async def renew(self, room: str) -> bool:
        """See `Connections.renew`."""
        if not self._endpoints.searched:
            return self._channels.renew(room)
        if self._endpoints.unknown(room):
            return False
        before = self._endpoints.known().get(room)
        try:
            await self._look(self._looks)
        except StrataError:
            return False
        return self._endpoints.known().get(room) != before

    async def follow(self, error: StrataError | None) -> bool:
        """See `Connections.follow`."""
        if isinstance(error, NotWritableError) and error.master:
            self._endpoints.hint(error.master)
        return await self.renew(COMMITLOG)

    async def refresh(self) -> bool:
        """See `Connections.refresh`."""
        return self._endpoints.several and await self.renew(COMMITLOG)

    async def addresses(self) -> dict[str, str]:
        """See `Connections.addresses`."""
        self.require_open()
        if self._endpoints.searched:
            await self._look(self._looks)
        return self._endpoints.listed()

    async def _look(self, seen: int) -> None:
        async with self._looking:
            if self._looks == seen:
                self._looked(await self._search())
            if self._look_error is not None:
                raise self._look_error

    async def ask(self, plan: Callable[[Endpoints], Plan[R]]) -> R:
        """See `Connections.ask`."""
        self.require_open()
        await self._resolve()
        found = await self._questions.ask(plan(self._endpoints))
        if isinstance(found, StrataError):
            raise found
        return found

    async def _search(self) -> FoundBroker | StrataError:
        await self._resolve()
        return await self._questions.ask(self._endpoints.plan())

    async def _resolve(self) -> None:
        pending = [asyncio.wrap_future(run) for run in self._endpoints.resolving()]
        if pending:
            await asyncio.wait(pending, timeout=LONGEST_RESOLUTION_S)

    async def open(
        self, method: Method, request: Any, timeout_s: float | None = None
    ) -> AsyncStream:
        """See `Connections.open`."""
        return self._opened(AsyncStream((await self.callable(method))(request, timeout=timeout_s)))

    def start(self, call: Any, request: Any, timeout_s: float, done: Done) -> None:
        """See `Connections.start`; runs on the event loop."""

        async def run() -> None:
            error: StrataError | None = None
            answer = None
            try:
                answer = await call(request, timeout=timeout_s)
            except asyncio.CancelledError:
                error = cancelled()
            except grpc.RpcError as failure:
                error = stream_error(failure)
            done(answer, error)

        task = asyncio.ensure_future(run())
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)

    async def close(self) -> None:
        self.closed.set()
        self._end_streams()
        for channel in self._channels.close():
            await channel.close()


_all: WeakSet[Connections] = WeakSet()


@atexit.register
def _close_all() -> None:
    """Those that are open still: later it could take forever."""
    for connections in list(_all):
        connections.close()


# Connections of a process are no business of those that are forked from it.
os.register_at_fork(after_in_child=_all.clear)
