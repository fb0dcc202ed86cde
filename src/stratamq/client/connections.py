"""A client's channels and open streams: `Connections` over gRPC's threads, `AsyncConnections` over
an event loop.

gRPC handles a synchronous call's events on a thread of its own, under a lock of the call, and a
call that is dropped takes that lock. When the interpreter ends, such threads are stopped wherever
they are, with the lock held if that is where they are: a call, or a channel with calls, that is
dropped after that waits for ever. So calls end, and are let go, while threads still run: when a
reader or a client is closed, and at the latest when the interpreter begins to end.
"""

import asyncio
import atexit
import os
import threading
from collections.abc import Callable
from typing import Any
from weakref import WeakSet

import grpc

from stratamq.client.primitives import AsyncEvent, Event
from stratamq.errors import InvalidRequestError, StrataError, UnavailableError
from stratamq.rpc.endpoints import Channels, Endpoints
from stratamq.rpc.methods import Method
from stratamq.rpc.stream_errors import stream_error

Done = Callable[[Any, StrataError | None], None]
"""Gets a call's answer, or the error instead."""


class _Stream:
    """One call, of which this is the only owner. Read by one caller; ended by any."""

    def __init__(self, call: Any) -> None:
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
        """End it on a thread of its own: after an interrupt gRPC has been seen to wait for ever
        for the call's lock."""
        threading.Thread(target=self.end, name="stratamq-end", daemon=True).start()


class AsyncStream(_Stream):
    async def read(self) -> Any:
        """As `Stream.read`."""
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
    closed: Event | AsyncEvent

    def __init__(self, channels: Channels) -> None:
        self._channels = channels
        self._lock = threading.Lock()
        self._open: WeakSet[Any] = WeakSet()

    def callable(self, method: Method) -> Any:
        """UnavailableError when the address of the method's service is not known,
        InvalidRequestError after `close`."""
        if self.closed.is_set():
            raise InvalidRequestError("this client was closed: make another one")
        return self._channels.callable(method)

    def renew(self, room: str) -> bool:
        """After a service did not answer: look for it again. True when it has moved."""
        return self._channels.renew(room)

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

    def __init__(self, endpoints: Endpoints) -> None:
        super().__init__(Channels(endpoints, grpc.insecure_channel))
        self.closed = Event()
        _all.add(self)

    def open(self, method: Method, request: Any, timeout_s: float | None = None) -> Stream:
        """A stream of answers to one request, or to an iterator of them. UnavailableError when the
        address of the method's service is not known."""
        return self._opened(Stream(self.callable(method)(request, timeout=timeout_s)))

    def start(self, method: Method, request: Any, timeout_s: float, done: Done) -> None:
        """Call a method, and `done` with its end, on another thread."""
        caller = threading.get_ident()

        def ended(call: Any) -> None:
            # gRPC runs a callback that is added after the call's end at once, in its caller.
            if threading.get_ident() == caller:
                threading.Thread(target=finish, args=(call,), daemon=True).start()
            else:
                finish(call)

        def finish(call: Any) -> None:
            answer: Any = None
            error: StrataError | None = None
            try:
                answer = call.result()
            except grpc.FutureCancelledError:
                error = _cancelled()
            except grpc.RpcError as failure:
                error = stream_error(failure)
            done(answer, error)

        self.callable(method).future(request, timeout=timeout_s).add_done_callback(ended)

    def close(self) -> None:
        self.closed.set()
        self._end_streams()
        for channel in self._channels.close():
            channel.close()


class AsyncConnections(_Connections):
    def __init__(self, endpoints: Endpoints) -> None:
        super().__init__(Channels(endpoints, grpc.aio.insecure_channel))
        self.closed = AsyncEvent()
        self._calls: set[asyncio.Task[None]] = set()

    def open(self, method: Method, request: Any, timeout_s: float | None = None) -> AsyncStream:
        """As `Connections.open`."""
        return self._opened(AsyncStream(self.callable(method)(request, timeout=timeout_s)))

    def start(self, method: Method, request: Any, timeout_s: float, done: Done) -> None:
        """As `Connections.start`, on the event loop."""
        call = self.callable(method)

        async def run() -> None:
            error: StrataError | None = None
            answer = None
            try:
                answer = await call(request, timeout=timeout_s)
            except asyncio.CancelledError:
                error = _cancelled()
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


def _cancelled() -> UnavailableError:
    return UnavailableError("the call was cancelled")


_all: WeakSet[Connections] = WeakSet()


@atexit.register
def _close_all() -> None:
    """Those that are open still: later it could take for ever."""
    for connections in list(_all):
        connections.close()


# Connections of a process are no business of those that are forked from it.
os.register_at_fork(after_in_child=_all.clear)
