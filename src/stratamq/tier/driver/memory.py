"""A storage in memory: unbounded, with true sizes. What simulations and tests are built on."""

import hashlib
import threading
from collections.abc import Callable
from typing import Any, TypeVar, cast

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
    ShortObjectError,
    Size,
    StorageCall,
    StorageRefusedError,
    Swap,
    SwapLostError,
    Together,
    Unchanged,
    Version,
    WriteAt,
)
from stratamq.tier.driver.storage import one_by_one

T = TypeVar("T")


def content_version(data: bytes | memoryview) -> Version:
    """For storages that have no versions of their own: the content's SHA-256."""
    return Version(hashlib.sha256(data).hexdigest())


class MemoryStorage:
    """`objects`: content by path. `now_ms` gives the times of `List`."""

    def __init__(self, positions: bool = True, now_ms: Callable[[], int] = lambda: 0) -> None:
        self.positions = positions
        self.objects: dict[str, bytes] = {}
        self._modified: dict[str, int] = {}
        self._now_ms = now_ms
        self._lock = threading.Lock()

    def perform(self, call: StorageCall[T]) -> T:
        if isinstance(call, Together):
            return cast(T, one_by_one(self, call))
        with self._lock:
            return cast(T, self._perform(call))

    def close(self) -> None:
        """The content stays."""

    def _perform(self, call: StorageCall[Any]) -> Any:
        match call:
            case Read():
                return memoryview(read_exactly(self._content(call.path), call))
            case Load(path):
                data = self._content(path)
                return data, content_version(data)
            case Size(path):
                return len(self.objects[path]) if path in self.objects else None
            case List(folder, after, limit):
                return self._list(folder, after, limit)
            case Folders(folder):
                return self._folders(folder)
            case Create(path, data):
                if path in self.objects:
                    raise AlreadyThereError(f"{path} is there")
                return self._put(path, data)
            case Swap(path, data, version):
                self._require(Unchanged(path, version))
                return self._put(path, data)
            case WriteAt(path, position, data, only_if):
                self._require(only_if)
                self._write(path, position, data)
            case Delete(path, only_if):
                if self.positions:
                    self._require(only_if)
                self.objects.pop(path, None)
            case _:
                raise TypeError(f"no call: {call!r}")
        return None

    def _require(self, condition: Unchanged | None) -> None:
        if condition is None:
            return
        present = self.objects.get(condition.path)
        version = None if present is None else content_version(present)
        if version != condition.version:
            raise SwapLostError(f"{condition.path} has another content")

    def _content(self, path: str) -> bytes:
        try:
            return self.objects[path]
        except KeyError:
            raise AbsentError(f"{path} is not there") from None

    def _put(self, path: str, data: bytes | memoryview) -> Version:
        self.objects[path] = bytes(data)
        self._modified[path] = self._now_ms()
        return content_version(data)

    def _write(self, path: str, position: int, data: bytes | memoryview) -> None:
        if not self.positions:
            raise StorageRefusedError(f"{path}: this storage writes whole objects")
        present = self.objects.get(path, b"")
        if position > len(present):
            raise StorageRefusedError(f"{path} ends at {len(present)}, before {position}")
        self._put(path, present[:position] + data + present[position + len(data) :])

    def _list(self, folder: str, after: str, limit: int) -> list[Listed]:
        prefix = f"{folder}/" if folder else ""
        names = sorted(path for path in self.objects if path.startswith(prefix) and path > after)
        return [
            Listed(path, len(self.objects[path]), self._modified.get(path, 0))
            for path in names[:limit]
        ]

    def _folders(self, folder: str) -> list[str]:
        prefix = f"{folder}/" if folder else ""
        below = (path[len(prefix) :] for path in self.objects if path.startswith(prefix))
        return sorted({name for name, slash, _ in (path.partition("/") for path in below) if slash})


def read_exactly(data: bytes, call: Read) -> bytes:
    """The bytes that `call` asks for. ShortObjectError."""
    found = data[call.start : call.start + call.length]
    if call.start + call.length > len(data):
        raise short_object(call, len(data))
    return found


def short_object(call: Read, size: int) -> ShortObjectError:
    end = call.start + call.length
    return ShortObjectError(
        f"{call.path} has {size} bytes, and none at [{max(size, call.start)}, {end})"
    )
