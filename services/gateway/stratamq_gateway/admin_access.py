"""Requests of tools about users (3001 to 3005) and what they may do (3006 to 3010): they change the
permissions file, or read it. `spec/remoting.md` 13.3."""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple, Protocol

from stratamq.client import AsyncClient
from stratamq.errors import ConfigurationError, InvalidRequestError, UnavailableError
from stratamq.files.port import Clock
from stratamq.rpc.permission_file import Grant, Permissions, checked_name, date_of
from stratamq.rpc.permissions import Permission, Verb
from stratamq.service.access import AccessControl
from stratamq.service.permission_changes import changing, read_permissions
from stratamq.service.worker import ThreadWorker
from stratamq_gateway.codes import RequestCode, ResponseCode
from stratamq_gateway.frames import Answer, Command, compact, text
from stratamq_gateway.policies import (
    SUPER,
    USER,
    Resource,
    as_policies,
    document_of,
    grants_of,
    policies_of,
    resources_of,
    who_of,
)

_NO_ACCESS = (
    "authentication is disabled: there are no users and permissions until access.file is set "
    "(`stratamq acl init`)"
)


class PermissionsInUse:
    """The permissions file of this broker's services, which read it again within a second; this one
    at once after a change of its own."""

    def __init__(self, access: AccessControl | None, worker: ThreadWorker) -> None:
        self._access = access
        self._worker = worker

    def of(self, user: str) -> list[Permission]:
        """What the user may do now. ConfigurationError."""
        return self._required().permissions_of(user)

    async def read(self) -> Permissions:
        file = self._required().file
        return await self._worker.run(lambda: read_permissions(file))

    async def change(self, change: Callable[[Permissions], Answer]) -> Answer:
        """Carry it out whole, or not at all. What it raises is raised."""
        access = self._required()

        def changed() -> Answer:
            with changing(access.file) as permissions:
                answer = change(permissions)
            access.look()  # the next change is judged by what this one gives
            return answer

        return await self._worker.run(changed)

    def _required(self) -> AccessControl:
        if self._access is None:
            raise ConfigurationError([_NO_ACCESS])
        return self._access


class _Change(Protocol):
    @property
    def given(self) -> Sequence[Permission]:
        """What it gives, which the caller must have: the rule of AlterPermissions reads it."""

    def apply(self, permissions: Permissions) -> Answer:
        """InvalidRequestError, UnavailableError."""


class AlterPermissions:
    """3001 to 3003 and 3006 to 3008: a change, which `read` makes of the request."""

    use_case = "AlterPermissions"

    def __init__(self, file: PermissionsInUse, read: Callable[[Command], _Change]) -> None:
        self._file = file
        self._read = read

    def decode(self, command: Command) -> _Change:
        return self._read(command)

    async def answer(self, client: AsyncClient, channel: object, asked: _Change) -> Answer:
        return await self._file.change(asked.apply)


# --- users ---


class UserChange(NamedTuple):
    """`is_super` None and `secret` "": they stay."""

    user: str
    secret: str
    is_super: bool | None
    is_new: bool
    today: str
    given: Sequence[Permission]

    def apply(self, permissions: Permissions) -> Answer:
        tokens = permissions.users.get(self.user)
        if self.is_new and tokens and not any(one.secret == self.secret for one in tokens):
            raise InvalidRequestError(f"the user {self.user} is there: updateUser changes it")
        if not self.is_new and self.user not in permissions.known():
            return _no_user(self.user)
        if self.secret and not set(permissions.given_to(self.user)) <= set(self.given):
            raise UnavailableError(f"the permissions of {self.user} have just changed: ask again")
        if self.secret and not any(one.secret == self.secret for one in tokens or ()):
            permissions.set_secret(self.user, self.secret, self.today)
        whole = _super_grants(self.user)
        if self.is_super:
            permissions.rules += [one for one in whole if one not in permissions.rules]
        elif self.is_super is not None and _is_super(self.user, permissions.rules):
            permissions.rules = [one for one in permissions.rules if one not in whole]
        return Answer()


class UserToDelete(NamedTuple):
    user: str
    given: Sequence[Permission] = ()

    def apply(self, permissions: Permissions) -> Answer:
        if self.user not in permissions.known():
            return _no_user(self.user)
        permissions.remove_user(self.user)
        return Answer()


def _is_super(user: str, rules: Collection[Grant]) -> bool:
    return all(one in rules for one in _super_grants(user))


def _super_grants(user: str) -> list[Grant]:
    return [Grant(user, one.verb, one.kind, one.name) for one in SUPER]


def _no_user(user: str) -> Answer:
    return Answer(ResponseCode.USER_NOT_EXIST, remark=f"there is no user {user[:80]!r}")


def _user_to_delete(command: Command) -> UserToDelete:
    return UserToDelete(checked_name(text(command.fields, "username")))


def _user_change(
    command: Command, file: PermissionsInUse, clock: Clock, *, is_new: bool
) -> UserChange:
    """Read 3001 and 3002. Who sets a user's secret key can call as that user, so `given` has all
    that the user may do."""
    said = document_of(command.body)
    user = checked_name(str(said.get("username") or text(command.fields, "username")))
    secret, kind = str(said.get("password") or ""), said.get("userType")
    if str(said.get("userStatus") or "enable").lower() != "enable":
        raise InvalidRequestError(
            "a user cannot be disabled here: delete the user, or the policies that allow it things"
        )
    if kind is not None and str(kind).lower() not in ("super", "normal"):
        raise InvalidRequestError(f"there is no type {kind!r:.80} of users: Super or Normal")
    if is_new and not secret:
        raise InvalidRequestError("a new user needs a password, its secret key")
    is_super = None if kind is None else str(kind).lower() == "super"
    given = [*(file.of(user) if secret else ()), *(SUPER if is_super else ())]
    today = date_of(clock.wall_ms())
    return UserChange(user, secret, is_super, is_new, today, given)


class NameAsked(NamedTuple):
    """A name, or a part of names; of policies, a part of names of resources, too."""

    name: str
    resource: str = ""


def _shown(user: str, rules: Collection[Grant]) -> dict[str, object]:
    """Without the secret key, which no answer has."""
    kind = "Super" if _is_super(user, rules) else "Normal"
    return {"username": user, "userType": kind, "userStatus": "enable"}


def _all_shown(part: str, permissions: Permissions) -> bytes:
    rules = set(permissions.rules)
    found = sorted(one for one in permissions.known() if part in one)
    return compact([_shown(one, rules) for one in found])


class UserInfo:
    """3004."""

    use_case = "ListPermissions"

    def __init__(self, file: PermissionsInUse) -> None:
        self._file = file

    def decode(self, command: Command) -> NameAsked:
        return NameAsked(text(command.fields, "username"))

    async def answer(self, client: AsyncClient, channel: object, asked: NameAsked) -> Answer:
        permissions = await self._file.read()
        if asked.name not in permissions.known():
            return _no_user(asked.name)
        return Answer(body=compact(_shown(asked.name, permissions.rules)))


class Users:
    """3005."""

    use_case = "ListPermissions"

    def __init__(self, file: PermissionsInUse) -> None:
        self._file = file

    def decode(self, command: Command) -> NameAsked:
        return NameAsked(command.fields.get("filter", ""))

    async def answer(self, client: AsyncClient, channel: object, asked: NameAsked) -> Answer:
        permissions = await self._file.read()
        return Answer(body=await asyncio.to_thread(_all_shown, asked.name, permissions))


# --- policies ---


class PolicyChange(NamedTuple):
    """Replaces the rules of each resource that it names, but those that no policy can say."""

    who: str
    grants: Sequence[Grant]
    replaced: frozenset[Resource]

    @property
    def given(self) -> list[Permission]:
        return [Permission(one.kind, one.verb, one.pattern) for one in self.grants]

    def apply(self, permissions: Permissions) -> Answer:
        kept = [one for one in permissions.rules if not self._replaces(one)]
        permissions.rules = [*kept, *self.grants]
        return Answer()

    def _replaces(self, rule: Grant) -> bool:
        if rule.who != self.who or rule.verb in (Verb.SCAN, Verb.MEMBER):
            return False
        return Resource(rule.kind, rule.pattern) in self.replaced


class PolicyToDelete(NamedTuple):
    """Without resources: all of the subject's."""

    who: str
    resources: Sequence[Resource]
    given: Sequence[Permission] = ()

    def apply(self, permissions: Permissions) -> Answer:
        kept = [one for one in permissions.rules if not self._names(one)]
        if len(kept) == len(permissions.rules):
            return _no_policy(self.who)
        permissions.rules = kept
        return Answer()

    def _names(self, rule: Grant) -> bool:
        if rule.who != self.who:
            return False
        return not self.resources or Resource(rule.kind, rule.pattern) in self.resources


def _no_policy(who: str) -> Answer:
    remark = f"there is no policy of this kind for {USER}{who[:80]}"
    return Answer(ResponseCode.POLICY_NOT_EXIST, remark=remark)


def _policy_change(command: Command, cluster: str) -> PolicyChange:
    """Read 3006 and 3007, which do the same: a resource that has a policy gets the new one."""
    who = who_of(text(command.fields, "subject"))
    policies = policies_of(document_of(command.body), cluster)
    return PolicyChange(who, grants_of(who, policies), frozenset(policies))


def _policy_to_delete(command: Command, cluster: str) -> PolicyToDelete:
    resource = command.fields.get("resource", "")
    who = who_of(text(command.fields, "subject"))
    return PolicyToDelete(who, resources_of(resource, cluster) if resource else [])


class Policies:
    """3009, of one subject, and 3010."""

    use_case = "ListPermissions"

    def __init__(self, file: PermissionsInUse, cluster: str, *, of_one: bool) -> None:
        self._file = file
        self._cluster = cluster
        self._of_one = of_one

    def decode(self, command: Command) -> NameAsked:
        fields = command.fields
        if self._of_one:
            return NameAsked(who_of(text(fields, "subject")))
        return NameAsked(fields.get("subjectFilter", ""), fields.get("resourceFilter", ""))

    async def answer(self, client: AsyncClient, channel: object, asked: NameAsked) -> Answer:
        rules: dict[str, list[Grant]] = {}
        for rule in (await self._file.read()).rules:
            if rule.who == asked.name if self._of_one else asked.name in USER + rule.who:
                rules.setdefault(rule.who, []).append(rule)
        found = [
            {"subject": USER + who, "policies": [{"policyType": "Custom", "entries": entries}]}
            for who, grants in rules.items()
            if (entries := as_policies(grants, self._cluster, asked.resource))
        ]
        if not self._of_one:
            return Answer(body=compact(found))
        return Answer(body=compact(found[0])) if found else _no_policy(asked.name)


def handlers_of_access(
    file: PermissionsInUse, cluster: str, clock: Clock
) -> Mapping[RequestCode, AlterPermissions | UserInfo | Users | Policies]:
    """`cluster`: whose name policies have."""

    def altering(read: Callable[[Command], _Change]) -> AlterPermissions:
        return AlterPermissions(file, read)

    def put_policy(command: Command) -> _Change:
        return _policy_change(command, cluster)

    return {
        RequestCode.AUTH_CREATE_USER: altering(
            lambda command: _user_change(command, file, clock, is_new=True)
        ),
        RequestCode.AUTH_UPDATE_USER: altering(
            lambda command: _user_change(command, file, clock, is_new=False)
        ),
        RequestCode.AUTH_DELETE_USER: altering(_user_to_delete),
        RequestCode.AUTH_GET_USER: UserInfo(file),
        RequestCode.AUTH_LIST_USERS: Users(file),
        RequestCode.AUTH_CREATE_ACL: altering(put_policy),
        RequestCode.AUTH_UPDATE_ACL: altering(put_policy),
        RequestCode.AUTH_DELETE_ACL: altering(lambda command: _policy_to_delete(command, cluster)),
        RequestCode.AUTH_GET_ACL: Policies(file, cluster, of_one=True),
        RequestCode.AUTH_LIST_ACLS: Policies(file, cluster, of_one=False),
    }
