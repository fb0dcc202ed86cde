"""A cluster's members on the wire of the services."""

from stratamq.api.v1 import common_pb2
from stratamq.errors import InvalidRequestError
from stratamq.formats.members import Member, Members, members_fault


def members_message(members: Members | None) -> common_pb2.Members | None:
    if members is None:
        return None
    return common_pb2.Members(
        version=members.version,
        required_acknowledgements=members.required,
        members=[
            common_pb2.Member(
                slot=one.slot,
                name=one.name,
                address=one.address,
                removed=one.removed,
                since=one.since,
            )
            for one in members.members
        ],
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
