"""The volumes that a store lies on: its directory's, and those of parts that are mounts. Each is
synced, and probed for whether it still takes changes.
"""

import contextlib
import errno
import os
import threading
import weakref

from stratamq.files import system_calls
from stratamq.formats.store_paths import PARTS

_ATTRIBUTE, _VALUE = "user.stratamq", b"1"
_NOT_OFFERED = (
    errno.EOPNOTSUPP,
    errno.ENOSYS,
    errno.EINVAL,
    errno.EISDIR,
    errno.ENOENT,
    errno.EPERM,
    errno.EACCES,
)
"""Unnamed files, or attributes of users."""
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE)


class WriteProbe:
    """Probes whether the file system of one directory still takes changes, after each sync that
    reported success. Thread-safe; holds one descriptor from the first probe on. Does nothing where
    the file system has no unnamed files or no attributes.

    ext4 aborts its journal at the first error, and marks itself read-only some milliseconds later.
    In between `fdatasync` and `fsync` may report success for data whose extents were never recorded
    as written: the transaction is gone, and there is nothing to wait for. After the repair the file
    has zeros there. What has to begin a transaction fails from the abort on, so that a sync behind
    which a transaction can still be begun was whole (docs/durability.md has the measurement).

    The transaction changes nothing: it gives an attribute of an unnamed file the value that it has.
    """

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._descriptor = -1
        self._is_offered = True
        self._opening = threading.Lock()

    def require_writable(self) -> None:
        """OSError when the file system refuses changes: EROFS or EIO."""
        if self._descriptor < 0:
            with self._opening:
                if self._is_offered and self._descriptor < 0:
                    self._open()
        if self._descriptor >= 0:
            os.setxattr(self._descriptor, _ATTRIBUTE, _VALUE)

    def _open(self) -> None:
        descriptor = -1
        try:
            descriptor = os.open(self._directory, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
            os.setxattr(descriptor, _ATTRIBUTE, _VALUE)
        except OSError as error:
            if descriptor >= 0:
                with contextlib.suppress(OSError):
                    os.close(descriptor)
            if error.errno in _NOT_OFFERED:
                self._is_offered = False
            elif error.errno not in _NO_ROOM:
                raise
            return
        weakref.finalize(self, os.close, descriptor)
        self._descriptor = descriptor


class Volumes:
    def __init__(self, root: str) -> None:
        self._root = root
        self._descriptors: dict[str, int] = {}
        """One for each volume: the directory's by "", a part's by its name. Kept open: syncfs
        reports the errors since its descriptor was opened."""
        self._probes: dict[str, WriteProbe] = {"": WriteProbe(root)}
        if os.path.isdir(root):
            self._open()

    def sync(self) -> list[str]:
        """Sync all. Return those that FUSE serves, where `syncfs` does not reach the disk."""
        self._open()
        unreached = []
        for part, descriptor in self._descriptors.items():
            system_calls.sync_file_system(descriptor)
            self.probe_of(part).require_writable()
            if system_calls.is_fuse(descriptor):
                unreached.append(part)
        return unreached

    def probe_of(self, path: str) -> WriteProbe:
        part = path.partition("/")[0]
        if part not in PARTS:
            part = ""
        if part not in self._probes:
            apart = self._is_apart(part)
            self._probes[part] = WriteProbe(f"{self._root}/{part}") if apart else self._probes[""]
        return self._probes[part]

    def _open(self) -> None:
        for part in ("", *PARTS):
            if part not in self._descriptors and (not part or self._is_apart(part)):
                path = f"{self._root}/{part}"
                descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                weakref.finalize(self, os.close, descriptor)
                self._descriptors[part] = descriptor

    def _is_apart(self, part: str) -> bool:
        try:
            return os.stat(f"{self._root}/{part}").st_dev != os.stat(self._root).st_dev
        except FileNotFoundError:
            return False
