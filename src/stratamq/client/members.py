"""The members of a cluster's shards, all asked at once. No I/O: questions, and what is made of the
answers."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stratamq.client import operations
from stratamq.client.scaling import drain_of_topics
from stratamq.errors import StrataError
from stratamq.formats.log_state import LogState, ReplicaState
from stratamq.formats.topics import DRAIN_TOPIC, Drain
from stratamq.rpc.endpoints import Endpoints
from stratamq.rpc.questions import Plan, Reply

_LOG, _DRAIN = operations.log_state(), operations.topics(DRAIN_TOPIC)


@dataclass(frozen=True, slots=True)
class MemberLook:
    """What one broker has answered. `address`: of its log service, or the one that led to none.
    `log` and `drain` None: it did not answer, and `problem` says why."""

    address: str
    log: LogState | None
    drain: Drain | None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class ShardMember:
    """`look` None: it is one of the shard's members, and no address led to it. Lag: behind the
    shard's master, None where that is not known."""

    name: str
    look: MemberLook | None
    lag_bytes: int | None
    lag_ms: int | None

    @property
    def log(self) -> LogState | None:
        return None if self.look is None else self.look.log


@dataclass(frozen=True, slots=True)
class Shard:
    """The brokers of one name. `master` None: none of those that answered is one."""

    name: str
    members: tuple[ShardMember, ...]
    master: MemberLook | None

    @property
    def address(self) -> str:
        """Return where its master, or else a member that answered, has its log."""
        answered = (one.look for one in self.members if one.look is not None)
        return (self.master or next(answered)).address

    @property
    def writable(self) -> bool:
        return self.master is not None and self.master.log is not None and self.master.log.writable

    @property
    def drain(self) -> Drain | None:
        return None if self.master is None else self.master.drain


def plan_members(endpoints: Endpoints) -> Plan[list[MemberLook]]:
    """Ask each broker that the addresses lead to."""
    asked = [(one.method, one.request) for one in (_LOG, _DRAIN)]
    replies: Mapping[str, Sequence[Reply]] = yield from endpoints.members(asked)
    return [_look_of(address, *some) for address, some in replies.items()]


def _look_of(address: str, log: Any, drain: Any = None) -> MemberLook:
    problem = next((one.message for one in (log, drain) if isinstance(one, StrataError)), "")
    return MemberLook(
        address,
        None if isinstance(log, StrataError) else _LOG.result(log),
        None
        if drain is None or isinstance(drain, StrataError)
        else drain_of_topics(_DRAIN.result(drain)),
        problem,
    )


def shards_of(looks: Iterable[MemberLook]) -> tuple[list[Shard], list[MemberLook]]:
    """The shards by name, and those that did not answer, whose shard is not known."""
    found: dict[str, dict[int, MemberLook]] = defaultdict(dict)
    silent: list[MemberLook] = []
    for number, look in enumerate(looks):
        if look.log is None:
            silent.append(look)
        else:  # one broker at two addresses has one identity
            found[look.log.broker_name].setdefault(look.log.identity or -1 - number, look)
    return [_shard(name, [*found[name].values()]) for name in sorted(found)], silent


def _shard(name: str, looks: Sequence[MemberLook]) -> Shard:
    masters = [one for one in looks if one.log is not None and one.log.is_master]
    master = max(masters, key=_term, default=None)
    log = None if master is None else master.log
    replicas = {} if log is None else {one.member: one for one in log.replicas}
    members = [_member(one, log, replicas) for one in looks]
    heard = {one.name for one in members}
    knowing = max(looks, key=_term).log
    configured = () if knowing is None or knowing.members is None else knowing.members.members
    members += [
        ShardMember(one.name, None, None, None)
        for one in configured
        if not one.removed and one.name not in heard
    ]
    return Shard(name, tuple(sorted(members, key=lambda one: one.name)), master)


def _term(look: MemberLook) -> int:
    return 0 if look.log is None else look.log.term


def _member(
    look: MemberLook, master: LogState | None, replicas: Mapping[str, ReplicaState]
) -> ShardMember:
    """The master's own count of what a slave lacks, or else the difference of the logs' ends."""
    assert look.log is not None
    name, known = look.log.member or look.address, replicas.get(look.log.member or "-")
    if master is None or look.log is master:
        return ShardMember(name, look, None, None)
    if known is not None and known.connected:
        return ShardMember(name, look, known.lag_bytes, known.lag_ms)
    behind = max(0, master.appended_offset - look.log.appended_offset)
    return ShardMember(name, look, behind, None)
