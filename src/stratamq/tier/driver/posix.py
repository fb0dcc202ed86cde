"""A directory as the storage: RocketMQ's POSIX layout, over the file port.

`Create` and `Swap` compare and replace under a lock file of the directory, so that of several
processes one at a time does; a content's version is its SHA-256, so what is swapped has to differ
from all that it ever replaced (a manifest counts its revisions). Lock and temporary files are not
listed.
"""

import errno
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar, cast

from stratamq.files.paths import base_name, parent
from stratamq.files.port import File, Files, Kind
from stratamq.tier.driver.calls import (
    AbsentError,
    AlreadyThereError,
    Call,
    Create,
    Delete,
    Folders,
    List,
    Listed,
    Load,
    Read,
    ShortObjectError,
    Size,
    StorageRefusedError,
    StorageUnavailableError,
    Swap,
    SwapLostError,
    Version,
    WriteAt,
)
from stratamq.tier.driver.memory import content_version

T = TypeVar("T")

OURS = "stratamq"
"""The folder at the root for what is no object: the lock, and what is being written."""
SWAP_LOCK = f"{OURS}/swap.lock"
_LOCK_ATTEMPTS = 200
_LOCK_PAUSE_S = 0.01
_PASSING = frozenset(
    (errno.EIO, errno.EINTR, errno.EAGAIN, errno.ETIMEDOUT, errno.ESTALE, errno.ENFILE)
)
_MAX_NAME_BYTES = 255


class PosixStorage:
    """`files`: the directory. `pause` waits that many seconds for another process's swap."""

    positions = True

    def __init__(self, files: Files, pause: Callable[[float], None]) -> None:
        self._files = files
        self._pause = pause
        self._swapping = threading.Lock()

    def perform(self, call: Call[T]) -> T:
        path: str = getattr(call, "path", "") or getattr(call, "folder", "")
        _check_names(path)
        try:
            return cast(T, self._perform(call))
        except FileNotFoundError:
            raise AbsentError(f"{path} is not there") from None
        except OSError as error:
            if error.errno in _PASSING:
                raise StorageUnavailableError(f"{path}: {error.strerror}") from error
            raise StorageRefusedError(f"{path}: {error.strerror}") from error

    def _perform(self, call: Call[Any]) -> Any:
        match call:
            case Read():
                return self._read(call)
            case Load(path):
                data = self._whole(path)
                return data, content_version(data)
            case Size(path):
                entry = self._files.entry(path)
                return None if entry is None else entry.size
            case List(folder, after, limit):
                return self._list(folder, after, limit)
            case Folders(folder):
                return self._folders(folder)
            case Create(path, data):
                with self._only_one():
                    if self._files.entry(path) is not None:
                        raise AlreadyThereError(f"{path} is there")
                    return self._put(path, data)
            case Swap(path, data, version):
                with self._only_one():
                    if self._version(path) != version:
                        raise SwapLostError(f"{path} has another content")
                    return self._put(path, data)
            case WriteAt(path, position, data):
                return self._write(path, position, data)
            case Delete(path):
                with suppress(FileNotFoundError):
                    self._files.unlink(path)
                    self._files.sync_directory(parent(path))
                return None
        raise TypeError(f"no call: {call!r}")

    def _read(self, call: Read) -> bytes:
        with self._opened(call.path) as file:
            if call.start < 0 or call.start + call.length > file.size:
                raise ShortObjectError(
                    f"{call.path} has {file.size} bytes, fewer than {call.start + call.length}"
                )
            return file.read(call.start, call.length)

    def _whole(self, path: str) -> bytes:
        with self._opened(path) as file:
            return file.read(0, file.size)

    def _version(self, path: str) -> Version | None:
        try:
            return content_version(self._whole(path))
        except FileNotFoundError:
            return None

    def _put(self, path: str, data: bytes) -> Version:
        """Written beside, durable, renamed."""
        temporary = f"{OURS}/{base_name(path)}.new"
        with suppress(FileNotFoundError):
            self._files.unlink(temporary)
        self._files.create(temporary, len(data), sparse=True)
        with self._opened(temporary, writable=True) as file:
            file.write(0, data)
            file.flush()
        self._files.make_directory(parent(path))
        self._files.replace(temporary, path)
        self._files.sync_directory(parent(path))
        return content_version(data)

    def _write(self, path: str, position: int, data: bytes) -> None:
        if self._files.entry(path) is None:
            # Another thread, or a writer that this one replaces, may make it meanwhile.
            with suppress(FileExistsError):
                self._files.create(path, 0)
        with self._opened(path, writable=True) as file:
            if position > file.size:
                raise StorageRefusedError(f"{path} ends at {file.size}, before {position}")
            if position + len(data) > file.size:
                file.resize(position + len(data))
            file.write(position, data)
            file.flush()

    def _list(self, folder: str, after: str, limit: int) -> list[Listed]:
        found: list[Listed] = []
        for listed in self._walk(folder, after):
            found.append(listed)
            if len(found) == limit:
                break
        return found

    def _walk(self, folder: str, after: str) -> Iterator[Listed]:
        """By path: a folder sorts as its name with a `/`."""
        prefix = f"{folder}/" if folder else ""
        entries = [
            (prefix + entry.name + ("/" if entry.kind is Kind.DIRECTORY else ""), entry)
            for entry in self._files.list(folder)
            if prefix + entry.name != OURS
        ]
        for path, entry in sorted(entries, key=lambda one: one[0]):
            if entry.kind is Kind.DIRECTORY:
                if path > after or after.startswith(path):
                    yield from self._walk(path[:-1], after)
            elif entry.kind is Kind.FILE and path > after:
                yield Listed(path, entry.size, entry.mtime_ns // 1_000_000)

    def _folders(self, folder: str) -> list[str]:
        prefix = f"{folder}/" if folder else ""
        return [
            entry.name
            for entry in self._files.list(folder)
            if entry.kind is Kind.DIRECTORY
            and prefix + entry.name != OURS
            and self._list(prefix + entry.name, "", 1)
        ]

    @contextmanager
    def _opened(self, path: str, *, writable: bool = False) -> Iterator[File]:
        file = self._files.open(path, writable=writable)
        try:
            yield file
        finally:
            file.close()

    @contextmanager
    def _only_one(self) -> Iterator[None]:
        """Of all threads, and of all processes that use the directory."""
        with self._swapping:
            for _ in range(_LOCK_ATTEMPTS):
                try:
                    lock = self._files.lock(SWAP_LOCK, b"")
                    break
                except BlockingIOError:
                    self._pause(_LOCK_PAUSE_S)
            else:
                raise StorageUnavailableError(
                    f"another process has held {SWAP_LOCK} of the tier's directory for "
                    f"{_LOCK_ATTEMPTS * _LOCK_PAUSE_S:.0f} s"
                )
            try:
                yield
            finally:
                lock.close()


def _check_names(path: str) -> None:
    """StorageRefusedError for a path that would leave its folder, or that a file system refuses."""
    for name in path.split("/") if path else ():
        if name in ("", ".", "..") or "\0" in name or len(name.encode()) > _MAX_NAME_BYTES:
            raise StorageRefusedError(f"{path!r} is no path of an object: {name!r}")
