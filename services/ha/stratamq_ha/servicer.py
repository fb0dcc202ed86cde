"""ReplicationService: wire messages to calls of the master's and the slave's side."""

from stratamq.api.v1 import common_pb2
from stratamq.api.v1 import replication_pb2 as pb
from stratamq.errors import (
    ConfigurationError,
    InvalidRequestError,
    NotWritableError,
    UnavailableError,
)
from stratamq.formats.log_state import Role
from stratamq.rpc.address import split_address
from stratamq.rpc.log_state import members_message, role_number
from stratamq.rpc.mirrors import message_of
from stratamq.service.entrance import Call
from stratamq_ha.cluster import Cluster
from stratamq_ha.keeper import RoleKeeper
from stratamq_ha.master import Master
from stratamq_ha.operator_commands import OperatorCommands
from stratamq_ha.own_log import OwnLogView
from stratamq_ha.peer_decisions import PeerAnswer
from stratamq_ha.slave import Slave


class ReplicationServicer:
    def __init__(
        self,
        view: OwnLogView,
        master: Master,
        slave: Slave,
        cluster: Cluster,
        keeper: RoleKeeper,
        words: OperatorCommands,
    ) -> None:
        self._view = view
        self._master = master
        self._slave = slave
        self._cluster = cluster
        self._keeper = keeper
        self._words = words

    async def GetReplicationStatus(
        self, request: pb.GetReplicationStatusRequest, call: Call
    ) -> pb.GetReplicationStatusResponse:
        facts = self._view.facts
        if facts is None or facts.role is None:
            raise UnavailableError(self._view.stopped_reason or "the log has not answered yet")
        response = message_of(
            pb.GetReplicationStatusResponse,
            facts,
            role=facts.role.value,
            minimum_offset=self._view.view.minimum,
            shippable_offset=self._view.view.shippable,
            replication_address=self._master.address if self._master.serves else "",
            listening_address=self._master.address,
            configured_role=role_number(facts.configured_role),
            held_reason=facts.held_reason or facts.lead_ended_reason,
            peers=[_peer(one) for one in self._cluster.answers],
            problem=self._keeper.problem,
            members=members_message(facts.members),
        )
        for state in self._master.known_slaves():
            response.slaves.append(
                message_of(
                    pb.SlaveProgress,
                    state,
                    acknowledged_offset=state.acknowledged,
                    counts=state.counts and state.connected,
                )
            )
        if facts.role is Role.SLAVE:
            response.following.CopyFrom(self._following())
        return response

    async def Resync(self, request: pb.ResyncRequest, call: Call) -> pb.ResyncResponse:
        facts = self._view.facts
        if facts is None or facts.role is not Role.SLAVE:
            raise NotWritableError("this broker follows no master: nothing to resync", "role")
        self._slave.resync()
        return pb.ResyncResponse()

    async def Promote(self, request: pb.PromoteRequest, call: Call) -> pb.PromoteResponse:
        wanted = Role(request.role) if request.role else None
        done = await self._words.promote(wanted, force=request.force, succeeds=request.succeeds)
        return pb.PromoteResponse(
            role=role_number(done.role),
            term=done.term,
            generation=common_pb2.Generation(generation=done.generation, start_offset=done.start),
            missing=done.missing,
        )

    async def Demote(self, request: pb.DemoteRequest, call: Call) -> pb.DemoteResponse:
        if request.master_replication_address:
            try:
                split_address(request.master_replication_address)
            except ConfigurationError as error:
                raise InvalidRequestError(error.message) from None
        master, missing = await self._words.demote(
            request.master_replication_address, force=request.force
        )
        return pb.DemoteResponse(master_replication_address=master, missing=missing)

    async def RemoveMember(
        self, request: pb.RemoveMemberRequest, call: Call
    ) -> pb.RemoveMemberResponse:
        members, costs = await self._words.remove_member(request.name, force=request.force)
        return pb.RemoveMemberResponse(members=members_message(members), costs=costs)

    async def AdmitMember(
        self, request: pb.AdmitMemberRequest, call: Call
    ) -> pb.AdmitMemberResponse:
        members = await self._words.admit_member(request.name)
        return pb.AdmitMemberResponse(members=members_message(members))

    def _following(self) -> pb.FollowingProgress:
        state = self._slave.state
        return message_of(
            pb.FollowingProgress,
            state,
            master_address=self._slave.master,
            problem=self._slave.standstill.problem or state.problem,
            appended_offset=state.appended,
            received_offset=state.received,
            metadata_problem=self._slave.metadata_problem,
        )


def _peer(one: PeerAnswer) -> pb.PeerView:
    theirs = one.peer_status
    if theirs is None:
        return pb.PeerView(address=one.address, problem=one.problem)
    return message_of(
        pb.PeerView,
        theirs,
        address=one.address,
        answers=True,
        role=theirs.role.value,
        end_offset=theirs.end,
        problem="",
    )
