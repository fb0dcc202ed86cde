"""TLS on the replication port: an end in front of the protocol, which goes on over a socket pair.

    other broker ══ TLS ══ this end ── socket pair ── `Peer`, `Slave`, `ask`: as without TLS

The first byte of a connection is 22 when a TLS handshake begins; RocketMQ's slave begins with eight
bytes of an offset, StrataMQ's with a mark: neither has that byte. A connection in clear is taken
from the addresses in `ha.rocketmq_slaves` alone, and may speak RocketMQ's protocol only. Everyone
else shows a certificate of `tls.ca` whose name is one of `tls.members`.
"""

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Collection

from stratamq.rpc.address import split_address
from stratamq.service.caller import common_name
from stratamq.service.sockets import first_byte
from stratamq.service.tls import HANDSHAKE, HANDSHAKE_S, ServerTls

log = logging.getLogger(__name__)

PIECE_BYTES = 256 << 10


class NotAMember(ConnectionError):
    """The peer is not one that may connect; the text has the reason."""


class InClear:
    """Handles connections when authentication is enabled without TLS: clients cannot authenticate,
    so only slaves at listed addresses are served."""

    def __init__(self, rocketmq_slaves: Collection[str]) -> None:
        self._in_clear = frozenset(rocketmq_slaves)

    async def accepted(self, connection: socket.socket, address: str) -> tuple[socket.socket, bool]:
        """Like `Encryption.accepted`. Raises NotAMember."""
        if split_address(address)[0] not in self._in_clear:
            raise NotAMember(
                "this broker asks who calls (access.file), and its slaves cannot tell without TLS: "
                "set tls.certificate, or name their addresses in ha.allowed_slaves"
            )
        return connection, True


class Encryption:
    """TLS for one replication service, on its event loop. Ends are closed with their
    connections.
    """

    def __init__(
        self, tls: ServerTls, members: Collection[str], rocketmq_slaves: Collection[str]
    ) -> None:
        self._members = frozenset(members)
        self._in_clear = frozenset(rocketmq_slaves)
        self._server = tls.contexts(require_client_certificates=True)
        self._client = tls.client_contexts()
        self._ends: set[asyncio.Task[None]] = set()

    async def accepted(self, connection: socket.socket, address: str) -> tuple[socket.socket, bool]:
        """The socket on which the protocol goes on, and whether the peer speaks in clear.

        NotAMember, OSError (ssl.SSLError, TimeoutError), EOFError; `connection` is the caller's to
        close then."""
        async with asyncio.timeout(HANDSHAKE_S):
            if await first_byte(connection) != HANDSHAKE:
                if split_address(address)[0] not in self._in_clear:
                    raise NotAMember(
                        "it speaks in clear, and its address is not among ha.rocketmq_slaves"
                    )
                return connection, True
            reader, writer = await _encrypted(connection, self._server(), None)
        return self._joined(reader, writer), False

    async def connected(self, connection: socket.socket, host: str) -> socket.socket:
        """Like `accepted`, for a connection to a member at `host`, whose certificate must name
        it.
        """
        async with asyncio.timeout(HANDSHAKE_S):
            reader, writer = await _encrypted(connection, self._client(), host)
        return self._joined(reader, writer)

    def _joined(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> socket.socket:
        name = common_name(writer.get_extra_info("peercert"))
        if name not in self._members:
            writer.transport.abort()
            raise NotAMember(f"the name in its certificate is {name!r}, not one of tls.members")
        ours, end = socket.socketpair()
        ours.setblocking(False)
        end.setblocking(False)
        task = asyncio.get_running_loop().create_task(_carry(reader, writer, end))
        self._ends.add(task)
        task.add_done_callback(self._ends.discard)
        return ours


async def _encrypted(
    connection: socket.socket, context: ssl.SSLContext, host: str | None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(PIECE_BYTES)
    protocol = asyncio.StreamReaderProtocol(reader)
    if host is None:
        made = loop.connect_accepted_socket(lambda: protocol, connection, ssl=context)
    else:
        made = loop.create_connection(
            lambda: protocol, sock=connection, ssl=context, server_hostname=host
        )
    transport, _ = await made
    return reader, asyncio.StreamWriter(transport, protocol, reader, loop)


async def _carry(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, end: socket.socket
) -> None:
    """Both ways until either side has closed; then both are closed, as by a broken connection."""
    ways = [
        asyncio.ensure_future(_inward(reader, end)),
        asyncio.ensure_future(_outward(end, writer)),
    ]
    try:
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for way in ways:
            way.cancel()
        ended = await asyncio.gather(*ways, return_exceptions=True)
        end.close()
        writer.transport.abort()
    for problem in ended:
        if isinstance(problem, Exception) and not isinstance(problem, OSError):
            log.error("an encrypted connection failed", exc_info=problem)


async def _inward(reader: asyncio.StreamReader, end: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    while piece := await reader.read(PIECE_BYTES):
        await loop.sock_sendall(end, piece)


async def _outward(end: socket.socket, writer: asyncio.StreamWriter) -> None:
    loop = asyncio.get_running_loop()
    while piece := await loop.sock_recv(end, PIECE_BYTES):
        writer.write(piece)
        await writer.drain()
    with contextlib.suppress(OSError):
        writer.close()
        await writer.wait_closed()
