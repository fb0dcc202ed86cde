"""Both disks under one roof, and small words for what tests do to them."""

import contextlib
import os
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from stratamq.files.port import EntryKind, Files
from stratamq.files.real import RealFiles
from stratamq.files.simulated import CrashItem, SimulatedDisk

PAGE = 4096


@dataclass
class Place:
    """One empty store directory, real or simulated, and ways around the port."""

    files: Files
    make_link: Callable[[str], None]
    disk: SimulatedDisk | None = None
    root: Path | None = None


def real_place(root: Path) -> Place:
    def make_link(path: str) -> None:
        os.symlink("/dev/null", root / path)

    return Place(RealFiles(root), make_link, root=root)


def simulated_place(seed: int = 0, capacity_bytes: int = 1 << 40) -> Place:
    disk = SimulatedDisk(seed, capacity_bytes=capacity_bytes)
    return Place(disk.files(), lambda path: disk.plant(path, EntryKind.LINK), disk=disk)


def edit_file(files: Files, path: str, data: bytes) -> None:
    """As an operator does, with an editor or from a backup: the modification time is another one,
    also where clocks are simulated."""
    before = files.entry(path)
    assert before is not None
    files.unlink(path)
    write_file(files, path, data)
    files.set_mtime(path, before.mtime_ns + 1_000_000 + zlib.crc32(data))


def write_file(files: Files, path: str, data: bytes) -> None:
    """A durable file of these bytes."""
    files.create(path, len(data))
    if data:
        file = files.open(path, writable=True)
        file.write(0, data)
        file.flush()
        file.close()


def read_file(files: Files, path: str) -> bytes:
    file = files.open(path)
    try:
        return file.read(0, file.size)
    finally:
        file.close()


def names(files: Files, directory: str) -> list[str]:
    return [entry.name for entry in files.list(directory)]


def keep_bits(bits: int) -> Callable[[CrashItem], bool]:
    """The crash that keeps the n-th item at stake if bit n is set."""
    count = iter(range(1 << 20))
    return lambda item: bool(bits >> next(count) & 1)


def every_crash(disk: SimulatedDisk) -> Iterator[SimulatedDisk]:
    """Every outcome of a crash now (pages whole): 2 ** len(disk.crash_items()) disks."""
    for bits in range(1 << len(disk.crash_items())):
        yield disk.image(keep_bits(bits))


def open_below(directory: Path) -> list[str]:
    """The files in it of which this process has a descriptor."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            found.append(os.readlink(f"/proc/self/fd/{name}"))
    return [path for path in found if path.startswith(f"{directory}/")]
