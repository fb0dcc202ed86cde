"""The write lane: one piece of work at a time, then the watermark that names it.

Whatever goes to `index/` or to `stratamq/index.json` goes through here, in order. A piece of work
that fails for lack of space changed nothing that counts: it is done again later, and `blocked`
reports it until then. After any other error writing stops (`failure`): what the cache shows need
not be on the disk, and the next start cuts to the last watermark.
"""

import errno
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from stratamq.files.metadata import MetadataFile
from stratamq.files.port import Files, Worker
from stratamq.formats.store_paths import INDEX_STATE_PATH
from stratamq_index.index_file import SyncError
from stratamq_index.watermark import Watermark, decode_watermark, encode_watermark

log = logging.getLogger(__name__)

T = TypeVar("T")
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)


class Writer:
    """Belongs to the engine; the tasks it submits touch only the disk."""

    def __init__(self, files: Files, worker: Worker, on_idle: Callable[[], None]) -> None:
        """`on_idle` is called after each piece of work, whatever became of it."""
        self.busy = False
        self.failure: BaseException | None = None
        self.blocked = ""
        self.stored: Watermark | None = None
        """What is on disk for certain, as far as it goes."""
        self._closed = False
        """Whether a closed watermark may be on disk."""
        self._worker = worker
        self._file = MetadataFile(files, INDEX_STATE_PATH)
        self._on_idle = on_idle

    def load(self) -> tuple[Watermark | None, tuple[str, ...]]:
        """The watermark, and what was wrong with its file. Called once, before any work."""
        data = self._file.load()
        self.stored = decode_watermark(data) if data is not None else None
        self._closed = self.stored is not None and self.stored.closed
        faults = self._file.found.faults
        if data is not None and self.stored is None:
            faults = (*faults, f"{INDEX_STATE_PATH}: not a watermark of this version")
        return self.stored, faults

    def submit(
        self,
        work: Callable[[], T],
        watermark: Watermark,
        then: Callable[[T], None],
        after: Callable[[], None] | None = None,
        *,
        before: Watermark | None = None,
        failed: Callable[[BaseException], None] | None = None,
    ) -> None:
        """Do `work`, then store `watermark`, then do `after`, all in the lane; then call `then`.

        With `before` that is stored first. `then` is called only if all went well, `failed` only if
        not. No other work may be under way.
        """
        assert not self.busy
        self.busy = True
        file = self._file
        reopened = replace(self.stored, closed=False) if self.stored and self._closed else None

        def task() -> T:
            if reopened is not None:
                # From now on the files are not as in the closed watermark.
                file.store(encode_watermark(reopened))
            if before is not None:
                file.store(encode_watermark(before))
            result = work()
            file.store(encode_watermark(watermark))
            if after is not None:
                after()
            return result

        def done(result: T | None, error: BaseException | None) -> None:
            self.busy = False
            if error is None:
                self.stored = watermark
                self._closed = watermark.closed
                self.blocked = ""
                then(result)  # type: ignore[arg-type]
            else:
                self._closed |= watermark.closed
                self._failed(error)
                if failed is not None:
                    failed(error)
            self._on_idle()

        self._worker.submit(task, done)

    def _failed(self, error: BaseException) -> None:
        if isinstance(error, OSError) and error.errno in _NO_SPACE:
            if not self.blocked:
                log.warning("index cannot be written", extra={"reason": error.strerror})
            self.blocked = error.strerror or str(error)
            return
        self.failure = error.error if isinstance(error, SyncError) else error
        log.error("index stopped writing", extra={"reason": str(self.failure)})
