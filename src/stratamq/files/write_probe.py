"""Whether a file system still takes changes, asked after each sync that reported success.

ext4 aborts its journal at the first error, and marks itself read-only some milliseconds later. In
between `fdatasync` and `fsync` may report success for data whose extents were never recorded as
written: the transaction is gone, and there is nothing to wait for. After the repair the file has
zeros there. What has to begin a transaction fails from the abort on, so that a sync behind which a
transaction can still be begun was whole (docs/durability.md has the measurement).

The transaction changes nothing: it gives an attribute of an unnamed file the value that it has.
"""

import contextlib
import errno
import os
import threading
import weakref

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
    """Probes whether the file system of one directory can be written. Thread-safe; holds one
    descriptor from the first probe on. Does nothing where the file system has no unnamed files or
    no attributes."""

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
