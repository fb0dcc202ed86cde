"""How a new file comes to its name in a real directory: whole and synced, or not at all.

It is made in `stratamq/tmp` and renamed. A part of the store (`commitlog/`, `consumequeue/`,
`index/`) may be a mount of its own: no rename leads there, not even from the same file system, and
RocketMQ refuses a part with a stray file. There a file has no name (`O_TMPFILE`) until it is whole;
a crash before that leaves nothing.
"""

import contextlib
import errno
import fcntl
import os
import stat
from collections.abc import Callable, Iterator, Sequence

from stratamq.files import system_calls
from stratamq.formats.store_paths import TEMPORARY_DIRECTORY

_COPY_BYTES = 4 << 20
_NO_UNNAMED_FILES = (errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL)
_NEW_NAME = ".new"
"""Behind the name of a file that is replaced in a mount, between two system calls. Recovery moves
one that a crash leaves aside, like any other stray."""


class NewFiles:
    """Makes files below one root. All paths are absolute; entries are synced by the caller."""

    def __init__(self, root: str) -> None:
        self._temporary = f"{root}/{TEMPORARY_DIRECTORY}"
        self._serial = 0

    def make(self, target: str, fill: Callable[[int], None], *, replacing: bool = False) -> None:
        """A file at `target` that has what `fill` writes to its descriptor, synced.

        FileExistsError where `target` exists, unless `replacing`. On any error nothing is left.
        """
        directory = os.path.dirname(target)
        if system_calls.mount_of(directory) == system_calls.mount_of(self._temporary):
            self._make_and_rename(target, fill, replacing)
        else:
            _make_and_link(target, fill, replacing)

    def make_many(
        self, targets: Sequence[str], fill: Callable[[int], None], sync_all: Callable[[], None]
    ) -> None:
        """Files at `targets`, which `sync_all` has synced before they get their names."""
        with contextlib.ExitStack() as begun:
            names = [begun.enter_context(self._begun(target, fill)) for target in targets]
            sync_all()
            for name in names:
                name()

    @contextlib.contextmanager
    def _begun(self, target: str, fill: Callable[[int], None]) -> Iterator[Callable[[], None]]:
        """A new file, and what gives it its name. Without that nothing is left at the end."""
        directory = os.path.dirname(target)
        if system_calls.mount_of(directory) != system_calls.mount_of(self._temporary):
            descriptor = _open_unnamed(directory)
            with _closing(descriptor):
                fill(descriptor)
                yield lambda: system_calls.name_unnamed(descriptor, target)
            return
        descriptor, temporary = self._open_temporary(os.path.basename(target))
        try:
            with _closing(descriptor):
                fill(descriptor)
                yield lambda: system_calls.rename_without_replacing(temporary, target)
        finally:
            with contextlib.suppress(FileNotFoundError):  # it has its name
                os.unlink(temporary)

    def move(self, source: str, target: str) -> None:
        """What a rename does, between mounts: the copy is durable before `source` goes.

        A crash in between leaves both, of a directory some of its files in each.
        """
        mode = os.lstat(source).st_mode
        if stat.S_ISDIR(mode):
            os.mkdir(target)
            for name in sorted(os.listdir(source)):
                self.move(f"{source}/{name}", f"{target}/{name}")
        elif stat.S_ISLNK(mode):
            os.symlink(os.readlink(source), target)
        elif stat.S_ISREG(mode):
            with open(source, "rb", buffering=0) as file:
                original = file.fileno()
                copy = os.path.lexists(target)
                self.make(target, lambda made: _copy(original, made), replacing=copy)
        else:
            raise OSError(errno.EXDEV, "a special file cannot be moved between mounts", source)
        system_calls.sync_directory(os.path.dirname(target))
        (os.rmdir if stat.S_ISDIR(mode) else os.unlink)(source)

    def remove_abandoned(self, name: str) -> bool:
        """Remove a temporary file that no process is making; True if it was there and is gone."""
        temporary = f"{self._temporary}/{name}"
        try:
            descriptor = os.open(temporary, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            if not _hold(descriptor, temporary):
                return False
            os.unlink(temporary)
            return True
        finally:
            os.close(descriptor)

    def _make_and_rename(self, target: str, fill: Callable[[int], None], replacing: bool) -> None:
        descriptor, temporary = self._open_temporary(os.path.basename(target))
        try:
            fill(descriptor)
            os.fsync(descriptor)
            if replacing:
                os.replace(temporary, target)
            else:
                system_calls.rename_without_replacing(temporary, target)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
        finally:
            os.close(descriptor)

    def _open_temporary(self, base: str) -> tuple[int, str]:
        """A new file under the temporary directory, held by a `flock` so that no one cleans it."""
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        while True:
            self._serial += 1
            temporary = f"{self._temporary}/{base}.{os.getpid()}.{self._serial}"
            try:
                descriptor = os.open(temporary, flags, 0o644)
            except FileExistsError:
                continue
            if _hold(descriptor, temporary):
                return descriptor, temporary
            os.close(descriptor)


@contextlib.contextmanager
def _closing(descriptor: int) -> Iterator[None]:
    try:
        yield
    finally:
        os.close(descriptor)


def _open_unnamed(directory: str) -> int:
    try:
        return os.open(directory, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o644)
    except OSError as error:
        if error.errno not in _NO_UNNAMED_FILES:
            raise
        raise OSError(
            errno.EXDEV,
            "is a mount whose file system has no unnamed files (O_TMPFILE): mount one that has, "
            "such as ext4, xfs or tmpfs, or keep the directory on the volume of the store",
            directory,
        ) from error


def _make_and_link(target: str, fill: Callable[[int], None], replacing: bool) -> None:
    descriptor = _open_unnamed(os.path.dirname(target))
    with _closing(descriptor):
        fill(descriptor)
        os.fsync(descriptor)
        if not replacing:
            system_calls.name_unnamed(descriptor, target)
            return
        beside = target + _NEW_NAME
        with contextlib.suppress(FileNotFoundError):
            os.unlink(beside)
        system_calls.name_unnamed(descriptor, beside)
        os.replace(beside, target)


def _copy(source: int, target: int) -> None:
    """The whole file, holes as holes."""
    size = os.fstat(source).st_size
    os.ftruncate(target, size)
    position = 0
    while position < size:
        try:
            position = os.lseek(source, position, os.SEEK_DATA)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            return
        end = os.lseek(source, position, os.SEEK_HOLE)
        while position < end:
            data = os.pread(source, min(_COPY_BYTES, end - position), position)
            position += os.pwrite(target, data, position)


def _hold(descriptor: int, path: str) -> bool:
    """True if this process now holds the file, and `path` still is that file."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.fstat(descriptor).st_ino == os.lstat(path).st_ino
    except (BlockingIOError, FileNotFoundError):
        return False
