"""The file port on a real Linux directory.

Every blocking call releases the interpreter lock. An open file costs one descriptor, mapped or not;
a closed one whose mapping is still in use costs none.
"""

import contextlib
import errno
import fcntl
import os
import stat
import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

from stratamq.files import system_calls
from stratamq.files.new_files import NewFiles
from stratamq.files.paths import ancestors, base_name, checked, parent
from stratamq.files.port import Entry, EntryKind, File, Space, is_of_file_system
from stratamq.files.volumes import Volumes, WriteProbe
from stratamq.formats.store_paths import TEMPORARY_DIRECTORY

_ZEROS = bytes(1 << 20)

_locked_by_this_process: set[tuple[int, int]] = set()
"""(device, inode) of every file that this process has locked. POSIX record locks belong to the
process: closing *any* descriptor of such a file drops the lock, so that no second one may exist."""
_registry_lock = threading.Lock()


class RealFile:
    """`File` over one descriptor. See the port for the promises."""

    def __init__(
        self, path: str, descriptor: int, size: int, writable: bool, probe: WriteProbe
    ) -> None:
        self.path = path
        self._probe = probe
        self.size = size
        self._descriptor = descriptor
        self._writable = writable
        self._view: memoryview | None = None

    def view(self) -> memoryview:
        if self._view is None:
            if self.size == 0:
                self._view = memoryview(b"")
            else:
                mapping = system_calls.map_shared(self._fd(), self.size)
                self._view = memoryview(mapping)
        return self._view

    def read(self, position: int, length: int) -> bytes:
        try:
            data = os.pread(self._fd(), length, position)
            while len(data) < length:
                more = os.pread(self._fd(), length - len(data), position + len(data))
                if not more:
                    break
                data += more
        except OSError as error:
            error.filename = self.path  # a descriptor has no name
            raise
        return data

    def read_cold(self, position: int, length: int) -> bytes:
        data = bytearray(length)
        try:
            cached = os.preadv(self._fd(), [data], position, os.RWF_NOWAIT)
        except OSError:
            cached = 0  # nothing is cached, or this file system cannot report it: the read decides
        if cached == length:
            return bytes(data)
        rest = self.read(position + cached, length - cached)
        self.drop_cache(position + cached, len(rest))
        return bytes(data[:cached]) + rest

    def data_end(self, position: int) -> int:
        end = position
        while end < self.size:
            try:
                begin = os.lseek(self._fd(), end, os.SEEK_DATA)
                end = os.lseek(self._fd(), begin, os.SEEK_HOLE)
            except OSError as error:
                if error.errno == errno.ENXIO:
                    return end
                if error.errno == errno.EINVAL:  # a file system without holes
                    return self.size
                error.filename = self.path
                raise
        return min(end, self.size)

    def write(self, position: int, data: bytes | bytearray | memoryview) -> None:
        left = memoryview(data).cast("B")
        self._check_range(position, len(left))
        self._write(position, left)

    def extend(self, position: int, data: bytes | bytearray | memoryview) -> None:
        left = memoryview(data).cast("B")
        self._check_range(position, 0)
        self._write(position, left)
        self.size = max(self.size, position + len(left))

    def _write(self, position: int, left: memoryview) -> None:
        while left:
            written = os.pwrite(self._fd(), left, position)
            left = left[written:]
            position += written

    def zero(self, position: int, length: int) -> None:
        self._check_range(position, length)
        if length == 0 or system_calls.zero_range(self._fd(), position, length):
            return
        for start in range(position, position + length, len(_ZEROS)):
            self.write(start, _ZEROS[: min(len(_ZEROS), position + length - start)])

    def allocate(self) -> None:
        if self.size:
            os.posix_fallocate(self._fd(), 0, self.size)

    def resize(self, size: int) -> None:
        if self._view is not None:
            raise ValueError(f"{self.path} is mapped: a reader beyond its new end would die")
        os.ftruncate(self._fd(), size)
        self.size = size

    def flush(self, position: int = 0, length: int | None = None) -> None:
        os.fdatasync(self._fd())
        self._probe.require_writable()

    def drop_cache(self, position: int, length: int) -> None:
        with contextlib.suppress(OSError):
            os.posix_fadvise(self._fd(), position, length, os.POSIX_FADV_DONTNEED)

    def send(self, socket: int, position: int, length: int) -> int:
        return os.sendfile(socket, self._fd(), position, length)

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __del__(self) -> None:
        self.close()

    def _fd(self) -> int:
        if self._descriptor < 0:
            raise ValueError(f"{self.path} is closed")
        return self._descriptor

    def _check_range(self, position: int, length: int) -> None:
        if not self._writable:
            raise PermissionError(errno.EACCES, "opened for reading", self.path)
        if position < 0 or position + length > self.size:
            raise ValueError(f"{self.path}: [{position}, +{length}) leaves its {self.size} bytes")


class RealLock:
    """`Lock` by `fcntl.lockf` on byte 0."""

    def __init__(self, descriptor: int, key: tuple[int, int], previous_text: bytes) -> None:
        self.previous_text = previous_text
        self._descriptor = descriptor
        self._key = key

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            with _registry_lock:
                os.close(descriptor)
                _locked_by_this_process.discard(self._key)


class RealFiles:
    """`Files` below `root`. The root itself is made when something is first made in it."""

    def __init__(self, root: Path | str) -> None:
        self.root = Path(root)
        self._root_text = os.fspath(self.root)
        self._known_durable: set[str] = set()
        """Directories whose own entry this object has seen synced."""
        self._new = NewFiles(self._root_text)
        self._volumes = Volumes(self._root_text)

    # --- files ---

    def create(self, path: str, size: int, *, sparse: bool = False) -> None:
        target = self._absolute(path)
        if os.path.lexists(target):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        directory = parent(path)
        self.make_directory(directory)
        self.make_directory(TEMPORARY_DIRECTORY)
        self._new.make(target, lambda made: _give_size(made, size, sparse))
        try:
            self.sync_directory(directory)
            self.sync_directory(TEMPORARY_DIRECTORY)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(target)
            raise

    def create_many(
        self, paths: Sequence[str], size: int, sync_all: Callable[[], None]
    ) -> Sequence[str]:
        self.make_directory(TEMPORARY_DIRECTORY)
        made = [path for path in paths if not os.path.lexists(self._absolute(path))]
        for directory in {parent(path) for path in made}:
            os.makedirs(self._absolute(directory), exist_ok=True)
        targets = [self._absolute(path) for path in made]
        self._new.make_many(targets, lambda descriptor: os.ftruncate(descriptor, size), sync_all)
        return made

    def rewrite(
        self, path: str, size: int, fill: Callable[[File], None], *, sparse: bool = False
    ) -> None:
        self.make_directory(TEMPORARY_DIRECTORY)

        def write(made: int) -> None:
            _give_size(made, size, sparse)
            with closing(
                RealFile(path, os.dup(made), size, True, self._volumes.probe_of(path))
            ) as file:
                fill(file)
                file.flush()

        self._new.make(self._absolute(path), write, replacing=True)
        self.sync_directory(parent(path))
        self.sync_directory(TEMPORARY_DIRECTORY)

    def open(self, path: str, *, writable: bool = False) -> RealFile:
        # O_NONBLOCK: opening a FIFO that someone put there must not wait for its other end.
        flags = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        flags |= os.O_RDWR if writable else os.O_RDONLY
        absolute = self._absolute(path)
        with _registry_lock:
            if _locked_by_this_process:
                status = os.lstat(absolute)
                if (status.st_dev, status.st_ino) in _locked_by_this_process:
                    raise OSError(errno.EBUSY, "this process holds its lock", path)
            descriptor = os.open(absolute, flags)
        try:
            status = os.fstat(descriptor)
            if stat.S_ISDIR(status.st_mode):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
            if not stat.S_ISREG(status.st_mode):
                raise OSError(errno.EINVAL, "not a regular file", path)
        except OSError:
            os.close(descriptor)
            raise
        return RealFile(path, descriptor, status.st_size, writable, self._volumes.probe_of(path))

    def entry(self, path: str) -> Entry | None:
        try:
            status = os.lstat(self._absolute(path))
        except (FileNotFoundError, NotADirectoryError):
            return None
        return _entry(base_name(path), status)

    def list(self, directory: str) -> list[Entry]:
        entries = []
        try:
            with os.scandir(self._absolute(directory)) as items:
                for item in items:
                    # An entry that another process unlinks between the two calls is not there.
                    with contextlib.suppress(FileNotFoundError):
                        found = _entry(item.name, item.stat(follow_symlinks=False))
                        if not is_of_file_system(found):
                            entries.append(found)
        except FileNotFoundError:
            return []
        return sorted(entries, key=lambda entry: entry.name)

    def replace(self, source: str, target: str) -> None:
        try:
            os.replace(self._absolute(source), self._absolute(target))
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            self._new.move(self._absolute(source), self._absolute(target))

    def unlink(self, path: str) -> None:
        os.unlink(self._absolute(path))

    def set_mtime(self, path: str, mtime_ns: int) -> None:
        os.utime(self._absolute(path), ns=(mtime_ns, mtime_ns), follow_symlinks=False)

    # --- directories ---

    def make_directory(self, path: str) -> None:
        if "" not in self._known_durable or not self.root.is_dir():
            self._make_root()
        for directory in ancestors(checked(path)):
            if directory in self._known_durable and os.path.isdir(self._absolute(directory)):
                continue
            made = True
            try:
                os.mkdir(self._absolute(directory))
            except FileExistsError:
                made = False
                if not os.path.isdir(self._absolute(directory)):
                    raise NotADirectoryError(
                        errno.ENOTDIR, os.strerror(errno.ENOTDIR), directory
                    ) from None
            # One that existed is synced too: who made it may have died before the sync.
            try:
                self.sync_directory(parent(directory))
            except OSError:
                if made:
                    # A later sync that succeeds would not cover this entry.
                    with contextlib.suppress(OSError):
                        os.rmdir(self._absolute(directory))
                raise
            self._known_durable.add(directory)

    def remove_directory(self, path: str) -> None:
        os.rmdir(self._absolute(path))
        self._known_durable.discard(path)

    def sync_directory(self, path: str) -> None:
        system_calls.sync_directory(self._absolute(path))
        self._volumes.probe_of(path).require_writable()

    def sync_all(self) -> None:
        for part in self._volumes.sync():
            self._sync_below(part)

    def space(self, path: str = "") -> Space:
        where = self._absolute(path)
        if not os.path.isdir(where):
            where = self._root_text
        volume = os.statvfs(where)
        used = volume.f_blocks - volume.f_bfree
        return Space(
            total_bytes=(used + volume.f_bavail) * volume.f_frsize,
            available_bytes=volume.f_bavail * volume.f_frsize,
            volume_id=os.stat(where).st_dev,
        )

    def clean_temporary(self, spare: tuple[str, ...] = ()) -> Sequence[str]:
        removed = []
        for entry in self.list(TEMPORARY_DIRECTORY):
            if entry.kind is not EntryKind.FILE or entry.name.startswith(spare):
                continue
            if self._new.remove_abandoned(entry.name):
                removed.append(entry.name)
        return removed

    # --- locks ---

    def lock(self, path: str, text: bytes) -> RealLock:
        self.make_directory(parent(path))
        absolute = self._absolute(path)
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        with _registry_lock:
            with contextlib.suppress(FileNotFoundError):
                status = os.lstat(absolute)
                if (status.st_dev, status.st_ino) in _locked_by_this_process:
                    raise BlockingIOError(errno.EAGAIN, "locked by this process", path)
            descriptor = os.open(absolute, flags, 0o644)
            try:
                try:
                    fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
                except PermissionError:  # POSIX allows EACCES for "held by another".
                    raise BlockingIOError(errno.EAGAIN, "locked by another process", path) from None
                status = os.fstat(descriptor)
                if not stat.S_ISREG(status.st_mode):
                    raise OSError(errno.EINVAL, "not a regular file", path)
                previous = os.pread(descriptor, status.st_size, 0)
                if text:
                    os.pwrite(descriptor, text, 0)
                    os.ftruncate(descriptor, len(text))
                    os.fsync(descriptor)
                    self.sync_directory(parent(path))
            except OSError:
                os.close(descriptor)
                raise
            key = (status.st_dev, status.st_ino)
            _locked_by_this_process.add(key)
        return RealLock(descriptor, key, previous)

    # --- inside ---

    def _make_root(self) -> None:
        """Create the root and sync every entry that leads to it from its mount point: the program
        that made these directories (`mkdir -p`, `stratamq up`) may not have synced them."""
        self.root.mkdir(parents=True, exist_ok=True)
        device = os.stat(self.root).st_dev
        for directory in self.root.resolve().parents:
            if os.stat(directory).st_dev != device:
                break
            # One that we may not open is not one that we have made.
            with contextlib.suppress(PermissionError):
                system_calls.sync_directory(os.fspath(directory))
        self._known_durable.add("")

    def _sync_below(self, directory: str) -> None:
        """Sync every file and directory by itself, where `syncfs` does not reach the disk.

        What goes away meanwhile needs no sync; what this process has locked is left alone.
        """
        for entry in self.list(directory):
            path = f"{directory}/{entry.name}" if directory else entry.name
            try:
                if entry.kind is EntryKind.DIRECTORY:
                    self._sync_below(path)
                elif entry.kind is EntryKind.FILE and not self._is_locked_here(path):
                    with closing(self.open(path)) as file:
                        file.flush()
            except FileNotFoundError:
                continue
        self.sync_directory(directory)

    def _is_locked_here(self, path: str) -> bool:
        status = os.lstat(self._absolute(path))
        return (status.st_dev, status.st_ino) in _locked_by_this_process

    def _absolute(self, path: str) -> str:
        return f"{self._root_text}/{checked(path)}"


def _give_size(descriptor: int, size: int, sparse: bool) -> None:
    if sparse:
        os.ftruncate(descriptor, size)
    elif size:
        os.posix_fallocate(descriptor, 0, size)


def _entry(name: str, status: os.stat_result) -> Entry:
    mode = status.st_mode
    if stat.S_ISREG(mode):
        return Entry(name, EntryKind.FILE, status.st_size, status.st_mtime_ns)
    if stat.S_ISDIR(mode):
        return Entry(name, EntryKind.DIRECTORY, 0, status.st_mtime_ns)
    return Entry(
        name, EntryKind.LINK if stat.S_ISLNK(mode) else EntryKind.OTHER, 0, status.st_mtime_ns
    )
