"""The slave's side of one replication connection, without a socket. Spec 11.3.

    connected ──► report ──► bytes ──► gathered to whole frames ──► append ──► report, …

What comes must continue the log exactly: anything else closes the connection. Bytes are gathered
until whole frames of one segment are there, because an append publishes whole frames or nothing.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from stratamq.errors import CorruptRecordError
from stratamq.formats.frame_layout import BLANK
from stratamq.formats.frame_scan import ScanEnd, scan_frames
from stratamq.formats.replication import REPORT, Confirmed, TransferReader


@dataclass(frozen=True, slots=True)
class SlaveSettings:
    report_ms: int = 5_000
    """The slave reports to the master at least so often."""
    housekeeping_ms: int = 20_000
    """The connection to a master that sends nothing for so long is closed."""
    append_bytes: int = 256 * 1024
    """Frames are gathered to about so many bytes while more is coming."""
    notices: bool = False
    """The master runs StrataMQ, and sends its confirmed offset."""


@dataclass(frozen=True, slots=True)
class Append:
    """Whole frames of one segment, a blank with its tail included, for log offset `offset`."""

    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class WriteToMaster:
    """To be written to the master."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Left:
    """Close the connection. `reason` is one constant word, `sentence` for people."""

    reason: str
    sentence: str


class Gatherer:
    """Bytes of the log that come in pieces, given out as whole frames of one segment."""

    def __init__(self, segment_bytes: int) -> None:
        self.offset = 0
        """Log offset of the first byte that is kept."""
        self._segment_bytes = segment_bytes
        self._kept = bytearray()
        self._walked = 0
        """Whole frames of the segment reach so far in what is kept."""

    @property
    def end(self) -> int:
        return self.offset + len(self._kept)

    def add(self, offset: int, data: bytes | memoryview) -> None:
        """`data` continues what is kept, or begins it."""
        if not self._kept:
            self.offset = offset
        self._kept += data

    def take(self, least_bytes: int) -> Append | None:
        """Whole frames up to the end of a segment; None while there are fewer than `least_bytes`,
        unless they reach the segment's end. CorruptRecordError for bytes that are no frames."""
        whole, at_end = self._whole()
        if not whole or (whole < least_bytes and not at_end):
            return None
        with memoryview(self._kept) as kept:
            append = Append(self.offset, kept[:whole].tobytes())
        del self._kept[:whole]
        self.offset += whole
        self._walked = 0
        return append

    def _whole(self) -> tuple[int, bool]:
        """Bytes of whole frames from the start, at most to the end of the segment."""
        kept = self._kept
        left = self._segment_bytes - self.offset % self._segment_bytes
        scan = scan_frames(kept, self._walked, limit=left)
        end, size, left_here = scan.end, scan.size, left - scan.end
        if scan.stop is ScanEnd.MAGIC:
            raise self._bad(end, f"magic number {scan.magic:08X}, length {size}")
        if scan.stop is ScanEnd.LENGTH:
            raise self._bad(end, f"a frame of {size} bytes, {left_here} left")
        if scan.stop is ScanEnd.BLANK:
            if size != left_here:
                raise self._bad(end, f"a blank of {size} bytes, {left_here} left")
            end += size if end + size <= len(kept) else 0
        elif 0 < left_here < BLANK.size:
            raise self._bad(end, f"{left_here} bytes left, fewer than a blank has")
        self._walked = end
        return end, end == left

    def _bad(self, position: int, what: str) -> CorruptRecordError:
        offset = self.offset + position
        return CorruptRecordError(f"the master sent no frame at {offset}: {what}", offset, "frame")


class SlaveConnection:
    """Feed it what comes, what was appended and what time it is. Times: monotonic milliseconds.

    `end` is the end of the slave's log when the connection begins; 0: it is empty, and begins
    wherever the master does.
    """

    def __init__(self, settings: SlaveSettings, segment_bytes: int, end: int, now_ms: int) -> None:
        self.appended = end
        """Up to here the slave's log has it."""
        self.left: Left | None = None
        self.master_confirmed: int | None = None
        """The confirmed offset that the master sent last."""
        self._settings = settings
        self._transfers = TransferReader(notices=settings.notices)
        self._gatherer = Gatherer(segment_bytes)
        self._next = end
        self._reported = -1
        self._heard_ms = now_ms
        self._reported_ms = now_ms

    @property
    def received_end(self) -> int:
        """Up to here bytes have come."""
        return self._next

    def begin(self, now_ms: int) -> WriteToMaster:
        """The request: at once, where a RocketMQ 4.x slave would wait for five seconds."""
        return self._report(now_ms)

    def received(self, data: bytes, now_ms: int) -> Iterator[Append | Left]:
        """Bytes of the master; what can be appended now."""
        if self.left is not None:
            return
        self._heard_ms = now_ms
        try:
            for piece in self._transfers.feed(data):
                if isinstance(piece, Confirmed):
                    self.master_confirmed = max(self.master_confirmed or 0, piece.offset)
                    continue
                if piece.opens and self._next not in (0, piece.offset):
                    yield self._leave(
                        "diverged",
                        f"the master sends from {piece.offset} on, and this log ends at "
                        f"{self._next}: one of them is of another history",
                    )
                    return
                self._gatherer.add(piece.offset, piece.data)
                self._next = piece.offset + len(piece.data)
                yield from self._appends(self._settings.append_bytes)
        except CorruptRecordError as error:
            yield self._leave("protocol", error.message)

    def drained(self) -> Iterator[Append | Left]:
        """Nothing more is waiting on the socket: append what is whole, however little."""
        if self.left is None:
            try:
                yield from self._appends(1)
            except CorruptRecordError as error:
                yield self._leave("protocol", error.message)

    def was_appended(self, end: int, now_ms: int) -> WriteToMaster | None:
        """The slave's log has everything below `end`, under its own flush setting."""
        self.appended = max(self.appended, end)
        if self.left is not None or self.appended <= self._reported:
            return None
        return self._report(now_ms)

    def is_heard(self, now_ms: int) -> None:
        """The master is not silent: what it sends is not read for the time being."""
        self._heard_ms = now_ms

    def tick(self, now_ms: int) -> WriteToMaster | Left | None:
        """Time has passed."""
        if self.left is not None:
            return None
        if now_ms - self._heard_ms > self._settings.housekeeping_ms:
            silent_ms = now_ms - self._heard_ms
            return self._leave("silent", f"the master has sent nothing for {silent_ms} ms")
        if now_ms - self._reported_ms >= self._settings.report_ms:
            return self._report(now_ms)
        return None

    def _appends(self, least_bytes: int) -> Iterator[Append]:
        while (append := self._gatherer.take(least_bytes)) is not None:
            yield append

    def _report(self, now_ms: int) -> WriteToMaster:
        self._reported, self._reported_ms = self.appended, now_ms
        return WriteToMaster(REPORT.pack(self.appended))

    def _leave(self, reason: str, sentence: str) -> Left:
        self.left = Left(reason, sentence)
        return self.left
