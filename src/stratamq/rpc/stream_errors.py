"""Why a stream ended, seen from a client: the service's error, or a connection that broke."""

import asyncio
from typing import Any

import grpc

from stratamq.errors import StrataError, UnavailableError
from stratamq.rpc.status import NAME_KEY, from_rpc_error

_MADE_BY_GRPC = (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN)


def stream_error(failure: grpc.RpcError) -> StrataError:
    """Like `from_rpc_error`; what gRPC itself reports as internal when a peer dies (a reset, a
    write into a call that has ended) is an UnavailableError."""
    error = from_rpc_error(failure)
    if type(error) is not StrataError or not isinstance(failure, grpc.Call | grpc.aio.AioRpcError):
        return error
    metadata = failure.trailing_metadata() or ()
    if failure.code() in _MADE_BY_GRPC and all(pair[0] != NAME_KEY for pair in metadata):
        return UnavailableError(f"the connection broke: {error.message}", **error.fields)
    return error


async def write(call: Any, message: Any) -> None:
    """`call.write` of an asyncio stream; UnavailableError when the call has ended meanwhile, which
    gRPC reports it only to a reader."""
    try:
        await call.write(message)
    except asyncio.InvalidStateError as error:
        raise UnavailableError("the stream has ended") from error
