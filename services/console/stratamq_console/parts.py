"""What a page is made from: the client of the one who looks, templates, time, rates.

A page module has `routes(parts)`. A page is an async function that gathers a frozen dataclass by
the public client alone and a template that shows it. A change is an `action`, which is called with
a form whose token was checked.
"""

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from hmac import compare_digest
from typing import Any

from starlette.datastructures import FormData
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route
from starlette.templating import Jinja2Templates
from starlette.types import Message, Receive

from stratamq.client import AsyncClient
from stratamq.errors import (
    BusyError,
    InvalidRequestError,
    NotPermittedError,
    UnauthenticatedError,
)
from stratamq.files.port import Clock
from stratamq_console.guards import SESSION, cookie_of
from stratamq_console.history import RateHistory
from stratamq_console.other_shards import OtherShards
from stratamq_console.sessions import ConsoleSession, ConsoleSessions

log = logging.getLogger(__name__)

MAX_FORM_FIELDS = 1000
MAX_FIELD_BYTES = 8 << 20
"""A form has a message at most, of 4 MiB, and in a text some characters take more."""
MAX_FORM_BYTES, MAX_LOGIN_BYTES = 16 << 20, 64 << 10
"""Read of a form at most; of one of a browser that has not logged in."""
MAX_FORMS = 32
"""Forms of one user that are read at a time."""
MAX_ONCE, LONGEST_ONCE = 4096, 64
"""Forms that were sent and are remembered: the newest; characters of what tells them apart."""
LONGEST_LOGGED = 100
NOT_LOGGED = frozenset(("csrf", "once", "token", "body", "properties"))
Action = Callable[[Request, FormData], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class PageParts:
    """Given to the `routes` of each page."""

    sessions: ConsoleSessions
    templates: Jinja2Templates
    clock: Clock
    history: RateHistory
    decoders: Sequence[str] = ()
    """Those of bodies, as the settings have them."""
    shards: OtherShards | None = None
    """Asked by the console's own right: who may not observe sees nothing of them."""
    reading: Counter[str] = field(default_factory=Counter)
    """Forms that are being read, by user."""
    sent: dict[tuple[str, str], None] = field(default_factory=dict)
    """Session and number of the forms that `only_once` has seen, the oldest first."""

    def session(self, request: Request) -> ConsoleSession:
        found = request.scope[SESSION]
        assert isinstance(found, ConsoleSession)
        return found

    def client(self, request: Request) -> AsyncClient:
        """The client that calls on behalf of the one who looks. It stays open with the session."""
        client = self.session(request).client
        if client is None:
            raise UnauthenticatedError("log in first")
        return client

    def may(self, request: Request, method: str, name: str = "") -> bool:
        """Whether a button of a call of `method` about the topic or group `name` is shown."""
        return self.sessions.may(self.session(request), method, name)

    def render(self, request: Request, template: str, view: Any, status: int = 200) -> Response:
        """The page. Templates have `view`, and what `app.template_values` gives all of them."""
        return self.templates.TemplateResponse(request, template, {"view": view}, status)

    def action(self, path: str, act: Action) -> Route:
        """A route for POST. `act(request, form)` is called if the form has its session's token,
        which `{{ csrf() }}` puts into it. Of a browser without a session's cookie, as of one that
        comes from another site, nothing is read."""

        async def checked(request: Request) -> Response:
            session = self.session(request)
            refusal = NotPermittedError(
                "this form is of another session, or too old: load its page again"
            )
            if cookie_of(request.headers) != session.number:
                raise refusal
            form = await self._read(request, session)
            given = form.get("csrf", "")
            if not isinstance(given, str) or not compare_digest(
                given.encode(), session.csrf.encode()
            ):
                raise refusal
            log.info("action", extra=_log_fields(request, session, form))
            return await act(request, form)

        return Route(path, checked, methods=["POST"])

    async def _read(self, request: Request, session: ConsoleSession) -> FormData:
        user = session.user
        if session.client is not None and self.reading[user] >= MAX_FORMS:
            raise BusyError(f"{MAX_FORMS} forms are being sent: wait for one of them", 5_000)
        most = MAX_LOGIN_BYTES if session.client is None else MAX_FORM_BYTES
        self.reading[user] += 1
        try:
            return await Request(request.scope, _bounded(request.receive, most)).form(
                max_files=0, max_fields=MAX_FORM_FIELDS, max_part_size=MAX_FIELD_BYTES
            )
        finally:
            self.reading[user] -= 1
            if not self.reading[user]:
                del self.reading[user]

    def only_once(self, request: Request, form: FormData) -> None:
        """InvalidRequestError for a form that came before: a double click, or a page that was
        loaded again, would store its messages twice."""
        number = form.get("once", "")
        if not isinstance(number, str) or not number:
            return
        if len(number) > LONGEST_ONCE:
            raise InvalidRequestError("this form is damaged: load its page again")
        sent = self.session(request).number, number
        if sent in self.sent:
            raise InvalidRequestError(
                "this form was sent before, and once is enough: load its page again to do it again"
            )
        self.sent[sent] = None
        if len(self.sent) > MAX_ONCE:
            del self.sent[next(iter(self.sent))]

    def to(self, request: Request, path: str) -> Response:
        """Go to another page after a change, so that loading it again changes nothing twice."""
        return RedirectResponse(request.scope.get("root_path", "") + path, 303)


def _log_fields(request: Request, session: ConsoleSession, form: FormData) -> dict[str, str]:
    """Who asked for what, for the log; no token and no body."""
    asked = (
        f"{name[:LONGEST_LOGGED]}={value[:LONGEST_LOGGED]}"
        for name, value in form.multi_items()
        if name not in NOT_LOGGED and isinstance(value, str)
    )
    peer = request.client.host if request.client is not None else ""
    shown = " ".join(asked)
    if len(shown) > 10 * LONGEST_LOGGED:
        shown = f"{shown[: 10 * LONGEST_LOGGED]}…"
    return {"who": session.user, "peer": peer, "path": request.url.path, "asked": shown}


def _bounded(receive: Receive, most: int) -> Receive:
    left = most

    async def receiving() -> Message:
        nonlocal left
        message = await receive()
        left -= len(message.get("body", b""))
        if left < 0:
            raise HTTPException(413, f"A form has at most {most} bytes.")
        return message

    return receiving
