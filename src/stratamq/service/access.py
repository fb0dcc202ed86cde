"""Authentication and authorization: the settings `[access]`, identities, refusals, the audit log.

    Unix socket            local: a user who can open it can read and write the store
    client certificate     its common name; one of `tls.members` is a member of the cluster
    token                  `authorization: Bearer …`, over TLS or from this machine
    none of these          unauthenticated: health checks only

Local callers and members have every permission; without `access.file` all callers have.
"""

import asyncio
import dataclasses
import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable
from contextvars import ContextVar
from enum import Enum
from pathlib import Path
from typing import Any

from stratamq.errors import ConfigurationError, NotPermittedError, UnauthenticatedError
from stratamq.rpc.address import is_local, is_loopback_host
from stratamq.rpc.credentials import AUTHORIZATION, BEARER
from stratamq.rpc.permission_file import digest_of
from stratamq.rpc.permissions import Kind, Permission, Rule, Verb, rule_of
from stratamq.service.config import setting
from stratamq.service.metrics import Certificate
from stratamq.service.permission_source import PermissionSource
from stratamq.service.tls import common_name

log = logging.getLogger(__name__)
audit = logging.getLogger("stratamq.audit")

SECTION = "access"
LINES_A_SECOND = 20
LOCAL = "local"
TLS = b"ssl"
"""gRPC's name of it."""
LISTENING = ("address", "metrics_address", "replication_address")
LONGEST_SHOWN = 200
NAMES_AT_ONCE = 256


@dataclasses.dataclass(frozen=True)
class AccessConfig:
    """Access control, the same for every service of a broker."""

    file: Path | None = setting(
        None,
        unit="path",
        doc="The permissions file, which `stratamq acl` writes and services read again when it has "
        "changed; empty: everyone may do everything.",
    )
    open_to_others: bool = setting(
        False,
        unit="",
        doc="Whether a service without a permissions file may listen where others reach it.",
    )


@dataclasses.dataclass(frozen=True, slots=True)
class Caller:
    """`name` is a user's, a certificate's, or `local`; "" if unauthenticated. `trusted`: all
    permissions."""

    name: str
    peer: str
    trusted: bool = False
    problem: str = ""
    """Why the token was rejected."""
    digest: str = ""
    """Of the token that gave the name."""


class Line(Enum):
    """Kinds of lines of the audit log. Each has `LINES_A_SECOND` of its own, so that a flood of one
    kind hides none of another."""

    ACT = "operator's act"
    REFUSED = "refused"
    UNAUTHENTICATED = "refused, of callers without an identity"


class AuditLog:
    """One line for each refusal and each operator's act, at most `LINES_A_SECOND` of each kind;
    then how many were left out."""

    def __init__(self, now_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._now_ns = now_ns
        self._lock = threading.Lock()
        """Scrapers are refused in threads of their own."""
        self._second = dict.fromkeys(Line, 0)
        self._written = dict.fromkeys(Line, 0)

    def line(self, kind: Line, level: int, text: str, **fields: object) -> None:
        second = self._now_ns() // 1_000_000_000
        with self._lock:
            left_out = 0
            if second != self._second[kind]:
                left_out = max(0, self._written[kind] - LINES_A_SECOND)
                self._second[kind], self._written[kind] = second, 0
            self._written[kind] += 1
            is_shown = self._written[kind] <= LINES_A_SECOND
        if left_out:
            audit.warning("lines left out", extra={"count": left_out, "kind": kind.value})
        if is_shown:
            audit.log(level, text, extra=fields)


class AccessControl:
    """Asked once for each call, before its request is handled."""

    def __init__(self, source: PermissionSource, members: Collection[str], lines: AuditLog) -> None:
        self._source = source
        self._members = frozenset(members)
        self._lines = lines

    def caller(self, context: Any) -> Caller:
        """Identify the caller of a call by its context (grpc.aio)."""
        peer = context.peer()
        if peer.startswith("unix:"):
            return Caller(LOCAL, peer, trusted=True)
        shown = context.auth_context()
        names = shown.get("x509_common_name", ())
        name = names[0].decode("utf-8", "replace") if names else ""
        if name:
            return Caller(name, peer, trusted=name in self._members)
        given = dict(context.invocation_metadata() or ()).get(AUTHORIZATION, "")
        # Of a connection in clear it is `insecure`.
        encrypted = TLS in shown.get("transport_security_type", ())
        return self._by_token(str(given), peer, encrypted or is_loopback(peer))

    def observer(
        self, given: str, certificate: Certificate | None, host: str, encrypted: bool
    ) -> bool:
        """Whether the metrics are shown to who asks over HTTP (`metrics.Allows`)."""
        name = common_name(certificate)
        peer = f"metrics {host}"
        caller = (
            Caller(name, peer, trusted=name in self._members)
            if name
            else self._by_token(given, peer, encrypted or is_loopback_host(host))
        )
        if caller.trusted:
            return True
        try:
            self._require_known(caller, "metrics")
            self._require(caller, Permission(Kind.BROKER, Verb.OBSERVE), "metrics")
        except (NotPermittedError, UnauthenticatedError):
            return False
        return True

    def admit(self, caller: Caller, method: str) -> None:
        """UnauthenticatedError: the method needs an authenticated caller."""
        if not caller.name:
            self._refused(caller, method, caller.problem or "no identity")
            raise UnauthenticatedError(
                caller.problem
                or "this broker asks who calls: show a token (STRATAMQ_TOKEN_FILE) or a client "
                "certificate (STRATAMQ_TLS_CERTIFICATE)"
            )

    async def require(self, caller: Caller, rule: Rule, method: str, request: Any) -> None:
        """Raises NotPermittedError, naming the missing permission, or UnauthenticatedError if the
        caller's token was revoked."""
        await self.recheck(caller, rule, method, request)
        if rule.audited:
            self._lines.line(
                Line.ACT,
                logging.INFO,
                Line.ACT.value,
                who=caller.name,
                method=method,
                peer=caller.peer,
            )

    @property
    def version(self) -> int:
        """Return the version of the permissions, which differs after each change."""
        return self._source.current().version

    async def recheck(self, caller: Caller, rule: Rule, method: str, request: Any) -> None:
        """Like `require`, for an open stream after the permissions have changed."""
        if caller.trusted:
            return
        self._require_known(caller, method)
        number = 0
        for need in rule.needs:
            for wanted in need.permissions(request):
                self._require(caller, wanted, method)
                number += 1
                if number % NAMES_AT_ONCE == 0:  # a request may have very many names
                    await asyncio.sleep(0)

    def require_topics(self, caller: Caller, topics: Iterable[str], method: str) -> None:
        """To produce to each of them. As `require`."""
        if caller.trusted:
            return
        self._require_known(caller, method)
        for topic in topics:
            self._require(caller, Permission(Kind.TOPIC, Verb.PRODUCE, topic), method)

    def no_such_method(self, context: Any, method: str) -> None:
        """Write the audit line of a call to a method that does not exist."""
        self._refused(self.caller(context), method, "there is no such method")

    def _require_known(self, caller: Caller, method: str) -> None:
        problem = caller.problem
        if caller.digest and self._source.current().user_of(caller.digest) != caller.name:
            problem = "this token was revoked"
        if problem or not caller.name:
            problem = problem or "no identity was shown"
            self._refused(caller, method, problem)
            raise UnauthenticatedError(problem)

    def _require(self, caller: Caller, wanted: Permission, method: str) -> None:
        if caller.trusted or self._source.current().allows(caller.name, wanted):
            return
        self._refused(caller, method, f"may not {_shown(wanted)}")
        raise NotPermittedError(
            f"{caller.name} may not {_shown(wanted)}: `stratamq acl grant` gives permissions"
        )

    def _by_token(self, given: str, peer: str, allowed: bool) -> Caller:
        if not given.startswith(BEARER):
            return Caller("", peer)
        if not allowed:
            problem = "token rejected: sent over a plaintext connection; use TLS"
            return Caller("", peer, problem=problem)
        digest = digest_of(given.removeprefix(BEARER))
        name = self._source.current().user_of(digest)
        if not name:
            return Caller("", peer, problem="unknown token")
        return Caller(name, peer, digest=digest)

    def _refused(self, caller: Caller, method: str, why: str) -> None:
        self._lines.line(
            Line.REFUSED if caller.name else Line.UNAUTHENTICATED,
            logging.WARNING,
            "refused",
            who=caller.name,
            method=method.rpartition("/")[2][:LONGEST_SHOWN],
            reason=why[:LONGEST_SHOWN],
            peer=caller.peer,
        )


_calls: ContextVar[tuple[AccessControl, Caller, str] | None] = ContextVar("calls", default=None)


def begin(control: AccessControl, context: Any, method: str) -> tuple[Caller, Rule] | None:
    """At the start of a call; None: the method is open. UnauthenticatedError."""
    rule = rule_of(method)
    if rule is None:
        return None
    caller = control.caller(context)
    control.admit(caller, method)
    _calls.set((control, caller, method))
    return caller, rule


def calling() -> Caller | None:
    """Within a call: return the caller. None: authentication is disabled."""
    call = _calls.get()
    return None if call is None else call[1]


def require_topics(topics: Iterable[str]) -> None:
    """Within a call that names topics as it goes: whether its caller may produce to them.
    NotPermittedError."""
    call = _calls.get()
    if call is not None:
        control, caller, method = call
        control.require_topics(caller, topics, method)


def access_control(config: AccessConfig, members: Collection[str]) -> AccessControl | None:
    """None: everyone may do everything. ConfigurationError."""
    if config.file is None:
        return None
    source = PermissionSource(config.file)
    source.keep_current()
    return AccessControl(source, members, AuditLog())


def require_guarded(config: AccessConfig, room: str, addresses: Iterable[str]) -> None:
    """Raises ConfigurationError if authentication is disabled on an address that other machines can
    reach."""
    if config.file is not None:
        abstract = [one for one in addresses if one.startswith("unix-abstract:")]
        if abstract:
            fault = f"{abstract[0]}: every process of the machine reaches it: use unix:PATH"
            raise ConfigurationError([fault])
        return
    reached = [one for one in addresses if one and not is_local(one)]
    if not reached:
        return
    if not config.open_to_others:
        raise ConfigurationError([unguarded(", ".join(reached))])
    log.warning("authentication is disabled", extra={"listening_at": ", ".join(reached)})


def listening(config: object) -> list[str]:
    """Where a service listens by its settings."""
    return [str(getattr(config, name, "")) for name in LISTENING]


def unguarded(where: str) -> str:
    return (
        f"{where}: other machines can reach this, and authentication is disabled. Set access.file "
        "(`stratamq acl init`) and TLS (`stratamq tls init`), or, where the network keeps others "
        "out, access.open_to_others=true"
    )


def is_loopback(peer: str) -> bool:
    """By gRPC's name of it."""
    return peer.startswith(("ipv4:127.", "ipv6:[::1]", "ipv6:%5B::1%5D", "ipv4:[::ffff:127."))


def _shown(wanted: Permission) -> str:
    text = str(wanted)
    return text if len(text) <= LONGEST_SHOWN else text[:LONGEST_SHOWN] + " …"
