"""What services ask of their own broker's log. Of one event loop."""

from collections.abc import Iterable, Sequence
from typing import Any

from stratamq.api.v1 import commitlog_pb2 as pb
from stratamq.formats.log_state import LogState, ReplicaState, Role
from stratamq.formats.members import Members
from stratamq.formats.replication_fields import Generations
from stratamq.rpc.asking import ask
from stratamq.rpc.endpoints import Channels
from stratamq.rpc.framing import APPEND_DATA_REQUEST
from stratamq.rpc.log_state import generation_message, log_state_value, members_message
from stratamq.rpc.mirrors import message_of

ANSWER_S = 30.0
"""A slave's log may flush, or be opened again after a cut, before it answers."""
CUT_S = 3_600.0
PART_BYTES = 4 << 20
"""The most in one request, whatever a message's size: the log bounds what its callers send at once
by its own settings, and a slave takes what its master took."""
SLOWEST_BYTES_PER_S = 1 << 20
"""A log that writes more slowly has failed."""


class OwnLog:
    """Calls raise StrataError; UnavailableError when the log does not answer."""

    def __init__(self, channels: Channels) -> None:
        self._channels = channels

    async def facts(self) -> LogState:
        return log_state_value(await self._call("GetStatus", pb.GetStatusRequest()))

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

    async def report(self, generation: int, replicas: Iterable[ReplicaState]) -> None:
        request = pb.ReportReplicationRequest(
            generation=generation, replicas=[message_of(pb.ReplicaStatus, one) for one in replicas]
        )
        await ask(self._channels, "ReportReplication", request, ANSWER_S)

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
            generations=map(generation_message, generations),
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
        timeout_s = ANSWER_S + size / SLOWEST_BYTES_PER_S
        await ask(self._channels, "AppendData", request, timeout_s)
        return offset + size

    async def _call(self, name: str, request: Any, timeout_s: float = ANSWER_S) -> Any:
        return await ask(self._channels, name, request, timeout_s)


def _parts(head: pb.AppendDataRequest, data: bytes) -> list[bytes]:
    empty, view = pb.AppendDataRequest(), memoryview(data)
    return [
        APPEND_DATA_REQUEST.encode(empty if at else head, view[at : at + PART_BYTES])
        for at in range(0, len(data), PART_BYTES)
    ]
