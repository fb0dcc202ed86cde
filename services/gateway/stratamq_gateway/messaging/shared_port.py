"""One port for clients with TLS and for those in clear.

A port of gRPC's server has TLS or not. So it listens on two ports of this machine, and each
connection to the port that clients know is passed on to one of them, by its first byte:

    client ──► the port ──┬─ a TLS handshake                       ──► gRPC, with TLS
                          ├─ one that offers HTTP/1.1, decrypted   ──► gRPC and pages, in clear
                          └─ anything else                         ──► gRPC and pages, in clear

Bytes are passed on as they are: what is encrypted stays so, but for browsers, whose TLS ends here.
gRPC sees a connection of this machine; `caller` and `certificate` say whose it is.
"""

import asyncio
import socket
import ssl
from collections.abc import Callable

from stratamq.rpc.address import split_address
from stratamq.service.caller import NO_HOST, Caller, common_name, ip_host
from stratamq.service.sockets import AcceptedConnections, first_byte, first_bytes
from stratamq.service.tls import HANDSHAKE, HANDSHAKE_S, Contexts

ALPN = ("h2", "http/1.1")
_OFFERS_HTTP1 = b"\x08http/1.1"
"""In the first message of a browser's handshake: the name, behind its length. gRPC's clients offer
h2 alone."""
_RECORD_HEAD_BYTES, _LARGEST_HELLO_BYTES = 5, 16 << 10
MAX_UNSENT_BYTES = 256 << 10
"""In one direction of a connection: its sender is not read from above them."""
_NO_CALLER = Caller(NO_HOST), ""


class PassingEnd(asyncio.Protocol):
    """One of two connections: what it receives goes out on the other one."""

    transport: asyncio.Transport
    other: "PassingEnd | None" = None

    def __init__(self, lost: Callable[[], object]) -> None:
        self._lost = lost
        self._early: list[bytes] = []
        """Python before 3.11.4 reads although it is paused in `connection_made`."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.set_write_buffer_limits(MAX_UNSENT_BYTES)
        transport.pause_reading()  # until the other one is there

    def join(self, other: "PassingEnd") -> None:
        self.other = other
        other.transport.writelines(self._early)
        if other.transport.is_closing():
            self.transport.close()
        self.transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        if self.other is None:
            self._early.append(data)
        else:
            self.other.transport.write(data)

    def pause_writing(self) -> None:
        if self.other is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None:
            self.other.transport.resume_reading()

    def connection_lost(self, error: Exception | None) -> None:
        self._lost()
        if self.other is not None:
            self.other.transport.close()  # when what it was given has gone out


class SharedPort:
    """Belongs to the event loop."""

    def __init__(self, encrypted: str, clear: str, web: Contexts | None = None) -> None:
        """The addresses at which gRPC listens. `web`: for connections of browsers."""
        self._inner = {True: split_address(encrypted), False: split_address(clear)}
        self._web = web
        self._callers: dict[int, tuple[Caller, str]] = {}
        """By the port from which their bytes come to gRPC, with the name in a certificate."""
        self._ends: set[PassingEnd] = set()
        self._accepted = AcceptedConnections(self._begin)

    def caller(self, port: int) -> Caller:
        """Whose connection it is. A process of this machine that goes around the port, and a client
        that has gone, have no address, and are in clear."""
        return self._callers.get(port, _NO_CALLER)[0]

    def certificate(self, port: int) -> str:
        """The name in the certificate that was shown to this port; "": none was, or to gRPC."""
        return self._callers.get(port, _NO_CALLER)[1]

    async def serve(self, listener: socket.socket) -> None:
        """Until cancelled."""
        await self._accepted.serve(listener)

    def close(self) -> None:
        self._accepted.cancel()
        for end in self._ends:
            end.transport.abort()

    async def _begin(self, connection: socket.socket) -> None:
        host, port, *_ = connection.getpeername()
        context = None
        async with asyncio.timeout(HANDSHAKE_S):
            is_encrypted = await first_byte(connection) == HANDSHAKE
            if is_encrypted and self._web is not None and await _offers_http1(connection):
                context = self._web()
        await self._pass_on(connection, Caller(ip_host(host), port, is_encrypted), context)

    async def _pass_on(
        self, connection: socket.socket, caller: Caller, context: ssl.SSLContext | None
    ) -> None:
        """`context`: the connection's TLS ends here."""
        loop = asyncio.get_running_loop()
        address, port = self._inner[caller.encrypted and context is None]
        # A port that is chosen with the other end known may be that of a connection to the other
        # server as well, and gRPC tells the two apart by nothing else. One that is bound is not.
        _, inner = await loop.create_connection(
            lambda: PassingEnd(lambda: self._callers.pop(own_port, None)),
            address,
            port,
            local_addr=(address, 0),
        )
        own_port: int = inner.transport.get_extra_info("sockname")[1]
        outer = PassingEnd(lambda: self._ends.discard(outer))
        self._callers[own_port] = caller, ""
        handshake_s = None if context is None else HANDSHAKE_S
        try:
            await loop.connect_accepted_socket(
                lambda: outer, connection, ssl=context, ssl_handshake_timeout=handshake_s
            )
        except BaseException:
            inner.transport.abort()
            raise
        shown = outer.transport.get_extra_info("peercert")
        if shown and own_port in self._callers:
            self._callers[own_port] = caller, common_name(shown)
        if not outer.transport.is_closing():
            self._ends.add(outer)
        inner.join(outer)
        outer.join(inner)


async def _offers_http1(connection: socket.socket) -> bool:
    """By the handshake's first record, which stays in the socket."""
    head = await first_bytes(connection, _RECORD_HEAD_BYTES)
    size = _RECORD_HEAD_BYTES + int.from_bytes(head[3:])
    return _OFFERS_HTTP1 in await first_bytes(connection, min(size, _LARGEST_HELLO_BYTES))
