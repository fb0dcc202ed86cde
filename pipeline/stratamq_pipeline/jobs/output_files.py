"""A job's output directory through the file system that Spark writes it with, and the test that all
see the same one.

Of `file:` that is `LocalFiles`, which syncs what it writes; of any other `HadoopFiles`, through
Hadoop's FileSystem in the driver's JVM. Paths are relative to the directory, with slashes.
"""

import fcntl
import os
import shutil
import socket
import uuid
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Protocol

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from stratamq.errors import BusyError, InvalidRequestError

_LOCAL = "file"


@dataclass(frozen=True, slots=True)
class OutputEntry:
    name: str
    is_directory: bool


class OutputFiles(Protocol):
    """The directory need not be there; what is written makes it. Where a file system refuses:
    OSError, or Py4J's error, which a job's session translates."""

    @property
    def shown(self) -> str:
        """The directory as people write it."""

    @property
    def name(self) -> str:
        """The last part of it."""

    def above(self) -> "OutputFiles":
        """The directory that it is in."""

    def spark_path(self, path: str = "") -> str:
        """The same with its file system, for Spark."""

    def entries(self, path: str = "") -> list[OutputEntry]:
        """Sorted by name; none where there is no directory."""

    def exists(self, path: str = "") -> bool: ...

    def files_below(self, path: str) -> set[str]:
        """Relative to `path`."""

    def read(self, path: str) -> str: ...

    def write(self, path: str, text: str) -> None:
        """Replace a small file as a whole. With the directories above it durable on return, as far
        as the file system promises."""

    def make(self, path: str) -> None:
        """A directory, and those above it."""

    def rename(self, source: str, target: str) -> None:
        """A file or a directory, to a name that is not there; directories above it are made."""

    def remove(self, path: str) -> None:
        """A file, or a directory with all that is in it; nothing when it is not there."""

    def sync(self, paths: Iterable[str]) -> None:
        """Make the names in these directories durable."""

    def sync_tree(self, path: str) -> None:
        """Make everything below durable."""

    @contextmanager
    def locked(self, path: str) -> Iterator[None]:
        """Hold the lock file `path`. BusyError when another job holds it."""


def open_output(spark: SparkSession, out: str) -> OutputFiles:
    """`out` as Spark's own writers take it: a path without a scheme is in the default file system.

    InvalidRequestError when nothing serves its scheme.
    """
    try:
        java = spark._jvm
        path = java.org.apache.hadoop.fs.Path(out)
        system = path.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())
        if system.getUri().getScheme() == _LOCAL:
            return LocalFiles(Path(path.toUri().getPath()).absolute())
        whole = path.makeQualified(system.getUri(), system.getWorkingDirectory())
        return HadoopFiles(java, system, whole)
    except Py4JError as error:
        raise InvalidRequestError(
            f"{out} is in no file system that Spark has: {_cause(error)}"
        ) from error


def local_output(out: str) -> "LocalFiles":
    """For jobs whose workers write with plain system calls. InvalidRequestError for another
    scheme than `file:`."""
    if not out:
        raise InvalidRequestError("the output directory's path is empty")
    scheme, separator, rest = out.partition(":/")
    if separator and scheme == _LOCAL:
        return LocalFiles(Path("/" + rest.lstrip("/")))
    if separator and scheme.isalnum():
        raise InvalidRequestError(
            f"{out}: this job writes through a mounted file system: name a directory that the "
            "driver and all workers see under one path"
        )
    return LocalFiles(Path(out).absolute())


def check_shared(spark: SparkSession, files: OutputFiles, place: str) -> None:
    """Have the workers write at `place`, and look for it from the driver.

    Every executor that is there gets a task. InvalidRequestError when the driver misses a line:
    nothing has been read or written then, but what workers left on their own disks at `place`.
    """
    context = spark.sparkContext
    known = context._jsc.sc().getExecutorMemoryStatus().size()
    tasks = 2 * max(context.defaultParallelism, known)
    token = uuid.uuid4().hex
    lines = spark.range(0, tasks, 1, tasks).selectExpr(f"concat('{token} ', id) AS value")
    missing = set(range(tasks))
    reason = ""
    try:
        lines.write.mode("overwrite").text(files.spark_path(place))
        for name in files.files_below(place):
            if not PurePosixPath(name).name.startswith(("_", ".")):
                for line in files.read(f"{place}/{name}").splitlines():
                    found, _, number = line.partition(" ")
                    missing -= {int(number)} if found == token else set()
    except (Py4JError, PySparkException) as error:
        reason = _cause(error)
    finally:
        files.remove(place)
    if missing:
        raise not_shared(files, reason or f"of {tasks} test files it misses {len(missing)}")


def _cause(error: Exception) -> str:
    """The first line of Java's, or Spark's, message."""
    java = getattr(error, "java_exception", None)
    text = str(java.toString()) if java is not None else str(error)
    return text.strip().splitlines()[0] if text.strip() else type(error).__name__


def not_shared(files: OutputFiles, reason: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"{files.shown} is not one directory to the driver and all workers ({reason}). Nothing was "
        "published. Name a directory that is mounted everywhere, or one with its file system, as "
        "in hdfs://HOST/PATH"
    )


class LocalFiles:
    """Below a directory of this machine, or of one that it has mounted."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @property
    def shown(self) -> str:
        return os.fspath(self.root)

    @property
    def name(self) -> str:
        return self.root.name

    def above(self) -> "LocalFiles":
        return LocalFiles(self.root.parent)

    def path(self, path: str = "") -> Path:
        return self.root / path if path else self.root

    def spark_path(self, path: str = "") -> str:
        return f"{_LOCAL}://{self.path(path)}"

    def entries(self, path: str = "") -> list[OutputEntry]:
        directory = self.path(path)
        if not directory.is_dir():
            return []
        return sorted(
            (OutputEntry(one.name, one.is_dir()) for one in directory.iterdir()),
            key=lambda one: one.name,
        )

    def exists(self, path: str = "") -> bool:
        place = self.path(path)
        return place.exists() or place.is_symlink()

    def files_below(self, path: str) -> set[str]:
        top = self.path(path)
        return {
            os.fspath((Path(directory) / name).relative_to(top))
            for directory, _, names in os.walk(top)
            for name in names
        }

    def read(self, path: str) -> str:
        return self.path(path).read_text(encoding="utf-8")

    def write(self, path: str, text: str) -> None:
        place = self.path(path)
        self.make(os.fspath(PurePosixPath(path).parent))
        partial = place.with_name(place.name + ".tmp")
        with partial.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, place)
        sync(place.parent)

    def make(self, path: str) -> None:
        """Durable, with the directories above it that it makes."""
        missing = []
        place = self.path(path)
        while not place.is_dir():
            missing.append(place)
            place = place.parent
        self.path(path).mkdir(parents=True, exist_ok=True)
        for made in missing:
            sync(made.parent)

    def rename(self, source: str, target: str) -> None:
        place = self.path(target)
        place.parent.mkdir(parents=True, exist_ok=True)
        if self.exists(target):
            raise FileExistsError(f"{place} is there already")
        os.rename(self.path(source), place)

    def remove(self, path: str) -> None:
        place = self.path(path)
        if place.is_dir() and not place.is_symlink():
            shutil.rmtree(place)
        else:
            place.unlink(missing_ok=True)

    def sync(self, paths: Iterable[str]) -> None:
        for path in paths:
            sync(self.path(path))

    def sync_tree(self, path: str) -> None:
        for directory, _, names in os.walk(self.path(path)):
            for name in names:
                sync(Path(directory) / name)
            sync(Path(directory))

    @contextmanager
    def locked(self, path: str) -> Iterator[None]:
        """Let go by the kernel when the process ends."""
        place = self.path(path)
        self.make(os.fspath(PurePosixPath(path).parent))
        descriptor = os.open(place, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise BusyError(f"another job on {self.shown} is under way") from None
            yield
        finally:
            os.close(descriptor)


class HadoopFiles:
    """Below a directory of any file system of Hadoop's. How durable a closed file or a name is, is
    that file system's."""

    def __init__(self, java: Any, system: Any, root: Any) -> None:
        self._java = java
        self._system = system
        self._root = root

    @property
    def shown(self) -> str:
        return str(self._root.toString())

    @property
    def name(self) -> str:
        return str(self._root.getName())

    def above(self) -> "HadoopFiles":
        return HadoopFiles(self._java, self._system, self._root.getParent())

    def spark_path(self, path: str = "") -> str:
        return str(self._at(path).toString())

    def entries(self, path: str = "") -> list[OutputEntry]:
        if not self._system.exists(self._at(path)):
            return []
        found = self._system.listStatus(self._at(path))
        return sorted(
            (OutputEntry(one.getPath().getName(), one.isDirectory()) for one in found),
            key=lambda one: one.name,
        )

    def exists(self, path: str = "") -> bool:
        return bool(self._system.exists(self._at(path)))

    def files_below(self, path: str) -> set[str]:
        found = set()
        for entry in self.entries(path):
            below = f"{path}/{entry.name}" if path else entry.name
            if entry.is_directory:
                found |= {f"{entry.name}/{name}" for name in self.files_below(below)}
            else:
                found.add(entry.name)
        return found

    def read(self, path: str) -> str:
        with closing(self._system.open(self._at(path))) as source:
            return bytes(self._java.org.apache.commons.io.IOUtils.toByteArray(source)).decode()

    def write(self, path: str, text: str) -> None:
        partial = self._at(path + ".tmp")
        with closing(self._system.create(partial, True)) as target:
            target.write(bytearray(text.encode()))
            target.hsync()
        self._system.delete(self._at(path), False)
        self._rename(partial, self._at(path))

    def make(self, path: str) -> None:
        if not self._system.mkdirs(self._at(path)):
            raise OSError(f"{self._at(path).toString()} cannot be made")

    def rename(self, source: str, target: str) -> None:
        place = self._at(target)
        self._system.mkdirs(place.getParent())
        if self._system.exists(place):
            raise FileExistsError(f"{place.toString()} is there already")
        self._rename(self._at(source), place)

    def remove(self, path: str) -> None:
        self._system.delete(self._at(path), True)

    def sync(self, paths: Iterable[str]) -> None:
        """Names are durable as they are made."""

    def sync_tree(self, path: str) -> None:
        """Closed files are as durable as the file system makes them."""

    @contextmanager
    def locked(self, path: str) -> Iterator[None]:
        """A file that is there while the job is under way. A job that was killed leaves it."""
        place = self._at(f"{path}.held")  # not the file that LocalFiles leaves in the same place
        self._system.mkdirs(place.getParent())
        try:
            lock = self._system.create(place, False)
        except Py4JError as error:
            if not self._system.exists(place):
                raise
            raise BusyError(
                f"another job on {self.shown} is under way ({self.read(f'{path}.held')}). If it "
                f"was killed, remove {place.toString()}"
            ) from error
        try:
            lock.write(bytearray(f"{socket.gethostname()}, process {os.getpid()}".encode()))
            lock.close()
            yield
        finally:
            self._system.delete(place, False)

    def _rename(self, source: Any, target: Any) -> None:
        if not self._system.rename(source, target):
            raise OSError(f"{source.toString()} cannot be renamed to {target.toString()}")

    def _at(self, path: str) -> Any:
        path_of = self._java.org.apache.hadoop.fs.Path
        return path_of(self._root, path) if path else self._root


def sync(path: Path) -> None:
    """A file or a directory."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
