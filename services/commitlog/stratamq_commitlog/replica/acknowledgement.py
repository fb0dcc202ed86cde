"""When an append is answered: once it is as safe as the settings require.

    appender ──► when_safe(end) ──► flushed (SYNC_FLUSH) ──► on k slaves (SYNC_MASTER) ──► PUT_OK
                                         │                        ├──► SLAVE_NOT_AVAILABLE: fewer
                                         │                        │    than k are near enough
                                         │                        └──► FLUSH_SLAVE_TIMEOUT, as of an
                                         │                             ASYNC_MASTER without a lease,
                                         │                             or a master whose lead ended
                                         ├──► FLUSH_DISK_TIMEOUT
                                         └──► UNKNOWN_ERROR: writing has ended

Every answer but UNKNOWN_ERROR means that the message is stored; PUT_OK alone that it is as safe as
promised.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace

from stratamq.errors import BusyError, NotWritableError, StrataError, UnavailableError
from stratamq.files.port import Clock
from stratamq.formats.log_state import ReplicaState, Role
from stratamq.formats.message_status import SendStatus
from stratamq_commitlog.log_state import LogOffsets, StateCell
from stratamq_commitlog.write.group_commit import GroupCommit
from stratamq_commitlog.write.pending_items import Finish
from stratamq_commitlog.write.write_gate import WriteGate


class Replicas:
    """What slaves have acknowledged, and what that means for those who wait. A pure object.

    *replicated* is the k-th largest acknowledgement of connected slaves that are near enough
    (spec 5.5: strictly less than the gap behind). Fewer than k: no append waits for them. A
    slave that acknowledges more than there is has another history, or is faulty: it does not
    count.

    `required` is k, `max_gap_bytes` how far behind a slave may be to count.
    """

    def __init__(self, required: int, max_gap_bytes: int) -> None:
        self.required = required
        self._max_gap_bytes = max_gap_bytes
        self.known: tuple[ReplicaState, ...] = ()

    def report(self, replicas: Iterable[ReplicaState]) -> None:
        self.known = tuple(replicas)

    def states(self, appended: int) -> tuple[ReplicaState, ...]:
        """What is known of each, as far behind as it is now."""
        return tuple(
            replace(one, lag_bytes=max(0, appended - one.acknowledged_offset)) for one in self.known
        )

    def replicated(self, appended: int) -> int | None:
        """Up to where k slaves have the log; None when fewer than k qualify."""
        if self.required == 0:
            return appended
        qualified = sorted(
            (
                replica.acknowledged_offset
                for replica in self.known
                if replica.connected
                and replica.counts
                and 0 <= appended - replica.acknowledged_offset < self._max_gap_bytes
            ),
            reverse=True,
        )
        return qualified[self.required - 1] if len(qualified) >= self.required else None


@dataclass(slots=True)
class _Waiter:
    end: int
    deadline_ns: int
    finish: Finish


class ReplicaWaiters:
    """Appends that wait for slaves, in the order of their ends."""

    def __init__(
        self, replicas: Replicas, offsets: LogOffsets, clock: Clock, *, timeout_ms: int
    ) -> None:
        self._replicas = replicas
        self._offsets = offsets
        self._clock = clock
        self._timeout_ns = timeout_ms * 1_000_000
        self._waiters: deque[_Waiter] = deque()

    def wait(self, end: int, finish: Finish) -> None:
        replicated = self._replicas.replicated(self._offsets.appended)
        if replicated is None:
            finish(SendStatus.SLAVE_NOT_AVAILABLE, None)
        elif replicated >= end:
            finish(SendStatus.PUT_OK, None)
        else:
            deadline = self._clock.monotonic_ns() + self._timeout_ns
            self._waiters.append(_Waiter(end, deadline, finish))

    def obstacle(self, role: Role) -> StrataError | None:
        """Why nothing is stored for a producer that requires slaves (`require_replicas`)."""
        if role is not Role.SYNC_MASTER:
            return NotWritableError(
                f"the producer requires slaves (require_replicas), and this {role.name} waits for "
                "none: let it be a SYNC_MASTER (commitlog.role), or do not require them",
                "replicas",
            )
        if self._replicas.replicated(self._offsets.appended) is None:
            return BusyError(
                "the producer requires slaves (require_replicas), and fewer than "
                f"{self._replicas.required} are connected and near enough: nothing was stored"
            )
        return None

    def replicas_changed(self) -> None:
        """Answer those that enough slaves have acknowledged."""
        replicated = self._replicas.replicated(self._offsets.appended)
        waiters = self._waiters
        while waiters and replicated is not None and waiters[0].end <= replicated:
            waiters.popleft().finish(SendStatus.PUT_OK, None)

    def abandon(self) -> None:
        """From now on no slave acknowledges to this broker."""
        waiters = self._waiters
        while waiters:
            waiters.popleft().finish(SendStatus.FLUSH_SLAVE_TIMEOUT, None)

    def expire(self, now_ns: int) -> None:
        waiters = self._waiters
        while waiters and waiters[0].deadline_ns <= now_ns:
            waiters.popleft().finish(SendStatus.FLUSH_SLAVE_TIMEOUT, None)


@dataclass(slots=True)
class Acknowledgement:
    """Decides which appends to one open log are acknowledged."""

    commit: GroupCommit
    waiters: ReplicaWaiters
    states: StateCell
    gate: WriteGate
    sync_flush: bool

    def when_safe(self, end: int, finish: Finish) -> None:
        """Call `finish` once: for everything below log offset `end`."""

        def flushed(durable: bool | None) -> None:
            if durable is None:
                reason = f"perhaps stored: {self.gate.stopped_reason}"
                finish(SendStatus.UNKNOWN_ERROR, UnavailableError(reason))
            elif not durable:
                finish(SendStatus.FLUSH_DISK_TIMEOUT, None)
            else:
                self._when_replicated(end, finish)

        if self.sync_flush:
            self.commit.wait(end, flushed)
        else:
            flushed(None if self.commit.failure is not None else True)

    def _when_replicated(self, end: int, finish: Finish) -> None:
        state = self.states.now
        if state.tail_unconfirmed:
            # Demoted, or removed from its cluster, since it took the message.
            finish(SendStatus.FLUSH_SLAVE_TIMEOUT, None)
        elif self.gate.lease_fault:
            finish(SendStatus.FLUSH_SLAVE_TIMEOUT, None)
        elif state.role is Role.SYNC_MASTER:
            self.waiters.wait(end, finish)
        else:
            finish(SendStatus.PUT_OK, None)
