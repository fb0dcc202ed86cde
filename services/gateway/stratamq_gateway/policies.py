"""Policies of RocketMQ's access control as rules of the permissions file, and back.

    resource        Topic:NAME            Group:NAME            Cluster:NAME, this cluster's or *
    produce         Pub
    consume         Sub [Get List]        Sub [Get List]
    manage          Create Update Delete  Create Update Delete
    observe                                                     Get List
    operate                                                     Create Update Delete [Get List]

What stands in brackets is part of the permission, and need not be said. `All` is all of a column,
of the resource `*` all three. A policy that says more than a rule can, or less, is refused.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from stratamq.errors import InvalidRequestError
from stratamq.rpc.permission_file import EVERYONE, VERBS, Grant, grant_of
from stratamq.rpc.permissions import Permission, ResourceKind, Verb
from stratamq_gateway.frames import decode_json

MAX_BODY_BYTES = 64 << 10
USER = "User:"
_READ = ("get", "list")
_CHANGE = ("create", "update", "delete")


class _Meaning(NamedTuple):
    verb: Verb
    needed: Sequence[str]
    further: Sequence[str] = ()


_CONSUME, _MANAGE = _Meaning(Verb.CONSUME, ("sub",), _READ), _Meaning(Verb.MANAGE, _CHANGE)
_MEANINGS: Mapping[ResourceKind, Sequence[_Meaning]] = {
    ResourceKind.TOPIC: (_Meaning(Verb.PRODUCE, ("pub",)), _CONSUME, _MANAGE),
    ResourceKind.GROUP: (_CONSUME, _MANAGE),
    ResourceKind.BROKER: (
        _Meaning(Verb.OPERATE, _CHANGE, _READ),
        _Meaning(Verb.OBSERVE, _READ),
    ),
}
_KINDS = {
    "topic": ResourceKind.TOPIC,
    "group": ResourceKind.GROUP,
    "cluster": ResourceKind.BROKER,
}
SUPER = (
    Permission(ResourceKind.BROKER, Verb.OPERATE),
    Permission(ResourceKind.BROKER, Verb.SCAN),
    *(Permission(ResourceKind.TOPIC, verb, EVERYONE) for verb in VERBS[ResourceKind.TOPIC]),
    *(Permission(ResourceKind.GROUP, verb, EVERYONE) for verb in VERBS[ResourceKind.GROUP]),
)
"""What a user of RocketMQ's type `Super` may: all but what services do among themselves."""


class Resource(NamedTuple):
    """`pattern` of names of topics or groups; "" for the broker."""

    kind: ResourceKind
    pattern: str


def document_of(body: bytes) -> dict[str, Any]:
    """InvalidRequestError for a body that is no JSON object."""
    if len(body) > MAX_BODY_BYTES:
        raise InvalidRequestError(f"a body of {len(body)} bytes: at most {MAX_BODY_BYTES}")
    try:
        found = decode_json(body)
    except (ValueError, RecursionError) as error:
        raise InvalidRequestError(f"a body that cannot be decoded: {error}") from error
    if not isinstance(found, dict):
        raise InvalidRequestError("a body that is no object")
    return found


def who_of(subject: str) -> str:
    """Return NAME of `User:NAME`. InvalidRequestError."""
    who = subject.removeprefix(USER)
    if who == subject:
        raise InvalidRequestError(f"the subject {subject!r:.80} is not of the form {USER}NAME")
    return who


def resources_of(text: str, cluster: str) -> list[Resource]:
    """Several for `*`. InvalidRequestError."""
    if text == EVERYONE:
        return [Resource(kind, "" if kind is ResourceKind.BROKER else text) for kind in VERBS]
    name, _, pattern = text.partition(":")
    kind = _KINDS.get(name.lower())
    if kind is None or not pattern:
        raise InvalidRequestError(f"{text!r:.80}: Topic:NAME, Group:NAME, Cluster:NAME or *")
    if kind is not ResourceKind.BROKER:
        return [Resource(kind, pattern)]
    if pattern not in (cluster, EVERYONE):
        raise InvalidRequestError(f"{pattern!r:.80} is another cluster: this one is {cluster}")
    return [Resource(kind, "")]


def policies_of(document: Mapping[str, Any], cluster: str) -> dict[Resource, set[Verb]]:
    """What is to be allowed, by its resource. InvalidRequestError for what no rule can say, so that
    nothing of it is done."""
    found: dict[Resource, set[Verb]] = {}
    try:
        for policy in document["policies"]:
            if (policy.get("policyType") or "Custom").lower() != "custom":
                raise InvalidRequestError("there are no default policies: grant it to User:*")
            for entry in policy["entries"]:
                for resource, verbs in _entry(entry, cluster):
                    found.setdefault(resource, set()).update(verbs)
    except (KeyError, TypeError, AttributeError) as error:
        raise InvalidRequestError(f"policies that cannot be decoded: {error!r:.80}") from error
    if not found:
        raise InvalidRequestError("no policy is named")
    return found


def _entry(entry: Mapping[str, Any], cluster: str) -> Iterable[tuple[Resource, set[Verb]]]:
    if str(entry.get("decision", "Allow")).lower() != "allow":
        raise InvalidRequestError(
            "rules only allow here: what none allows is refused, so delete the policy that allows "
            "too much instead of adding one that denies"
        )
    if any(entry.get("sourceIps") or ()):
        raise InvalidRequestError(
            "a rule is for a user, wherever it calls from: keep addresses out with a firewall"
        )
    actions = {str(one).lower() for one in entry["actions"] if str(one)}
    if not actions:
        raise InvalidRequestError("a policy names no actions")
    text = str(entry["resource"])
    if text == EVERYONE and actions != {"all"}:
        raise InvalidRequestError(
            "of all resources, only All can be given at once: name Topic:*, Group:* or Cluster:*"
        )
    for resource in resources_of(text, cluster):
        yield resource, _verbs(text, resource.kind, actions)


def _verbs(text: str, kind: ResourceKind, actions: set[str]) -> set[Verb]:
    meanings = _MEANINGS[kind]
    if "all" in actions:
        given = [one for one in meanings if one.verb is not Verb.OBSERVE]  # `operate` has it
        return {one.verb for one in given}
    verbs: set[Verb] = set()
    left = set(actions)
    for one in meanings:
        if left.issuperset(one.needed):
            verbs.add(one.verb)
            left.difference_update(one.needed, one.further)
    if left:
        known = "; ".join(_spelled(one) for one in meanings)
        raise InvalidRequestError(
            f"{', '.join(sorted(left))} of {text:.80} is no permission by itself here, which are: "
            f"{known}; or All"
        )
    return verbs


def _spelled(one: _Meaning) -> str:
    further = f" with {', '.join(map(str.capitalize, one.further))}" if one.further else ""
    return ", ".join(map(str.capitalize, one.needed)) + further


def grants_of(who: str, policies: Mapping[Resource, set[Verb]]) -> list[Grant]:
    """InvalidRequestError for a name that no rule can have."""
    return [
        grant_of(who, verb.value, _what(resource))
        for resource, verbs in policies.items()
        for verb in VERBS[resource.kind]
        if verb in verbs
    ]


def _what(resource: Resource) -> str:
    is_broker = resource.kind is ResourceKind.BROKER
    return resource.kind.value if is_broker else f"{resource.kind.value}:{resource.pattern}"


def as_policies(grants: Iterable[Grant], cluster: str, wanted: str = "") -> list[dict[str, object]]:
    """The entries of one subject's policy, of the resources whose name has the text `wanted`. What
    RocketMQ has no word for, as `scan`, has its own."""
    found: dict[str, list[str]] = {}
    for grant in grants:
        resource = f"{grant.kind.value.capitalize()}:{grant.pattern}"
        if grant.kind is ResourceKind.BROKER:
            resource = f"Cluster:{cluster}"
        if wanted in resource:
            actions = found.setdefault(resource, [])
            actions += [one for one in _actions(grant) if one not in actions]
    return [
        {"resource": resource, "actions": actions, "decision": "Allow"}
        for resource, actions in found.items()
    ]


def _actions(grant: Grant) -> list[str]:
    for one in _MEANINGS[grant.kind]:
        if one.verb is grant.verb:
            return [action.capitalize() for action in (*one.needed, *one.further)]
    return [grant.verb.value.capitalize()]
