"""The callers of gRPC's calls, as values that no protocol shows in (`service.caller`)."""

from functools import lru_cache
from typing import Any
from urllib.parse import unquote

from stratamq.rpc.permission_file import AUTHORIZATION
from stratamq.service.access import AccessControl
from stratamq.service.caller import NO_HOST, Caller, ip_host


class DirectCallers:
    """Callers that have connected by themselves, through a Unix socket or to the address."""

    def __init__(self, access: AccessControl | None, *, encrypted: bool) -> None:
        """`encrypted`: the address is served over TLS. A Unix socket never is."""
        self.access = access
        self._encrypted = encrypted

    def identify(self, context: Any) -> Caller:
        """Make the caller of a call by its context (grpc.aio)."""
        origin = _origin(context.peer(), self._encrypted)
        if self.access is None:
            return origin
        names: Any = ()
        if origin.encrypted:
            names = context.auth_context().get("x509_common_name", ())
        if names:
            return self.access.identify(origin, names[0].decode("utf-8", "replace"))
        metadata = dict(context.invocation_metadata() or ()) if origin.host else {}
        return self.access.identify(origin, authorization=str(metadata.get(AUTHORIZATION, "")))


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
