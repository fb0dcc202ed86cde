"""Queue files that the log does not give are kept under `stratamq/aside/`, not removed or zeroed.

While all queues are compared with the log, files may be another program's: units behind the log's
end, or other ones than the log gives, and queues of which the log has nothing. Whole files are
moved there; of a file that stays, a sparse one of its size has the units that lay in it, where they
lay. All of it is durable before anything of the queue changes. Belongs to the writing lane.
"""

import logging

from stratamq.files.port import Files
from stratamq.formats.store_paths import ASIDE_DIRECTORY
from stratamq_dispatcher.queue_files import free_aside, set_aside

log = logging.getLogger(__name__)


class Displaced:
    def __init__(self, files: Files) -> None:
        self._files = files
        self._copies: dict[str, str] = {}
        """By the path of a queue file: where its displaced units are."""

    def move(self, path: str) -> None:
        """The log gives nothing of this file."""
        target = set_aside(self._files, path)
        log.warning("queue file without messages moved aside", extra={"path": path, "to": target})

    def keep(self, path: str, file_bytes: int, position: int, data: bytes) -> None:
        """`data` lies in the file at `position`, and is about to be overwritten."""
        if data == bytes(len(data)):
            return
        target = self._copies.get(path)
        if target is None:
            self._files.make_directory(ASIDE_DIRECTORY)
            target = self._copies[path] = free_aside(self._files, f"units,{path}")
            self._files.create(target, file_bytes, sparse=True)
            level = logging.INFO if len(self._copies) == 1 else logging.DEBUG
            log.log(level, "queue units that the log does not give kept", extra={"in": target})
        copy = self._files.open(target, writable=True)
        try:
            copy.write(position, data)
            copy.flush()
        finally:
            copy.close()
