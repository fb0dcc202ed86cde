"""The console's pages in this process, over a real broker: requests as a browser makes them."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path

import httpx
from stratamq_console.app import HERE, console_app
from stratamq_console.config import ConsoleConfig
from stratamq_console.fronting import BehindFront
from stratamq_console.history import RateHistory
from stratamq_console.other_shards import other_shards
from stratamq_console.sessions import COOKIE, ConsoleSessions

from stratamq.client import AsyncClient
from stratamq.files.clock import SystemClock
from stratamq.rpc.credentials import Credentials
from stratamq.rpc.endpoints import Endpoints
from stratamq.service.access import AccessConfig, access_control
from stratamq.service.caller import Caller
from stratamq.service.front import Front
from stratamq.service.grpc_callers import DELEGATED, delegation_text

ADDRESS = "127.0.0.1:10980"
ANSWER_S = 20.0
CSRF = re.compile(r'name="csrf" value="([0-9a-f]+)"')


@dataclass(slots=True)
class Browser:
    """Keeps cookies, follows no redirects. `post` sends a form with the token of its session."""

    http: httpx.AsyncClient
    sessions: ConsoleSessions
    history: RateHistory
    own: AsyncClient

    @property
    def cookie_name(self) -> str:
        port = self.http.base_url.port
        return f"{COOKIE}-{port}" if port is not None else COOKIE

    @property
    def cookie(self) -> str:
        """The session's; "" before the first page."""
        return self.http.cookies.get(self.cookie_name, "")

    async def get(self, path: str, **headers: str) -> httpx.Response:
        return await self.http.get(path, headers=headers)

    async def post(self, path: str, **fields: str) -> httpx.Response:
        if not self.cookie:
            await self.get("/login")
        number = self.cookie
        session = self.sessions.find(number) or self.sessions.anonymous(number)
        return await self.http.post(path, data={"csrf": session.csrf, **fields})

    async def log_in(self, token: str) -> httpx.Response:
        await self.get("/login")
        return await self.post("/login", token=token)


@asynccontextmanager
async def browsing(
    root: Path,
    access_file: Path | None = None,
    host: str = ADDRESS,
    caller: Caller | None = None,
    files: Path = HERE,
    **settings: object,
) -> AsyncIterator[Browser]:
    """A console over the broker of `root`, and a browser that reaches it as `host`, or as this
    caller of a front."""
    clock = SystemClock()
    own, front = AsyncClient(Endpoints(root), timeout_s=ANSWER_S), Front(root)
    access = access_control(AccessConfig(file=access_file), ())
    sessions = ConsoleSessions(own, front.client, access, clock, 60)
    history = RateHistory(clock)
    config = ConsoleConfig(root=root, http_address=ADDRESS, **settings)
    shards = other_shards(config, Credentials(), access is not None)
    app, headers = console_app(sessions, history, clock, config, shards, files), {}
    if caller is not None:
        app, headers = BehindFront(app, sessions), {DELEGATED: delegation_text(caller).decode()}
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    scheme = "https" if caller is not None and caller.encrypted else "http"
    async with httpx.AsyncClient(
        transport=transport, base_url=f"{scheme}://{host}", headers=headers
    ) as http:
        yield Browser(http, sessions, history, own)
    if shards is not None:
        await shards.close()
    await sessions.close()
    await front.close()
    await own.close()


class _Texts(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.parts: list[str] = []

    def handle_data(self, data: str) -> None:
        self.parts.append(data)


def text_of(page: httpx.Response) -> str:
    """What a reader sees, with single spaces."""
    parser = _Texts()
    parser.feed(page.text)
    return " ".join(" ".join(parser.parts).split())
