"""A directory as the storage: RocketMQ's POSIX layout, over the file port.

    {path of an object}            its bytes; folders are directories, empty ones are not listed
    stratamq/locks/{00..ff}        empty; Create and Swap hold the one of their path
    stratamq/new/{00..ff}          what the holder of that lock is writing, before it is renamed
    stratamq/writers/{digest}      held by the writer of a folder; its text names it and the process

Create and Swap compare and rename under a lock, so that of all threads and processes one at a time
does for a path; what is done only if an object is unchanged is done under that object's lock. A
version is the content's SHA-256: what is swapped has to differ from all that it ever replaced (a
manifest counts its revisions). Readers take no lock. A write at a position grows the file and never
shortens it, even with concurrent writers; a crash leaves any part of its bytes.
"""

import errno
import hashlib
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar, cast

from stratamq.errors import BusyError, NotWritableError
from stratamq.files.paths import parent
from stratamq.files.port import Entry, EntryKind, File, Files, Lock
from stratamq.formats.store_paths import OWN_DIRECTORY
from stratamq.tier.driver.calls import (
    AbsentError,
    AlreadyThereError,
    Create,
    Delete,
    Folders,
    List,
    Listed,
    Load,
    Read,
    Size,
    StorageCall,
    StorageRefusedError,
    StorageUnavailableError,
    Swap,
    SwapLostError,
    Together,
    Unchanged,
    Version,
    WriteAt,
    check_path,
    is_name,
)
from stratamq.tier.driver.memory import content_version, short_object
from stratamq.tier.driver.storage import one_by_one

T = TypeVar("T")

_LOCKS = f"{OWN_DIRECTORY}/locks"
_NEW = f"{OWN_DIRECTORY}/new"
_WRITERS = f"{OWN_DIRECTORY}/writers"
_LOCK_COUNT = 256
_LOCK_ATTEMPTS = 200
_LOCK_PAUSE_S = 0.01
_PASSING = frozenset(
    (errno.EIO, errno.EINTR, errno.EAGAIN, errno.ETIMEDOUT, errno.ESTALE, errno.ENFILE,
     errno.EMFILE, errno.ENOMEM)
)  # fmt: skip


class PosixStorage:
    """`files`: the directory. `pause` waits that many seconds for another process's lock."""

    positions = True

    def __init__(self, files: Files, pause: Callable[[float], None]) -> None:
        self._files = files
        self._pause = pause
        self._turns = [threading.Lock() for _ in range(_LOCK_COUNT)]
        self._writers: list[Lock] = []

    def perform(self, call: StorageCall[T]) -> T:
        if isinstance(call, Together):
            return cast(T, one_by_one(self, call))
        try:
            return cast(T, self._perform(call))
        except OSError as error:
            where: str = getattr(call, "path", "") or getattr(call, "folder", "")
            if error.errno in _PASSING:
                raise StorageUnavailableError(f"{where}: {error.strerror}") from error
            raise StorageRefusedError(f"{where}: {error.strerror}", "storage refused") from error

    def hold_writer(self, folder: str) -> None:
        """Keep every other process from holding `folder`, until `close`. NotWritableError.

        The lock is this machine's: who writes from another one is fenced by the manifests.
        """
        path = f"{_WRITERS}/{hashlib.sha256(check_path(folder).encode()).hexdigest()[:32]}"
        try:
            self._writers.append(self._files.lock(path, f"{folder}\n{os.getpid()}\n".encode()))
        except BlockingIOError:
            raise NotWritableError(
                f"another process writes the tier {folder!r} and holds {path} of its directory: "
                "stop it first",
                "another writer",
            ) from None

    def close(self) -> None:
        writers, self._writers = self._writers, []
        for lock in writers:
            lock.close()

    def _perform(self, call: StorageCall[Any]) -> Any:
        match call:
            case Read():
                return self._read(call)
            case Load(path):
                data = self._whole(path)
                return data, content_version(data)
            case Size(path):
                entry = self._entry(path)
                return None if entry is None else entry.size
            case List(folder, after, limit):
                return self._list(folder, after, limit)
            case Folders(folder):
                return self._folders(folder)
            case Create(path, data):
                with self._only_one(path) as temporary:
                    if self._files.entry(path) is not None:
                        raise AlreadyThereError(f"{path} is there")
                    return self._put(path, data, temporary)
            case Swap(path, data, version):
                with self._only_one(path) as temporary:
                    if self._version(path) != version:
                        raise SwapLostError(f"{path} has another content")
                    return self._put(path, data, temporary)
            case WriteAt(path, position, data, only_if):
                self._make(path, position)
                with self._while(only_if):
                    return self._write(path, position, data)
            case Delete(path, only_if):
                with self._while(only_if):
                    return self._delete(path)
        raise TypeError(f"no call: {call!r}")

    # --- reading ---

    def _read(self, call: Read) -> bytes:
        with self._existing(call.path) as file:
            if call.start + call.length > file.size:
                raise short_object(call, file.size)
            data = file.read(call.start, call.length)
            if len(data) != call.length:
                raise short_object(call, call.start + len(data))
            return data

    def _whole(self, path: str) -> bytes:
        with self._existing(path) as file:
            return file.read(0, file.size)

    def _version(self, path: str) -> Version | None:
        try:
            return content_version(self._whole(path))
        except AbsentError:
            return None

    def _entry(self, path: str) -> Entry | None:
        entry = self._files.entry(path)
        return entry if entry is not None and entry.kind is EntryKind.FILE else None

    def _list(self, folder: str, after: str, limit: int) -> list[Listed]:
        found: list[Listed] = []
        for listed in self._walk(folder, after):
            found.append(listed)
            if len(found) == limit:
                break
        return found

    def _walk(self, folder: str, after: str) -> Iterator[Listed]:
        """By path: a folder sorts as its name with a `/`. One directory a level is in memory."""
        for path, entry in self._sorted(folder):
            if entry.kind is EntryKind.DIRECTORY:
                if path > after or after.startswith(path):
                    yield from self._walk(path[:-1], after)
            elif entry.kind is EntryKind.FILE and path > after:
                yield Listed(path, entry.size, entry.mtime_ns // 1_000_000)

    def _folders(self, folder: str) -> list[str]:
        below = [entry for _, entry in self._sorted(folder) if entry.kind is EntryKind.DIRECTORY]
        prefix = f"{folder}/" if folder else ""
        return sorted(entry.name for entry in below if self._list(prefix + entry.name, "", 1))

    def _sorted(self, folder: str) -> list[tuple[str, Entry]]:
        prefix = f"{folder}/" if folder else ""
        try:
            entries = self._files.list(folder)
        except NotADirectoryError:
            return []
        return sorted(
            (
                (prefix + entry.name + ("/" if entry.kind is EntryKind.DIRECTORY else ""), entry)
                for entry in entries
                if prefix + entry.name != OWN_DIRECTORY and is_name(entry.name)
            ),
            key=lambda one: one[0],
        )

    # --- writing ---

    def _put(self, path: str, data: bytes | memoryview, temporary: str) -> Version:
        """Written beside, durable, renamed. The caller holds the path's lock."""
        with suppress(FileNotFoundError):
            self._files.unlink(temporary)
        self._files.create(temporary, 0)
        with self._opened(temporary) as file:
            file.extend(0, data)
            file.flush()
        self._files.make_directory(parent(path))
        self._files.replace(temporary, path)
        self._files.sync_directory(parent(path))
        return content_version(data)

    def _make(self, path: str, position: int) -> None:
        """The file, if it is absent; a write at its beginning follows."""
        if self._files.entry(path) is None:
            if position:
                raise _hole(path, 0, position)
            # Another thread, or a writer that this one replaces, may make it meanwhile; a Create of
            # the path must not replace it.
            with self._only_one(path), suppress(FileExistsError):
                self._files.create(path, 0)

    def _write(self, path: str, position: int, data: bytes | memoryview) -> None:
        with self._opened(path) as file:
            if position > file.size:
                raise _hole(path, file.size, position)
            file.extend(position, data)
            file.flush()

    def _delete(self, path: str) -> None:
        """Synced also when it is gone: the attempt that unlinked it may have ended before."""
        if self._entry(path) is not None:
            with suppress(FileNotFoundError):
                self._files.unlink(path)
        with suppress(FileNotFoundError, NotADirectoryError):
            self._files.sync_directory(parent(path))

    @contextmanager
    def _existing(self, path: str) -> Iterator[File]:
        try:
            file = self._files.open(path)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            raise AbsentError(f"{path} is not there") from None
        try:
            yield file
        finally:
            file.close()

    @contextmanager
    def _opened(self, path: str) -> Iterator[File]:
        file = self._files.open(path, writable=True)
        try:
            yield file
        finally:
            file.close()

    @contextmanager
    def _only_one(self, path: str) -> Iterator[str]:
        """Exclude all other threads and processes that use the directory from this path; yield the
        name of its temporary file. BusyError: nothing was done."""
        number = hashlib.sha256(path.encode()).digest()[0]
        with self._turns[number]:
            lock = self._lock(f"{_LOCKS}/{number:02x}")
            try:
                yield f"{_NEW}/{number:02x}"
            finally:
                lock.close()

    @contextmanager
    def _while(self, condition: Unchanged | None) -> Iterator[None]:
        """Prevent changes of the object meanwhile. SwapLostError, BusyError: nothing was done."""
        if condition is None:
            yield
            return
        with self._only_one(condition.path):
            if self._version(condition.path) != condition.version:
                raise SwapLostError(f"{condition.path} has another content")
            yield

    def _lock(self, path: str) -> Lock:
        for _ in range(_LOCK_ATTEMPTS):
            try:
                return self._files.lock(path, b"")
            except BlockingIOError:
                self._pause(_LOCK_PAUSE_S)
        waited_ms = round(_LOCK_ATTEMPTS * _LOCK_PAUSE_S * 1000)
        raise BusyError(
            f"another process has held {path} of the tier's directory for {waited_ms} ms", waited_ms
        )


def _hole(path: str, size: int, position: int) -> StorageRefusedError:
    return StorageRefusedError(f"{path} ends at {size}, before {position}", "a hole")
