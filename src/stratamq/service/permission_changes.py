"""Changing the permissions file: whole or not at all, one process at a time."""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from stratamq.errors import ConfigurationError, InvalidRequestError
from stratamq.files.system_calls import sync_directory
from stratamq.rpc.permission_file import LARGEST_FILE_BYTES, Permissions, dump, parse


def read_permissions(file: Path) -> Permissions:
    """ConfigurationError, with what to do."""
    try:
        with file.open("rb") as opened:
            return parse(opened.read(LARGEST_FILE_BYTES + 1), str(file))
    except FileNotFoundError as error:
        raise ConfigurationError(
            [
                f"permissions file {file} not found; create it with `stratamq acl init`, or name "
                "one with --file"
            ]
        ) from error


@contextlib.contextmanager
def changing(file: Path) -> Iterator[Permissions]:
    """What is there; written when the block ends without an error, one process at a time.
    ConfigurationError, InvalidRequestError."""
    file = file.resolve()  # what a link names is changed, as the service reads it
    read_permissions(file)
    lock = os.open(f"{file}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        permissions = read_permissions(file)
        before = dump(permissions)
        yield permissions
        if dump(permissions) != before:
            write_permissions(file, permissions)
    finally:
        os.close(lock)


def write_permissions(file: Path, permissions: Permissions) -> None:
    """The old file or the new one is there, whatever happens. The same as before may read it: it
    keeps its owner and its mode, or nothing is changed."""
    content = dump(permissions)
    if len(content) > LARGEST_FILE_BYTES:
        raise InvalidRequestError(f"{file} would be larger than {LARGEST_FILE_BYTES} bytes")
    parse(content, str(file))
    temporary = file.with_name(f".{file.name}.tmp")
    temporary.unlink(missing_ok=True)  # of a process that was killed while it had the lock
    old = file.stat() if file.exists() else None
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with open(descriptor, "wb") as opened:
            opened.write(content)
            opened.flush()
            if old is not None:
                if (old.st_uid, old.st_gid) != (os.geteuid(), os.getegid()):
                    os.fchown(opened.fileno(), old.st_uid, old.st_gid)
                os.fchmod(opened.fileno(), old.st_mode & 0o777)
            os.fsync(opened.fileno())
        os.replace(temporary, file)
        sync_directory(str(file.parent))
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
