"""The table of requests, and the connections on which they come."""

import asyncio
import socket
from collections.abc import Mapping

from stratamq.rpc.permissions import EDGE_RULES, RULES
from stratamq.service.access import AccessControl
from stratamq.service.client_limits import ClientLimits
from stratamq.service.entrance import Entrance
from stratamq.service.front import Front
from stratamq.service.recorder import Recorder
from stratamq.service.sockets import AcceptedConnections, first_byte
from stratamq.service.tls import HANDSHAKE, HANDSHAKE_S, ServerTls
from stratamq_gateway.codes import RequestCode
from stratamq_gateway.connection import Connection, Handler
from stratamq_gateway.members import ConnectedClients


class Listener:
    """Belongs to the event loop."""

    def __init__(
        self,
        front: Front,
        members: ConnectedClients,
        handlers: Mapping[RequestCode, Handler],
        access: AccessControl | None,
        limits: ClientLimits | None,
        recorder: Recorder | None,
        tls: ServerTls | None,
    ) -> None:
        """`tls`: connections that begin with a handshake are encrypted, others stay in clear."""
        self._front = front
        self._contexts = None if tls is None else tls.contexts(require_client_certificates=False)
        self.members = members
        self._table = {
            int(code): (
                Entrance(
                    access, limits, recorder, code.name, (RULES | EDGE_RULES)[handler.use_case]
                ),
                handler,
            )
            for code, handler in handlers.items()
        }
        self.connections: set[Connection] = set()
        self._accepted = AcceptedConnections(self._begin)

    async def serve(self, listener: socket.socket) -> None:
        """Until cancelled."""
        await self._accepted.serve(listener)

    async def _begin(self, connection: socket.socket) -> None:
        context = None
        if self._contexts is not None:
            async with asyncio.timeout(HANDSHAKE_S):
                if await first_byte(connection) == HANDSHAKE:
                    context = self._contexts()
        limit = None if context is None else HANDSHAKE_S
        await asyncio.get_running_loop().connect_accepted_socket(
            self._connection, connection, ssl=context, ssl_handshake_timeout=limit
        )

    def _connection(self) -> Connection:
        return Connection(self._front, self._table, self)

    def opened(self, channel: Connection) -> None:
        self.connections.add(channel)

    def closed(self, channel: Connection) -> None:
        self.connections.discard(channel)
        self.members.closed(channel)

    async def close(self) -> None:
        self._accepted.cancel()
        for connection in list(self.connections):
            connection.close()
