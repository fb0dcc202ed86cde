"""Authentication and authorization: the settings `[access]`, identities, refusals, the audit log.

    Unix socket            local: a user who can open it can read and write the store
    client certificate     its common name; one of `tls.members` is a member of the cluster
    token                  `authorization: Bearer …`, over TLS or from this machine
    signature              made with a token that the file keeps, over TLS or from this machine
    none of these          unauthenticated: health checks only

Local callers and members have every permission; without `access.file` all callers have.
"""

import asyncio
import base64
import dataclasses
import hmac
import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable
from enum import Enum
from pathlib import Path
from typing import Any

from stratamq.errors import ConfigurationError, NotPermittedError, UnauthenticatedError
from stratamq.rpc.address import is_local
from stratamq.rpc.permission_file import BEARER, digest_of
from stratamq.rpc.permissions import MethodRule, Permission, ResourceKind, Verb
from stratamq.service.caller import LOCAL, Caller
from stratamq.service.config import setting
from stratamq.service.permission_source import PermissionSource

log = logging.getLogger(__name__)
audit = logging.getLogger("stratamq.audit")

SECTION = "access"
LINES_A_SECOND = 20
TOKEN_IN_CLEAR = "token rejected: sent over a plaintext connection; use TLS"
SIGNED_IN_CLEAR = "signature rejected: sent over a plaintext connection; use TLS"
LISTENING = (
    *("address", "metrics_address", "replication_address"),
    *("remoting_address", "remoting_further_addresses", "grpc_address", "http_address"),
)
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

    def identify(self, origin: Caller, certificate: str = "", authorization: str = "") -> Caller:
        """Name a caller whose connection the edge knows, by the name in its verified certificate
        or the value of its `authorization`."""
        if not origin.host:
            return origin._replace(name=LOCAL, trusted=True)
        if certificate:
            return origin._replace(name=certificate, trusted=certificate in self._members)
        return self._by_token(origin, authorization)

    def by_signature(self, origin: Caller, user: str, signature: str, content: bytes) -> Caller:
        """Name a caller that has signed `content` by HMAC-SHA1 with a token of the user, as
        RocketMQ's clients do; the signature is in Base64. Anyone who reads a signature can send it
        again, so that it counts over TLS and from this machine alone."""
        if not origin.host:
            return origin._replace(name=LOCAL, trusted=True)
        if not origin.is_private:
            return origin._replace(problem=SIGNED_IN_CLEAR)
        given = signature.encode("utf-8", "replace")
        for secret in self._source.current().secrets_of(user):
            made = base64.b64encode(hmac.digest(secret.encode(), content, "sha1"))
            if hmac.compare_digest(made, given):
                return origin._replace(name=user, digest=digest_of(secret))
        return origin._replace(problem="check signature failed")

    def accept_delegated(self, caller: Caller) -> Caller:
        """Check a caller that a front names, as strictly as one that connects by itself."""
        table, problem = self._source.current(), ""
        if caller.name == LOCAL or caller.name in self._members:
            problem = f"a front may not call as {caller.name}"
        elif caller.digest and not caller.is_private:
            problem = TOKEN_IN_CLEAR
        elif caller.digest and table.user_of(caller.digest) != caller.name:
            problem = "unknown token"
        elif caller.name and not table.knows(caller.name):
            problem = f"unknown user {caller.name}"
        return caller._replace(name="", digest="", problem=problem) if problem else caller

    def observer(self, origin: Caller, certificate: str, authorization: str) -> bool:
        """Whether the caller may see the metrics (`metrics.Allows`)."""
        caller = self.identify(origin, certificate, authorization)
        if caller.trusted:
            return True
        try:
            self._require_known(caller, "metrics")
            self._require(caller, Permission(ResourceKind.BROKER, Verb.OBSERVE), "metrics")
        except (NotPermittedError, UnauthenticatedError):
            return False
        return True

    def admit(self, caller: Caller, method: str) -> None:
        """UnauthenticatedError: the method needs an authenticated caller."""
        if not caller.name:
            self.note_refusal(caller, method, caller.problem or "no identity")
            raise UnauthenticatedError(
                caller.problem
                or "this broker asks who calls: show a token (STRATAMQ_TOKEN_FILE) or a client "
                "certificate (STRATAMQ_TLS_CERTIFICATE)"
            )

    async def require(self, caller: Caller, rule: MethodRule, method: str, request: Any) -> None:
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
                peer=caller.address,
            )

    @property
    def file(self) -> Path:
        """Return where the permissions are."""
        return self._source.path

    def permissions_of(self, user: str) -> list[Permission]:
        """Return what the user's rules give."""
        return self._source.current().permissions_of(user)

    def allows(self, caller: Caller, wanted: Permission) -> bool:
        """Whether the caller has a permission; nothing is written."""
        return caller.trusted or self._source.current().allows(caller.name, wanted)

    def look(self) -> None:
        """Use what is in the permissions file now, and not in a moment. It reads the file."""
        self._source.look()

    @property
    def version(self) -> int:
        """Return the version of the permissions, which differs after each change."""
        return self._source.current().version

    async def recheck(self, caller: Caller, rule: MethodRule, method: str, request: Any) -> None:
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
            self._require(caller, Permission(ResourceKind.TOPIC, Verb.PRODUCE, topic), method)

    def note_refusal(self, caller: Caller, method: str, why: str) -> None:
        """Write the audit line of a call that is refused."""
        self._lines.line(
            Line.REFUSED if caller.name else Line.UNAUTHENTICATED,
            logging.WARNING,
            "refused",
            who=caller.name,
            method=method.rpartition("/")[2][:LONGEST_SHOWN],
            reason=why[:LONGEST_SHOWN],
            peer=caller.address,
        )

    def _require_known(self, caller: Caller, method: str) -> None:
        problem, table = caller.problem, self._source.current()
        if caller.digest and table.user_of(caller.digest) != caller.name:
            problem = "this token was revoked"
        elif caller.delegated and not table.knows(caller.name):
            problem = "this user was removed"
        if problem or not caller.name:
            problem = problem or "no identity was shown"
            self.note_refusal(caller, method, problem)
            raise UnauthenticatedError(problem)

    def _require(self, caller: Caller, wanted: Permission, method: str) -> None:
        if self.allows(caller, wanted):
            return
        self.note_refusal(caller, method, f"may not {_shown(wanted)}")
        raise NotPermittedError(
            f"{caller.name} may not {_shown(wanted)}: `stratamq acl grant` gives permissions"
        )

    def _by_token(self, origin: Caller, authorization: str) -> Caller:
        if not authorization.startswith(BEARER):
            return origin
        if not origin.is_private:
            return origin._replace(problem=TOKEN_IN_CLEAR)
        digest = digest_of(authorization.removeprefix(BEARER))
        name = self._source.current().user_of(digest)
        if not name:
            return origin._replace(problem="unknown token")
        return origin._replace(name=name, digest=digest)


def access_control(config: AccessConfig, members: Collection[str]) -> AccessControl | None:
    """None: everyone may do everything. ConfigurationError."""
    if config.file is None:
        return None
    source = PermissionSource(config.file)
    source.keep_current()
    return AccessControl(source, members, AuditLog())


def require_guarded(config: AccessConfig, addresses: Iterable[str]) -> None:
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
    found = []
    for name in LISTENING:
        value = getattr(config, name, "")
        found += value if isinstance(value, tuple) else [str(value)]
    return found


def unguarded(where: str) -> str:
    return (
        f"{where}: other machines can reach this, and authentication is disabled. Set access.file "
        "(`stratamq acl init`) and TLS (`stratamq tls init`), or, where the network keeps others "
        "out, access.open_to_others=true"
    )


def _shown(wanted: Permission) -> str:
    text = str(wanted)
    return text if len(text) <= LONGEST_SHOWN else text[:LONGEST_SHOWN] + " …"
