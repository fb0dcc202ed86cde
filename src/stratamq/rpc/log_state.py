"""A log's state on the wire of the services: GetStatusResponse and its parts."""

from stratamq.api.v1 import commitlog_pb2 as pb
from stratamq.api.v1 import common_pb2
from stratamq.errors import InvalidRequestError
from stratamq.formats.generation_number import Generation
from stratamq.formats.log_damage import Damage
from stratamq.formats.log_state import FollowerState, LogState, ReplicaState, Role, ScrubState
from stratamq.formats.members import Member, Members, members_fault
from stratamq.rpc.mirrors import message_of, value_of

_ROLES = {role.value: role for role in Role}


def log_state_message(state: LogState) -> pb.GetStatusResponse:
    return message_of(
        pb.GetStatusResponse,
        state,
        role=role_number(state.role),
        configured_role=role_number(state.configured_role),
        generations=map(generation_message, state.generations),
        recovery_report=state.recovery_report,
        members=members_message(state.members),
        followers=[message_of(pb.FollowerStatus, one) for one in state.followers],
        replicas=[message_of(pb.ReplicaStatus, one) for one in state.replicas],
        scrub=message_of(
            pb.ScrubStatus,
            state.scrub,
            damage=[
                pb.DamagedStretch(start_offset=one.start, end_offset=one.end, reason=one.reason)
                for one in state.scrub.damage
            ],
        ),
    )


def log_state_value(message: pb.GetStatusResponse) -> LogState:
    """InvalidRequestError for members that cannot be a cluster."""
    return value_of(
        LogState,
        message,
        role=_ROLES.get(message.role),
        configured_role=_ROLES.get(message.configured_role),
        generations=tuple(map(generation_value, message.generations)),
        members=members_value(message.members) if message.HasField("members") else None,
        followers=tuple(value_of(FollowerState, one) for one in message.followers),
        replicas=tuple(value_of(ReplicaState, one) for one in message.replicas),
        scrub=value_of(
            ScrubState,
            message.scrub,
            damage=tuple(
                Damage(one.start_offset, one.end_offset, one.reason) for one in message.scrub.damage
            ),
        ),
    )


def generation_message(generation: tuple[int, int]) -> common_pb2.Generation:
    number, start = generation
    return common_pb2.Generation(generation=number, start_offset=start)


def generation_value(message: common_pb2.Generation) -> Generation:
    return Generation(message.generation, message.start_offset)


def role_number(role: Role | None) -> int:
    return role.value if role is not None else 0


def members_message(members: Members | None) -> common_pb2.Members | None:
    if members is None:
        return None
    return common_pb2.Members(
        version=members.version,
        required_acknowledgements=members.required,
        members=[message_of(common_pb2.Member, one) for one in members.members],
    )


def members_value(message: common_pb2.Members) -> Members:
    """InvalidRequestError for what cannot be a cluster."""
    members = Members(
        message.version,
        message.required_acknowledgements,
        tuple(
            Member(one.slot, one.name, one.address, one.removed, one.since)
            for one in message.members
        ),
    )
    fault = members_fault(members)
    if fault or members.version < 1:
        raise InvalidRequestError(fault or "members have a version of at least 1")
    return members
