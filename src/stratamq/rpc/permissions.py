"""What each use case needs, in one table: the verbs, and the fields that name topics and groups.

    topic    produce   send messages to it
             consume   read it: pull, time, key
             manage    create, alter, purge, delete
             any       one of these: that it exists, and its queues
             all but manage, of `%RETRY%group`: consume of the group
    group    consume   read, commit and reset its offsets, join it
             manage    settings, replay of dead letters, delete
             observe   where it is, its members and settings: consume or manage of it, or
                       observe of the broker
    broker   observe   states, listings, metrics
             operate   what changes a broker: promotion, deletion, retention; observes, too
             scan      the log as a whole, whatever its topics: tables, Spark, single frames
             member    what only the services of a cluster do; includes everything

gRPC has a method for each use case, of the same name; a method that is not in the table needs
`operate` (`methods.rule_of`), so that a new service is not open by mistake. Another protocol names
a use case for each of its methods (`docs/a-new-protocol.md`).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

from stratamq.formats.topics import DRAIN_TOPIC, RETRY_PREFIX


class Verb(Enum):
    """An action that a rule allows."""

    PRODUCE = "produce"
    CONSUME = "consume"
    MANAGE = "manage"
    ANY = "any"
    OBSERVE = "observe"
    OPERATE = "operate"
    SCAN = "scan"
    MEMBER = "member"


class ResourceKind(Enum):
    """On what."""

    TOPIC = "topic"
    GROUP = "group"
    BROKER = "broker"


class Permission(NamedTuple):
    """`name` of a topic or a group; "" for the broker, and for any topic or group at all."""

    kind: ResourceKind
    verb: Verb
    name: str = ""

    def __str__(self) -> str:
        verb = "use" if self.verb is Verb.ANY else self.verb.value
        if self.kind is not ResourceKind.BROKER and not self.name:
            return f"{verb} any {self.kind.value}"
        return f"{verb} {self.kind.value}{':' * bool(self.name)}{self.name}"


@dataclass(frozen=True, slots=True)
class Need:
    """One permission for each name that the request has at `path`: fields, with a dot between them,
    of which repeated ones give several. Where there is none: `otherwise` of the broker, or nothing.
    """

    kind: ResourceKind
    verb: Verb
    path: str = ""
    otherwise: Verb | None = None
    of_drain: Verb | None = None
    """Needed on the broker instead, for DRAIN_TOPIC, which is about all topics; None: nothing."""

    def permissions(self, request: Any) -> Iterator[Permission]:
        if not self.path:
            yield Permission(self.kind, self.verb)
            return
        is_named = False
        is_of_group = self.kind is ResourceKind.TOPIC and self.verb is not Verb.MANAGE
        for name in _at(request, self.path.split(".")):
            if not name:
                continue
            is_named = True
            group = name.removeprefix(RETRY_PREFIX)
            if group and group != name and is_of_group:
                # What a group failed at is the group's: its consumers send it back and read it.
                yield Permission(ResourceKind.GROUP, Verb.CONSUME, group)
            elif name != DRAIN_TOPIC:
                yield Permission(self.kind, self.verb, name)
            elif self.of_drain is not None:
                yield Permission(ResourceKind.BROKER, self.of_drain)
        if not is_named and self.otherwise is not None:
            yield Permission(ResourceKind.BROKER, self.otherwise)


@dataclass(frozen=True, slots=True)
class NeedToGive:
    """Needs `operate`, and each permission of the request's `given`: no one gives what they do not
    have. Their patterns are asked for as names: a rule that matches a pattern's text, in which `*`
    stands for itself, matches all that the pattern matches."""

    verb = Verb.OPERATE

    def permissions(self, request: Any) -> Iterator[Permission]:
        yield Permission(ResourceKind.BROKER, self.verb)
        yield from request.given


@dataclass(frozen=True, slots=True)
class MethodRule:
    """What a use case needs. No needs: an identity is enough."""

    needs: tuple[Need | NeedToGive, ...] = ()
    audited: bool = False
    """It is an operator's act, of which a line is written."""

    @property
    def has_effects(self) -> bool:
        """What was done must be told: its answer cannot be refused any more."""
        return any(need.verb in _EFFECTS for need in self.needs)


_EFFECTS = (Verb.PRODUCE, Verb.MANAGE, Verb.OPERATE, Verb.MEMBER)


def _topics(verb: Verb, path: str, otherwise: Verb | None = None) -> Need:
    """Build the need of a call on topics. Every authenticated user may see whether the broker is
    drained; an operator changes it."""
    of_drain = None if verb is ANY else Verb.OPERATE
    return Need(ResourceKind.TOPIC, verb, path, otherwise, of_drain)


def _groups(verb: Verb, path: str, otherwise: Verb | None = None) -> Need:
    return Need(ResourceKind.GROUP, verb, path, otherwise)


def _broker(verb: Verb) -> MethodRule:
    return MethodRule((Need(ResourceKind.BROKER, verb),), audited=verb is Verb.OPERATE)


KNOWN = MethodRule()
"""Every authenticated user."""
PRODUCE, CONSUME, MANAGE, ANY = Verb.PRODUCE, Verb.CONSUME, Verb.MANAGE, Verb.ANY
OBSERVE, OPERATE = _broker(Verb.OBSERVE), _broker(Verb.OPERATE)
SHARED = MethodRule((_groups(CONSUME, "group"), _topics(CONSUME, "topic")))
GROUP_STATE = MethodRule((_groups(Verb.OBSERVE, "group", Verb.OBSERVE),))
SCAN, MEMBER = _broker(Verb.SCAN), _broker(Verb.MEMBER)

RULES = {
    # --- the log ---
    "Append": MethodRule((_topics(PRODUCE, "messages.topic"),)),
    # Who may produce to no topic opens none. Asked for again for each topic that a batch names:
    # `service.access.require_topics`.
    "AppendStream": MethodRule((Need(ResourceKind.TOPIC, PRODUCE),)),
    "AppendRaw": MEMBER,
    "AppendData": MEMBER,
    "GetFrame": SCAN,
    "ReadRange": SCAN,
    "GetStatus": KNOWN,
    "GetQueueTable": SCAN,
    # By name, with acknowledgements: a caller that follows as `index` would let the log delete.
    "Follow": MEMBER,
    "ListTopics": MethodRule((_topics(ANY, "topic", Verb.OBSERVE),)),
    "PutTopic": MethodRule(
        (_topics(MANAGE, "topic.topic"), _topics(MANAGE, "change.topic")), audited=True
    ),
    "DeleteTopic": MethodRule((_topics(MANAGE, "topic", Verb.OPERATE),), audited=True),
    "SetRole": MEMBER,
    "GrantLease": MEMBER,
    "HoldWrites": MEMBER,
    "PutMembers": MEMBER,
    "SetJoined": MEMBER,
    "Cut": MEMBER,
    "DeleteBelow": OPERATE,
    "ReportReplication": MEMBER,
    "TrustClock": OPERATE,
    "ExportMetadata": MEMBER,
    "ImportMetadata": MEMBER,
    # --- queues and groups ---
    "Pull": MethodRule((_topics(CONSUME, "topic"), _groups(CONSUME, "group"))),
    "PullStream": MethodRule((_topics(CONSUME, "queues.topic"), _groups(CONSUME, "group"))),
    "ListQueues": MethodRule((_topics(ANY, "topic", Verb.OBSERVE),)),
    "GetOffsetByTime": MethodRule((_topics(CONSUME, "topic"),)),
    "ListUnits": MethodRule((_topics(CONSUME, "topic"),)),
    "CommitOffsets": MethodRule((_groups(CONSUME, "group"), _topics(CONSUME, "offsets.topic"))),
    "GetCommittedOffsets": GROUP_STATE,
    "ListGroups": GROUP_STATE,
    "DeleteGroup": MethodRule((_groups(MANAGE, "group", Verb.OPERATE),), audited=True),
    "ListGroupMembers": GROUP_STATE,
    "GetDispatchStatus": OBSERVE,
    "ListTopicSizes": OBSERVE,
    "ExportConsumerOffsets": MEMBER,
    "ImportConsumerOffsets": MEMBER,
    # --- keys ---
    "QueryKey": MethodRule((_topics(CONSUME, "topic", Verb.SCAN),)),
    "Rebuild": OPERATE,
    "GetIndexStatus": OBSERVE,
    # --- replication ---
    "GetReplicationStatus": OBSERVE,
    "Resync": OPERATE,
    "Promote": OPERATE,
    "Demote": OPERATE,
    "RemoveMember": OPERATE,
    "AdmitMember": OPERATE,
    # --- the janitor ---
    "GetJanitorStatus": OBSERVE,
    "PlanCleaning": OBSERVE,
    "RunCleaning": OPERATE,
    "GetRetention": OBSERVE,
    "SetRetention": OPERATE,
    "ListSegments": OBSERVE,
    # --- the delivery ---
    "GetDeliveryStatus": OBSERVE,
    "EnableSchedule": OPERATE,
    "ListScheduled": OPERATE,
    "CancelScheduled": OPERATE,
    "DeliverScheduledNow": OPERATE,
    "RecallMessage": MethodRule((_topics(PRODUCE, "topic"),)),
    "Receive": SHARED,
    "AcknowledgeMessages": SHARED,
    "ReturnMessages": SHARED,
    "ChangeInvisibleTime": SHARED,
    "BuryMessages": SHARED,
    "RenewLease": MethodRule((_groups(CONSUME, "group"),)),
    "ListHandOuts": GROUP_STATE,
    "AlterGroup": MethodRule((_groups(MANAGE, "group"),), audited=True),
    "GetGroupSettings": GROUP_STATE,
    "StopSharing": MethodRule((_groups(MANAGE, "group"),), audited=True),
    "ListDeadLetters": MethodRule((_groups(CONSUME, "group"),)),
    "ReplayDeadLetters": MethodRule((_groups(MANAGE, "group"),), audited=True),
    "EndTransaction": MethodRule((_topics(PRODUCE, "messages.topic"),)),
    "CheckTransactions": MethodRule((_topics(PRODUCE, "topics"),)),
    "ShareMembers": MEMBER,
    "ListClassicMembers": GROUP_STATE,
    "LockQueues": MEMBER,
    # --- the gateway ---
    "GetGatewayStatus": OBSERVE,
    "AskClients": MEMBER,
    # --- the console ---
    "GetConsoleStatus": OBSERVE,
    # --- the tier ---
    "FetchMessages": MethodRule((_topics(CONSUME, "topic"),)),
    "ListTierQueues": SCAN,
    "GetTierOffsetByTime": MethodRule((_topics(CONSUME, "topic"),)),
    "QueryTierKey": MethodRule((_topics(CONSUME, "topic", Verb.SCAN),)),
    "GetTierStatus": OBSERVE,
    # --- the agent ---
    "GetElection": OBSERVE,
    "Switchover": OPERATE,
    "SetPaused": OPERATE,
    "Wake": MEMBER,
}
"""By the use case."""

EDGE_RULES = {
    "ListPermissions": MethodRule((Need(ResourceKind.BROKER, Verb.OPERATE),)),
    "AlterPermissions": MethodRule((NeedToGive(),), audited=True),
}
"""Use cases that an edge carries out by itself: no service has a method of that name."""

IMPLIED = {
    Verb.ANY: (PRODUCE, CONSUME, MANAGE),
    Verb.OBSERVE: (Verb.OPERATE, CONSUME, MANAGE),
}
"""What else gives a verb. `member` gives everything."""


def _at(request: Any, fields: list[str]) -> Iterator[str]:
    if not fields:
        yield request
        return
    first, *further = fields
    value = getattr(request, first)
    if isinstance(value, Iterable) and not isinstance(value, str):
        for each in value:
            yield from _at(each, further)
    else:
        yield from _at(value, further)
