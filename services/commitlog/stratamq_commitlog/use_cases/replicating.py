"""What replication, and members of the cluster, do with the log: roles, members, lease, a master's
bytes, cuts and acknowledgements."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace

from stratamq.errors import NotWritableError, StrataError
from stratamq.formats.generation_number import Generation
from stratamq.formats.log_state import ReplicaState
from stratamq.formats.members import Members
from stratamq.service.awaiting import answer, succeeded
from stratamq_commitlog.recovery.cut_file import CutDone, CutOrder
from stratamq_commitlog.replica.role_change import RoleChange
from stratamq_commitlog.use_cases.served_log import ServedLog

REPLICATION_SILENCE_S = 5.0
"""Replication reports once a second; after so long without one no append waits for slaves."""


class Replicating:
    """Belongs to the event loop."""

    def __init__(self, log: ServedLog, reopen: Callable[[], Awaitable[None]] | None) -> None:
        """`reopen` closes the log and opens it again: for a cut that needs it."""
        self._log = log
        self._reopen = reopen
        self._silence: asyncio.TimerHandle | None = None
        self._cuts: set[asyncio.Task[tuple[int, int]]] = set()

    # --- a master's bytes ---

    def refusal(self, generation: int) -> StrataError | None:
        """Why bytes of this generation are not taken; None: they are."""
        return self._log.get().slave_data.refusal(generation)

    @property
    def largest_append(self) -> int:
        return self._log.get().segment_bytes

    async def append(
        self, generation: int, offset: int, data: bytes | memoryview, confirmed: int | None
    ) -> tuple[int, int]:
        """Store a master's bytes at their offset; *appended* and *flushed*."""
        log = self._log.get()
        await succeeded(lambda done: log.append_data(generation, offset, data, done, confirmed))
        return log.offsets.appended, log.offsets.flushed

    async def cut(self, cut: CutOrder, master_address: str) -> tuple[int, int]:
        """Cut the log to its master's history; *appended* and the generation. A caller that goes
        away leaves no log half open."""
        task = asyncio.create_task(self._cut(cut, master_address))
        self._cuts.add(task)
        task.add_done_callback(self._cuts.discard)
        return await asyncio.shield(task)

    async def _cut(self, cut: CutOrder, master_address: str) -> tuple[int, int]:
        log = self._log.get()
        ended: CutDone = await answer(lambda done: log.cut(cut, done))
        if ended.error is not None:
            raise ended.error
        if ended.reopen:
            assert self._reopen is not None
            await self._reopen()
        log.gate.master_address = master_address
        return log.offsets.appended, log.generation

    async def cut_ended(self) -> None:
        """Until no cut is being done."""
        while self._cuts:
            await asyncio.wait(self._cuts)

    # --- role, members, lease ---

    async def set_role(self, change: RoleChange) -> Generation:
        """The generation in which the log is now."""
        log = self._log.get()
        await succeeded(lambda done: log.set_role(change, done))
        return log.state.generations[-1]

    async def hold_writes(self, reason: str, *, has_peers: bool) -> None:
        log = self._log.get()
        await succeeded(lambda done: log.hold_writes(reason, has_peers, done))

    def grant_lease(self, term: int, boot: str, until_ns: int, ended_reason: str) -> None:
        """Extend the lease of the master of a term, or, with a reason, end its lead."""
        log = self._log.get()
        if log.state.is_slave or term != log.state.last_term:
            raise NotWritableError(
                f"the log is not of a master of term {term}: no lease is granted", "term"
            )
        if ended_reason:
            log.end_lead(boot, until_ns, ended_reason)
        else:
            log.grant_lease(boot, until_ns)

    def trust_clock(self) -> None:
        self._log.get().store_clock.confirm()

    async def put_members(self, members: Members, member: str) -> None:
        membership = self._log.get().membership
        await succeeded(lambda done: membership.put(members, member, done))

    async def set_joined(self, generation: int, *, joined: bool) -> None:
        log = self._log.get()
        if generation != log.generation:
            raise NotWritableError(f"the log is in generation {log.generation}", "generation")
        await succeeded(lambda done: log.membership.set_joined(joined, done))

    # --- acknowledgements ---

    def report(self, generation: int, replicas: Iterable[ReplicaState]) -> int:
        """Take what slaves have acknowledged; the new *confirmed*."""
        confirmed = self._log.get().report_replication(generation, replicas)
        if self._silence is not None:
            self._silence.cancel()
        loop = asyncio.get_running_loop()
        self._silence = loop.call_later(REPLICATION_SILENCE_S, self._fell_silent)
        return confirmed

    def _fell_silent(self) -> None:
        """The service that ships the log is gone: its slaves get nothing more through it."""
        log = self._log.now
        if log is not None:
            gone = [replace(replica, connected=False) for replica in log.replicas.known]
            log.report_replication(log.generation, gone)
