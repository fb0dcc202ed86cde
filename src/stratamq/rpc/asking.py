"""One unary call from a service of a broker to another, on an event loop."""

from typing import Any

import grpc

from stratamq.errors import UnavailableError
from stratamq.rpc.endpoints import Channels
from stratamq.rpc.methods import METHODS
from stratamq.rpc.stream_errors import stream_error


async def ask(channels: Channels, name: str, request: Any, timeout_s: float) -> Any:
    """The answer of the method `name`. StrataError; of a service that does not answer
    (UnavailableError) the address is looked up again with the next call."""
    method = METHODS[name]
    try:
        return await channels.callable(method)(request, timeout=timeout_s)
    except grpc.RpcError as failure:
        error = stream_error(failure)
        if isinstance(error, UnavailableError):
            channels.renew(method.room)
        raise error from failure
