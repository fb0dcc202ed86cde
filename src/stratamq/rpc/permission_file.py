"""The permissions file: users, the digests of their tokens, teams, and rules that allow.

    {"version": 1,
     "users": {"alice": {"tokens": [{"id": "3f9c", "sha256": "…", "made": "2026-11-23"}]},
               "shop": {"tokens": [{"id": "81d0", "sha256": "…", "made": "…", "secret": "…"}]}},
     "teams": {"shop": ["alice", "bob"]},
     "rules": [{"who": "alice", "may": "consume", "what": "topic:orders-*"},
               {"who": "@shop", "may": "consume", "what": "group:billing"},
               {"who": "ops", "may": "operate", "what": "broker"}]}

`who` is a user, a team after an `@`, or `*` for everyone who is known. `what` is a kind and a
pattern of names in which `*` stands for any characters. Rules only allow: what none allows is
refused. A name that is a certificate's subject needs no entry among the users.
"""

import datetime
import fnmatch
import functools
import hashlib
import json
import re
import secrets
from dataclasses import dataclass, field
from typing import Any

from stratamq.errors import ConfigurationError, InvalidRequestError
from stratamq.rpc.permissions import IMPLIED, Permission, ResourceKind, Verb

LARGEST_FILE_BYTES = 8 << 20
LARGEST_NAME = 255
EVERYONE = "*"
TEAM = "@"
TOKEN_BYTES = 32
AUTHORIZATION, BEARER = "authorization", "Bearer "
"""Calls carry a token as `authorization: Bearer TOKEN`."""
VERBS = {
    ResourceKind.TOPIC: (Verb.PRODUCE, Verb.CONSUME, Verb.MANAGE),
    ResourceKind.GROUP: (Verb.CONSUME, Verb.MANAGE),
    ResourceKind.BROKER: (Verb.OBSERVE, Verb.OPERATE, Verb.SCAN, Verb.MEMBER),
}
SHORTEST_SECRET = 8
_SECRET = re.compile(rf"[!-~]{{{SHORTEST_SECRET},{LARGEST_NAME}}}")
_NAME = re.compile(r"[^\s@*:\"\x00-\x1f\x7f]{1,255}")


@dataclass(frozen=True, slots=True)
class Grant:
    """One rule."""

    who: str
    verb: Verb
    kind: ResourceKind
    pattern: str = ""

    def __str__(self) -> str:
        what = (
            self.kind.value
            if self.kind is ResourceKind.BROKER
            else f"{self.kind.value}:{self.pattern}"
        )
        return f"{self.who} may {self.verb.value} {what}"

    def allows(self, wanted: Permission) -> bool:
        """Whether the grant gives this permission to its users."""
        if self.verb is Verb.MEMBER:
            return True
        if self.verb is not wanted.verb and self.verb not in IMPLIED.get(wanted.verb, ()):
            return False
        if self.kind is not wanted.kind:
            # Who observes the broker observes each group.
            return self.kind is ResourceKind.BROKER and wanted.verb is Verb.OBSERVE
        if self.kind is ResourceKind.BROKER or not wanted.name:
            return True
        return _expression(self.pattern).match(wanted.name) is not None

    def row(self) -> dict[str, str]:
        what = (
            self.kind.value
            if self.kind is ResourceKind.BROKER
            else f"{self.kind.value}:{self.pattern}"
        )
        return {"who": self.who, "may": self.verb.value, "what": what}


@dataclass(frozen=True, slots=True)
class Token:
    """A user's token. `digest` is the SHA-256 of the token, in hexadecimal; `secret` is the token
    itself where signatures are made with it (RocketMQ's own clients), else empty."""

    id: str
    digest: str
    made: str = ""
    secret: str = ""

    def row(self) -> dict[str, str]:
        kept = {"secret": self.secret} if self.secret else {}
        return {"id": self.id, "sha256": self.digest, "made": self.made, **kept}


@dataclass(slots=True)
class Permissions:
    """What a permissions file holds."""

    users: dict[str, list[Token]] = field(default_factory=dict)
    teams: dict[str, list[str]] = field(default_factory=dict)
    rules: list[Grant] = field(default_factory=list)

    def names_of(self, who: str) -> set[str]:
        """Under which rules name them. A certificate's name that looks like a team is none."""
        if who == EVERYONE or who.startswith(TEAM):
            return {EVERYONE}
        teams = {TEAM + team for team, users in self.teams.items() if who in users}
        return {who, EVERYONE} | teams

    def given_to(self, who: str) -> list[Permission]:
        """What the user's rules give."""
        names = self.names_of(who)
        return [
            Permission(rule.kind, rule.verb, rule.pattern)
            for rule in self.rules
            if rule.who in names
        ]

    def allowing(self, who: str, wanted: Permission) -> Grant | None:
        """The rule that gives it; None: none does."""
        names = self.names_of(who)
        return next(
            (rule for rule in self.rules if rule.who in names and rule.allows(wanted)), None
        )

    def add_token(self, user: str, made: str, *, signs: bool = False) -> str:
        """A new one. It is kept nowhere, unless the user `signs` with it."""
        checked_name(user)
        token = secrets.token_urlsafe(TOKEN_BYTES)
        self.users.setdefault(user, []).append(_made(token, made, signs=signs))
        return token

    def set_secret(self, user: str, secret: str, made: str) -> None:
        """Let the user sign with this secret key and no other one. InvalidRequestError: it is no
        good one."""
        checked_name(user)
        if not _SECRET.fullmatch(secret):
            raise InvalidRequestError(
                f"a secret key has {SHORTEST_SECRET} to {LARGEST_NAME} visible ASCII characters"
            )
        token = _made(secret, made, signs=True)
        for other, tokens in self.users.items():
            if other != user and any(one.digest == token.digest for one in tokens):
                raise InvalidRequestError("another user has this secret key: choose another one")
        kept = [one for one in self.users.get(user, ()) if not one.secret]
        self.users[user] = [*(one for one in kept if one.digest != token.digest), token]

    def remove_user(self, user: str) -> None:
        """With all that names the user, so that another one of the same name gets nothing."""
        self.users.pop(user, None)
        for team, users in list(self.teams.items()):
            self.teams[team] = [one for one in users if one != user]
            if users and not self.teams[team]:
                del self.teams[team]
        self.rules = [rule for rule in self.rules if rule.who != user]

    def known(self) -> set[str]:
        """All users that the file names: those of certificates need no token."""
        of_rules = {rule.who for rule in self.rules if rule.who[0] not in (EVERYONE, TEAM)}
        return {*self.users, *of_rules, *(user for team in self.teams.values() for user in team)}


def date_of(wall_ms: int) -> str:
    """Return the day, as it stands in the file."""
    return f"{datetime.datetime.fromtimestamp(wall_ms / 1000, datetime.UTC):%Y-%m-%d}"


def _made(token: str, made: str, *, signs: bool) -> Token:
    digest = digest_of(token)
    return Token(digest[:8], digest, made, token if signs else "")


def digest_of(token: str) -> str:
    """Tokens are random: one pass of a hash is enough to keep them."""
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()


def checked_name(name: str) -> str:
    """Return the name of a user or a team if it is valid. Raises InvalidRequestError."""
    if not _NAME.fullmatch(name) or not name.isprintable():
        raise InvalidRequestError(
            f"{name[: LARGEST_NAME + 1]!r} is no name: up to {LARGEST_NAME} visible characters, "
            'no spaces, none of @ * : "'
        )
    return name


def grant_of(who: str, may: str, what: str) -> Grant:
    """InvalidRequestError, which says what is expected."""
    if who != EVERYONE:
        checked_name(who.removeprefix(TEAM))
    name, colon, pattern = what.partition(":")
    try:
        kind = ResourceKind(name)
    except ValueError:
        raise InvalidRequestError(
            f"{what!r}: topic:NAME, group:NAME or broker is expected"
        ) from None
    verbs = VERBS[kind]
    if may not in [verb.value for verb in verbs]:
        known = ", ".join(verb.value for verb in verbs)
        raise InvalidRequestError(f"{may!r} is nothing that a {kind.value} can be done: {known}")
    if (kind is ResourceKind.BROKER) is bool(colon) or (colon and not pattern):
        raise InvalidRequestError(f"{what!r}: topic:NAME, group:NAME or broker is expected")
    if not pattern.isprintable():
        raise InvalidRequestError(f"{what!r}: a name has no control characters")
    if len(pattern) > LARGEST_NAME:
        raise InvalidRequestError(f"a name has at most {LARGEST_NAME} characters")
    return Grant(who, Verb(may), kind, pattern)


def parse(text: bytes, source: str) -> Permissions:
    """ConfigurationError, which names the place that is wrong."""
    try:
        document = json.loads(text)
        if document["version"] != 1:
            raise ValueError(f"version {document['version']!r} is not known")
        teams = document.get("teams", {})
        if not all(isinstance(users, list) for users in (*teams.values(), document["rules"])):
            raise ValueError("rules, and the users of a team, are lists")
        return Permissions(
            {
                checked_name(user): [_token(one) for one in entry.get("tokens", ())]
                for user, entry in document.get("users", {}).items()
            },
            {
                checked_name(team): [checked_name(user) for user in users]
                for team, users in teams.items()
            },
            [grant_of(rule["who"], rule["may"], rule["what"]) for rule in document["rules"]],
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        what = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise ConfigurationError([f"{source} is no permissions file: {what}"]) from error
    except InvalidRequestError as error:
        raise ConfigurationError([f"{source} is no permissions file: {error}"]) from error


def dump(permissions: Permissions) -> bytes:
    document = {
        "version": 1,
        "users": {
            user: {"tokens": [token.row() for token in tokens]}
            for user, tokens in sorted(permissions.users.items())
        },
        "teams": {team: sorted(users) for team, users in sorted(permissions.teams.items())},
        "rules": [rule.row() for rule in permissions.rules],
    }
    return json.dumps(document, indent=1, ensure_ascii=False).encode() + b"\n"


def _token(entry: dict[str, Any]) -> Token:
    digest = str(entry["sha256"])
    if not re.fullmatch(r"[0-9a-f]{64}", digest):
        raise ValueError("sha256 of a token has 64 hexadecimal digits")
    secret = str(entry.get("secret", ""))
    if secret and digest_of(secret) != digest:
        raise ValueError("sha256 of a token is not that of its secret")
    return Token(str(entry.get("id", digest[:8])), digest, str(entry.get("made", "")), secret)


@functools.lru_cache(maxsize=1 << 16)
def _expression(pattern: str) -> re.Pattern[str]:
    """Only `*` is special. Cached: `fnmatch` forgets what it compiled after a few hundred rules."""
    return re.compile(fnmatch.translate(pattern.replace("[", "[[]").replace("?", "[?]")))
