"""The master's side of one replication connection, without a socket. Spec 11.2.

    accepted ──► request ──► transfer, transfer, … (one at a time)
                   │             ▲          │ nothing to send for `heartbeat_ms`
                   │             └──────────┴──► heartbeat
                   └──► refused: what is asked for was deleted, or the slave's log is longer

A request of 0 means, to RocketMQ, the last segment only. Between our own a new slave asks for the
master's minimum by its number, and for 0 when the master answers that its log begins there.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from stratamq.formats.replication import (
    MAX_TRANSFER_BYTES,
    NOTICE,
    ROCKETMQ_TRANSFER_BYTES,
    TRANSFER_HEAD,
    ReportReader,
)


@dataclass(frozen=True, slots=True)
class MasterLogView:
    """The master's log at the time of a call. Log offsets."""

    minimum: int
    shippable: int
    """*flushed* under sync flush, *appended* under async."""
    appended: int
    segment_bytes: int
    confirmed: int = 0
    """What consumers may see; sent to StrataMQ slaves, whose consumers see no more than that."""


@dataclass(frozen=True, slots=True)
class MasterSettings:
    heartbeat_ms: int = 5_000
    housekeeping_ms: int = 20_000
    """The connection to a slave that sends nothing for so long is closed."""
    transfer_bytes: int = ROCKETMQ_TRANSFER_BYTES
    whole_log: bool = False
    """A request of 0 gets the whole log: the slave is one of ours that asked for it."""
    notices: bool = False
    """The slave runs StrataMQ, and receives the confirmed offset."""


@dataclass(frozen=True, slots=True)
class Transfer:
    """To be written whole: `head`, then [offset, offset + length) of the log. `head` may begin
    with a notice, or be one."""

    head: bytes
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """The slave has appended everything below `offset`."""

    offset: int


@dataclass(frozen=True, slots=True)
class Closed:
    """Close the connection. `reason` is one constant word, `sentence` for people."""

    reason: str
    sentence: str


class MasterConnection:
    """Input: received bytes and the time. Output: what to write, and when to close.

    The shell writes one transfer at a time and calls `written` when it is out. Times are monotonic
    milliseconds.
    """

    def __init__(self, settings: MasterSettings, now_ms: int) -> None:
        self.requested: int | None = None
        """What the slave asked for first."""
        self.acknowledged = -1
        self.next_offset = -1
        """The first log offset that has not been handed to the shell."""
        self.closed: Closed | None = None
        self._settings = settings
        self._reports = ReportReader()
        self._heard_ms = self._wrote_ms = now_ms
        self._writing = False
        self._sent_confirmed = -1

    def received(
        self, data: bytes, log: MasterLogView, now_ms: int
    ) -> Iterator[Acknowledged | Closed]:
        """Bytes of the slave."""
        if self.closed is not None:
            return
        self._heard_ms = now_ms
        for offset in self._reports.feed(data):
            if self.requested is None:
                refused = self._begin(offset, log)
            else:
                refused = self._check(offset, log)
            if refused is not None:
                self.closed = refused
                yield refused
                return
        if self.requested is not None and self.acknowledged >= 0:
            yield Acknowledged(self.acknowledged)

    def next_transfer(self, log: MasterLogView, now_ms: int) -> Transfer | None:
        """What to write now; None: nothing yet. Not while the last one is being written."""
        if self._writing or self.closed is not None or self.requested is None:
            return None
        offset = self.next_offset
        segment_end = (offset // log.segment_bytes + 1) * log.segment_bytes
        limit = min(self._settings.transfer_bytes, MAX_TRANSFER_BYTES)
        length = max(0, min(log.shippable, segment_end) - offset)
        notice = self._notice(log)
        if not (length or notice or now_ms - self._wrote_ms >= self._settings.heartbeat_ms):
            return None
        length = min(length, limit)
        self._writing = True
        self.next_offset += length
        head = TRANSFER_HEAD.pack(offset, length) if length or not notice else b""
        return Transfer(notice + head, offset, length)

    def _notice(self, log: MasterLogView) -> bytes:
        if not self._settings.notices or log.confirmed <= self._sent_confirmed:
            return b""
        self._sent_confirmed = log.confirmed
        return TRANSFER_HEAD.pack(log.confirmed, NOTICE)

    def written(self, now_ms: int) -> None:
        """The transfer is out."""
        self._writing = False
        self._wrote_ms = now_ms

    def tick(self, log: MasterLogView, now_ms: int) -> Closed | None:
        """Time has passed: is the slave still there, and is what it needs?"""
        if self.closed is not None:
            return None
        if now_ms - self._heard_ms > self._settings.housekeeping_ms:
            silent_ms = now_ms - self._heard_ms
            self.closed = Closed("silent", f"the slave has sent nothing for {silent_ms} ms")
        elif self.requested is not None and self.next_offset < log.minimum:
            self.closed = _deleted(self.next_offset, log)
        return self.closed

    def _begin(self, offset: int, log: MasterLogView) -> Closed | None:
        self.requested = offset
        if offset == 0 and not self._settings.whole_log:
            start = log.shippable - log.shippable % log.segment_bytes
        elif offset == 0:
            start = log.minimum
        else:
            start = offset
        if start > log.appended or offset < 0:
            return _longer(offset, log)
        if start < log.minimum:
            return _deleted(start, log)
        self.next_offset = start
        if offset > 0:
            self.acknowledged = offset
        return None

    def _check(self, offset: int, log: MasterLogView) -> Closed | None:
        if offset > log.appended or offset < 0:
            return _longer(offset, log)
        self.acknowledged = max(self.acknowledged, offset)
        return None


def _longer(offset: int, log: MasterLogView) -> Closed:
    return Closed(
        "diverged",
        f"the slave has the log up to {offset}, and this log ends at {log.appended}: its log is of "
        "another history (`stratamq replica resync` on the slave repairs it)",
    )


def _deleted(offset: int, log: MasterLogView) -> Closed:
    return Closed(
        "deleted",
        f"the slave needs the log from {offset} on, and it begins at {log.minimum}: what is "
        "between was deleted (`stratamq replica resync` on the slave starts over)",
    )
