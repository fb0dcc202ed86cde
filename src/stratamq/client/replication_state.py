"""What the replication service tells people and programs: a master's slaves, a slave's master."""

from dataclasses import dataclass

from stratamq.api.v1 import replication_pb2 as pb
from stratamq.client.operations import Operation
from stratamq.client.values import Role
from stratamq.client.wire import METHODS


@dataclass(frozen=True, slots=True)
class SlaveProgress:
    """One slave of a master. `name` is its broker's; RocketMQ's slaves say none. `problem`: why it
    was last cut off."""

    address: str
    name: str
    connected: bool
    acknowledged_offset: int
    lag_bytes: int
    lag_ms: int
    bytes_per_second: float
    problem: str


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


@dataclass(frozen=True, slots=True)
class ReplicationState:
    """Offsets in bytes from the start of the log. `replication_address`: where slaves connect."""

    role: Role | None
    generation: int
    minimum_offset: int
    shippable_offset: int
    replication_address: str
    slaves: tuple[SlaveProgress, ...]
    following: FollowingProgress | None


def replication_state() -> Operation[ReplicationState]:
    def result(state: pb.GetReplicationStatusResponse) -> ReplicationState:
        return ReplicationState(
            role=Role(state.role) if state.role else None,
            generation=state.generation,
            minimum_offset=state.minimum_offset,
            shippable_offset=state.shippable_offset,
            replication_address=state.replication_address,
            slaves=tuple(
                SlaveProgress(
                    one.address,
                    one.name,
                    one.connected,
                    one.acknowledged_offset,
                    one.lag_bytes,
                    one.lag_ms,
                    one.bytes_per_second,
                    one.problem,
                )
                for one in state.slaves
            ),
            following=_following(state.following) if state.HasField("following") else None,
        )

    return Operation(METHODS["GetReplicationStatus"], pb.GetReplicationStatusRequest(), result)


def _following(state: pb.FollowingProgress) -> FollowingProgress:
    return FollowingProgress(
        state.master_address,
        state.connected,
        state.problem,
        state.appended_offset,
        state.received_offset,
        state.bytes_per_second,
        state.heard_ms,
        state.needs_resync,
    )


def resync() -> Operation[None]:
    return Operation(METHODS["Resync"], pb.ResyncRequest(), lambda _: None)
