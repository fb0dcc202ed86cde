"""What every request passes before a page: host, session, and the headers of each answer.

host         where authentication is off, one that this console is reached by: a page of another
             site that has its name point here could read the broker otherwise
site         a page of another site neither sends a form nor asks for a part of a page: browsers say
             whose page asks, also where that is another port of this host, which shares cookies
session      the cookie's; without a login every page but that of the login leads there
headers      scripts and styles of the console's own files alone, nothing in the page itself,
             no frames, nothing kept by the browser or a proxy but static files
"""

from collections.abc import Callable, Collection
from urllib.parse import quote, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from stratamq.rpc.address import is_loopback_host
from stratamq_console.metrics import REQUESTS
from stratamq_console.sessions import COOKIE, ConsoleSessions

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
STATIC, LOGIN = "/static/", "/login"
SESSION = "stratamq.session"
PROVED = "stratamq.proved"
"""In a request's scope: the `Caller` whose certificate a front has verified."""
HTMX = "hx-request"
OTHER_SITES = ("cross-site", "same-site")
LONGEST_NAME = 253


class Guards:
    """Around the routes of the console."""

    def __init__(
        self, app: ASGIApp, sessions: ConsoleSessions, hosts: Collection[str], prefix: str = ""
    ) -> None:
        """`hosts`: names that the console is reached by, beside loopback. `prefix`: what a proxy
        has before the paths."""
        self._app = app
        self._sessions = sessions
        self._hosts = frozenset(one.lower() for one in hosts)
        self._prefix = prefix

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers, path = Headers(scope=scope), scope["path"]
        prefix = self._prefix if f"{path}/".startswith(f"{self._prefix}/") else ""
        scope["root_path"], path = prefix, path.removeprefix(prefix)
        given = cookie_of(headers)
        is_static, proved = path.startswith(STATIC), scope.get(PROVED)
        session = self._sessions.find(given, proved)
        if session is None and proved is not None and path != LOGIN and not is_static:
            session = await self._sessions.begin_proved(proved)
        session = session or self._sessions.anonymous(given)
        scope[SESSION] = session
        cookie = "" if session.number == given else _set_cookie(session.number, scope, prefix)
        send = _with_headers(send, cookie, is_static=is_static)
        app: ASGIApp = self._app
        name = _host_name(headers)
        if not self._sessions.asks_who_calls and not self._is_ours(name):
            app = PlainTextResponse(
                f"{name[:LONGEST_NAME]!r} is not a name of this console: use its address, or name "
                "it in console.hosts; behind a proxy, which others reach, set access.file first\n",
                421,
            )
        elif _is_of_another_site(scope["method"], headers):
            app = PlainTextResponse(
                "a page of another site asked for this: open the console's own page\n", 403
            )
        elif prefix and not path:
            app = RedirectResponse(f"{prefix}/", 303)
        elif session.client is None and path != LOGIN and not is_static:
            app = _to_login(Request(scope), prefix, path)
        await app(scope, receive, send)

    def under(self, prefix: str) -> "Guards":
        """The same pages, with another path before theirs."""
        return Guards(self._app, self._sessions, self._hosts, prefix)

    def _is_ours(self, name: str) -> bool:
        return is_loopback_host(name) or name in self._hosts


def set_session_cookie(response: Response, number: str, scope: Scope) -> None:
    response.headers.append("Set-Cookie", _set_cookie(number, scope, scope.get("root_path", "")))


def _to_login(request: Request, prefix: str, path: str) -> Response:
    if request.method != "GET":
        return PlainTextResponse("log in first\n", 401)
    query = f"?{request.url.query}" if request.url.query else ""
    target = f"{prefix}{LOGIN}?to={quote(quote(path) + query, safe='')}"
    if HTMX in request.headers:
        return Response(status_code=401, headers={"HX-Redirect": target})
    return RedirectResponse(target, 303)


def _host_name(headers: Headers) -> str:
    """By which the browser has come; "" for one that is none."""
    try:
        return urlsplit(f"//{headers.get('host', '')}").hostname or ""
    except ValueError:
        return ""


def _is_of_another_site(method: str, headers: Headers) -> bool:
    """Whether another site's page asks for more than that the user follows a link."""
    if headers.get("sec-fetch-site") not in OTHER_SITES:
        return False
    opens = headers.get("sec-fetch-mode"), headers.get("sec-fetch-dest")
    return method != "GET" or opens != ("navigate", "document")


def cookie_name(headers: Headers) -> str:
    """Browsers give a host's cookies to all of its ports: each port's has a name of its own, or one
    console of the host would end the sessions of another."""
    try:
        port = urlsplit(f"//{headers.get('host', '')}").port
    except ValueError:
        port = None
    return COOKIE if port is None else f"{COOKIE}-{port}"


def cookie_of(headers: Headers) -> str:
    """The first: behind a proxy two consoles of a port differ in their paths, and the longer path
    comes first."""
    wanted = cookie_name(headers)
    for part in headers.get("cookie", "").split(";"):
        name, _, value = part.strip().partition("=")
        if name == wanted:
            return value if value.isalnum() else ""
    return ""


def _set_cookie(number: str, scope: Scope, prefix: str) -> str:
    secure = "; Secure" if scope.get("scheme") == "https" else ""
    name = cookie_name(Headers(scope=scope))
    return f"{name}={number}; Path={prefix or '/'}; HttpOnly; SameSite=Strict{secure}"


def _with_headers(send: Send, cookie: str, *, is_static: bool) -> Callable[[Message], object]:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers.update(HEADERS)
            headers["Cache-Control"] = "max-age=3600" if is_static else "no-store"
            if cookie and not is_static and COOKIE not in headers.get("set-cookie", ""):
                headers.append("Set-Cookie", cookie)
            REQUESTS.labels(f"{message['status'] // 100}xx").inc()
        await send(message)

    return sending
