"""The bytes of RocketMQ's replication, both directions: the 8+4+N frame protocol. Spec 11.1.

    slave → master    i64   the slave's end of log: the first is the request, later ones acknowledge

    master → slave    i64   log offset of the first byte that follows
                      i32   N, how many follow; 0: a heartbeat
                      N     bytes of the log as they lie in its segments, blanks and tails included

    between two of ours, and in no other case, a transfer may be a notice:
                      i64   up to here the master has confirmed
                      i32   −1

Big-endian. No magic number, version, checksum or authentication. A range never crosses a segment.
apache/rocketmq@rocketmq-all-4.9.8 store/…/ha/HAConnection.java, HAService.java.
"""

import struct
from dataclasses import dataclass

from stratamq.errors import CorruptRecordError

REPORT = struct.Struct(
    ">q"  # the slave's end of log
)
TRANSFER_HEAD = struct.Struct(
    ">"
    "q"  # log offset
    "i"  # bytes that follow
)
assert (REPORT.size, TRANSFER_HEAD.size) == (8, 12)

NOTICE = -1
"""Instead of a length: what stands before it is the master's *confirmed*."""
ROCKETMQ_TRANSFER_BYTES = 32 * 1024
"""RocketMQ sends at most so many at once (haTransferBatchSize)."""
MAX_TRANSFER_BYTES = 4 * 1024 * 1024 - TRANSFER_HEAD.size
"""A RocketMQ slave can never complete more than this, and no master sends it."""


class ReportReader:
    """The reports in a byte stream that comes in pieces of any length."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[int]:
        """Every report that is complete now, in order."""
        data = self._rest + data
        whole = len(data) - len(data) % REPORT.size
        self._rest = data[whole:]
        return [offset for (offset,) in REPORT.iter_unpack(data[:whole])]


@dataclass(frozen=True, slots=True)
class Transferred:
    """Bytes of one transfer that have come: `data`, a view of what was fed, is at log offset
    `offset`. A transfer's first piece has `opens` set, so that a heartbeat is one without data that
    opens."""

    offset: int
    data: bytes | memoryview
    opens: bool


@dataclass(frozen=True, slots=True)
class Confirmed:
    """A notice: the master has confirmed up to log offset `offset`."""

    offset: int


class TransferReader:
    """The transfers in a byte stream that comes in pieces of any length.

    Bodies are handed on as they come: nothing but a head is ever kept. `notices`: the master is one
    of ours, and sends its confirmed offset.
    """

    def __init__(self, *, notices: bool = False) -> None:
        self._notices = notices
        self._head = b""
        self._offset = 0
        self._left = 0

    def feed(self, data: bytes) -> list[Transferred | Confirmed]:
        """What is there now. CorruptRecordError (`length`) for a size that no master sends."""
        found: list[Transferred | Confirmed] = []
        position, view = 0, memoryview(data)
        while position < len(data):
            if not self._left:
                missing = TRANSFER_HEAD.size - len(self._head)
                self._head += data[position : position + missing]
                position += missing
                if len(self._head) < TRANSFER_HEAD.size:
                    break
                found.append(self._open())
            piece = view[position : position + self._left]
            if len(piece):
                found.append(Transferred(self._offset, piece, False))
                self._offset += len(piece)
                self._left -= len(piece)
                position += len(piece)
        return found

    def _open(self) -> Transferred | Confirmed:
        offset, length = TRANSFER_HEAD.unpack(self._head)
        self._head = b""
        if self._notices and length == NOTICE and offset >= 0:
            return Confirmed(offset)
        self._offset, self._left = offset, length
        if not 0 <= self._left <= MAX_TRANSFER_BYTES or self._offset < 0:
            raise CorruptRecordError(
                f"a transfer of {self._left} bytes at {self._offset}: the peer does not use the "
                "replication protocol",
                self._offset,
                "length",
            )
        return Transferred(self._offset, b"", True)
