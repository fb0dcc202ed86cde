"""The console's application, from its parts."""

import secrets
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from jinja2 import DictLoader, Environment, StrictUndefined
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute
from starlette.templating import Jinja2Templates

from stratamq.errors import (
    BusyError,
    InvalidRequestError,
    NotFoundError,
    NotPermittedError,
    NotWritableError,
    OffsetOutOfRangeError,
    StrataError,
    UnauthenticatedError,
    UnavailableError,
)
from stratamq.files.port import Clock
from stratamq.rpc.address import split_address
from stratamq_console import navigation
from stratamq_console.config import ConsoleConfig
from stratamq_console.guards import SESSION, Guards
from stratamq_console.history import RateHistory
from stratamq_console.metrics import FAILED
from stratamq_console.other_shards import OtherShards
from stratamq_console.pages import (
    cluster,
    dead_letters,
    groups,
    live,
    login,
    messages,
    overview,
    sending,
    storage,
    topics,
    where,
)
from stratamq_console.parts import PageParts
from stratamq_console.sessions import ConsoleSession, ConsoleSessions
from stratamq_console.showing import FILTERS
from stratamq_console.static_files import static_files

HERE = Path(__file__).parent
LONGEST_SENTENCE = 1000
"""Characters of an error; some sentences name what was typed."""
PAGES = (
    overview,
    topics,
    messages,
    live,
    where,
    sending,
    dead_letters,
    groups,
    storage,
    cluster,
    login,
)
STATUSES: tuple[tuple[type[StrataError], int], ...] = (
    (OffsetOutOfRangeError, 404),
    (NotFoundError, 404),
    (InvalidRequestError, 400),
    (NotPermittedError, 403),
    (UnauthenticatedError, 401),
    (NotWritableError, 409),
    (BusyError, 503),
    (UnavailableError, 503),
)
"""HTTP statuses of errors of calls, by the first class that fits; other errors are 500."""
TITLES = {
    400: "This cannot be done",
    401: "Log in",
    403: "Not permitted",
    404: "Not found",
    405: "Not found",
    409: "The broker does not take this now",
    413: "Too large",
    503: "A service does not respond",
}


def console_app(
    sessions: ConsoleSessions,
    history: RateHistory,
    clock: Clock,
    config: ConsoleConfig,
    shards: OtherShards | None = None,
    files: Path = HERE,
) -> Guards:
    """What a server serves. `shards`: the others, where the settings name them. `files`: where
    templates and static files are, which are read now and never again: an upgrade in place does
    not mix with what runs."""
    parts = PageParts(
        sessions, templates(sessions, files / "templates"), clock, history, config.decoders, shards
    )
    static = static_files(files / "static")
    routes: Iterable[BaseRoute] = [route for page in PAGES for route in page.routes(parts)]

    async def failed(request: Request, error: Exception) -> Response:
        return _error_page(parts, request, error)

    handlers: dict[Any, Any] = {StrataError: failed, HTTPException: failed, Exception: failed}
    app = Starlette(routes=[*routes, static], exception_handlers=handlers)
    host, _ = split_address(config.http_address)
    return Guards(app, sessions, [host, *config.hosts], config.path)


def templates(sessions: ConsoleSessions, directory: Path) -> Jinja2Templates:
    """Values are escaped always; a name that a template misspells is an error. A template is
    compiled at its first use, for which the start does not wait."""
    sources = {one.name: one.read_text(encoding="utf-8") for one in directory.glob("*.html")}
    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        loader=DictLoader(sources),
        auto_reload=False,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= FILTERS
    return Jinja2Templates(env=environment, context_processors=[_values(sessions)])


def _values(sessions: ConsoleSessions) -> Any:
    def template_values(request: Request) -> dict[str, Any]:
        """What every template has beside its view."""
        session: ConsoleSession = request.scope[SESSION]
        prefix = request.scope.get("root_path", "")
        path = request.scope["path"].removeprefix(prefix)
        return {
            "root": prefix,
            "path": path,
            "navigation": navigation.NAVIGATION,
            "here": navigation.current(path),
            "user": session.user,
            "logs_in": sessions.asks_who_calls,
            "logged_in": session.client is not None,
            "csrf_token": session.csrf,
            "once": secrets.token_hex(8),
            "may": lambda method, name="": sessions.may(session, method, name),
        }

    return template_values


def _error_page(parts: PageParts, request: Request, error: Exception) -> Response:
    if isinstance(error, HTTPException):
        status, sentence = error.status_code, error.detail
        if status in (404, 405):
            sentence = f"There is no page {request.url.path}."
    elif isinstance(error, StrataError):
        status = next((one for kind, one in STATUSES if isinstance(error, kind)), 500)
        sentence = error.message
    else:
        status, sentence = 500, "An error of the console: its log has the reason."
    if status >= 500:
        FAILED.inc()
    if len(sentence) > LONGEST_SENTENCE:
        sentence = f"{sentence[:LONGEST_SENTENCE]}…"
    view = {"title": TITLES.get(status, "An error"), "sentence": sentence, "again": status == 503}
    return parts.render(request, "error.html", view, status)
