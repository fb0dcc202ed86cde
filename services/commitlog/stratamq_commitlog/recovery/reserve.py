"""Disk space kept back, so that a log on a full volume can still write what it must.

Recovery, `abort`, generations and the checkpoint need room even when nothing else has any: without
it a log could not start on a full volume, and so it could be neither read nor deleted from. The
reserve is one allocated file; it is let go when a start finds the volume nearly full, or a write of
our own state met `ENOSPC`, and taken again once there is plenty.
"""

import errno
import logging
from collections.abc import Callable
from typing import TypeVar

from stratamq.files.port import EntryKind, Files
from stratamq.formats.store_paths import RESERVE_PATH

log = logging.getLogger(__name__)

T = TypeVar("T")
PLENTY_FACTOR = 8
"""The reserve is taken only of at least so many times as much: it must not fill a small volume."""


class Reserve:
    """`size_bytes` 0: there is none. Not thread-safe."""

    def __init__(self, files: Files, size_bytes: int) -> None:
        self._files = files
        self._size_bytes = size_bytes

    def release_if_short(self) -> bool:
        """Give the space back when the volume has less than the reserve left. True if it did."""
        if self._files.space().available_bytes >= self._size_bytes:
            return False
        return self.release()

    def release(self) -> bool:
        """Give the space back; True if there was any."""
        entry = self._files.entry(RESERVE_PATH)
        if entry is None or entry.kind is EntryKind.DIRECTORY:
            return False
        self._files.unlink(RESERVE_PATH)
        log.warning("reserve released", extra={"bytes": entry.size})
        return True

    def attempt(self, write: Callable[[], T]) -> T:
        """What `write` brings; on a full volume again, with the space given back. OSError."""
        try:
            return write()
        except OSError as error:
            if error.errno != errno.ENOSPC or not self.release():
                raise
        return write()

    def keep(self) -> None:
        """Take the space if it is not taken and there is plenty. OSError other than ENOSPC."""
        if not self._size_bytes or self._files.entry(RESERVE_PATH) is not None:
            return
        if self._files.space().available_bytes < PLENTY_FACTOR * self._size_bytes:
            return
        try:
            self._files.create(RESERVE_PATH, self._size_bytes)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
