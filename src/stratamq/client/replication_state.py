"""What the replication service reports: a master's slaves, a slave's master."""

from dataclasses import dataclass

from stratamq.api.v1 import replication_pb2 as pb
from stratamq.client.operations import Operation, called
from stratamq.formats.log_state import Role
from stratamq.formats.members import Members
from stratamq.rpc.log_state import members_value
from stratamq.rpc.methods import METHODS
from stratamq.rpc.mirrors import value_of

CHANGE_S = 30.0
"""A change of role may flush, and wait for slaves and for peers that do not answer."""


@dataclass(frozen=True, slots=True)
class SlaveProgress:
    """One slave of a master. `name` is its broker's; RocketMQ's slaves send none. `problem`: why it
    was last cut off."""

    address: str
    name: str
    connected: bool
    acknowledged_offset: int
    lag_bytes: int
    lag_ms: int
    bytes_per_second: float
    problem: str
    member: str = ""
    """Its name among the members; "": it is none."""
    counts: bool = False
    """Its acknowledgements count towards PUT_OK."""


@dataclass(frozen=True, slots=True)
class FollowingProgress:
    """A slave's view of its master. `problem`: why it does not follow."""

    master_address: str
    connected: bool
    problem: str
    appended_offset: int
    received_offset: int
    bytes_per_second: float
    heard_ms: int
    needs_resync: bool
    metadata_problem: str = ""
    """Why topics and consumer offsets are not the master's."""


@dataclass(frozen=True, slots=True)
class PeerView:
    """What another member answered last; `problem` why it did not. `rejoining`: its directory is
    new in the cluster. `promised_to`: the member to which its term is promised. `held`: a master
    that takes no messages for the time being."""

    address: str
    answers: bool
    role: Role | None
    term: int
    generation: int
    end_offset: int
    problem: str
    member: str = ""
    rejoining: bool = False
    promised_to: str = ""
    held: bool = False


@dataclass(frozen=True, slots=True)
class ReplicationState:
    """Offsets in bytes from the start of the log. `replication_address`: where slaves connect;
    `listening_address`: where they would if this broker were a master. `role_reason`: why the role
    is not the configured one. `held_reason`: why a master takes no messages for the time being.
    `members`: in force, None without; `member`: this broker's name among them. `rejoining`: its
    directory is new in the cluster, and not counted in the quorum. `promised_to`: the member to
    which `term` is promised."""

    role: Role | None
    generation: int
    minimum_offset: int
    shippable_offset: int
    replication_address: str
    slaves: tuple[SlaveProgress, ...]
    following: FollowingProgress | None
    term: int = 0
    configured_role: Role | None = None
    role_reason: str = ""
    held_reason: str = ""
    problem: str = ""
    listening_address: str = ""
    peers: tuple[PeerView, ...] = ()
    members: Members | None = None
    member: str = ""
    rejoining: bool = False
    promised_to: str = ""


@dataclass(frozen=True, slots=True)
class Promotion:
    """A promotion that has happened: the generation that began, and what is missing."""

    role: Role | None
    term: int
    generation: int
    start_offset: int
    missing: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Removal:
    """A member was removed: the members in force, and what the operator answers for."""

    members: Members
    costs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Demotion:
    """A demotion that has happened. `master_address`: the master that the broker follows, "" if
    the members decide it."""

    master_address: str
    missing: tuple[str, ...]


def replication_state() -> Operation[ReplicationState]:
    def result(state: pb.GetReplicationStatusResponse) -> ReplicationState:
        following = value_of(FollowingProgress, state.following)
        return value_of(
            ReplicationState,
            state,
            role=_role(state.role),
            configured_role=_role(state.configured_role),
            slaves=tuple(value_of(SlaveProgress, one) for one in state.slaves),
            following=following if state.HasField("following") else None,
            peers=tuple(value_of(PeerView, one, role=_role(one.role)) for one in state.peers),
            members=members_value(state.members) if state.HasField("members") else None,
        )

    return called("GetReplicationStatus", result)


def _role(number: int) -> Role | None:
    return Role(number) if number else None


def resync() -> Operation[None]:
    return called("Resync", lambda _: None)


def promote(role: Role | None, force: bool, succeeds: str) -> Operation[Promotion]:
    def result(done: pb.PromoteResponse) -> Promotion:
        return Promotion(
            _role(done.role),
            done.term,
            done.generation.generation,
            done.generation.start_offset,
            tuple(done.missing),
        )

    request = pb.PromoteRequest(
        role=role.value if role is not None else 0,
        force=force,
        succeeds=succeeds,
    )
    return Operation(METHODS["Promote"], request, result, safe=False, wait_s=CHANGE_S)


def demote(master: str, force: bool) -> Operation[Demotion]:
    request = pb.DemoteRequest(master_replication_address=master, force=force)
    return Operation(
        METHODS["Demote"],
        request,
        lambda done: Demotion(done.master_replication_address, tuple(done.missing)),
        safe=False,
        wait_s=CHANGE_S,
    )


def remove_member(name: str, force: bool) -> Operation[Removal]:
    return Operation(
        METHODS["RemoveMember"],
        pb.RemoveMemberRequest(name=name, force=force),
        lambda done: Removal(members_value(done.members), tuple(done.costs)),
        safe=False,
        wait_s=CHANGE_S,
    )


def admit_member(name: str) -> Operation[Members]:
    return Operation(
        METHODS["AdmitMember"],
        pb.AdmitMemberRequest(name=name),
        lambda done: members_value(done.members),
        safe=False,
        wait_s=CHANGE_S,
    )
