"""Who looks at the pages: users who have logged in, in memory, or everyone where authentication is
off.

    authentication is off    one client for all, that of the broker's own processes; the cookie only
                             ties a form to the browser that was given it
    on                       a random number in a cookie names the session; its client calls on the
                             user's behalf (decision 057), and the services judge each call

A form is taken with the token of its session alone: an HMAC of the session's number.
"""

import hmac
import secrets
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from stratamq.client import AsyncClient
from stratamq.errors import UnauthenticatedError
from stratamq.files.port import Clock
from stratamq.rpc.permission_file import BEARER
from stratamq.rpc.permissions import RULES, Need, NeedToGive, Permission, ResourceKind
from stratamq.service.access import AccessControl
from stratamq.service.caller import Caller

COOKIE = "stratamq-console"
LIMIT = 256
"""Sessions; for a further one ends the least recently used of the user who has most: no user's
logins end those of others."""
NUMBER_BYTES = 32


@dataclass(slots=True)
class ConsoleSession:
    """One browser's. `client` None: authentication is on, and no user has logged in."""

    number: str
    csrf: str
    client: AsyncClient | None
    caller: Caller | None = None
    used_ns: int = 0

    @property
    def user(self) -> str:
        return "" if self.caller is None else self.caller.name


class ConsoleSessions:
    """Belongs to the event loop."""

    def __init__(
        self,
        own: AsyncClient,
        front: Callable[[Caller], AsyncClient],
        access: AccessControl | None,
        clock: Clock,
        idle_minutes: int,
    ) -> None:
        self._own = own
        self._front = front
        self._access = access
        self._clock = clock
        self._idle_ns = idle_minutes * 60 * 1_000_000_000
        self._key = secrets.token_bytes(NUMBER_BYTES)
        self._sessions: dict[str, ConsoleSession] = {}
        """By number, the least recently used first."""

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def asks_who_calls(self) -> bool:
        return self._access is not None

    def anonymous(self, number: str) -> ConsoleSession:
        """The session of a browser where authentication is off, or before its login, when it has
        no client; nothing of it is kept."""
        number = number if len(number) == 2 * NUMBER_BYTES else secrets.token_hex(NUMBER_BYTES)
        client = None if self.asks_who_calls else self._own
        return ConsoleSession(number, self._csrf_of(number), client)

    def find(self, number: str, proved: Caller | None = None) -> ConsoleSession | None:
        """The session of a user who is logged in. `proved`: whose certificate came with the
        request; a session that began by one needs it."""
        session = self._sessions.get(number)
        if session is None or session.caller is None:
            return None
        if not session.caller.digest and (proved is None or proved.name != session.caller.name):
            return None
        if self._is_idle(session) or not self._is_known(session):
            return None
        session.used_ns = self._clock.monotonic_ns()
        self._sessions[number] = self._sessions.pop(number)
        return session

    async def begin(self, origin: Caller, token: str) -> ConsoleSession:
        """Log a user in. UnauthenticatedError says why not."""
        assert self._access is not None
        caller = self._access.identify(origin, "", BEARER + token if token else "")
        if not caller.name:
            self._access.note_refusal(caller, "console login", caller.problem or "no token")
            raise UnauthenticatedError(caller.problem or "a token is needed")
        return await self._begin(caller)

    async def begin_proved(self, proved: Caller) -> ConsoleSession | None:
        """Log in who has shown a certificate to a front. None: it is no user's."""
        caller = None if self._access is None else self._access.accept_delegated(proved)
        return await self._begin(caller) if caller is not None and caller.name else None

    async def _begin(self, caller: Caller) -> ConsoleSession:
        number = secrets.token_hex(NUMBER_BYTES)
        session = ConsoleSession(
            number,
            self._csrf_of(number),
            self._front(caller),
            caller,
            self._clock.monotonic_ns(),
        )
        self._sessions[number] = session
        await self._make_room()
        return session

    async def _make_room(self) -> None:
        for oldest in list(self._sessions.values()):
            if not self._is_idle(oldest):
                break
            await self.end(oldest.number)
        while len(self._sessions) > LIMIT:
            of_user = Counter(one.user for one in self._sessions.values())
            most = max(of_user.values())
            number = next(
                one.number for one in self._sessions.values() if of_user[one.user] == most
            )
            await self.end(number)

    async def end(self, number: str) -> None:
        session = self._sessions.pop(number, None)
        if session is not None and session.client is not None:
            await session.client.close()

    async def close(self) -> None:
        for number in list(self._sessions):
            await self.end(number)

    def may(self, session: ConsoleSession, method: str, name: str = "") -> bool:
        """Whether the session's user may make a call of `method` about the topic or the group
        `name`: what decides whether a button is shown. The service decides again."""
        access, caller = self._access, session.caller
        if access is None or caller is None:
            return access is None
        return all(
            access.allows(caller, one)
            for need in RULES[method].needs
            for one in _permissions(need, name)
        )

    def _is_idle(self, session: ConsoleSession) -> bool:
        return self._clock.monotonic_ns() - session.used_ns > self._idle_ns

    def _is_known(self, session: ConsoleSession) -> bool:
        """Whether the user's token is still one."""
        access, caller = self._access, session.caller
        return (
            access is not None and caller is not None and bool(access.accept_delegated(caller).name)
        )

    def _csrf_of(self, number: str) -> str:
        return hmac.digest(self._key, number.encode(), "sha256").hex()


def _permissions(need: Need | NeedToGive, name: str) -> list[Permission]:
    if isinstance(need, Need) and need.path:
        return [Permission(need.kind, need.verb, name)]
    return [Permission(ResourceKind.BROKER, need.verb)]
