"""A FUSE file system that forgets what was not synced when its power goes: a process of its own.

    python -m stratamq_torture.processes.forgetful_disk MOUNTPOINT

The simulated disk of the file room under the real kernel: the same pages, sectors, entries and
renames, the same seeded choice of what a crash keeps. The kernel's own page cache is above it, so
that mappings, `msync` and write-back are real.

Standard output has `{"mounted": true}` after each mount. For a power loss the caller kills
the services, unmounts (the kernel hands over its dirty pages, which are not synced by that) and
writes one line to standard input, `{"keep": "nothing" | "everything" | "random", "seed": 7}`. What
was at stake is answered in a line, and the disk is mounted again as the next boot finds it. The end
of standard input ends the disk.

`{"refuse": "a/file", "begin": 4096, "end": 8192}` is a bad sector: from the answer `{"refused":
true}` on reading any of these bytes of the file from the disk gives EIO; the kernel's page cache
may still have them. It stays over power losses.

`syncfs` never reaches a FUSE server (only virtiofs passes it on); a program that relies on it loses
data here as on every other FUSE file system.
"""

import errno
import json
import os
import queue
import random
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import mfusepy

from stratamq.files.clock import SystemClock
from stratamq.files.paths import parent
from stratamq.files.simulated import SimulatedDisk, keep_everything, keep_nothing, random_choice
from stratamq.files.simulated_inode import Inode
from stratamq.files.simulated_tree import Directory, Node

_TOTAL_BYTES, _BLOCK_BYTES = 1 << 40, 4096
_FALLOC_KEEP_SIZE, _FALLOC_PUNCH_HOLE, _FALLOC_ZERO_RANGE = 0x01, 0x02, 0x10
_ZEROING = _FALLOC_PUNCH_HOLE | _FALLOC_ZERO_RANGE


class _Fuse(mfusepy.FUSE):
    """mfusepy drops the handle of an `ftruncate`, and without paths nothing else names the file."""

    def truncate_fuse_3(self, path: bytes | None, length: int, fip: Any) -> int:
        handle = fip.contents.fh if fip else None
        return self.operations.truncate(None if path is None else os.fsdecode(path), length, handle)


class ForgetfulOperations(mfusepy.Operations):
    """FUSE's calls on a `SimulatedDisk`. One thread. No method may be named `lock` or `flock`:
    locks are then asked for here instead of being kept by the kernel."""

    use_ns = True
    # A file that was unlinked while open is reached by its handle: paths may be None.
    flag_nopath = True
    flag_nullpath_ok = True

    def __init__(self, disk: SimulatedDisk, mounted: Callable[[], None]) -> None:
        self._disk = disk
        self._mounted = mounted
        self._open: dict[int, Inode | str] = {}
        """Handle to the file, or to the directory's path."""
        self._next_handle = 1
        self.refused: tuple[str, int, int] = ("", 0, 0)
        """A file and the range of its bytes that cannot be read."""

    def init(self, path: str) -> None:
        self._mounted()

    # --- entries ---

    def getattr(self, path: str | None, fh: int | None = None) -> dict[str, Any]:
        opened = self._open.get(fh) if fh else None
        node = opened if isinstance(opened, Inode) else self._node(opened or path)
        if isinstance(node, Directory):
            return _attributes(stat.S_IFDIR | 0o755, 2, 0, node.mtime_ns)
        assert isinstance(node, Inode)
        return _attributes(stat.S_IFREG | 0o644, 1, node.size, node.mtime_ns)

    def opendir(self, path: str) -> int:
        self._directory(path)
        return self._handle(_relative(path))

    def readdir(self, path: str | None, fh: int) -> list[str]:
        return [".", "..", *sorted(self._directory(self._path(fh)).entries)]

    def releasedir(self, path: str | None, fh: int) -> int:
        del self._open[fh]
        return 0

    def mkdir(self, path: str, mode: int) -> int:
        self._set(path, Directory(self._disk.now_ns()))
        return 0

    def rmdir(self, path: str) -> int:
        if self._directory(path).entries:
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY))
        self._set(path, None)
        return 0

    def unlink(self, path: str) -> int:
        self._node(path)
        self._set(path, None)
        return 0

    def rename(self, old: str, new: str) -> int:
        self._disk.tree.rename(_relative(old), _relative(new), self._disk.now_ns())
        return 0

    def fsyncdir(self, path: str | None, datasync: int, fh: int) -> int:
        self._disk.tree.sync(self._path(fh))
        return 0

    # --- files ---

    def create(self, path: str, mode: int, flags: int = 0) -> int:
        inode = Inode(_relative(path), self._disk.now_ns())
        self._set(path, inode)
        return self._handle(inode)

    def open(self, path: str, flags: int) -> int:
        node = self._node(path)
        if not isinstance(node, Inode):
            raise OSError(errno.EISDIR, os.strerror(errno.EISDIR))
        return self._handle(node)

    def release(self, path: str | None, fh: int) -> int:
        del self._open[fh]
        return 0

    def read(self, path: str | None, size: int, offset: int, fh: int) -> bytes:
        inode = self._inode(fh)
        refused, begin, end = self.refused
        if begin < offset + size and offset < end and inode is self._disk.tree.find(refused):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return bytes(inode.cache[offset : offset + size])

    def write(self, path: str | None, data: bytes, offset: int, fh: int) -> int:
        inode = self._inode(fh)
        self._extend(inode, offset + len(data))
        inode.write(offset, data)
        inode.mtime_ns = self._disk.now_ns()
        return len(data)

    def truncate(self, path: str | None, length: int, fh: int | None = None) -> int:
        node = self._inode(fh) if fh else self._node(path)
        assert isinstance(node, Inode)
        node.set_size(length, sparse=False)
        node.mtime_ns = self._disk.now_ns()
        return 0

    def fallocate(self, path: str | None, mode: int, offset: int, size: int, fh: int) -> int:
        inode = self._inode(fh)
        if mode & ~(_FALLOC_KEEP_SIZE | _ZEROING):
            raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
        if not mode & _FALLOC_KEEP_SIZE:
            self._extend(inode, offset + size)
        if mode & _ZEROING:
            end = min(offset + size, inode.size)
            inode.write(offset, bytes(max(0, end - offset)))
        return 0

    def flush(self, path: str | None, fh: int) -> int:
        return 0  # closing a file syncs nothing

    def fsync(self, path: str | None, datasync: int, fh: int) -> int:
        inode = self._inode(fh)
        inode.flush(inode.dirty_pages())
        return 0

    def utimens(self, path: str | None, times: tuple[int, int] | None = None) -> int:
        if path is None:
            return 0  # of an open file: writing has set its time
        node = self._node(path)
        if isinstance(node, Inode):
            node.set_mtime(times[1] if times else self._disk.now_ns())
        return 0

    def chmod(self, path: str | None, mode: int) -> int:
        return 0

    def chown(self, path: str | None, uid: int, gid: int) -> int:
        return 0

    def statfs(self, path: str) -> dict[str, int]:
        blocks = _TOTAL_BYTES // _BLOCK_BYTES
        return {
            "f_bsize": _BLOCK_BYTES,
            "f_frsize": _BLOCK_BYTES,
            "f_blocks": blocks,
            "f_bfree": blocks,
            "f_bavail": blocks,
            "f_namemax": 255,
        }

    # --- inside ---

    def _node(self, path: str | None) -> Node:
        node = self._disk.tree.find(_relative(path or ""))
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        return node

    def _directory(self, path: str) -> Directory:
        return self._disk.tree.directory(_relative(path))

    def _set(self, path: str, node: Node | None) -> None:
        relative = _relative(path)
        self._disk.tree.directory(parent(relative))
        self._disk.tree.set(relative, node, self._disk.now_ns())

    def _handle(self, opened: Inode | str) -> int:
        handle, self._next_handle = self._next_handle, self._next_handle + 1
        self._open[handle] = opened
        return handle

    def _inode(self, fh: int) -> Inode:
        inode = self._open[fh]
        assert isinstance(inode, Inode)
        return inode

    def _path(self, fh: int) -> str:
        path = self._open[fh]
        assert isinstance(path, str)
        return path

    @staticmethod
    def _extend(inode: Inode, size: int) -> None:
        if size > inode.size:
            inode.set_size(size, sparse=False)


def _relative(path: str) -> str:
    return path.strip("/")


def _attributes(mode: int, links: int, size: int, mtime_ns: int) -> dict[str, Any]:
    return {
        "st_mode": mode,
        "st_nlink": links,
        "st_size": size,
        "st_blocks": -(-size // 512),
        "st_blksize": _BLOCK_BYTES,
        "st_mtime": mtime_ns,
        "st_atime": mtime_ns,
        "st_ctime": mtime_ns,
        "st_uid": os.getuid(),
        "st_gid": os.getgid(),
    }


def lose_power(disk: SimulatedDisk, request: dict[str, Any]) -> dict[str, int]:
    """One power loss; how many pages, sizes and entries were not synced."""
    at_stake = [item.kind for item in disk.crash_items()]
    choices = {"nothing": keep_nothing, "everything": keep_everything}
    chance = random.Random(request.get("seed", 0))
    disk.crash(choices.get(request["keep"]) or random_choice(chance))
    return {kind: at_stake.count(kind) for kind in ("page", "size", "entry")}


def main(mountpoint: str) -> None:
    """Mount, and again after each power loss, until standard input ends."""
    disk = SimulatedDisk(clock=SystemClock())
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    operations = ForgetfulOperations(disk, lambda: _print({"mounted": True}))
    threading.Thread(target=_listen, args=(lines, mountpoint, operations), daemon=True).start()
    while True:
        try:
            _mount(operations, mountpoint)
        except RuntimeError as error:
            sys.exit(f"{mountpoint} could not be mounted: libfuse answers {error}")
        line = lines.get()
        if not line:
            return
        _print(lose_power(disk, json.loads(line)))


def _mount(operations: ForgetfulOperations, mountpoint: str) -> None:
    """Return when it has been unmounted; RuntimeError when it cannot be mounted."""
    _Fuse(
        operations,
        mountpoint,
        foreground=True,
        nothreads=True,
        fsname="forgetful",
        hard_remove=True,  # no hidden files in place of those that are unlinked while open
        kernel_cache=True,  # as on a disk: only the kernel changes files, so its cache holds
    )


def _listen(
    lines: "queue.SimpleQueue[str]", mountpoint: str, operations: ForgetfulOperations
) -> None:
    for line in sys.stdin:
        request = json.loads(line)
        if "refuse" in request:
            operations.refused = request["refuse"], request["begin"], request["end"]
            _print({"refused": True})
        else:
            lines.put(line)
    lines.put("")
    # The user of the disk is gone; nothing may hold the mount.
    subprocess.run(["fusermount3", "-u", "-z", mountpoint], check=False, capture_output=True)


def _print(value: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1])
