"""Reads of the log by its offsets, on a thread of their own: a stalled disk blocks no call."""

from collections.abc import AsyncGenerator

from stratamq.errors import InvalidRequestError, NotFoundError
from stratamq.formats.frame import Frame, decode
from stratamq.formats.log_state import LogState
from stratamq.formats.numbers import NextOffset
from stratamq.formats.sysflag import is_in_queue
from stratamq.rpc.paging import place_of, position_of
from stratamq.service.worker import ThreadWorker
from stratamq_commitlog.engine import CommitLog
from stratamq_commitlog.use_cases.served_log import ServedLog


class OffsetReads:
    def __init__(self, log: ServedLog, worker: ThreadWorker) -> None:
        self._log = log
        self._worker = worker

    def status(self) -> LogState:
        return self._log.get().status()

    async def frame(self, physical_offset: int) -> bytes:
        """NotFoundError when no message begins there, or none that is shown."""
        log = self._log.get()
        try:
            frame = await self._worker.run(lambda: log.frame_at(physical_offset))
        except InvalidRequestError as error:
            raise NotFoundError(error.message) from None
        _require_shown(log, frame)
        return frame

    async def range(
        self, start: int, end: int, max_bytes: int, *, verify: bool, unconfirmed: bool
    ) -> AsyncGenerator[tuple[int, bytes, int], None]:
        """Pieces of the log with their offsets, and *confirmed* as each was read."""
        log = self._log.get()
        pieces = log.read_range(start, end, max_bytes, verify=verify, unconfirmed=unconfirmed)
        while (piece := await self._worker.run(lambda: next(pieces, None))) is not None:
            yield *piece, log.offsets.confirmed

    async def heads(
        self, start: int, end: int, max_bytes: int, *, unconfirmed: bool
    ) -> AsyncGenerator[tuple[int, bytes, bytes, int], None]:
        """The same without bodies and properties: offset, heads, packed lengths, *confirmed*."""
        log = self._log.get()
        pieces = log.read_heads(start, end, max_bytes, unconfirmed=unconfirmed)
        while (piece := await self._worker.run(lambda: next(pieces, None))) is not None:
            yield *piece, log.offsets.confirmed

    def queue_table(self, position: int, wanted: int) -> tuple[int, list[NextOffset], int]:
        """The log's end, next offsets of a page of queues there, and the next page's position."""
        log = self._log.get()
        appended, queues, following = log.queue_page(place_of(position, log.incarnation), wanted)
        return appended, queues, position_of(following, log.incarnation)

    def delete_below(self, offset: int, most: int, urgent: bool) -> tuple[int, list[str]]:
        """Take whole segments out of the log; the new minimum, and the files."""
        log = self._log.get()
        removed = log.delete_below(offset, most, urgent)
        self._worker.submit(log.reads.let_go, _required)
        return removed


def _required(_: None, error: BaseException | None) -> None:
    if error is not None:
        raise error


def _require_shown(log: CommitLog, raw: bytes | memoryview) -> None:
    """NotFoundError for a message that was purged, or deleted with its topic."""
    frame = decode(raw, verify_body=False)
    if not isinstance(frame, Frame) or not is_in_queue(frame.sys_flag):
        return
    if frame.queue_offset < log.topics.minimum(frame.topic, frame.queue_id):
        raise NotFoundError(
            f"the message at {frame.physical_offset} was purged, or deleted with its topic"
        )
