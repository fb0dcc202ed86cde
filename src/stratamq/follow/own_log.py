"""What the replication service asks of its broker's own log. Of one event loop."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from stratamq.api.v1 import commitlog_pb2 as pb
from stratamq.api.v1 import common_pb2
from stratamq.formats.broker_role import Role
from stratamq.formats.members import Members
from stratamq.formats.replication_opening import Generations
from stratamq.rpc.asking import ask
from stratamq.rpc.endpoints import Channels
from stratamq.rpc.framing import APPEND_DATA_REQUEST
from stratamq.rpc.locating import lease_over
from stratamq.rpc.members import members_message, members_value

ANSWER_S = 30.0
"""A slave's log may flush, or be opened again after a cut, before it answers."""
CUT_S = 3_600.0
PART_BYTES = 4 << 20
"""The most in one request, whatever a message's size: the log bounds what its callers send at once
by its own settings, and a slave takes what its master took."""
SLOWEST_BYTES_PER_S = 1 << 20
"""A log that writes more slowly has failed."""


@dataclass(frozen=True, slots=True)
class LogFacts:
    """The log at one moment. Offsets in bytes from its start."""

    role: Role | None
    generations: Generations
    minimum: int
    appended: int
    segment_bytes: int
    broker_name: str
    configured_role: Role | None = None
    role_reason: str = ""
    term: int = 0
    master: str = ""
    """Of a slave with an assigned master: where that master's slaves connect."""
    held: str = ""
    """Why a master takes no messages for the time being."""
    has_peers: bool = False
    recovering_tail: bool = False
    """A master whose log takes its own bytes from its slaves."""
    master_confirmed: int | None = None
    """Of a slave: how far its master is known to have confirmed; None: not known."""
    confirmed: int = 0
    safe: int = 0
    """Below here the log has its bytes as safely as its flush setting requires."""
    identity: int = 0
    members: Members | None = None
    """In force; None without configured members."""
    member: str = ""
    """This broker's name among them."""
    rejoining: bool = False
    """The directory is new in its cluster, and not counted in the quorum."""
    promised_to: str = ""
    """The member to which `term` is promised."""
    required: int = 1
    """The setting: how many slaves must acknowledge."""
    lease_over: bool = False
    """A master takes no messages, because its agent does not grant it."""
    lead_ended: str = ""
    """Why its agent has ended the lead of a master; "": it has not."""
    clock_doubt: str = ""
    """Why the log does not believe the wall clock as it is now; "": it does."""

    @property
    def generation(self) -> int:
        return self.generations[-1][0]


@dataclass(frozen=True, slots=True)
class ReplicaReport:
    """One slave's progress, for the log."""

    address: str
    acknowledged: int
    connected: bool
    lag_bytes: int
    lag_ms: int
    counts: bool
    """Its acknowledgements count towards PUT_OK."""
    member: str = ""


class OwnLog:
    """Calls raise StrataError; UnavailableError when the log does not answer."""

    def __init__(self, channels: Channels) -> None:
        self._channels = channels

    async def facts(self) -> LogFacts:
        status = await self._call("GetStatus", pb.GetStatusRequest())
        return LogFacts(
            role=Role(status.role) if status.role else None,
            generations=[(g.generation, g.start_offset) for g in status.generations],
            minimum=status.minimum_offset,
            appended=status.appended_offset,
            segment_bytes=status.segment_bytes,
            broker_name=status.broker_name,
            configured_role=Role(status.configured_role) if status.configured_role else None,
            role_reason=status.role_reason,
            term=status.term,
            master=status.master_replication_address,
            held=status.held_reason,
            has_peers=status.has_peers,
            recovering_tail=status.taking_back,
            master_confirmed=(
                status.master_confirmed_offset
                if status.HasField("master_confirmed_offset")
                else None
            ),
            confirmed=status.confirmed_offset,
            safe=status.flushed_offset if status.sync_flush else status.appended_offset,
            identity=status.identity,
            members=members_value(status.members) if status.HasField("members") else None,
            member=status.member,
            rejoining=status.rejoining,
            promised_to=status.promised_to,
            required=status.required_replicas,
            lease_over=lease_over(status),
            lead_ended=status.lead_ended_reason,
            clock_doubt=status.clock_doubt,
        )

    async def set_role(
        self,
        role: Role,
        *,
        term: int = 0,
        master: str = "",
        reason: str = "",
        resumes: bool = False,
        candidate: str = "",
    ) -> tuple[int, int]:
        """The log's last generation and its start, once the role is durable. `resumes`: a master
        has recovered its tail from its slaves, and resumes in its term. `candidate`: a slave
        promises `term` to that member."""
        response = await self._call(
            "SetRole",
            pb.SetRoleRequest(
                role=role.value,
                term=term,
                master_replication_address=master,
                reason=reason,
                goes_on=resumes,
                candidate=candidate,
            ),
        )
        return response.generation.generation, response.generation.start_offset

    async def hold(self, reason: str, *, has_peers: bool) -> None:
        """Let a master take no messages because of `reason`, or again with ""."""
        await self._call("HoldWrites", pb.HoldWritesRequest(reason=reason, has_peers=has_peers))

    async def put_members(self, members: Members, member: str) -> None:
        """Durable on return: they are in force."""
        request = pb.PutMembersRequest(members=members_message(members), member=member)
        await self._call("PutMembers", request)

    async def set_joined(self, joined: bool, generation: int) -> None:
        """Whether the directory counts as its member, durable on return; refused if the log is in
        another generation by now."""
        await self._call("SetJoined", pb.SetJoinedRequest(joined=joined, generation=generation))

    async def report(self, generation: int, replicas: Iterable[ReplicaReport]) -> None:
        await self._call(
            "ReportReplication",
            pb.ReportReplicationRequest(
                generation=generation,
                replicas=[
                    pb.ReplicaStatus(
                        address=one.address,
                        acknowledged_offset=one.acknowledged,
                        connected=one.connected,
                        lag_bytes=one.lag_bytes,
                        lag_ms=one.lag_ms,
                        counts=one.counts,
                        member=one.member,
                    )
                    for one in replicas
                ],
            ),
        )

    async def cut(
        self,
        offset: int,
        *,
        empty: bool,
        generations: Generations,
        master_address: str,
        master_confirmed: int | None = None,
    ) -> tuple[int, int]:
        """Cut the log and take over the master's list; its end and the generation to append in,
        once what is left is as safe as the log's flush setting requires."""
        request = pb.CutRequest(
            offset=offset,
            empty=empty,
            generations=[
                common_pb2.Generation(generation=number, start_offset=start)
                for number, start in generations
            ],
            master_address=master_address,
            master_confirmed_offset=master_confirmed,
        )
        response = await self._call("Cut", request, timeout_s=CUT_S)
        return response.appended_offset, response.generation

    async def append(
        self,
        generation: int,
        offset: int,
        pieces: Sequence[bytes],
        master_confirmed: int | None = None,
    ) -> int:
        """Whole frames of one segment, or none; the log's end behind them, under its own flush
        setting. `master_confirmed`: what a master of ours has confirmed meanwhile."""
        head = pb.AppendDataRequest(
            generation=generation, offset=offset, master_confirmed_offset=master_confirmed
        )
        size = sum(map(len, pieces))
        request: bytes | list[bytes]
        if size <= PART_BYTES:
            request = APPEND_DATA_REQUEST.encode_pieces(head, pieces, size)
        else:
            request = _parts(head, b"".join(pieces))
        await self._call("AppendData", request, timeout_s=ANSWER_S + size / SLOWEST_BYTES_PER_S)
        return offset + size

    async def _call(self, name: str, request: Any, timeout_s: float = ANSWER_S) -> Any:
        return await ask(self._channels, name, request, timeout_s)


def _parts(head: pb.AppendDataRequest, data: bytes) -> list[bytes]:
    empty, view = pb.AppendDataRequest(), memoryview(data)
    return [
        APPEND_DATA_REQUEST.encode(empty if at else head, view[at : at + PART_BYTES])
        for at in range(0, len(data), PART_BYTES)
    ]
