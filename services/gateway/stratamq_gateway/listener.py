"""The table of requests, and the connections on which they come."""

import asyncio
import socket
from collections.abc import Mapping

from stratamq.rpc.permissions import RULES
from stratamq.service.access import AccessControl
from stratamq.service.client_limits import ClientLimits
from stratamq.service.entrance import Entrance
from stratamq.service.front import Front
from stratamq.service.ports import BACKLOG
from stratamq.service.recorder import Recorder
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
    ) -> None:
        self._front = front
        self.members = members
        self._table = {
            int(code): (
                Entrance(access, limits, recorder, code.name, RULES[handler.use_case]),
                handler,
            )
            for code, handler in handlers.items()
        }
        self.connections: set[Connection] = set()
        self._server: asyncio.Server | None = None

    async def serve(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._connection, sock=listener, backlog=BACKLOG)

    def _connection(self) -> Connection:
        connection = Connection(self._front, self._table, self)
        self.connections.add(connection)
        return connection

    def closed(self, channel: Connection) -> None:
        self.connections.discard(channel)
        self.members.closed(channel)

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for connection in list(self.connections):
            connection.transport.close()
        if self._server is not None:
            await self._server.wait_closed()
