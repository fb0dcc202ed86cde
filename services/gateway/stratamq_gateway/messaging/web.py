"""Requests at the gRPC port that are no gRPC calls: those of browsers and of health checks.

    GET /health              200, as long as the gateway serves
    /console, /console/…     the console's pages
    anything else            404

A request for a page goes on to the console's socket for fronts, over a connection of its own. It
names its caller (`service.grpc_callers`), so that the console checks that caller's permissions and
does not mistake a remote browser for a local one. The connection uses HTTP/1.0, in which the end of
the connection is the end of the answer.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from logging import getLogger
from pathlib import Path
from typing import Any

from stratamq.rpc import discovery
from stratamq.rpc.rooms import CONSOLE
from stratamq.service.caller import Caller
from stratamq.service.grpc_callers import DELEGATED, delegation_text
from stratamq.service.logging import PEERS
from stratamq_gateway.messaging.asgi import Send
from stratamq_gateway.messaging.asgi_calls import Receive

of_peers = getLogger(PEERS)

PAGES, HEALTH = "/console", "/health"
PASSED_ON = frozenset(
    b"accept content-length content-type host hx-request if-modified-since if-none-match "
    b"last-event-id origin range referer sec-fetch-dest sec-fetch-mode sec-fetch-site "
    b"user-agent".split()
)
"""Headers of requests, beside cookies. Who calls is none that a client could send."""
KEPT_BACK = frozenset((b"connection", b"keep-alive", b"transfer-encoding", b"upgrade"))
"""Headers of answers: they are about the connection to the console."""
LIMIT, LIMIT_OF_A_HOST = 256, 64
"""Requests at a time; live pages are requests, too."""
MAX_BODY_BYTES = 32 << 20
"""The limit of a form: a message of 4 MiB of which each byte takes three characters, and more."""
BODY_S, HEAD_S, SEND_S = 60.0, 120.0, 60.0
CHUNK_BYTES = 64 << 10


class _RefusedRequest(Exception):
    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class Web:
    """An ASGI application. Belongs to the event loop."""

    def __init__(self, root: Path, caller_of: Callable[[Mapping[str, Any]], Caller]) -> None:
        """`caller_of`: who asks, by a request's scope; the name is that of a certificate."""
        self._root = root
        self._caller_of = caller_of
        self._open: Counter[str] = Counter()
        """Requests that are being answered, by host."""

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await receive()
            await send({"type": "websocket.close"})
            return
        path = scope["path"]
        try:
            if f"{path}/".startswith(f"{PAGES}/"):
                await self._counted(scope, receive, send)
            elif path == HEALTH:
                await _say(send, 200, "serving")
            else:
                await _say(send, 404, f"the console is at {PAGES}/")
        except _RefusedRequest as refusal:
            await _say(send, refusal.status, str(refusal))
        except (OSError, EOFError) as error:  # TimeoutError is one
            of_peers.info("a page's request ended early", extra={"why": repr(error)})

    async def _counted(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        caller = self._caller_of(scope)
        if self._open[caller.host] >= LIMIT_OF_A_HOST or self._open.total() >= LIMIT:
            raise _RefusedRequest(503, "too many pages are open here: close some, and try again")
        self._open[caller.host] += 1
        try:
            await self._pass_on(scope, caller, receive, send)
        finally:
            self._open[caller.host] -= 1
            if not self._open[caller.host]:
                del self._open[caller.host]

    async def _pass_on(
        self, scope: Mapping[str, Any], caller: Caller, receive: Receive, send: Send
    ) -> None:
        head, size = _head(scope, caller)
        reader, writer = await self._connected()
        try:
            try:
                async with asyncio.timeout(BODY_S):
                    writer.write(head)
                    await _copy_body(receive, writer, size)
            except (OSError, EOFError) as error:
                raise _RefusedRequest(400, f"the form did not come whole: {error!r}") from error
            await _give(reader, send)  # h2corn cancels it when the client leaves
        finally:
            writer.transport.abort()

    async def _connected(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        endpoint = discovery.read(self._root, CONSOLE)
        path = "" if endpoint is None else endpoint.for_pages()
        with suppress(OSError):
            if path:
                return await asyncio.open_unix_connection(path, limit=CHUNK_BYTES)
        raise _RefusedRequest(
            503, "the console is not running here: `stratamq status` says which services are"
        )


def _head(scope: Mapping[str, Any], caller: Caller) -> tuple[bytes, int]:
    """The request's head as the console is given it, and its body's size."""
    target = scope["raw_path"] + (b"?" + scope["query_string"] if scope["query_string"] else b"")
    headers = [(name, value) for name, value in scope["headers"] if name in PASSED_ON]
    cookies = [value for name, value in scope["headers"] if name == b"cookie"]
    if cookies:
        headers.append((b"cookie", b"; ".join(cookies)))  # HTTP/2 has one field for each
    words = (scope["method"].encode(), target, *(value for _, value in headers))
    if any(not _is_plain(word) for word in words) or any(b" " in word for word in words[:2]):
        raise _RefusedRequest(400, "the request has characters that have to be encoded")
    sizes = [value for name, value in headers if name == b"content-length"]
    if scope["method"] not in ("GET", "HEAD") and len(sizes) != 1:
        raise _RefusedRequest(411, "a form comes with its length")
    size = int(sizes[0]) if sizes and sizes[0].isdigit() and len(sizes[0]) < 16 else 0
    if size > MAX_BODY_BYTES:
        raise _RefusedRequest(413, f"a form has {MAX_BODY_BYTES >> 20} MiB at most")
    headers.append((DELEGATED.encode(), delegation_text(caller)))
    lines = [b"%b: %b\r\n" % header for header in headers]
    return b"%b %b HTTP/1.0\r\n%b\r\n" % (words[0], target, b"".join(lines)), size


def _is_plain(word: bytes) -> bool:
    """No character of control, which could end a line."""
    return word.isascii() and all(one >= 0x20 and one != 0x7F for one in word)


async def _copy_body(receive: Receive, writer: asyncio.StreamWriter, size: int) -> None:
    """EOFError: the client has left, or sends more or less than it said."""
    left = size
    while True:
        event = await receive()
        if event["type"] != "http.request":
            raise EOFError("the client has left")
        body = event.get("body", b"")
        left -= len(body)
        if left < 0:
            raise EOFError("the body is longer than was said")
        writer.write(body)
        await writer.drain()
        if not event.get("more_body", False):
            break
    if left:
        raise EOFError("the body is shorter than was said")


async def _give(reader: asyncio.StreamReader, send: Send) -> None:
    """The console's answer."""
    try:
        async with asyncio.timeout(HEAD_S):
            head = await reader.readuntil(b"\r\n\r\n")
    except TimeoutError:
        raise _RefusedRequest(504, "the console does not answer: its log may say why") from None
    except (EOFError, OSError):
        raise _RefusedRequest(502, "the console ended before it answered: try again") from None
    first, *lines = head[:-4].split(b"\r\n")
    headers = []
    for line in lines:
        name, _, value = line.partition(b":")
        if name.lower() not in KEPT_BACK:
            headers.append((name.lower(), value.strip()))
    status = int(first.split(b" ", 2)[1])
    await _sent(send, {"type": "http.response.start", "status": status, "headers": headers})
    while data := await reader.read(CHUNK_BYTES):
        await _sent(send, {"type": "http.response.body", "body": data, "more_body": True})
    await _sent(send, {"type": "http.response.body", "body": b"", "more_body": False})


async def _sent(send: Send, event: dict[str, Any]) -> None:
    """TimeoutError: the client does not read."""
    async with asyncio.timeout(SEND_S):
        await send(event)


async def _say(send: Send, status: int, sentence: str) -> None:
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"cache-control", b"no-store")]
    await _sent(send, {"type": "http.response.start", "status": status, "headers": headers})
    body = f"{sentence}\n".encode()
    await _sent(send, {"type": "http.response.body", "body": body, "more_body": False})
