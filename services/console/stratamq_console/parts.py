"""What a page is made from: the client of the one who looks, templates, time, rates.

A page module has `routes(parts)`. A page is an async function that gathers a frozen dataclass by
the public client alone and a template that shows it. A change is an `action`, which is called with
a form whose token was checked.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from hmac import compare_digest
from typing import Any

from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route
from starlette.templating import Jinja2Templates

from stratamq.client import AsyncClient
from stratamq.errors import NotPermittedError, UnauthenticatedError
from stratamq.files.port import Clock
from stratamq_console.guards import SESSION
from stratamq_console.history import RateHistory
from stratamq_console.sessions import ConsoleSession, ConsoleSessions

log = logging.getLogger(__name__)

MAX_FORM_FIELDS = 1000
MAX_FIELD_BYTES = 8 << 20
"""A form has a message at most, of 4 MiB, and in a text some characters take more."""
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
        which `{{ csrf() }}` puts into it."""

        async def checked(request: Request) -> Response:
            form = await request.form(max_fields=MAX_FORM_FIELDS, max_part_size=MAX_FIELD_BYTES)
            session = self.session(request)
            given = form.get("csrf", "")
            if not isinstance(given, str) or not compare_digest(
                given.encode(), session.csrf.encode()
            ):
                raise NotPermittedError(
                    "this form is of another session, or too old: load its page again"
                )
            log.info("action", extra={"who": session.user, "path": request.url.path})
            return await act(request, form)

        return Route(path, checked, methods=["POST"])

    def to(self, request: Request, path: str) -> Response:
        """Go to another page after a change, so that loading it again changes nothing twice."""
        return RedirectResponse(request.scope.get("root_path", "") + path, 303)
