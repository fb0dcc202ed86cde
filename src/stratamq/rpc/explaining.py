"""Why no broker answers at an address, in words for a person; why a stream of calls ended."""

import asyncio
from typing import Any

import grpc

from stratamq.errors import (
    InvalidRequestError,
    NotPermittedError,
    StrataError,
    UnauthenticatedError,
    UnavailableError,
)
from stratamq.rpc.status import NAME_KEY, from_rpc_error


def explained(address: str, error: StrataError) -> StrataError:
    """What kept a service at `address` from answering, for a person who has typed it."""
    text = error.message
    status = error.fields.get("status")
    if status == "UNIMPLEMENTED":
        return InvalidRequestError(
            f"what listens at {address} is no service of StrataMQ, or one of an earlier version: "
            "it does not know where its broker is"
        )
    if any(fragment in text for fragment in _OTHER_PROTOCOLS):
        return InvalidRequestError(
            f"what listens at {address} is no StrataMQ: it does not speak gRPC (a web server?)"
        )
    if isinstance(error, (UnauthenticatedError, NotPermittedError)):
        return error
    if not isinstance(error, UnavailableError):
        return InvalidRequestError(f"what listens at {address} is no StrataMQ: {text}")
    for fragment, sentence in _SENTENCES.items():
        if fragment in text:
            return UnavailableError(sentence.format(address=address))
    if status == "DEADLINE_EXCEEDED":
        return UnavailableError(_SILENT.format(address=address))
    return UnavailableError(f"no StrataMQ answers at {address}: {text}")


_SILENT = (
    "{address} does not answer: is the host right, does a firewall keep connections out, does "
    "another program listen there?"
)
_OTHER_PROTOCOLS = ("HTTP/2", "http1", "HTTP/1")
_UNKNOWN_HOST = "the host of {address} is not known"
_LEFT = (
    "what listens at {address} has closed the connection: it is starting or stopping, asks for TLS "
    "(set STRATAMQ_TLS_CA), has as many connections as it takes (limits.connections), or is no "
    "StrataMQ (RocketMQ's own ports do not speak gRPC)"
)
_SENTENCES = {
    "CERTIFICATE_VERIFY_FAILED": "the certificate at {address} is not of an authority in "
    "STRATAMQ_TLS_CA, or has expired",
    "BAD_SIGNATURE": "the certificate at {address} is not of an authority in STRATAMQ_TLS_CA",
    "Hostname Verification Check failed": "the certificate at {address} is for other hosts: type "
    "one of those that it names (`stratamq tls issue … --host`)",
    "WRONG_VERSION_NUMBER": "what listens at {address} does without TLS: unset STRATAMQ_TLS_CA",
    "CERTIFICATE_REQUIRED": "what listens at {address} asks for a client certificate: set "
    "STRATAMQ_TLS_CERTIFICATE and STRATAMQ_TLS_KEY",
    "Connection refused": "nothing listens at {address}: is the broker running, is it this port?",
    "DNS resolution failed": _UNKNOWN_HOST,
    "errors resolving": _UNKNOWN_HOST,
    "Domain name not found": _UNKNOWN_HOST,
    "No route to host": "there is no way to the host of {address}",
    "Network is unreachable": "there is no way to the host of {address}",
    "timed out": _SILENT,
    "Timeout": _SILENT,
    "handshaker shutdown": _SILENT,
    "Socket closed": _LEFT,
    "Connection reset": _LEFT,
}


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
