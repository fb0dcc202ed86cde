"""This broker's own log, and parts of the replication service over it, without a log service."""

import random
import socket
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from stratamq_ha.cluster import MasterRole
from stratamq_ha.config import HaConfig
from stratamq_ha.master import Master, MasterListener
from stratamq_ha.own_log import OwnLogView
from stratamq_ha.peer import PeerClosed
from stratamq_ha.slave import Slave

from stratamq.files.clock import SystemClock
from stratamq.files.simulated import SimulatedDisk
from stratamq.follow.protocol import Opened
from stratamq.formats.generation_number import Generation
from stratamq.formats.log_state import LogState, Role
from stratamq.formats.members import Members


@dataclass
class RecordedLog:
    """Answers as `stratamq.follow.own_log.OwnLog` does, from `now`; keeps the roles that it was
    given, with their terms."""

    now: LogState | None = None
    roles: list[tuple[Role, int]] = field(default_factory=list)
    appends: list[tuple[int, bytes, int | None]] = field(default_factory=list)
    """Offset, bytes, and what the master had confirmed."""

    async def facts(self) -> LogState:
        assert self.now is not None
        return self.now

    async def set_role(self, role: Role, *, term: int, **_: object) -> None:
        self.roles.append((role, term))

    async def hold(self, reason: str, *, has_peers: bool) -> None:
        assert self.now is not None
        self.now = replace(self.now, held_reason=reason, has_peers=has_peers)

    async def cut(self, offset: int, **_: object) -> tuple[int, int]:
        assert self.now is not None
        return offset, self.now.generations[-1][0]

    async def append(
        self, generation: int, offset: int, pieces: Sequence[bytes], confirmed: int | None
    ) -> int:
        data = b"".join(pieces)
        self.appends.append((offset, data, confirmed))
        return offset + len(data)

    async def report(self, generation: int, replicas: object) -> None:
        """How far slaves are is not kept."""

    async def put_members(self, members: Members, member: str) -> None:
        assert self.now is not None
        self.now = replace(self.now, members=members, member=member)

    async def set_joined(self, joined: bool, generation: int) -> None:
        assert self.now is not None
        self.now = replace(self.now, rejoining=not joined)


def log_state(
    role: Role,
    generations: Iterable[tuple[int, int]],
    end: int,
    segment_bytes: int,
    broker_name: str = "broker-a",
    **more: Any,
) -> LogState:
    listed = tuple(Generation(*one) for one in generations)
    return LogState(
        role=role,
        generations=listed,
        appended_offset=end,
        segment_bytes=segment_bytes,
        broker_name=broker_name,
        required_replicas=1,
        **more,
    )


def show(view: OwnLogView, facts: LogState) -> None:
    """The view follows a log with these facts, and has all of it."""
    number, start = facts.generations[-1]
    end = facts.appended_offset
    view.opened(Opened(number, start, end, facts.minimum_offset, end, end, facts.segment_bytes))
    view.learned(facts)


def nothing_heard() -> MasterRole:
    return MasterRole(SimulatedDisk().files(name="ha"))


async def no_documents(connection: socket.socket) -> None:
    raise PeerClosed("refused", "this broker gives no documents")


NO_LISTENER = MasterListener(lambda theirs, source: None, lambda found, source: None, no_documents)


def master_and_slave(
    config: HaConfig, log: RecordedLog, view: OwnLogView, listener: MasterListener = NO_LISTENER
) -> tuple[Master, Slave, socket.socket]:
    """Neither runs. The socket that the master would accept slaves on is to be closed."""
    clock, listening = SystemClock(), socket.create_server(("127.0.0.1", 0))
    files = SimulatedDisk().files(name="ha")
    master = Master(config, listening, files, clock, view, log, listener)
    return master, Slave(config, log, clock, random.Random(1)), listening
