"""What can be asked of a storage, as values, and the work that asks.

    Read, Load, Size, List, Folders    change nothing
    Create, Swap, Delete               whole objects
    WriteAt                            only where the storage has `positions`
    Together                           several calls that may be done at once

Work on a storage is a `Procedure`: a generator that yields calls and receives their results.

    content, version = yield from ask(Load(path))

It uses neither thread, clock nor loop: `storage.run` and `running.Runner` perform its calls.

A path is names joined by `/`. A name is any text of at most 255 bytes in UTF-8 but the empty one,
`.` and `..`, without `/` and control characters; a path has at most 1 024 bytes, the limit of S3,
and does not begin with the name `stratamq`, where a directory has locks and temporary files. Others
raise InvalidRequestError when the call is made, before any storage sees them.

Errors of every call: StorageUnavailableError, after which it is open whether the call was done or
will be; StorageRefusedError, which asking again does not mend; BusyError: not done, and the same
call may succeed later.
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from stratamq.errors import (
    CorruptionError,
    InvalidRequestError,
    NotFoundError,
    NotWritableError,
    UnavailableError,
)
from stratamq.formats.store_paths import OWN_DIRECTORY

NAME_BYTES = 255
PATH_BYTES = 1024

Block = bytes | memoryview
"""Not to be changed; a storage keeps its memory until the last view of it is gone."""

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class StorageCall(Generic[T_co]):
    """A request to a storage, whose result is a `T_co`."""

    __slots__ = ()


Procedure = Generator[StorageCall[Any], Any, T]


def ask(call: StorageCall[T]) -> Procedure[T]:
    """The result of one call."""
    result: T = yield call
    return result


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
class Read(StorageCall[Block]):
    """Exactly `length` bytes from `start` on. AbsentError; ShortObjectError when it ends before."""

    path: str
    start: int
    length: int

    def __post_init__(self) -> None:
        check_path(self.path)
        if self.start < 0 or self.length < 0:
            raise InvalidRequestError(f"not a range of {self.path}: [{self.start}, +{self.length})")


@dataclass(frozen=True, slots=True)
class Load(StorageCall[tuple[bytes, Version]]):
    """A small object, whole. AbsentError."""

    path: str

    def __post_init__(self) -> None:
        check_path(self.path)


@dataclass(frozen=True, slots=True)
class Size(StorageCall[int | None]):
    """In bytes; None: there is no such object."""

    path: str

    def __post_init__(self) -> None:
        check_path(self.path)


@dataclass(frozen=True, slots=True)
class List(StorageCall[list[Listed]]):
    """Up to `limit` objects below the folder `folder`, at any depth, by path, behind `after`."""

    folder: str
    after: str = ""
    limit: int = 1000

    def __post_init__(self) -> None:
        check_folder(self.folder)


@dataclass(frozen=True, slots=True)
class Folders(StorageCall[list[str]]):
    """The names of the folders directly in `folder` ("": the root) that objects are in, sorted."""

    folder: str

    def __post_init__(self) -> None:
        check_folder(self.folder)


@dataclass(frozen=True, slots=True)
class Create(StorageCall[Version]):
    """A new object, whole and durable or not at all. AlreadyThereError."""

    path: str
    data: bytes | memoryview

    def __post_init__(self) -> None:
        check_path(self.path)


@dataclass(frozen=True, slots=True)
class Swap(StorageCall[Version]):
    """Replace the content `version` (None: there is no object), durably. SwapLostError."""

    path: str
    data: bytes
    version: Version | None

    def __post_init__(self) -> None:
        check_path(self.path)


@dataclass(frozen=True, slots=True)
class Unchanged:
    """That the object `path` has this version (None: there is no object)."""

    path: str
    version: Version | None


@dataclass(frozen=True, slots=True)
class WriteAt(StorageCall[None]):
    """Write at `position`, durable. The file is made when absent, and never becomes shorter.

    `position` is not behind the file's end: there are no holes. StorageRefusedError. Nothing is
    written unless `only_if` holds, and it holds until all is written: SwapLostError.
    """

    path: str
    position: int
    data: bytes | memoryview
    only_if: Unchanged | None = None

    def __post_init__(self) -> None:
        check_path(self.path)
        if self.position < 0:
            raise InvalidRequestError(f"not a position in {self.path}: {self.position}")


@dataclass(frozen=True, slots=True)
class Delete(StorageCall[None]):
    """Also of what is absent. Where the storage has positions, whose names are used again, nothing
    is deleted unless `only_if` holds: SwapLostError."""

    path: str
    only_if: Unchanged | None = None

    def __post_init__(self) -> None:
        check_path(self.path)


@dataclass(frozen=True, slots=True)
class Together(StorageCall[list[T]]):
    """Calls that do not depend on each other; their results in the same order.

    The first error in that order is raised when all of them have ended.
    """

    calls: Sequence[StorageCall[T]]


class AbsentError(NotFoundError):
    """There is no such object."""


class ShortObjectError(CorruptionError):
    """An object ends before bytes that it is recorded to have."""


class AlreadyThereError(NotWritableError):
    """`Create`: there is an object of that path."""


class SwapLostError(NotWritableError):
    """`Swap`, `only_if`: the content is another one."""


class StorageUnavailableError(UnavailableError):
    """No usable answer came: the call was done, was not done, or will be done later."""


class StorageRefusedError(NotWritableError):
    """The storage will not do it: permission, a full volume, a missing bucket. An operator acts."""


def check_path(path: str) -> str:
    """`path` itself; InvalidRequestError unless it is one of an object."""
    names = path.split("/")
    for name in names:
        if not is_name(name):
            raise InvalidRequestError(f"{path!r} is no path of an object: {name!r}")
    if len(path.encode()) > PATH_BYTES:
        raise InvalidRequestError(f"a path of more than {PATH_BYTES} bytes: {path!r}")
    if names[0] == OWN_DIRECTORY:
        raise InvalidRequestError(f"{OWN_DIRECTORY}/ of a storage has no objects: {path!r}")
    return path


def check_folder(folder: str) -> str:
    """`folder` itself; "" is the root. InvalidRequestError."""
    return check_path(folder) if folder else folder


def is_name(name: str) -> bool:
    """Whether a path may have this name."""
    if name in ("", ".", "..") or any(one < " " or one in "/\x7f" for one in name):
        return False
    try:
        return len(name.encode()) <= NAME_BYTES
    except UnicodeEncodeError:  # half of a surrogate pair
        return False
