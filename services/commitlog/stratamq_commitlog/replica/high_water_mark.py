"""*replicable* and *confirmed*: how far replication may ship the log, and consumers may see it.

    role                              confirmed moves to
    ASYNC_MASTER                      what is durable under SYNC_FLUSH, else what is appended
    SYNC_MASTER, k slaves qualify     the k-th largest acknowledgement, and no further than that
    SYNC_MASTER, fewer than k         as an ASYNC_MASTER's; stays under `hold_without_slave`
    SLAVE                             as an ASYNC_MASTER's, and no further than its master's
    tail unconfirmed                  stays
    the agent lets it answer nothing  stays

Within a generation *confirmed* never goes back, and it moves to ends of passes only.
"""

from dataclasses import dataclass

from stratamq.formats.log_state import Role
from stratamq_commitlog.log_state import LogOffsets, StateCell
from stratamq_commitlog.replica.acknowledgement import Replicas
from stratamq_commitlog.replica.follow_hub import FollowHub
from stratamq_commitlog.replica.master_confirmed import MasterConfirmed
from stratamq_commitlog.write.write_gate import WriteGate


@dataclass(slots=True)
class HighWaterMark:
    """The high-water mark of one open log."""

    offsets: LogOffsets
    states: StateCell
    gate: WriteGate
    hub: FollowHub
    replicas: Replicas
    master_confirmed: MasterConfirmed
    sync_flush: bool
    hold_without_slave: bool

    def advance(self) -> None:
        """Some offset, the state or the replicas have changed: move both, and wake followers."""
        offsets = self.offsets
        offsets.replicable = offsets.flushed if self.sync_flush else offsets.appended
        offsets.confirmed = max(offsets.confirmed, self.hub.last_end(self._limit()))
        if self.gate.closing:
            self.announce_end()
        self.hub.moved()

    def _limit(self) -> int:
        offsets, state = self.offsets, self.states.now
        limit = offsets.replicable
        if state.tail_unconfirmed or (not state.is_slave and self.gate.lease_fault):
            return offsets.confirmed
        if state.role is Role.SYNC_MASTER:
            replicated = self.replicas.replicated(offsets.appended)
            if replicated is None:
                return offsets.confirmed if self.hold_without_slave else limit
            # Below the generation's start a later promotion may prefer another history.
            reached = replicated >= state.generations[-1].start
            return min(limit, replicated) if reached else offsets.confirmed
        if state.is_slave and self.master_confirmed.value is not None:
            return min(limit, self.master_confirmed.value)
        return limit

    def announce_end(self) -> None:
        """While closing, once everything is durable and as far confirmed as it will be before the
        log opens again: send followers its end. Neither a slave's master nor slaves that are
        not connected are waited for."""
        offsets, state = self.offsets, self.states.now
        awaits_slaves = (
            state.role is Role.SYNC_MASTER
            and not state.tail_unconfirmed
            and self.replicas.replicated(offsets.appended) is not None
        )
        confirmed = offsets.confirmed == offsets.appended
        if offsets.flushed == offsets.appended and (confirmed or not awaits_slaves):
            self.hub.closing = True
            self.hub.moved()

    def begin(self, checkpoint_confirmed: int, *, is_member: bool) -> None:
        """Start with a log that was just opened. Messages that may be only on this broker are not
        confirmed yet: a master's under `hold_without_slave` until slaves have them, or while it
        waits until it may resume; a slave's until its master has confirmed them. What consumers saw
        before the start is below the checkpoint's *confirmed*, or at most seconds above it."""
        state, bound = self.states.now, self.master_confirmed
        if state.assigned.role is Role.SLAVE:
            bound.load(
                checkpoint_confirmed=checkpoint_confirmed,
                end=self.offsets.appended,
                is_member=is_member,
            )
        else:
            bound.remove()
            bound.forget()
        if bound.value is not None:
            self._lower(bound.value)
            return
        waits = bool(state.held or state.recovering_tail or state.uncertain)
        holds = state.role is Role.SYNC_MASTER and self.hold_without_slave
        if not (holds or (waits and state.assigned.role is not Role.SLAVE)):
            return
        if self._lower(checkpoint_confirmed):
            self.states.swap(tail_unconfirmed=waits)

    def _lower(self, offset: int) -> bool:
        """Whether something of the log is above."""
        offsets = self.offsets
        confirmed = max(offsets.minimum, offset)
        if confirmed >= offsets.appended:
            return False
        offsets.confirmed = confirmed
        self.hub.unconfirmed(offsets.appended)
        return True
