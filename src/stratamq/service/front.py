"""Clients for a front: a process with listeners of its own that calls the broker's services.

    front = Front(root)                        one connection to each service's socket for fronts
    client = front.client(call.caller)         for a caller that the front has authenticated
    await client.send("orders", body)          sends that wait at one moment leave in one batch
    client.rows.add_rows("orders", …)          the same without a task, of encoded properties
    pulled = await client.pull_frames(…)       `pulled.frames`: the messages' bytes as stored
    front.call(method)(data, metadata=…)       a call that is passed on as it is

Each caller has a client, and so an append stream, of its own; close it when the caller's connection
ends. The services apply the caller's permissions, limits and audit (`service.grpc_callers`).
"""

import asyncio
import random
from collections.abc import Coroutine
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import grpc

from stratamq.client import AsyncClient, operations
from stratamq.client._async.sending import AsyncSharedStream
from stratamq.client.operations import AsyncRunOperation, Operation
from stratamq.errors import UnavailableError
from stratamq.files.clock import SystemClock
from stratamq.formats.message_status import PullStatus
from stratamq.rpc import discovery
from stratamq.rpc.credentials import Credentials
from stratamq.rpc.endpoints import Channels, Endpoints
from stratamq.rpc.framing import PULL_RESPONSE, identity
from stratamq.rpc.methods import Method
from stratamq.rpc.request_ids import KEY
from stratamq.rpc.socket_calls import SINGLE, STREAM, Begin, SocketCalls, StreamCall, left_ms_of
from stratamq.service.caller import Caller
from stratamq.service.grpc_callers import DELEGATED, delegation

T = TypeVar("T")
Metadata = tuple[tuple[str, Any], ...]


class Frames(NamedTuple):
    """What a pull found, as it is stored."""

    status: PullStatus
    next_offset: int
    min_offset: int
    max_offset: int
    frames: memoryview


class OperationClient(AsyncClient):
    @property
    def run(self) -> AsyncRunOperation:
        """Calls that a client has no method for, as those of the workers of another protocol."""
        return self._run


class FrontClient(OperationClient):
    def __init__(self, where: Endpoints, user: str, **settings: Any) -> None:
        super().__init__(where, **settings)
        self.user = user
        """The caller's name; see `Caller.name`."""
        self._unfinished: set[asyncio.Task[Any]] = set()

    def finish(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Begin what is finished even if the caller's connection ends meanwhile."""
        task = asyncio.get_running_loop().create_task(work)
        self._unfinished.add(task)
        task.add_done_callback(self._unfinished.discard)
        return task

    async def close(self) -> None:
        if self._unfinished:
            await asyncio.wait(self._unfinished)
        await super().close()

    async def pull_frames(self, topic: str, queue_id: int, offset: int, **fields: Any) -> Frames:
        """`pull` without looking at the messages. `fields` are its options."""
        asked = operations.pull(topic, queue_id, offset, **fields)
        return await self._run(
            Operation(asked.method, asked.request, _frames_of, wait_s=asked.wait_s)
        )

    @property
    def rows(self) -> AsyncSharedStream:
        """What single messages travel on."""
        return self._brokers.whole.sending.shared


def _frames_of(response: bytes) -> Frames:
    head, (frames,) = PULL_RESPONSE.decode(response)
    status = PullStatus(head.status)
    return Frames(status, head.next_offset, head.min_offset, head.max_offset, frames)


class Front:
    """Belongs to the event loop."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._channels: dict[str, _Way] = {}
        self._passing = Channels(_FrontSockets(root, credentials=Credentials()), grpc.aio)
        self._clock, self._random = SystemClock(), random.SystemRandom()

    def client(self, caller: Caller, **settings: Any) -> FrontClient:
        """`settings` are those of `connect_async`."""
        shown = _Delegation(caller, self._channels)
        where = _FrontSockets(self.root, credentials=shown)
        given = {"clock": self._clock, "random": self._random, **settings}
        return FrontClient(where, caller.name, **given)

    def call(self, method: Method) -> Any:
        """The method's callable (grpc.aio) for bytes: every call's metadata must have
        `delegation(caller)`. A single answer to a stream comes as a stream. UnavailableError."""
        kind = "stream_stream" if method.kind == "stream_unary" else method.kind
        return getattr(self._passing.channel(method.room), kind)(method.path)

    async def close(self) -> None:
        """After the clients."""
        for way in self._channels.values():
            await way.calls.close()
            await way.channel.close()
        for channel in self._passing.close():
            await channel.close()
        self._channels.clear()


class _FrontSockets(Endpoints):
    def address(self, room: str) -> str:
        assert self.root is not None
        endpoint = discovery.read(self.root, room)
        socket = "" if endpoint is None else endpoint.for_fronts()
        if not socket:
            raise UnavailableError(
                f"no {room} service of {self.root} has a socket for fronts that this process may "
                "use: is it running, and as the same user?"
            )
        return socket

    def calls(self, room: str) -> str:
        """No socket: calls on it would be those of the user `local`."""
        return ""


class _Way(NamedTuple):
    """Connections to one service, which all callers of a front share."""

    channel: grpc.aio.Channel
    calls: SocketCalls


class _Delegation(Credentials):
    """Names the caller in every call. All callers of a front share its connections."""

    def __init__(self, caller: Caller, channels: dict[str, _Way]) -> None:
        super().__init__()
        self._caller = delegation(caller)
        self._channels = channels

    def metadata(self) -> tuple[tuple[str, Any], ...]:
        return (self._caller,)

    def connect(self, kind: Any, address: str, options: Any, host: str = "") -> "_FrontChannel":
        way = self._channels.get(address)
        if way is None:
            path = discovery.calls_path(address.removeprefix(discovery.UNIX))
            calls = SocketCalls(lambda: path)
            way = _Way(super().connect(kind, address, options), calls)
            self._channels[address] = way
        return _FrontChannel(way)


class _FrontChannel:
    """A channel that stays open when one of its users closes it. Single calls, and streams of
    requests and answers, go without gRPC where the service takes them so."""

    def __init__(self, way: _Way) -> None:
        self._way = way

    def __getattr__(self, name: str) -> Any:
        return getattr(self._way.channel, name)

    def unary_unary(self, path: str, **codecs: Any) -> "_Single":
        return _Single(self._way, path, **codecs)

    def stream_stream(self, path: str, **codecs: Any) -> "_Streamed":
        return _Streamed(self._way, path, **codecs)

    async def close(self) -> None:
        pass


class _Callable:
    """A method's callable, as gRPC's (grpc.aio)."""

    kind = ""

    def __init__(
        self, way: _Way, path: str, request_serializer: Any, response_deserializer: Any
    ) -> None:
        codecs = {
            "request_serializer": request_serializer,
            "response_deserializer": response_deserializer,
        }
        self._by_grpc = getattr(way.channel, self.kind)(path, **codecs)
        self._calls = way.calls
        self._path = path
        self._serialize = request_serializer or identity
        self._parse = response_deserializer


class _Single(_Callable):
    kind = "unary_unary"

    async def __call__(
        self, request: Any, timeout: float | None = None, metadata: Metadata = ()
    ) -> Any:
        message = self._serialize(request)
        answer = await self._calls.ask(_begin(SINGLE, self._path, metadata, timeout, message))
        if answer is None:
            return await self._by_grpc(request, timeout=timeout, metadata=metadata)
        return answer if self._parse is None else self._parse(bytes(answer))


class _Streamed(_Callable):
    kind = "stream_stream"

    def __call__(
        self, requests: Any, timeout: float | None = None, metadata: Metadata = ()
    ) -> StreamCall:
        return StreamCall(
            requests,
            self._calls.connect_stream,
            _begin(STREAM, self._path, metadata, timeout),
            partial(self._by_grpc, timeout=timeout, metadata=metadata),
            (self._serialize, self._parse),
        )


def _begin(
    kind: int, path: str, metadata: Metadata, timeout_s: float | None, message: bytes = b""
) -> Begin:
    given = dict(metadata)
    traceparent, caller = given.get(KEY, ""), given.get(DELEGATED, b"")
    return Begin(kind, left_ms_of(timeout_s), path, traceparent, caller, message)
