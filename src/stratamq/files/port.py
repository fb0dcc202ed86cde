"""The file port: everything StrataMQ asks of a disk, a clock and a thread, as four protocols.

Engines take these as constructor parameters and touch the operating system through nothing else, so
that the same engine runs on a real directory (`files.real`) and on a simulated disk that loses what
was not synced (`files.simulated`). Paths are relative to the store's root, with `/`, never absolute
and never containing `..`.

What the port promises, and the simulator enforces:

* **Bytes** stored through `File.write()` are visible to every reader at once and durable only
  after `File.flush()` has returned. A crash in between keeps any subset of the pages.
* **A failed flush** (any `OSError`) leaves its pages *clean, readable and not durable*: a second
  flush that succeeds does not cover them. Only `File.write()` makes them dirty again, whatever
  the cache shows.
* **Directory entries** (create, replace, unlink) are visible at once and durable only after
  `Files.sync_directory()` of the directory that holds them.
* `Files.create()` is the exception: on return the whole file, its size and its entry are durable.

Errors are `OSError` with the errno of the system call, never wrapped here: whether ENOSPC is a
level and EIO the end of writing is the engine's decision.
"""

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from stratamq.formats.store_paths import LOST_AND_FOUND

T = TypeVar("T")
PAGE_BYTES = 4096
SECTOR_BYTES = 512

INDEX_TEMPORARY = "index-"
"""What files of the index service in the temporary directory begin with. It cleans them itself, and
may be making some while the log service starts."""


class Clock(Protocol):
    """Time as a parameter."""

    def wall_ms(self) -> int:
        """Milliseconds since the Unix epoch. May jump either way."""

    def monotonic_ns(self) -> int:
        """Nanoseconds since an arbitrary start. Never goes back."""


class Worker(Protocol):
    """One lane of work beside the engine: tasks run one at a time, in order."""

    def submit(
        self, task: Callable[[], T], on_done: Callable[[T | None, BaseException | None], None]
    ) -> None:
        """Run `task` elsewhere; later call `on_done(result, None)` or `on_done(None, error)`.

        `on_done` runs where the engine runs (the event loop, or the simulator's scheduler), never
        inside `submit`. `task` must not touch the engine's state.
        """


class EntryKind(enum.Enum):
    """What a directory entry is. A link is never followed."""

    FILE = "file"
    DIRECTORY = "directory"
    LINK = "link"
    OTHER = "special file"


@dataclass(frozen=True, slots=True)
class Entry:
    """One directory entry. `size` in bytes (0 unless a file), `mtime_ns` since the Unix epoch."""

    name: str
    kind: EntryKind
    size: int
    mtime_ns: int


@dataclass(frozen=True, slots=True)
class Space:
    """A volume, in bytes. `available` is what this process may still allocate."""

    total_bytes: int
    available_bytes: int
    volume_id: int = 0
    """The same for what lies on the same volume."""

    @property
    def used_ratio(self) -> float:
        """0.0 empty to 1.0 full, by RocketMQ's formula used / (used + usable)."""
        if not self.total_bytes:
            return 0.0
        return 1.0 - self.available_bytes / self.total_bytes


def is_of_file_system(entry: Entry) -> bool:
    """What stands at the root of a volume and is not of the store."""
    return entry.kind is EntryKind.DIRECTORY and entry.name == LOST_AND_FOUND


class File(Protocol):
    """One open file. Not thread-safe, except `flush` and `read` beside a writer."""

    path: str
    size: int

    def view(self) -> memoryview:
        """A shared read-only mapping of the whole file. Always the same object."""

    def read(self, position: int, length: int) -> bytes:
        """Exactly `length` bytes by `pread`, fewer only at the end of the file."""

    def read_cold(self, position: int, length: int) -> bytes:
        """`read`, after which the cache holds what it held before: for passes over old data."""

    def data_end(self, position: int) -> int:
        """From here on all reads as zeros, as the file system knows holes and blocks that were
        allocated and never written; at least `position`. The size where it knows nothing."""

    def write(self, position: int, data: bytes | bytearray | memoryview) -> None:
        """All of `data` by `pwrite`, inside the present size. Dirties its pages even if equal."""

    def extend(self, position: int, data: bytes | bytearray | memoryview) -> None:
        """`write` where the file grows to hold all of `data`; it never becomes shorter, whatever
        another process appends meanwhile. `position` is not beyond the end."""

    def zero(self, position: int, length: int) -> None:
        """Make a range read as zeros, allocated; durable after `flush` whatever was cached."""

    def allocate(self) -> None:
        """Allocate every block of the file without changing a byte (RocketMQ's may be sparse)."""

    def resize(self, size: int) -> None:
        """Set the size. Only for files that no other process maps; never for log segments."""

    def flush(self, position: int = 0, length: int | None = None) -> None:
        """Make a range durable (`fdatasync`: at least that range)."""

    def drop_cache(self, position: int, length: int) -> None:
        """Advise the kernel that a range will not be read again soon; never an error."""

    def send(self, socket: int, position: int, length: int) -> int:
        """`sendfile` to a socket's descriptor; the number of bytes that went, possibly fewer."""

    def close(self) -> None:
        """Release the descriptor. Mappings live on while someone refers to them."""


class Lock(Protocol):
    """An exclusive lock on byte 0 of a file, held until `close` or the end of the process."""

    previous_text: bytes
    """What the file held when the lock was taken."""

    def close(self) -> None: ...


class Files(Protocol):
    """One store directory."""

    def create(self, path: str, size: int, *, sparse: bool = False) -> None:
        """A new file of `size` zero bytes, durable on return, made where it has no name in its
        directory (`files.new_files`), on the volume of that directory.

        Blocks are allocated unless `sparse`. Parent directories are made and synced as needed.
        Raises FileExistsError; on any error nothing is left behind under `path`.
        """

    def create_many(
        self, paths: Sequence[str], size: int, sync_all: Callable[[], None]
    ) -> Sequence[str]:
        """New sparse files of `size` zero bytes, for the price of one sync: return those that were
        made. What exists is left alone.

        The files are whole before they have names, by `sync_all`, this object's or the caller's
        around it. Their names, and those of their directories, are durable after the next one. On
        an error each file is there, whole, or is not.
        """

    def rewrite(
        self, path: str, size: int, fill: Callable[[File], None], *, sparse: bool = False
    ) -> None:
        """Put a new file of `size` bytes in the place of the one at `path`; durable on return.

        `fill` writes it, flushed or not. A crash leaves the old file or the new one, whole.
        """

    def open(self, path: str, *, writable: bool = False) -> File:
        """Open an existing regular file; a link or a directory is an error (ELOOP, EISDIR)."""

    def entry(self, path: str) -> Entry | None:
        """The entry itself (a link is not followed), or None."""

    def list(self, directory: str) -> list[Entry]:
        """Entries sorted by name; empty when the directory does not exist. `lost+found`, which a
        file system makes at its root, is not among them."""

    def make_directory(self, path: str) -> None:
        """With its parents, synced. Existing is fine."""

    def replace(self, source: str, target: str) -> None:
        """Atomic rename. Durable after `sync_directory` of both parents.

        Between two mounts a copy: `target` is whole and durable before `source` goes, and the
        descriptors that are open stay with `source`.
        """

    def unlink(self, path: str) -> None: ...

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory."""

    def set_mtime(self, path: str, mtime_ns: int) -> None: ...

    def sync_directory(self, path: str) -> None: ...

    def sync_all(self) -> None:
        """Make everything of the store durable, in one call for each of its volumes (`syncfs`)."""

    def space(self, path: str = "") -> Space:
        """The volume of a directory; of the root where the directory does not exist."""

    def clean_temporary(self, spare: tuple[str, ...] = ()) -> Sequence[str]:
        """Remove what a crash left in `stratamq/tmp`, and return their names; what `create` is
        making stays, and files whose names begin with one of `spare`."""

    def lock(self, path: str, text: bytes) -> Lock:
        """Take the lock (`fcntl.lockf`, as RocketMQ's FileChannel.lock does) and write `text`.

        The descriptor stays open and the file is never opened again by this process: closing any
        other descriptor of it would drop the lock. Raises BlockingIOError when another holds it.
        With an empty `text` nothing is written and nothing synced.
        """


class Random(Protocol):
    """The part of `random.Random` that engines use."""

    def getrandbits(self, k: int) -> int: ...
