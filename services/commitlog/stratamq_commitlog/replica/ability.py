"""Since when this log could acknowledge nothing, and why: whether another member should lead.

    a fault of the disk, or no room for a segment   unable, until it ends or something is confirmed
    something waits                                 unable since something was confirmed last
    SYNC_MASTER, fewer than k slaves count          unable until k do, whatever is confirmed
    a slave                                         unable by a fault of its disk alone
    none of these                                   able

A log that is slow is able: whatever is confirmed begins the time again.
"""

from collections.abc import Callable

from stratamq.errors import StrataError
from stratamq.formats.log_state import Role
from stratamq_commitlog.log_state import LogOffsets, StateCell
from stratamq_commitlog.replica.acknowledgement import Replicas
from stratamq_commitlog.write.write_gate import WriteGate


class Ability:
    """The ability of one open log. `waiting`: producers wait to be appended; `no_room`: why no
    segment can be allocated."""

    def __init__(
        self,
        offsets: LogOffsets,
        states: StateCell,
        gate: WriteGate,
        replicas: Replicas,
        waiting: Callable[[], bool],
        no_room: Callable[[], StrataError | None],
    ) -> None:
        self._offsets = offsets
        self._states = states
        self._gate = gate
        self._replicas = replicas
        self._waiting = waiting
        self._no_room = no_room
        self._since_ns: int | None = None
        self._confirmed = offsets.confirmed

    def look(self, now_ns: int) -> tuple[int, str]:
        """For how long it could acknowledge nothing, in ms, and why; 0 and "": it can."""
        lacks_slaves = self._lacking()
        progress = self._offsets.confirmed > self._confirmed and not lacks_slaves
        self._confirmed = self._offsets.confirmed
        reason = lacks_slaves or self._fault() or self._unconfirmed()
        if not reason:
            self._since_ns = None
            return 0, ""
        if progress or self._since_ns is None:
            self._since_ns = now_ns
        return (now_ns - self._since_ns) // 1_000_000, reason

    def _lacking(self) -> str:
        """Slaves, of a master that waits for them."""
        state, replicas = self._states.now, self._replicas
        if state.role is not Role.SYNC_MASTER:
            return ""
        if replicas.replicated(self._offsets.appended) is not None:
            return ""
        return (
            f"fewer than {replicas.required} slaves are connected, count and are near enough, and "
            "this SYNC_MASTER waits for them"
        )

    def _fault(self) -> str:
        no_room = self._no_room()
        return self._gate.disk_fault or (str(no_room) if no_room is not None else "")

    def _unconfirmed(self) -> str:
        if self._states.now.is_slave or self._gate.lease_fault:
            return ""
        if self._waiting() or self._offsets.confirmed < self._offsets.appended:
            return "what was sent to it is not acknowledged"
        return ""
