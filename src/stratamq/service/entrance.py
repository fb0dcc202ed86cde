"""What a call of any protocol passes on its way to its handler: authentication, the limits for its
client and, once its request is read, permissions. Its span begins here.

    with entrance.enter(identify, begin(context), deadline) as call:
        asked = decode(await call.receive(read))
        await call.require(asked)
        call.require_room()
        response = await handler(asked, call)
        call.answer_alone(response)
"""

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Any, Protocol

from stratamq.errors import InvalidRequestError
from stratamq.rpc.permissions import MethodRule
from stratamq.rpc.request_ids import Request
from stratamq.service.access import AccessControl
from stratamq.service.caller import Caller
from stratamq.service.client_limits import Client, ClientLimits
from stratamq.service.recorder import Recorded, Recorder


class Serving(Protocol):
    def add_done_callback(self, callback: Callable[[Any], object], /) -> object:
        """It is called once, with anything, when this has ended."""


class Entrance:
    """What every call of one method passes through."""

    def __init__(
        self,
        access: AccessControl | None,
        limits: ClientLimits | None,
        recorder: Recorder | None,
        method: str,
        rule: MethodRule | None,
        *,
        takes_stream: bool = False,
        gives_stream: bool = False,
    ) -> None:
        """`rule` is that of the use case (`permissions.RULES`); None: everyone may call it.
        `method` is its name in the protocol, after the last `/`."""
        self._recorder = recorder
        self._limits = limits
        self.access = access
        self.method = method
        self.rule = rule
        self.takes_stream = takes_stream
        self.is_stream = takes_stream or gives_stream
        self.is_plain = access is None and recorder is None
        """Neither permissions are checked nor spans recorded."""
        self.has_effects = rule is not None and rule.has_effects

    def enter(
        self, identify: Callable[[], Caller], request: Request, deadline: float = math.inf
    ) -> "Call":
        """Begin a call, which ends with the `with` block. `deadline`: on the event loop's clock.
        UnauthenticatedError, BusyError."""
        span = None if self._recorder is None else self._recorder.serve(self.method, request)
        try:
            caller = identify()
            return Call(self, caller, self._admitted(caller), span, request, deadline)
        except BaseException as error:
            if span is not None:
                span.end(error)
            raise

    def _admitted(self, caller: Caller) -> Client | None:
        access = self.access
        if access is not None and self.rule is not None:
            access.admit(caller, self.method)
        client = self._limits and self._limits.client(caller, authenticates=access is not None)
        if client is not None:
            client.begin(stream=self.is_stream)
        return client


class Call:
    """One call from its beginning to its end, as its handler sees it. An edge cancels it by
    cancelling its task."""

    __slots__ = (
        "_asked", "_client", "_entrance", "_span", "_version", "caller", "deadline", "request",
    )  # fmt: skip

    def __init__(
        self,
        entrance: Entrance,
        caller: Caller,
        client: Client | None,
        span: Recorded | None,
        request: Request,
        deadline: float,
    ) -> None:
        self.caller = caller
        self.request = request
        """Its ID, which errors and log lines have."""
        self.deadline = deadline
        self._span = span
        self._entrance = entrance
        self._client = client
        self._asked: Any = None
        self._version = -1

    def __enter__(self) -> "Call":
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        self.end(error)

    def end(self, error: BaseException | None = None) -> None:
        """End the call as its `with` block does; for a call that no task serves."""
        if self._client is not None:
            self._client.end(stream=self._entrance.is_stream)
        if self._span is not None:
            self._span.end(error)

    async def receive(self, read: Callable[[], Awaitable[Any]]) -> Any:
        """The request's bytes. InvalidRequestError when `read` gives none."""
        data = await (read() if self._client is None else self._client.receive(read))
        if not isinstance(data, bytes):
            raise InvalidRequestError(f"{self._entrance.method} was called without a request")
        if self._client is not None:
            self._client.spend_bytes(len(data))
        return data

    async def require(self, request: Any) -> None:
        """NotPermittedError, UnauthenticatedError. `request` None: the method takes a stream."""
        access, rule = self._entrance.access, self._entrance.rule
        if access is not None and rule is not None:
            self._asked = request
            self._version = access.version
            await access.require(self.caller, rule, self._entrance.method, request)

    async def recheck(self) -> None:
        """Check an open stream like `require`: the permissions may have changed."""
        access, rule = self._entrance.access, self._entrance.rule
        if access is None or rule is None:
            return
        version = access.version
        if version != self._version:
            await access.recheck(self.caller, rule, self._entrance.method, self._asked)
            self._version = version

    def require_topics(self, topics: Iterable[str]) -> None:
        """Check that the caller may produce to topics that an open call names.
        NotPermittedError."""
        if self._entrance.access is not None:
            self._entrance.access.require_topics(self.caller, topics, self._entrance.method)

    def require_room(self) -> None:
        """Refuse the call, before anything is done, if its client is at its limits. BusyError."""
        if self._client is not None:
            self._client.require_room()

    def spares(self, size: int) -> bool:
        """Whether an answer of so many bytes keeps none of its client's other calls from theirs."""
        return self._client is None or self._client.spares(size)

    def answer_alone(self, response: Any, serving: "Serving | None" = None) -> None:
        """Give the only answer of the call. The call ends when the client has taken it, not when
        the handler returns: gRPC keeps an answer until its client makes room. `serving`: what ends
        at that moment; None: the current task. BusyError."""
        client = self._client
        if client is None:
            return
        size = _size(response)
        client.hold(size, refusable=not self._entrance.has_effects)
        client.spend_bytes(size)
        if serving is None:
            serving = asyncio.current_task()
            assert serving is not None
        self._client = None  # it ends with what serves it, and not with the handler
        is_stream = self._entrance.is_stream

        def taken(_: object) -> None:
            client.let_go(size)
            client.end(stream=is_stream)

        serving.add_done_callback(taken)

    def hold(self, response: Any) -> int:
        """Count one of several answers before it is given. Returns its size, for `given`.
        BusyError."""
        if self._client is None:
            return 0
        size = _size(response)
        self._client.hold(size, refusable=not self._entrance.has_effects)
        return size

    def given(self, size: int) -> float:
        """Note that the client has taken an answer. Returns how long to wait with the next one."""
        if self._client is None:
            return 0.0
        self._client.let_go(size)
        return self._client.spend_bytes(size)

    def metered(self, requests: AsyncIterator[Any]) -> AsyncIterator[Any]:
        """Pass a stream of requests on, no faster than its client may send."""
        client = self._client
        return requests if client is None or not client.counts_bytes else _slowed(requests, client)


async def _slowed(requests: AsyncIterator[bytes], client: Client) -> AsyncIterator[bytes]:
    async for data in requests:
        delay_s = client.spend_bytes(len(data))
        yield data
        if delay_s:
            await asyncio.sleep(delay_s)


def _size(response: Any) -> int:
    return len(response) if isinstance(response, bytes) else int(response.ByteSize())
