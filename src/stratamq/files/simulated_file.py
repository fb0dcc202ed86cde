"""An open file and a held lock of the simulated disk, and what they need of process and disk."""

import errno
import os
from random import Random
from typing import Protocol

from stratamq.files.port import PAGE_BYTES
from stratamq.files.simulated_faults import Failure
from stratamq.files.simulated_inode import Inode


class Disk(Protocol):
    """What an open file needs of the disk."""

    random: Random

    def now_ns(self) -> int: ...


class Process(Protocol):
    """What an open file needs of the process that has it open."""

    dead: bool

    @property
    def disk(self) -> Disk: ...

    def at(self, path: str) -> str: ...

    def count(self, operation: str, path: str) -> Failure | None: ...

    def need_blocks(self, inode: Inode, position: int, length: int) -> None: ...

    def closed(self, file: "SimulatedFile") -> None: ...


class SimulatedFile:
    """`File` on a simulated disk. Dead once its process is."""

    def __init__(self, process: "Process", path: str, inode: Inode, writable: bool) -> None:
        self.path = path
        self.size = inode.size
        self.inode = inode
        self._process = process
        self._writable = writable
        self._closed = False
        self._view: memoryview | None = None

    def view(self) -> memoryview:
        if self._view is None:
            self._call("map")
            self._view = memoryview(self.inode.cache).toreadonly()
        return self._view

    def read(self, position: int, length: int) -> bytes:
        self._call("read")
        return bytes(memoryview(self.inode.cache)[position : position + length])

    def read_cold(self, position: int, length: int) -> bytes:
        return self.read(position, length)

    def data_end(self, position: int) -> int:
        return self.size

    def write(self, position: int, data: bytes | bytearray | memoryview) -> None:
        plain = memoryview(data).cast("B")
        self._check_range(position, len(plain))
        self._call("write")
        self._process.need_blocks(self.inode, position, len(plain))
        self.inode.write(position, plain)
        self.inode.mtime_ns = self._process.disk.now_ns()

    def extend(self, position: int, data: bytes | bytearray | memoryview) -> None:
        plain = memoryview(data).cast("B")
        self._check_range(position, 0)
        self._call("extend")
        self.inode.set_size(max(self.inode.size, position + len(plain)), sparse=True)
        self._process.need_blocks(self.inode, position, len(plain))
        self.inode.write(position, plain)
        self.inode.mtime_ns = self._process.disk.now_ns()
        self.size = self.inode.size

    def zero(self, position: int, length: int) -> None:
        self._check_range(position, length)
        self._call("zero")
        self._process.need_blocks(self.inode, position, length)
        self.inode.write(position, bytes(length))

    def allocate(self) -> None:
        self._call("allocate")
        self._process.need_blocks(self.inode, 0, self.size)
        self.inode.holes.clear()

    def resize(self, size: int) -> None:
        self._check_writable()
        self._call("resize")
        try:
            self.inode.set_size(size, sparse=True)
        except BufferError:
            raise ValueError(
                f"{self.path} is mapped: a reader beyond its new end would die"
            ) from None
        self.size = size

    def flush(self, position: int = 0, length: int | None = None) -> None:
        failure = self._count("flush")
        inode, disk = self.inode, self._process.disk
        pages = inode.dirty_in(position, self.size - position if length is None else length)
        if failure is not None:
            lost = [page for page in pages if not failure.partial or disk.random.random() < 0.5]
            if len(lost) < len(pages):
                inode.flush(set(pages).difference(lost))
            inode.fail_pages(lost)
            raise failure.error
        inode.flush(pages)
        if inode.pending_error:
            number, inode.pending_error = inode.pending_error, 0
            raise OSError(number, os.strerror(number), self.path)

    def drop_cache(self, position: int, length: int) -> None:
        self._count("drop_cache")
        first, last = position // PAGE_BYTES, (position + length - 1) // PAGE_BYTES
        self.inode.evict(lambda page: first <= page <= last)

    def send(self, socket: int, position: int, length: int) -> int:
        self._call("send")
        return os.write(socket, bytes(memoryview(self.inode.cache)[position : position + length]))

    def close(self) -> None:
        self._closed = True
        self._process.closed(self)

    def _count(self, operation: str) -> Failure | None:
        if self._closed and not self._process.dead:
            raise ValueError(f"{self.path} is closed")
        return self._process.count(operation, self._process.at(self.path))

    def _call(self, operation: str) -> None:
        failure = self._count(operation)
        if failure is not None:
            raise failure.error

    def _check_writable(self) -> None:
        if not self._writable:
            raise PermissionError(errno.EACCES, "opened for reading", self.path)

    def _check_range(self, position: int, length: int) -> None:
        self._check_writable()
        if position < 0 or position + length > self.size:
            raise ValueError(f"{self.path}: [{position}, +{length}) leaves its {self.size} bytes")


class SimulatedLock:
    """`Lock` that ends with its process."""

    def __init__(self, inode: Inode, previous_text: bytes) -> None:
        self.previous_text = previous_text
        self._inode = inode
        self._owner = inode.lock_owner

    def close(self) -> None:
        if self._owner is not None and self._inode.lock_owner is self._owner:
            self._inode.lock_owner = None
        self._owner = None
