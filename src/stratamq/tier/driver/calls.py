"""What can be asked of a storage, as values, and the work that asks.

    Read, Load, Size, List, Folders    change nothing
    Create, Swap, Delete               whole objects
    WriteAt                            only where the storage has `positions`
    Together                           several calls that may be done at once

Work on a storage is a `Procedure`: a generator that yields calls and receives their results.

    content, version = yield from ask(Load(path))

It uses neither thread, clock nor loop. A path is names joined by `/`, none of them empty, `.` or
`..`. Errors of every call: StorageUnavailableError, after which it is open whether the call was
done; StorageRefusedError, which asking again does not mend.
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from stratamq.errors import CorruptionError, NotFoundError, StrataError, UnavailableError

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Call(Generic[T_co]):
    """A request to a storage, whose result is a `T_co`."""

    __slots__ = ()


Procedure = Generator[Call[Any], Any, T]


def ask(call: Call[T]) -> Procedure[T]:
    """The result of one call."""
    return (yield call)


@dataclass(frozen=True, slots=True)
class Version:
    """Names a content of an object. Equal versions of one path are one content."""

    tag: str


@dataclass(frozen=True, slots=True)
class Listed:
    """An object found by `List`: `size` in bytes, `modified_ms` by the storage's clock."""

    path: str
    size: int
    modified_ms: int


@dataclass(frozen=True, slots=True)
class Read(Call[bytes]):
    """Exactly `length` bytes from `start` on. AbsentError; ShortObjectError when it ends before."""

    path: str
    start: int
    length: int


@dataclass(frozen=True, slots=True)
class Load(Call[tuple[bytes, Version]]):
    """A small object, whole. AbsentError."""

    path: str


@dataclass(frozen=True, slots=True)
class Size(Call[int | None]):
    """In bytes; None: there is no such object."""

    path: str


@dataclass(frozen=True, slots=True)
class List(Call[list[Listed]]):
    """Up to `limit` objects below the folder `folder`, at any depth, by path, behind `after`."""

    folder: str
    after: str = ""
    limit: int = 1000


@dataclass(frozen=True, slots=True)
class Folders(Call[list[str]]):
    """The names of the folders directly in `folder` ("": the root) that objects are in, sorted."""

    folder: str


@dataclass(frozen=True, slots=True)
class Create(Call[Version]):
    """A new object, whole and durable or not at all. AlreadyThereError."""

    path: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Swap(Call[Version]):
    """Replace the content `version` (None: there is no object), durably. SwapLostError."""

    path: str
    data: bytes
    version: Version | None


@dataclass(frozen=True, slots=True)
class WriteAt(Call[None]):
    """Write at `position`, durable. The file is made when absent, and never becomes shorter.

    `position` is not behind the file's end: there are no holes. StorageRefusedError.
    """

    path: str
    position: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Delete(Call[None]):
    """Also of what is absent."""

    path: str


@dataclass(frozen=True, slots=True)
class Together(Call[list[T]]):
    """Calls that do not depend on each other; their results in the same order.

    The first error in that order is raised when all of them have ended.
    """

    calls: Sequence[Call[T]]


class AbsentError(NotFoundError):
    """There is no such object."""


class ShortObjectError(CorruptionError):
    """An object ends before bytes that it is recorded to have."""


class AlreadyThereError(StrataError):
    """`Create`: there is an object of that path."""


class SwapLostError(StrataError):
    """`Swap`: the content is another one."""


class StorageUnavailableError(UnavailableError):
    """The storage did not answer: whether the call was done is open."""


class StorageRefusedError(StrataError):
    """The storage will not do it: permission, a full volume, a missing bucket. An operator acts."""
