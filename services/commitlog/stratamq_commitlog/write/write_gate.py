"""Whether the log takes messages now; if not, who must act, and what RocketMQ would answer.

Every obstacle but a failed flush is a level: it goes when its cause goes, without a restart.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from stratamq.errors import (
    BusyError,
    InvalidRequestError,
    NotWritableError,
    StrataError,
    UnavailableError,
)
from stratamq.files.port import Clock
from stratamq.formats.log_state import Role
from stratamq.formats.message_status import SendStatus
from stratamq_commitlog.config import CommitLogConfig
from stratamq_commitlog.log_state import StateCell

LONGEST_NS = 3_600_000_000_000
"""The longest grant, counted from now."""


class Lease:
    """Until when a master may answer PUT_OK: one that waits for no slave while its agent grants it
    time, any while its agent has not ended its lead.

    Under SYNC_MASTER the acknowledgements of slaves keep two masters from answering; under
    ASYNC_MASTER nothing but time does. The broker's agent grants the time, counted from before
    it renewed its lead, and another member takes over only when that time is over. An agent
    that dies, or that cannot renew, grants no more.

    Times are of CLOCK_BOOTTIME, which is one for all processes of a machine and goes on while
    it is suspended.

    `required`: the setting; without it nothing is refused.
    """

    def __init__(self, clock: Clock, boot: str, *, required: bool) -> None:
        self.required = required
        self._clock = clock
        self._boot = boot
        self._until_ns: int | None = None
        self.ended = ""
        """Why the agent has ended the lead, so that another member takes over; "": it has not."""
        self._ended_until_ns = 0
        """What was granted up to here was granted before the lead ended."""

    def grant(self, boot: str, until_ns: int) -> None:
        """Up to `until_ns` of the machine's start `boot`. Never less than was granted before; not
        what was granted before the lead ended, and arrives late. InvalidRequestError for another
        start's time, or one more than an hour ahead; NotWritableError."""
        self._check(boot, until_ns)
        if self.ended and until_ns <= self._ended_until_ns:
            raise NotWritableError(self.ended, "lease")
        self.ended = ""
        self._until_ns = max(self._until_ns or 0, until_ns)

    def end_lead(self, boot: str, until_ns: int, reason: str) -> None:
        """Nothing is answered from now on, until a grant beyond `until_ns`, up to where the agent
        could have granted by now. InvalidRequestError."""
        self._check(boot, until_ns)
        self.ended, self._until_ns = reason, None
        self._ended_until_ns = max(self._ended_until_ns, until_ns)

    def _check(self, boot: str, until_ns: int) -> None:
        if boot != self._boot:
            raise InvalidRequestError(
                "the lease is of another start of the machine, or of another machine: an agent "
                "runs beside its broker"
            )
        if until_ns - self._clock.monotonic_ns() > LONGEST_NS:
            raise InvalidRequestError("a lease is granted for at most an hour")

    def end(self) -> None:
        """The role has changed: what was granted was for the one before."""
        self._until_ns, self.ended = None, ""

    @property
    def remaining_ms(self) -> int:
        """0: none, or it is over."""
        if self._until_ns is None:
            return 0
        return max(0, self._until_ns - self._clock.monotonic_ns()) // 1_000_000

    @property
    def fault(self) -> str:
        """Why a master that waits for no slave may not answer now; "": it may."""
        if self.ended or not self.required:
            return self.ended
        if self._until_ns is None:
            return (
                "no agent has granted this master a lease (commitlog.lease): is this "
                "broker's agent running, and does it reach the election store?"
            )
        if self._clock.monotonic_ns() >= self._until_ns:
            return (
                "this master's lease is over: its agent did not renew it, and another member may "
                "be promoted; `stratamq cluster status` shows who leads"
            )
        return ""


_CROWDED_RETRY_MS = 50


@dataclass(slots=True)
class WriteGate:
    """The state, and levels beside it; each is set by the part that learns it."""

    config: CommitLogConfig
    states: StateCell
    lease: Lease
    backlog_bytes: Callable[[], int]
    """Bytes that wait to be appended, of an open log."""
    open: bool = False
    closing: bool = False
    stopped_reason: str = ""
    """A flush or a write failed: only a restart clears this."""
    stalled: str = ""
    """The disk is stalled: what is taken would wait without a limit."""
    disk_full: bool = False
    disk_used_ratio: float = 0.0
    """The fullest volume's."""
    disk_part: str = ""
    """The part of the store on that volume; "": all parts are on one."""
    volumes: dict[str, float] = field(default_factory=dict)
    """Used ratio of each volume, by the part of the store on it."""
    disk_full_in_s: float | None = None
    """See `DiskForecast.full_in_s`."""
    master_address: str = ""
    """On a slave: where its master's log takes messages, as far as is known."""
    refused: Counter[str] = field(default_factory=Counter)
    """How many appends were refused, by the error's class."""

    def obstacle(self) -> StrataError | None:
        """Why an append is refused now; None: it is taken."""
        state = self.states.now
        if not self.open or self.closing:
            return UnavailableError("the log is closing" if self.closing else "not open yet")
        if self.lease.ended and not state.is_slave:
            return NotWritableError(self.lease.ended, "held")
        if self.stopped_reason:
            return NotWritableError(self.stopped_reason, "flush_failed")
        if state.changing:
            return UnavailableError(state.changing)
        if state.uncertain:
            return NotWritableError(state.uncertain, "role")
        if state.recovering_tail:
            return NotWritableError(state.held or state.recovering_tail, "held")
        if state.is_slave:
            return self.only_master("a slave takes no messages: send them to its master")
        if state.held:
            return NotWritableError(state.held, "held")
        if fault := self.lease_fault:
            return NotWritableError(fault, "lease")
        if fault := self.disk_fault:
            return BusyError(fault)
        if self._crowded:
            return BusyError(
                f"{self.backlog_bytes()} bytes wait to be appended",
                retry_after_ms=_CROWDED_RETRY_MS,
            )
        return None

    @property
    def lease_fault(self) -> str:
        """Why a master may answer no PUT_OK now, by its agent; "": it may."""
        waits_for_none = self.states.now.role is Role.ASYNC_MASTER
        return self.lease.fault if waits_for_none else self.lease.ended

    @property
    def disk_fault(self) -> str:
        """Why the disk lets the log take nothing; "": it does."""
        if self.stopped_reason or self.stalled:
            return self.stopped_reason or self.stalled
        if not self.disk_full:
            return ""
        where = f" of {self.disk_part}" if self.disk_part else ""
        return (
            f"the disk{where} is {self.disk_used_ratio:.1%} full, writes are refused from "
            f"{self.config.disk_refuse_ratio:.0%} on (commitlog.disk_refuse_ratio)"
        )

    def only_master(self, sentence: str) -> NotWritableError:
        """A slave refuses what its master takes, and names it."""
        at = f" at {self.master_address}" if self.master_address else ""
        return NotWritableError(f"{sentence}{at}", "role", self.master_address)

    def shut(self) -> str:
        """Why not even a master's bytes are taken now, or a slave's log cut; "" if they are."""
        state = self.states.now
        return (
            self.stopped_reason
            or state.changing
            or state.uncertain
            or ("the log is closing" if self.closing else "")
        )

    def refuse(self, obstacle: StrataError) -> SendStatus:
        """Count a refusal; the status that RocketMQ gives it."""
        if self.open:
            self.refused[type(obstacle).__name__] += 1
            if self._crowded:
                return SendStatus.OS_PAGECACHE_BUSY
        return SendStatus.SERVICE_NOT_AVAILABLE

    @property
    def _crowded(self) -> bool:
        return self.backlog_bytes() > self.config.max_pending_bytes
