"""A call of gRPC over ASGI as it comes in: its metadata, its time, the frames of its request."""

import asyncio
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping, Sequence
from typing import Any, NoReturn

import grpc

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Metadata = tuple[tuple[str, str | bytes], ...]
FRAME_HEAD = struct.Struct(">BI")
"""Whether it is compressed, and the message's length."""
MAX_HELD_BYTES = 256 << 20
"""The limit of all requests together that have not come whole."""
_END_OF_REQUEST = {"type": "http.request", "body": b"", "more_body": False}
FRAMES_IN_A_TURN = 16
"""Then other calls have theirs."""
_DEADLINE_STEP_S = 0.1
"""The calls whose time ends within it end together. Clients count their time themselves."""
_UNITS_S = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}


class EndedCall(Exception):
    """The call has this status."""

    def __init__(self, code: grpc.StatusCode, message: str, metadata: Metadata = ()) -> None:
        super().__init__(message)
        self.code = code
        self.metadata = metadata


class AsgiCall:
    """What functions that serve calls need of grpc.aio's ServicerContext."""

    __slots__ = (
        "_client", "_done_callbacks", "_ends_at", "_given", "_loop", "_metadata", "headers",
    )  # fmt: skip

    def __init__(
        self, scope: Mapping[str, Any], loop: asyncio.AbstractEventLoop | None = None
    ) -> None:
        """`loop`: on whose clock its time counts, once `begin_time` is called."""
        self._client: tuple[str, int] | None = scope.get("client")
        self._given: Sequence[tuple[bytes, bytes]] = scope["headers"]
        self._metadata: list[tuple[str, str]] | None = None
        self._loop = loop
        self._ends_at: float | None = None
        self._done_callbacks: list[Callable[[AsgiCall], object]] = []
        self.headers = dict(self._given)
        """The last one of each name."""

    def begin_time(self) -> float | None:
        """When the call's time is over, on the loop's clock; None: never. EndedCall."""
        given = self.headers.get(b"grpc-timeout")
        if given is not None and self._loop is not None:
            self._ends_at = self._loop.time() + _timeout_s(given.decode("latin-1"))
        return self._ends_at

    def invocation_metadata(self) -> list[tuple[str, str]]:
        if self._metadata is None:
            self._metadata = [
                (name.decode("latin-1"), value.decode("latin-1")) for name, value in self._given
            ]
        return self._metadata

    def add_done_callback(self, callback: "Callable[[AsgiCall], object]", /) -> None:
        """It is called when the answer is with the client, or the client has left."""
        self._done_callbacks.append(callback)

    def done(self) -> None:
        for callback in self._done_callbacks:
            callback(self)

    def auth_context(self) -> Mapping[str, Any]:
        """Connections in clear have none."""
        return {}

    def peer(self) -> str:
        if self._client is None:
            return "unix:"
        host, port = self._client
        return f"ipv6:[{host}]:{port}" if ":" in host else f"ipv4:{host}:{port}"

    def time_remaining(self) -> float | None:
        """Seconds."""
        if self._ends_at is None or self._loop is None:
            return None
        return max(0.0, self._ends_at - self._loop.time())

    async def abort(
        self, code: grpc.StatusCode, details: str = "", trailing_metadata: Metadata = ()
    ) -> NoReturn:
        raise EndedCall(code, details, trailing_metadata)


def _timeout_s(text: str) -> float:
    digits, unit = text[:-1], text[-1:]
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 8 and unit in _UNITS_S):
        raise EndedCall(grpc.StatusCode.INTERNAL, f"no grpc-timeout: {text!r:.40}")
    return int(digits) * _UNITS_S[unit]


class Deadlines:
    """Cancel calls whose time is over. Those that end at about the same time share a timer: one for
    each call costs more than the rest of a small call's bookkeeping."""

    def __init__(self) -> None:
        self._calls: dict[int, tuple[set[asyncio.Task[Any]], asyncio.TimerHandle]] = {}

    def add(self, loop: asyncio.AbstractEventLoop, task: "asyncio.Task[Any]", at: float) -> int:
        """`at`: on the loop's clock. What `discard` is to be given."""
        step = int(at / _DEADLINE_STEP_S) + 1
        found = self._calls.get(step)
        if found is None:
            timer = loop.call_at(step * _DEADLINE_STEP_S, self._end, step)
            found = self._calls[step] = set(), timer
        found[0].add(task)
        return step

    def discard(self, step: int, task: "asyncio.Task[Any]") -> bool:
        """The call is not cancelled from now on; whether it has been."""
        found = self._calls.get(step)
        if found is None:
            return True
        calls, timer = found
        calls.discard(task)
        if not calls:
            timer.cancel()
            del self._calls[step]
        return False

    def _end(self, step: int) -> None:
        for task in self._calls.pop(step)[0]:
            task.cancel()


class HeldBytes:
    """What all calls together keep of requests that are not whole."""

    def __init__(self) -> None:
        self.bytes = 0


class RequestFrames:
    """The frames of a request's body. A frame that is too large is not read."""

    __slots__ = ("_held", "_holds", "_is_whole", "_max_bytes", "_read", "_receive", "_serving")

    def __init__(self, receive: Receive, max_bytes: int, held: HeldBytes) -> None:
        self._receive = receive
        self._max_bytes = max_bytes
        self._held = held
        self._holds = 0
        """Its part of what is held."""
        self._read = bytearray()
        self._is_whole = False
        self._serving: asyncio.Task[None] | None = None

    def cancel_when_left(self, serving: "asyncio.Task[None]") -> None:
        self._serving = serving

    def _leave(self) -> None:
        """The client has ended the call, or its connection is lost."""
        if self._serving is not None and self._serving is not asyncio.current_task():
            self._serving.cancel()

    async def _more(self) -> None:
        """CancelledError: the client has left."""
        self._take(await self._receive())

    def _take(self, event: MutableMapping[str, Any]) -> None:
        if event["type"] == "http.disconnect":
            self._leave()
            raise asyncio.CancelledError
        body = event.get("body", b"")
        self._hold(len(body))
        self._read += body
        self._is_whole = not event.get("more_body", False)

    def _hold(self, size: int) -> None:
        """EndedCall."""
        if self._held.bytes + size > MAX_HELD_BYTES:
            raise EndedCall(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                "the gateway waits for the rest of too many large requests: send it again",
            )
        self._held.bytes += size
        self._holds += size

    def _end_of_frame(self) -> int:
        """Where the first frame, whose head is there, ends."""
        compressed, size = FRAME_HEAD.unpack_from(self._read)
        if compressed:
            raise EndedCall(grpc.StatusCode.UNIMPLEMENTED, "requests are not compressed by gRPC")
        if size > self._max_bytes:
            raise EndedCall(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                f"a message of {size} bytes is too large: at most {self._max_bytes}",
            )
        return FRAME_HEAD.size + int(size)

    async def next(self) -> bytes | None:
        """None: there are no more."""
        while len(self._read) < FRAME_HEAD.size:
            if self._is_whole:
                if self._read:
                    raise EndedCall(grpc.StatusCode.INTERNAL, "a request ends within its head")
                return None
            await self._more()
        end = self._end_of_frame()
        while len(self._read) < end:
            if self._is_whole:
                raise EndedCall(grpc.StatusCode.INTERNAL, "a request ends within a message")
            await self._more()
        data = bytes(memoryview(self._read)[FRAME_HEAD.size : end])
        del self._read[:end]
        self._held.bytes -= end
        self._holds -= end
        return data

    def close(self) -> None:
        """Give back the room of what was not taken."""
        self._held.bytes -= self._holds
        self._holds = 0

    async def alone(self) -> bytes:
        """The only one."""
        event = await self._receive()
        body: bytes = event.get("body", b"")
        if self._is_one_frame(body):
            if not event.get("more_body", False):
                return body[FRAME_HEAD.size :]
            # Most often its end is an event of its own.
            self._hold(len(body))
            event = await self._receive()
            if event == _END_OF_REQUEST:
                self.close()
                return body[FRAME_HEAD.size :]
            self._read += body
        self._take(event)
        data = await self.next()
        if data is None or await self.next() is not None:
            raise EndedCall(grpc.StatusCode.INTERNAL, "the method takes one request")
        return data

    def _is_one_frame(self, body: bytes) -> bool:
        """One that may be taken as it is."""
        size = len(body) - FRAME_HEAD.size
        return 0 <= size <= self._max_bytes and FRAME_HEAD.unpack_from(body) == (0, size)

    async def all(self) -> AsyncIterator[bytes]:
        number = 0
        while (data := await self.next()) is not None:
            yield data
            number += 1
            if number % FRAMES_IN_A_TURN == 0:  # those that came together wait for nothing
                await asyncio.sleep(0)

    async def left(self) -> None:
        """Until the client has left. It has nothing more to say."""
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._leave()
