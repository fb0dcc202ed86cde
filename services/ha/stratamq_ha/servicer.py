"""ReplicationService: messages of the wire in, what master and slave know out."""

from typing import Any

from stratamq.api.v1 import common_pb2
from stratamq.api.v1 import replication_pb2 as pb
from stratamq.api.v1.replication_pb2_grpc import ReplicationServiceServicer
from stratamq.client.values import Role
from stratamq.errors import NotWritableError, UnavailableError
from stratamq.files.port import Clock
from stratamq_ha.master import Master
from stratamq_ha.own_log import OwnLogView
from stratamq_ha.slave import Slave

SERVICE_NAME = pb.DESCRIPTOR.services_by_name["ReplicationService"].full_name


class ReplicationServicer(ReplicationServiceServicer):
    """`slave` is None where no master is named."""

    def __init__(
        self,
        view: OwnLogView,
        master: Master,
        slave: Slave | None,
        master_address: str,
        clock: Clock,
    ) -> None:
        self._view = view
        self._master = master
        self._slave = slave
        self._master_address = master_address
        self._clock = clock

    async def GetReplicationStatus(
        self, request: pb.GetReplicationStatusRequest, context: Any
    ) -> pb.GetReplicationStatusResponse:
        facts = self._view.facts
        if facts is None or facts.role is None:
            raise UnavailableError(self._view.stopped_reason or "the log has not answered yet")
        response = pb.GetReplicationStatusResponse(
            role=common_pb2.BrokerRole.Name(facts.role.value),
            generation=facts.generation,
            minimum_offset=self._view.view.minimum,
            shippable_offset=self._view.view.shippable,
            replication_address=self._master.address if self._master.serves else "",
        )
        now_ms = self._clock.monotonic_ns() // 1_000_000
        for state in self._master.slaves.known(now_ms):
            response.slaves.append(
                pb.SlaveProgress(
                    address=state.address,
                    acknowledged_offset=state.acknowledged,
                    lag_bytes=state.lag_bytes,
                    lag_ms=state.lag_ms,
                    bytes_per_second=state.bytes_per_second,
                    connected=state.connected,
                    name=state.name,
                    problem=state.problem,
                )
            )
        if facts.role is Role.SLAVE:
            response.following.CopyFrom(self._following())
        return response

    async def Resync(self, request: pb.ResyncRequest, context: Any) -> pb.ResyncResponse:
        facts = self._view.facts
        if self._slave is None or facts is None or facts.role is not Role.SLAVE:
            raise NotWritableError("this broker follows nobody: there is nothing to resync", "role")
        self._slave.resync()
        return pb.ResyncResponse()

    def _following(self) -> pb.FollowingProgress:
        if self._slave is None:
            return pb.FollowingProgress(problem="no master is named (ha.master)")
        state = self._slave.state
        return pb.FollowingProgress(
            master_address=self._master_address,
            connected=state.connected,
            problem=state.problem,
            appended_offset=state.appended,
            received_offset=state.received,
            bytes_per_second=state.bytes_per_second,
            heard_ms=state.heard_ms,
            needs_resync=state.needs_resync,
        )
