"""Until when a master may answer PUT_OK: one that waits for no slave while its agent grants it
time, any while its agent has not ended its lead.

Under SYNC_MASTER the acknowledgements of slaves keep two masters from answering; under ASYNC_MASTER
nothing but time does. The broker's agent grants the time, counted from before it renewed its lead,
and another member takes over only when that time is over. An agent that dies, or that cannot renew,
grants no more.

Times are of CLOCK_BOOTTIME, which is one for all processes of a machine and goes on while it is
suspended.
"""

from stratamq.errors import InvalidRequestError, NotWritableError
from stratamq.files.port import Clock

LONGEST_NS = 3_600_000_000_000
"""Of a grant, from now on."""


class Lease:
    """`required`: the setting; without it nothing is refused."""

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
