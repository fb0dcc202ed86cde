"""Pages through a front, as the gateway's port: the front names who asks there.

    a browser ──► the gateway's port ──► console-front.http, beside the service's sockets, as this
                                         user's alone, with a header that names the caller

The header counts there alone, and has to be there: a front's connection is one of this machine,
and a request without a caller would have what this machine may do. Where authentication is off,
only browsers of this machine are given pages.
"""

import logging
import socket
from pathlib import Path

from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from stratamq.errors import InvalidRequestError
from stratamq.rpc import discovery
from stratamq.rpc.rooms import CONSOLE
from stratamq.service.caller import is_loopback
from stratamq.service.grpc_callers import DELEGATED, delegated_by_text
from stratamq.service.sockets import BACKLOG
from stratamq_console.guards import PROVED, Guards
from stratamq_console.sessions import ConsoleSessions

log = logging.getLogger(__name__)

PREFIX = "/console"
_HEADER = DELEGATED.encode()
OTHERS_MACHINE = (
    "the pages are for browsers of the broker's own machine, because this broker does not ask who "
    "calls: open them there, or through `ssh -L 8081:127.0.0.1:8081 HOST`, or set access.file "
    "(`stratamq acl init`)\n"
)


class BehindFront:
    """An ASGI application for the socket of fronts."""

    def __init__(self, pages: Guards, sessions: ConsoleSessions) -> None:
        self._pages = pages.under(PREFIX)
        self._sessions = sessions

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            caller = delegated_by_text([v for name, v in scope["headers"] if name == _HEADER])
        except (ValueError, InvalidRequestError) as error:
            sentence = f"a front must name its caller in {DELEGATED}: {error}\n"
            await PlainTextResponse(sentence, 403)(scope, receive, send)
            return
        if not self._sessions.asks_who_calls and not is_loopback(caller.host):
            await PlainTextResponse(OTHERS_MACHINE, 403)(scope, receive, send)
            return
        scope["client"] = caller.host, caller.port
        scope["scheme"] = "https" if caller.encrypted else "http"
        scope[PROVED] = caller if caller.name else None
        await self._pages(scope, receive, send)


def listen_for_fronts(root: Path) -> socket.socket | None:
    """None: there can be no socket, and no front has the pages."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        directory = discovery.make_socket_directory(root)
        path = Path(discovery.pages_path(directory / f"{CONSOLE}{discovery.FRONT}.sock"))
        path.unlink(missing_ok=True)  # of a process that was killed: the service's lock is ours
        listener.bind(str(path))
        path.chmod(0o600)
        listener.listen(BACKLOG)
    except OSError as error:
        log.warning("no socket for the pages of fronts", extra={"reason": str(error)})
        listener.close()
        return None
    listener.setblocking(False)
    return listener
