"""ConsoleService: messages of the wire in, the console's numbers out."""

from stratamq.api.v1 import console_pb2 as pb
from stratamq.service.entrance import Call
from stratamq_console.sessions import ConsoleSessions


class ConsoleServicer:
    def __init__(self, url: str, sessions: ConsoleSessions) -> None:
        self._url = url
        self._sessions = sessions

    async def GetConsoleStatus(
        self, request: pb.GetConsoleStatusRequest, call: Call
    ) -> pb.GetConsoleStatusResponse:
        return pb.GetConsoleStatusResponse(url=self._url, sessions=len(self._sessions))
