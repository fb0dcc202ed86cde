"""The callers of gRPC's calls, as values that no protocol shows in (`service.caller`).

    listener                  the caller is                           a caller in metadata
    the address               by certificate or token, or unknown     refused
    `<service>.sock`          `local`, trusted                        refused
    `<service>-front.sock`    the one in the metadata                 exactly one required

A *front* is a process of the broker's user that has listeners of its own, such as a gateway. It
authenticates its callers and calls on their behalf. A service trusts a front's word on who calls,
and nothing else: the caller is never `local` or a member, its user must be in the permissions file,
its token must still be valid, and permissions, limits and audit are those of a direct caller. The
calls that a front makes for itself go to the other socket.

Each kind of listener has a gRPC server of its own: gRPC does not tell a handler through which of
one server's sockets a call came.
"""

import base64
import ipaddress
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Protocol
from urllib.parse import unquote

import grpc
from google.protobuf.message import DecodeError

from stratamq.api.v1.broker_pb2 import DelegatedCaller
from stratamq.errors import InvalidRequestError, UnauthenticatedError
from stratamq.rpc.permission_file import AUTHORIZATION, checked_name
from stratamq.rpc.request_ids import begin
from stratamq.rpc.status import to_status
from stratamq.service.access import AccessControl
from stratamq.service.caller import NO_HOST, Caller, ip_host

DELEGATED = "stratamq-caller-bin"
MAX_PORT = (1 << 16) - 1
_DIGEST = re.compile(r"(?:[0-9a-f]{64})?")


class Callers(Protocol):
    """How the callers of a listener are known."""

    access: AccessControl | None
    """None: authentication is disabled."""

    def identify(self, context: Any, method: str) -> Caller:
        """Make the caller of a call by its context (grpc.aio). UnauthenticatedError."""


class DirectCallers:
    """Callers that have connected by themselves, through a Unix socket or to the address."""

    def __init__(self, access: AccessControl | None, *, encrypted: bool) -> None:
        """`encrypted`: the address is served over TLS. A Unix socket never is."""
        self.access = access
        self._encrypted = encrypted

    def identify(self, context: Any, method: str) -> Caller:
        origin = self.origin(context)
        if self.access is None:
            return origin
        names: Any = ()
        if origin.encrypted:
            names = context.auth_context().get("x509_common_name", ())
        if names:
            return self.access.identify(origin, names[0].decode("utf-8", "replace"))
        metadata = dict(context.invocation_metadata() or ()) if origin.host else {}
        return self.access.identify(origin, authorization=str(metadata.get(AUTHORIZATION, "")))

    def origin(self, context: Any) -> Caller:
        return _origin(context.peer(), self._encrypted)


class DelegatedCallers:
    """Callers that a front has authenticated: every call names its own."""

    def __init__(self, access: AccessControl | None) -> None:
        self.access = access

    def identify(self, context: Any, method: str) -> Caller:
        metadata = context.invocation_metadata() or ()
        try:
            caller = delegated([value for name, value in metadata if name == DELEGATED])
        except (ValueError, InvalidRequestError) as error:
            problem = f"a front must name its caller in {DELEGATED}: {error}"
            if self.access is not None:
                self.access.note_refusal(Caller("front"), method, problem)
            raise UnauthenticatedError(problem) from error
        if self.access is None:
            return caller._replace(name="", digest="")
        return self.access.accept_delegated(caller)


class NoDelegatedCallers(grpc.GenericRpcHandler):
    """Asked first where callers connect by themselves: refuse a call that names another caller. A
    front on the wrong socket would call as `local`, with all permissions."""

    def __init__(self, callers: Callers) -> None:
        self._callers = callers

    def service(
        self, handler_call_details: grpc.HandlerCallDetails
    ) -> grpc.RpcMethodHandler | None:
        if all(name != DELEGATED for name, _ in handler_call_details.invocation_metadata):
            return None
        method = str(handler_call_details.method)

        async def refuse(_: Any, context: grpc.aio.ServicerContext) -> None:
            begin(context)
            try:
                require_no_delegation(self._callers, context, method)
            except UnauthenticatedError as error:
                await context.abort(*to_status(error))

        return grpc.stream_stream_rpc_method_handler(refuse)


def require_no_delegation(callers: Callers, context: Any, method: str) -> None:
    """UnauthenticatedError, and a line of the audit log, if the call names another caller."""
    if all(name != DELEGATED for name, _ in context.invocation_metadata() or ()):
        return
    problem = f"{DELEGATED} is accepted on a socket for fronts only"
    if callers.access is not None:
        callers.access.note_refusal(callers.identify(context, method), method, problem)
    raise UnauthenticatedError(problem)


def delegation(caller: Caller) -> tuple[str, bytes]:
    """Return the metadata with which a front calls on behalf of `caller`."""
    message = DelegatedCaller(
        user=caller.name,
        token_sha256=caller.digest,
        address=ipaddress.ip_address(caller.host).packed,
        port=caller.port,
        encrypted=caller.encrypted,
    )
    return DELEGATED, message.SerializeToString()


def delegation_text(caller: Caller) -> bytes:
    """The same as the value of a header of HTTP, as gRPC has it on the wire."""
    return base64.b64encode(delegation(caller)[1])


def delegated_by_text(given: Sequence[bytes]) -> Caller:
    """The caller in the values of such headers; errors are those of `delegated`."""
    return delegated([base64.b64decode(one, validate=True) for one in given])


def delegated(given: Sequence[bytes]) -> Caller:
    """The caller that a front names. ValueError, InvalidRequestError: there is not exactly one, or
    it is malformed."""
    if len(given) != 1:
        raise ValueError(f"there are {len(given)}")
    return _decoded(given[0])


@lru_cache(maxsize=4096)
def _decoded(data: bytes) -> Caller:
    try:
        found = DelegatedCaller.FromString(data)
    except DecodeError as error:
        raise ValueError("it is malformed") from error
    if found.user:
        checked_name(found.user)
    if not _DIGEST.fullmatch(found.token_sha256) or (found.token_sha256 and not found.user):
        raise ValueError("its token's digest is malformed")
    if found.port > MAX_PORT:
        raise ValueError("its port is malformed")
    return Caller(
        ip_host(found.address),
        found.port,
        found.encrypted,
        found.user,
        digest=found.token_sha256,
        delegated=True,
    )


@lru_cache(maxsize=4096)
def _origin(peer: str, encrypted: bool) -> Caller:
    """Read gRPC's name of a connection: `ipv4:10.0.0.1:5000`, `ipv6:%5B::1%5D:5000`, `unix:`."""
    if peer.startswith("unix:"):
        return Caller()
    host, _, port = unquote(peer).partition(":")[2].rpartition(":")
    try:
        return Caller(ip_host(host.strip("[]")), int(port), encrypted)
    except ValueError:
        return Caller(NO_HOST, encrypted=encrypted)
