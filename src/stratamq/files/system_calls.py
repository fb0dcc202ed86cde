"""The few Linux calls that `files.real` needs and Python does not offer.

All go through `ctypes.CDLL`, which releases the interpreter lock for the length of the call.
"""

import ctypes
import errno
import mmap
import os

import numpy as np

_libc = ctypes.CDLL(None, use_errno=True)

_AT_FDCWD = -100
_RENAME_NOREPLACE = 1
_FALLOC_FL_ZERO_RANGE = 0x10
_MAP_FIXED = 0x10
_MAP_NORESERVE = 0x4000
_FUSE_SUPER_MAGIC = 0x65735546
_STATFS_BYTES = 256  # more than any Linux's struct statfs; f_type is its first word
_MAP_FAILED = ctypes.c_void_p(-1).value
_NOT_OFFERED_HERE = (errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.EPERM)

_libc.syncfs.argtypes = [ctypes.c_int]
_libc.fstatfs.argtypes = [ctypes.c_int, ctypes.c_void_p]
_libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [
    ctypes.c_void_p,  # address
    ctypes.c_size_t,  # length
    ctypes.c_int,  # protection
    ctypes.c_int,  # flags
    ctypes.c_int,  # descriptor
    ctypes.c_int64,  # position
]
_renameat2 = getattr(_libc, "renameat2", None)

_unusable_maps: list[mmap.mmap] = []
"""Reservations whose replacement failed half-way. Kept forever: unmapping one could hit a mapping
that another thread has put there since."""


def _error(path: str | None = None) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number), path)


def map_shared(descriptor: int, size: int) -> mmap.mmap:
    """A read-only MAP_SHARED mapping of the first `size` bytes of a file that keeps no descriptor.

    `mmap.mmap(descriptor, …)` duplicates the descriptor and holds the copy, so that a mapped
    segment would cost two. Here Python reserves anonymous space, and the file is mapped over it;
    the `mmap` object then unmaps it as its own when the last reference goes.
    """
    protection = mmap.PROT_READ
    private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE
    reserved = mmap.mmap(-1, size, flags=private, prot=protection)
    flags = mmap.MAP_SHARED | _MAP_FIXED
    mapped = _libc.mmap(address_of(reserved), size, protection, flags, descriptor, 0)
    if mapped == _MAP_FAILED:
        error = _error()
        _unusable_maps.append(reserved)
        raise error
    return reserved


def address_of(mapping: mmap.mmap) -> int:
    """The address of a mapping's first byte. Valid while the caller holds the mapping."""
    return np.frombuffer(mapping, np.uint8, 1).__array_interface__["data"][0]


def zero_range(descriptor: int, position: int, length: int) -> bool:
    """FALLOC_FL_ZERO_RANGE. False where the file system does not offer it."""
    if _libc.fallocate(descriptor, _FALLOC_FL_ZERO_RANGE, position, length) == 0:
        return True
    if ctypes.get_errno() in (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL):
        return False
    raise _error()


def sync_file_system(descriptor: int) -> None:
    """`syncfs`. Reports write-back errors since `descriptor` was opened (Linux 5.8 and later)."""
    if _libc.syncfs(descriptor) != 0:
        raise _error()


def is_fuse(descriptor: int) -> bool:
    """Whether a FUSE server holds the file system. `syncfs` writes back to such a server, which is
    not made to write anything durably: only `fsync` of each file and directory reaches it."""
    status = ctypes.create_string_buffer(_STATFS_BYTES)
    if _libc.fstatfs(descriptor, status) != 0:
        raise _error()
    return ctypes.c_long.from_buffer(status).value == _FUSE_SUPER_MAGIC


def rename_without_replacing(source: str, target: str) -> None:
    """Atomic rename that raises FileExistsError where `target` exists.

    On file systems without RENAME_NOREPLACE by link and unlink; without links too (some FUSE ones)
    by a check and a rename, which another process could race.
    """
    if _renameat2 is not None:
        arguments = (_AT_FDCWD, os.fsencode(source), _AT_FDCWD, os.fsencode(target))
        if _renameat2(*arguments, _RENAME_NOREPLACE) == 0:
            return
        if ctypes.get_errno() not in _NOT_OFFERED_HERE:
            raise _error(target)
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError as error:
        if error.errno not in _NOT_OFFERED_HERE:
            raise
        if os.path.lexists(target):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), target) from None
        os.rename(source, target)
    else:
        os.unlink(source)


def name_unnamed(descriptor: int, target: str) -> None:
    """Give a file of `O_TMPFILE` its name. FileExistsError where `target` exists."""
    # With a directory's descriptor Python calls linkat, which follows the link of /proc.
    os.link(f"/proc/self/fd/{descriptor}", target, src_dir_fd=descriptor)


def mount_of(directory: str) -> str:
    """The mount that holds a directory: renames stay within one, whatever the file system."""
    descriptor = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with open(f"/proc/self/fdinfo/{descriptor}", encoding="ascii") as lines:
            return next(line for line in lines if line.startswith("mnt_id:"))
    finally:
        os.close(descriptor)


def sync_directory(directory: str) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
