"""A log's state on the wire of the services: GetStatusResponse and its parts."""

from collections.abc import Iterable
from typing import Any

from google.protobuf.message import Message

from stratamq.api.v1 import commitlog_pb2 as pb
from stratamq.api.v1 import common_pb2
from stratamq.formats.generation_number import Generation
from stratamq.formats.log_damage import Damage
from stratamq.formats.log_state import FollowerState, LogState, ReplicaState, Role, ScrubState
from stratamq.rpc.members import members_message, members_value

_ROLES = {role.value: role for role in Role}


def _names(message: type[Message]) -> list[str]:
    """Fields of one number, truth or text: the value has them by the same names."""
    fields = message.DESCRIPTOR.fields
    plain = [one for one in fields if isinstance(one.default_value, int | float | str)]
    return [one.name for one in plain if one.enum_type is None]


def _plain(source: Any, names: Iterable[str]) -> dict[str, Any]:
    return {name: getattr(source, name) for name in names}


_STATE, _FOLLOWER = _names(pb.GetStatusResponse), _names(pb.FollowerStatus)
_REPLICA, _SCRUB = _names(pb.ReplicaStatus), _names(pb.ScrubStatus)
_OPTIONAL = [
    name for name in _STATE if pb.GetStatusResponse.DESCRIPTOR.fields_by_name[name].has_presence
]


def log_state_message(state: LogState) -> pb.GetStatusResponse:
    return pb.GetStatusResponse(
        **_plain(state, _STATE),
        role=_role_number(state.role),
        configured_role=_role_number(state.configured_role),
        generations=map(generation_message, state.generations),
        recovery_report=state.recovery_report,
        members=members_message(state.members),
        followers=[pb.FollowerStatus(**_plain(one, _FOLLOWER)) for one in state.followers],
        replicas=map(replica_message, state.replicas),
        scrub=pb.ScrubStatus(
            **_plain(state.scrub, _SCRUB),
            damage=[
                pb.DamagedStretch(start_offset=one.start, end_offset=one.end, reason=one.reason)
                for one in state.scrub.damage
            ],
        ),
    )


def log_state_value(message: pb.GetStatusResponse) -> LogState:
    """InvalidRequestError for members that cannot be a cluster."""
    absent = {name: None for name in _OPTIONAL if not message.HasField(name)}
    return LogState(
        **_plain(message, _STATE) | absent,
        role=_ROLES.get(message.role),
        configured_role=_ROLES.get(message.configured_role),
        generations=tuple(map(generation_value, message.generations)),
        recovery_report=tuple(message.recovery_report),
        members=members_value(message.members) if message.HasField("members") else None,
        followers=tuple(FollowerState(**_plain(one, _FOLLOWER)) for one in message.followers),
        replicas=tuple(map(replica_value, message.replicas)),
        scrub=ScrubState(
            **_plain(message.scrub, _SCRUB),
            damage=tuple(
                Damage(one.start_offset, one.end_offset, one.reason) for one in message.scrub.damage
            ),
        ),
    )


def replica_message(replica: ReplicaState) -> pb.ReplicaStatus:
    return pb.ReplicaStatus(**_plain(replica, _REPLICA))


def replica_value(message: pb.ReplicaStatus) -> ReplicaState:
    return ReplicaState(**_plain(message, _REPLICA))


def generation_message(generation: tuple[int, int]) -> common_pb2.Generation:
    number, start = generation
    return common_pb2.Generation(generation=number, start_offset=start)


def generation_value(message: common_pb2.Generation) -> Generation:
    return Generation(message.generation, message.start_offset)


def _role_number(role: Role | None) -> int:
    return role.value if role is not None else 0
