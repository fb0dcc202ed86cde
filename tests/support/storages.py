"""The storages of the tier, each by a maker: what it returns opens one and the same place."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from stratamq.files.real import RealFiles
from stratamq.files.simulated import SimulatedDisk
from stratamq.tier.driver.memory import MemoryStorage
from stratamq.tier.driver.posix import PosixStorage
from stratamq.tier.driver.storage import Storage

Opening: TypeAlias = Callable[[], Storage]


def memory(positions: bool) -> Callable[[pytest.FixtureRequest, Path], Opening]:
    def make(request: pytest.FixtureRequest, directory: Path) -> Opening:
        storage = MemoryStorage(positions=positions)
        return lambda: storage

    return make


def no_pause(seconds: float) -> None:
    """The lock's holder is waited for by trying again, at once."""


def directory(request: pytest.FixtureRequest, directory: Path) -> Opening:
    return lambda: PosixStorage(RealFiles(directory / "tier"), no_pause)


def simulated_directory(request: pytest.FixtureRequest, directory: Path) -> Opening:
    disk = SimulatedDisk()
    return lambda: PosixStorage(disk.files(), no_pause)


MAKERS: dict[str, Callable[[pytest.FixtureRequest, Path], Opening]] = {
    "memory": memory(positions=False),
    "memory-positions": memory(positions=True),
    "directory": directory,
    "simulated-directory": simulated_directory,
}
