"""`<root>/stratamq/<room>.lock`: one process of a room over one store directory.

Taken before anything is announced, so that a second start touches nothing of the first one's.
"""

import fcntl
import os
import struct
from pathlib import Path

from stratamq.errors import StoreRefusedError
from stratamq.files.port import Files, Lock
from stratamq.formats.store_paths import OWN_DIRECTORY

_FLOCK = struct.Struct(
    "@"
    "h"  # l_type
    "h"  # l_whence
    "q"  # l_start
    "q"  # l_len
    "i"  # l_pid
    "4x"
)
"""Linux's `struct flock` on machines of 64 bits."""


def take_room_lock(files: Files, room: str) -> Lock:
    """The room's lock, held until it is closed or the process ends.

    StoreRefusedError when another process holds it, or when what is there can be no lock.
    """
    path = _path(room)
    try:
        return files.lock(path, str(os.getpid()).encode())
    except BlockingIOError:
        raise StoreRefusedError(
            f"the store is in use: another {room} service runs on this directory"
        ) from None
    except OSError as error:
        raise StoreRefusedError(
            f"{path} cannot be locked: {error.strerror or error}. Move away what is there"
        ) from error


def room_lock_holder(root: Path, room: str) -> int | None:
    """The process that holds the room's lock, as `lock_holder`."""
    return lock_holder(root / _path(room))


def lock_holder(path: Path) -> int | None:
    """The process that holds a lock file, by the kernel's word; None: none does. 0 is one that
    this process cannot see (another container's). Takes nothing, and changes nothing."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None  # without a lock file no process holds it
    try:
        asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
        kind, _, _, _, pid = _FLOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_GETLK, asked))
    finally:
        os.close(descriptor)
    return None if kind == fcntl.F_UNLCK else max(0, pid)


def _path(room: str) -> str:
    return f"{OWN_DIRECTORY}/{room}.lock"
