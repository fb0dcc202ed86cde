"""The streams that a synchronous client has open, each the only owner of its gRPC call.

gRPC handles a call's events on a thread of its own, under a lock of the call, and a call that is
dropped takes that lock. When the interpreter ends, such threads are stopped wherever they are, with
the lock held if that is where they are: a call, or a channel with calls, that is dropped after that
waits for ever. So calls end, and are let go, while threads still run: when a reader or a client is
closed, and at the latest when the interpreter begins to end.
"""

import threading
from collections.abc import Iterator
from typing import Any
from weakref import WeakSet

import grpc

from stratamq.errors import StrataError
from stratamq.rpc.endpoints import Channels
from stratamq.rpc.methods import Method
from stratamq.rpc.stream_errors import stream_error


class Stream:
    """One call. Read by one thread; ended by any."""

    def __init__(self, call: Any) -> None:
        self._call = call

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
            error: StrataError = stream_error(failure)
            # What gRPC raises is the call itself, and a traceback holds the frames that hold it.
            failure.__traceback__ = None
        raise error

    def __iter__(self) -> Iterator[Any]:
        return iter(self.read, None)

    def end(self) -> None:
        """Cancel and let go of the call, if that has not been done."""
        call, self._call = self._call, None
        if call is not None:
            call.cancel()


class Streams:
    """Opens streams over a client's channels. Thread-safe."""

    def __init__(self, channels: Channels) -> None:
        self._channels = channels
        self._lock = threading.Lock()
        self._open: WeakSet[Stream] = WeakSet()

    def open(self, method: Method, request: Any, timeout_s: float | None = None) -> Stream:
        """UnavailableError when nobody knows where the method's service is."""
        stream = Stream(self._channels.callable(method)(request, timeout=timeout_s))
        with self._lock:
            self._open.add(stream)
        return stream

    def end(self) -> None:
        """End every stream."""
        with self._lock:
            streams = list(self._open)
        for stream in streams:
            stream.end()
