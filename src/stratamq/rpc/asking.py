"""One unary call from one service of a broker to another, on an event loop.

A finished call of grpc.aio stays in a reference cycle (it is an argument of its own callback)
together with its response, until Python's cyclic collector runs: large responses may hold hundreds
of megabytes. Here the response is in a box that is emptied when it is read, so that the response
lives only as long as its caller keeps it. If a caller is cancelled just as its response arrives,
the response waits for the collector.
"""

from dataclasses import replace
from functools import cache
from typing import Any

import grpc

from stratamq.errors import UnavailableError
from stratamq.rpc.endpoints import Channels
from stratamq.rpc.explaining import stream_error
from stratamq.rpc.methods import METHODS, Method
from stratamq.rpc.request_ids import traceparent
from stratamq.rpc.socket_calls import SINGLE, Begin, left_ms_of


def _boxed(method: Method) -> Method:
    """The same method; its answer is in a list."""
    parse = method.deserialize
    if parse is None:
        return replace(method, deserialize=lambda data: [data])
    return replace(method, deserialize=lambda data: [parse(data)])


_PARTS = {name: _boxed(one) for name, one in METHODS.items() if one.kind == "stream_unary"}
_BOXED = {
    name: _boxed(replace(one, kind="unary_unary"))
    for name, one in METHODS.items()
    if one.kind in ("unary_unary", "stream_unary")
}
"""On the wire a stream of one request is a single request, for which gRPC does less."""


async def ask(
    channels: Channels, name: str, request: Any, timeout_s: float, process: str = ""
) -> Any:
    """Call the method `name` and return its answer, which nothing but the caller keeps.

    For a method that takes a stream, `request` may be a list: the stream's parts. All other
    requests go without gRPC if the service has a socket for them (`socket_calls`). Raises
    StrataError; after UnavailableError the next call looks up the service's address again.
    `process`: which one of the room is called, by its run file; "": the first.
    """
    method = _PARTS[name] if isinstance(request, list) else _BOXED[name]
    if process:
        method = _at(method, process)
    try:
        box = await _by_socket(channels, method, request, timeout_s)
        if box is None:
            box = await channels.callable(method)(request, timeout=timeout_s)
    except grpc.RpcError as failure:
        error = stream_error(failure)
        if isinstance(error, UnavailableError):
            channels.renew(method.room)
        raise error from failure
    return box.pop()


@cache
def _at(method: Method, process: str) -> Method:
    return replace(method, room=process)


async def _by_socket(channels: Channels, method: Method, request: Any, timeout_s: float) -> Any:
    """Return None if nothing was sent."""
    if isinstance(request, list):
        return None
    message = request if method.serialize is None else method.serialize(request)
    begin = Begin(SINGLE, left_ms_of(timeout_s), method.path, traceparent(), b"", message)
    answer = await channels.socket_calls(method.room).ask(begin)
    return None if answer is None else method.deserialize(bytes(answer))
