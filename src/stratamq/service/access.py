"""Who calls, and whether they may: the settings `[access]`, identities, refusals, the audit log.

    Unix socket            local: who may use it may read and write the store
    client certificate     its common name; one of `tls.members` is a member of the cluster
    token                  `authorization: Bearer …`, over TLS or from this machine
    none of these          nobody, who may ask for the health alone

Local callers and members have every permission. Without `access.file` everyone has.
"""

import dataclasses
import logging
import time
from collections.abc import Callable, Collection, Iterable
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from stratamq.errors import ConfigurationError, NotPermittedError, UnauthenticatedError
from stratamq.rpc.address import is_local, is_loopback_host
from stratamq.rpc.credentials import AUTHORIZATION, BEARER
from stratamq.rpc.permission_file import LARGEST_FILE_BYTES, Grant, Permissions, parse
from stratamq.rpc.permissions import Kind, Permission, Rule, Verb, rule_of
from stratamq.service.config import setting
from stratamq.service.metrics import Certificate
from stratamq.service.tls import common_name

log = logging.getLogger(__name__)
audit = logging.getLogger("stratamq.audit")

SECTION = "access"
LOOK_NS = 1_000_000_000
MOST_ANSWERS = 65_536
LINES_A_SECOND = 20
LOCAL = "local"
LISTENING = ("address", "metrics_address", "replication_address")
LONGEST_SHOWN = 200


@dataclasses.dataclass(frozen=True)
class AccessConfig:
    """Of every service of a broker."""

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
    """`name` is a user's, a certificate's, or `local`; "" of nobody. `trusted`: all permissions."""

    name: str
    peer: str
    trusted: bool = False
    problem: str = ""
    """Why a token that was shown counts for nothing."""


class PermissionSource:
    """The permissions file as it is now. What cannot be understood is not used: the last good one
    is. Used on one event loop."""

    def __init__(self, path: Path, now_ns: Callable[[], int] = time.monotonic_ns) -> None:
        """ConfigurationError when the file is not there, or is none."""
        self._path = path
        self._now_ns = now_ns
        self._looked_ns = now_ns()
        self._stamp = self._stamped()
        self._permissions = self._read()
        self.version = 0
        """Grows with each change."""

    def current(self) -> Permissions:
        now = self._now_ns()
        if now - self._looked_ns >= LOOK_NS:
            self._looked_ns = now
            self._look()
        return self._permissions

    def _look(self) -> None:
        try:
            stamp = self._stamped()
            if stamp == self._stamp:
                return
            self._stamp = stamp
            self._permissions = self._read()
        except ConfigurationError as error:
            log.error("permissions not used, the old ones are kept", extra={"reason": str(error)})
            return
        self.version += 1
        log.info("permissions read again", extra={"file": str(self._path)})

    def _stamped(self) -> tuple[int, int, int]:
        try:
            found = self._path.stat()
        except OSError as error:
            raise ConfigurationError([f"access.file {self._path}: {error.strerror}"]) from error
        return found.st_mtime_ns, found.st_ino, found.st_size

    def _read(self) -> Permissions:
        try:
            with self._path.open("rb") as file:
                text = file.read(LARGEST_FILE_BYTES + 1)
        except OSError as error:
            raise ConfigurationError([f"access.file {self._path}: {error.strerror}"]) from error
        if len(text) > LARGEST_FILE_BYTES:
            raise ConfigurationError([f"{self._path} is larger than {LARGEST_FILE_BYTES} bytes"])
        return parse(text, str(self._path))


class AuditLog:
    """One line for each refusal and each operator's act, at most `LINES_A_SECOND`; then how many
    were left out."""

    def __init__(self, now_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._now_ns = now_ns
        self._second = 0
        self._written = 0
        self._left_out = 0

    def line(self, level: int, text: str, **fields: object) -> None:
        second = self._now_ns() // 1_000_000_000
        if second != self._second:
            if self._left_out:
                audit.warning("lines left out", extra={"count": self._left_out})
            self._second, self._written, self._left_out = second, 0, 0
        if self._written >= LINES_A_SECOND:
            self._left_out += 1
            return
        self._written += 1
        audit.log(level, text, extra=fields)


class AccessControl:
    """Asked once for each call, before its request is handled."""

    def __init__(self, source: PermissionSource, members: Collection[str], lines: AuditLog) -> None:
        self._source = source
        self._members = frozenset(members)
        self._lines = lines
        self._version = -1
        self._answers: dict[tuple[str, Permission], Grant | None] = {}

    def caller(self, context: Any) -> Caller:
        """Of a call, by its context (grpc.aio)."""
        peer = context.peer()
        if peer.startswith("unix:"):
            return Caller(LOCAL, peer, trusted=True)
        shown = context.auth_context()
        names = shown.get("x509_common_name", ())
        name = names[0].decode("utf-8", "replace") if names else ""
        if name:
            return Caller(name, peer, trusted=name in self._members)
        given = dict(context.invocation_metadata() or ()).get(AUTHORIZATION, "")
        encrypted = bool(shown.get("transport_security_type"))
        return self._by_token(str(given), peer, encrypted or _is_loopback(peer))

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
        try:
            self._require(caller, [Permission(Kind.BROKER, Verb.OBSERVE)], "metrics")
        except (NotPermittedError, UnauthenticatedError):
            return False
        return True

    def admit(self, caller: Caller, method: str) -> None:
        """UnauthenticatedError: this method is not for nobody."""
        if not caller.name:
            self._refused(caller, method, caller.problem or "no identity")
            raise UnauthenticatedError(
                caller.problem
                or "this broker asks who calls: show a token (STRATAMQ_TOKEN_FILE) or a client "
                "certificate (STRATAMQ_TLS_CERTIFICATE)"
            )

    def require(self, caller: Caller, rule: Rule, method: str, request: Any) -> None:
        """NotPermittedError, naming what is missing."""
        if not caller.trusted:
            wanted = [each for need in rule.needs for each in need.permissions(request)]
            self._require(caller, wanted, method)
        if rule.audited:
            self._lines.line(
                logging.INFO, "operator's act", who=caller.name, method=method, peer=caller.peer
            )

    @property
    def version(self) -> int:
        """Of the permissions: another one after they have changed."""
        self._source.current()
        return self._source.version

    def recheck(self, caller: Caller, rule: Rule, method: str, request: Any) -> None:
        """Of a stream that is open, after the permissions have changed. NotPermittedError."""
        self.require(caller, dataclasses.replace(rule, audited=False), method, request)

    def require_topics(self, caller: Caller, topics: Iterable[str], method: str) -> None:
        """To produce to each of them. NotPermittedError."""
        if not caller.trusted:
            wanted = [Permission(Kind.TOPIC, Verb.PRODUCE, topic) for topic in topics]
            self._require(caller, wanted, method)

    def _require(self, caller: Caller, wanted: Iterable[Permission], method: str) -> None:
        if caller.trusted:
            return
        if not caller.name:
            self._refused(caller, method, caller.problem or "no identity")
            raise UnauthenticatedError(caller.problem or "no identity was shown")
        for each in wanted:
            if self._granted(caller.name, each) is None:
                self._refused(caller, method, f"may not {each}")
                raise NotPermittedError(
                    f"{caller.name} may not {_shown(each)}: `stratamq acl grant` gives permissions"
                )

    def _granted(self, name: str, wanted: Permission) -> Grant | None:
        permissions = self._source.current()
        if self._version != self._source.version or len(self._answers) >= MOST_ANSWERS:
            self._answers.clear()
            self._version = self._source.version
        key = name, wanted
        if key not in self._answers:
            self._answers[key] = permissions.allowing(name, wanted)
        return self._answers[key]

    def _by_token(self, given: str, peer: str, allowed: bool) -> Caller:
        if not given.startswith(BEARER):
            return Caller("", peer)
        if not allowed:
            problem = "a token that came in clear from another machine counts for nothing: use TLS"
            return Caller("", peer, problem=problem)
        name = self._source.current().user_of(given.removeprefix(BEARER))
        return Caller(name, peer, problem="" if name else "this token is nobody's")

    def _refused(self, caller: Caller, method: str, why: str) -> None:
        self._lines.line(
            logging.WARNING,
            "refused",
            who=caller.name,
            method=method.rpartition("/")[2],
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
    return AccessControl(PermissionSource(config.file), members, AuditLog())


def require_guarded(config: AccessConfig, room: str, addresses: Iterable[str]) -> None:
    """ConfigurationError for a service that asks nobody who they are, and that others reach."""
    if config.file is not None:
        return
    reached = [one for one in addresses if one and not is_local(one)]
    if not reached:
        return
    if not config.open_to_others:
        raise ConfigurationError([unguarded(", ".join(reached))])
    log.warning("nobody is asked who they are", extra={"listening_at": ", ".join(reached)})


def listening(config: object) -> list[str]:
    """Where a service listens by its settings."""
    return [str(getattr(config, name, "")) for name in LISTENING]


def unguarded(where: str) -> str:
    return (
        f"{where}: other machines reach this, and nobody is asked who they are. Set access.file "
        "(`stratamq acl init`) and TLS (`stratamq tls init`), or, where the network keeps others "
        "out, access.open_to_others=true"
    )


def _is_loopback(peer: str) -> bool:
    return peer.startswith(("ipv4:127.", "ipv6:[::1]", "ipv6:%5B::1%5D", "ipv4:[::ffff:127."))


def _shown(wanted: Permission) -> str:
    text = str(wanted)
    return text if len(text) <= LONGEST_SHOWN else text[:LONGEST_SHOWN] + " …"
