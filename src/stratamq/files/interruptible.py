"""A file port whose every call is a place where long work can be stopped.

    files = InterruptibleFiles(RealFiles(root), stopping.is_set)
    files.run(open_the_log)     # in a thread; raises UnavailableError soon after `stopping` is set

Only the thread inside `run` is stopped, and only before a call: what it has begun it finishes, so
that the disk is as after a kill between two calls.
"""

import threading
from collections.abc import Callable, Sequence

from stratamq.errors import UnavailableError
from stratamq.files.port import Entry, File, Files, Lock, Space, T

Check = Callable[[], None]


class InterruptibleFiles:
    """`Files` over another one; `interrupted` is asked before each call of the thread in `run`."""

    def __init__(self, files: Files, interrupted: Callable[[], bool]) -> None:
        self._files = files
        self._interrupted = interrupted
        self._thread = 0

    def run(self, task: Callable[[], T]) -> T:
        """`task`, in this thread. UnavailableError from the call at which it was interrupted."""
        self._thread = threading.get_ident()
        try:
            return task()
        finally:
            self._thread = 0

    def _check(self) -> None:
        if self._thread and self._thread == threading.get_ident() and self._interrupted():
            raise UnavailableError("interrupted: the service stops")

    def create(self, path: str, size: int, *, sparse: bool = False) -> None:
        self._check()
        self._files.create(path, size, sparse=sparse)

    def create_many(
        self, paths: Sequence[str], size: int, sync_all: Callable[[], None]
    ) -> Sequence[str]:
        self._check()
        return self._files.create_many(paths, size, sync_all)

    def rewrite(
        self, path: str, size: int, fill: Callable[[File], None], *, sparse: bool = False
    ) -> None:
        self._check()
        self._files.rewrite(
            path, size, lambda file: fill(_InterruptibleFile(file, self._check)), sparse=sparse
        )

    def open(self, path: str, *, writable: bool = False) -> File:
        self._check()
        return _InterruptibleFile(self._files.open(path, writable=writable), self._check)

    def entry(self, path: str) -> Entry | None:
        self._check()
        return self._files.entry(path)

    def list(self, directory: str) -> list[Entry]:
        self._check()
        return self._files.list(directory)

    def make_directory(self, path: str) -> None:
        self._check()
        self._files.make_directory(path)

    def replace(self, source: str, target: str) -> None:
        self._check()
        self._files.replace(source, target)

    def unlink(self, path: str) -> None:
        self._check()
        self._files.unlink(path)

    def remove_directory(self, path: str) -> None:
        self._check()
        self._files.remove_directory(path)

    def set_mtime(self, path: str, mtime_ns: int) -> None:
        self._check()
        self._files.set_mtime(path, mtime_ns)

    def sync_directory(self, path: str) -> None:
        self._check()
        self._files.sync_directory(path)

    def sync_all(self) -> None:
        self._check()
        self._files.sync_all()

    def space(self, path: str = "") -> Space:
        self._check()
        return self._files.space(path)

    def clean_temporary(self, spare: tuple[str, ...] = ()) -> Sequence[str]:
        self._check()
        return self._files.clean_temporary(spare)

    def lock(self, path: str, text: bytes) -> Lock:
        self._check()
        return self._files.lock(path, text)


class _InterruptibleFile:
    """`File`. Zeroing goes by pieces: without help of the file system it takes seconds."""

    def __init__(self, file: File, check: Check) -> None:
        self.path = file.path
        self._file = file
        self._check = check

    @property
    def size(self) -> int:
        return self._file.size

    def view(self) -> memoryview:
        self._check()
        return self._file.view()

    def read(self, position: int, length: int) -> bytes:
        self._check()
        return self._file.read(position, length)

    def read_cold(self, position: int, length: int) -> bytes:
        self._check()
        return self._file.read_cold(position, length)

    def data_end(self, position: int) -> int:
        self._check()
        return self._file.data_end(position)

    def write(self, position: int, data: bytes | bytearray | memoryview) -> None:
        self._check()
        self._file.write(position, data)

    def extend(self, position: int, data: bytes | bytearray | memoryview) -> None:
        self._check()
        self._file.extend(position, data)

    def zero(self, position: int, length: int) -> None:
        self._check()
        self._file.zero(position, length)

    def allocate(self) -> None:
        self._check()
        self._file.allocate()

    def resize(self, size: int) -> None:
        self._check()
        self._file.resize(size)

    def flush(self, position: int = 0, length: int | None = None) -> None:
        self._check()
        self._file.flush(position, length)

    def drop_cache(self, position: int, length: int) -> None:
        self._file.drop_cache(position, length)

    def send(self, socket: int, position: int, length: int) -> int:
        return self._file.send(socket, position, length)

    def close(self) -> None:
        self._file.close()
