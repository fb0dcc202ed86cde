"""Login and logout, where authentication is on: a token, or a client's certificate."""

from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from stratamq.errors import UnauthenticatedError
from stratamq.service.caller import NO_HOST, Caller, ip_host
from stratamq_console.guards import LOGIN, set_session_cookie
from stratamq_console.parts import PageParts

MAX_TARGET = 2000
IN_CLEAR = (
    "This connection is not encrypted, and a token would be read on the way: use https, or the "
    "broker's own machine."
)


def routes(parts: PageParts) -> list[BaseRoute]:
    async def show(request: Request) -> Response:
        if not parts.sessions.asks_who_calls:
            return parts.to(request, "/")
        to = _target(request.query_params.get("to", ""))
        if not _origin(request).is_private:
            # A token that is typed here would cross the network before it is refused.
            return parts.render(
                request, "login.html", {"problem": IN_CLEAR, "to": to, "asks": False}
            )
        return parts.render(request, "login.html", {"problem": "", "to": to, "asks": True})

    async def log_in(request: Request, form: FormData) -> Response:
        to = _target(str(form.get("to", "")))
        if not parts.sessions.asks_who_calls:
            return parts.to(request, "/")
        try:
            session = await parts.sessions.begin(
                _origin(request), str(form.get("token", "")).strip()
            )
        except UnauthenticatedError as error:
            view = {"problem": error.message, "to": to, "asks": True}
            return parts.render(request, "login.html", view, 401)
        response = parts.to(request, to)
        set_session_cookie(response, session.number, request.scope)
        return response

    async def log_out(request: Request, form: FormData) -> Response:
        await parts.sessions.end(parts.session(request).number)
        return parts.to(request, LOGIN)

    return [Route(LOGIN, show), parts.action(LOGIN, log_in), parts.action("/logout", log_out)]


def _target(path: str) -> str:
    """Where to go on; a path of the console alone."""
    is_ours = path.startswith("/") and path[1:2] not in ("/", "\\") and len(path) <= MAX_TARGET
    return path if is_ours and path.isprintable() else "/"


def _origin(request: Request) -> Caller:
    client = request.client
    try:
        host = ip_host(client.host) if client is not None else NO_HOST
    except ValueError:
        host = NO_HOST
    return Caller(
        host, client.port if client is not None else 0, encrypted=request.url.scheme == "https"
    )
