"""Files of a table in a directory survive a loss of power before the catalog names them.

pyiceberg leaves what it writes to the operating system, and SQLite syncs its database: after a loss
of power it would name files that are empty. So each file is synced when it is closed, and so is the
directory that has its name.
"""

import io
import os
from pathlib import Path

from pyiceberg.io import OutputStream
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO

from stratamq.files.system_calls import sync_directory

CLASS = f"{__name__}.SyncedFileIO"
_BUFFER_BYTES = 1 << 20


class SyncedFileIO(PyArrowFileIO):
    """What pyiceberg takes for `file:`; other file systems are left as they are."""

    def new_output(self, location: str) -> PyArrowFile:
        scheme, netloc, path = self.parse_location(location)
        if scheme != "file":
            return super().new_output(location)
        return _SyncedFile(location, path, self.fs_by_scheme(scheme, netloc))


class _SyncedFile(PyArrowFile):
    def create(self, overwrite: bool = False) -> OutputStream:
        """FileExistsError unless `overwrite`."""
        path = Path(self._path)
        _make_directories(path.parent)
        return _SyncedStream(path, "wb" if overwrite else "xb")


class _SyncedStream(io.BufferedWriter):
    def __init__(self, path: Path, mode: str) -> None:
        super().__init__(io.FileIO(path, mode), _BUFFER_BYTES)
        self._directory = path.parent

    def close(self) -> None:
        if self.closed:
            return
        self.flush()
        os.fsync(self.fileno())
        super().close()
        sync_directory(str(self._directory))


def _make_directories(path: Path) -> None:
    """With their names in those above."""
    if path.is_dir():
        return
    _make_directories(path.parent)
    path.mkdir(exist_ok=True)
    sync_directory(str(path.parent))
