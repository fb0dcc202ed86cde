"""Where a service's gRPC server listens: on its address, and on a socket for its own machine."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import grpc

from stratamq.errors import ConfigurationError
from stratamq.rpc import discovery
from stratamq.rpc.address import is_unix, join_address, split_address
from stratamq.service.ports import TAKEN, PortTakenError, listening_problem
from stratamq.service.socket_listener import SocketListener
from stratamq.service.tls import ServerTls

log = logging.getLogger(__name__)

MAX_STREAMS = 1_024
"""Calls and streams that are open on one connection, as many as `limits.open_calls` gives a client
at first; further ones wait at the client. Streams that were reset count until they are dealt with:
with four times as many, a peer that opens and resets them delayed others by seconds."""
UNREAD_BYTES = 1 << 18
"""Bytes of one call or stream that are received before the service reads. By default gRPC receives
as much as the connection carries in a round trip: some MiB for every call."""
MAX_FRONT_STREAMS = 1 << 16
"""Calls and streams on one connection of a front: it has many callers, each with `[limits]`."""
MAX_PENDING_CALLS = 1 << 16
"""Calls of all connections that have arrived and are not accepted yet. Above 1 000 gRPC cancels
some of them at random by default, as soon as the event loop is busy for a moment."""
# Finds a follower whose machine vanished, without a FIN, within 30 s.
KEEPALIVE_INTERVAL_MS = 20_000
KEEPALIVE_TIMEOUT_MS = 10_000
# Java clients may ping every 10 s; the default of 5 minutes answers them with GOAWAY.
CLIENT_PING_INTERVAL_MS = 5_000


def channel_options(max_message_bytes: int) -> Sequence[tuple[str, Any]]:
    """Return the options of a server that accepts requests up to this size. A response has at least
    one stored message, regardless of its size."""
    return (
        ("grpc.max_receive_message_length", max_message_bytes),
        ("grpc.max_send_message_length", -1),  # the services bound what they send
        ("grpc.max_concurrent_streams", MAX_STREAMS),
        ("grpc.server.max_pending_requests", MAX_PENDING_CALLS),
        ("grpc.server.max_pending_requests_hard_limit", MAX_PENDING_CALLS),
        ("grpc.http2.bdp_probe", 0),
        ("grpc.http2.lookahead_bytes", UNREAD_BYTES),
        # A second start on the same port must fail. gRPC sets SO_REUSEADDR by itself: connections
        # that the service had accepted before a restart do not keep its port.
        ("grpc.so_reuseport", 0),
        ("grpc.keepalive_time_ms", KEEPALIVE_INTERVAL_MS),
        ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.http2.min_ping_interval_without_data_ms", CLIENT_PING_INTERVAL_MS),
    )


def listen(server: grpc.aio.Server, address: str, room: str, tls: ServerTls | None) -> str:
    """The address bound. ConfigurationError."""
    if not is_unix(address):
        host, _ = split_address(address)
    try:
        if tls is None or is_unix(address):
            port = server.add_insecure_port(address)
        else:
            port = server.add_secure_port(address, tls.grpc_credentials())
    except RuntimeError as error:
        fault = f"{room} cannot listen on {address}"
        if is_unix(address):
            raise ConfigurationError([f"{fault}: {error}"]) from error
        # gRPC gives no reason. What is free by now was taken a moment ago.
        problem = listening_problem(*split_address(address)) or TAKEN
        kind = PortTakenError if problem == TAKEN else ConfigurationError
        raise kind([f"{fault}: {problem}"]) from error
    return address if is_unix(address) else join_address(host, port)


def front_options(options: Sequence[tuple[str, Any]]) -> Sequence[tuple[str, Any]]:
    """Return the options of the server for fronts."""
    return (*{**dict(options), "grpc.max_concurrent_streams": MAX_FRONT_STREAMS}.items(),)


def listen_locally(server: grpc.aio.Server, root: Path, name: str) -> str:
    """The socket for processes of this machine; "" where none can be: they use the address."""
    try:
        path = discovery.make_socket_directory(root) / f"{name}{discovery.SOCKET_SUFFIX}"
        path.unlink(missing_ok=True)  # of a process that was killed: the service's lock is ours
        server.add_insecure_port(f"{discovery.UNIX}{path}")
        path.chmod(0o600)
    except (OSError, RuntimeError) as error:
        log.warning("no local socket", extra={"reason": str(error)})
        return ""
    return f"{discovery.UNIX}{path}"


async def listen_without_grpc(listener: SocketListener, socket: str) -> None:
    """Beside the socket for gRPC. Where that cannot be, callers use gRPC."""
    path = Path(discovery.calls_path(socket.removeprefix(discovery.UNIX)))
    try:
        await listener.listen(path)
    except OSError as error:
        log.warning("no socket for calls without gRPC", extra={"reason": str(error)})
