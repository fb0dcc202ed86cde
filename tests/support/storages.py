"""The storages of the tier, each by a maker: what it returns opens one and the same place."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest
from obstore.store import MemoryStore

from stratamq.files.real import RealFiles
from stratamq.files.simulated import SimulatedDisk
from stratamq.tier.driver.counting import CountingStorage
from stratamq.tier.driver.memory import MemoryStorage
from stratamq.tier.driver.objects import ObjectStorage, open_objects
from stratamq.tier.driver.posix import PosixStorage
from stratamq.tier.driver.retrying import Retries, RetryingStorage
from stratamq.tier.driver.simulated import SimulatedBackend
from stratamq.tier.driver.storage import Storage
from tests.support.azure_servers import AzureServer
from tests.support.google_servers import GoogleServer
from tests.support.s3_servers import S3Server

Opening: TypeAlias = Callable[[], Storage]
Server: TypeAlias = S3Server | GoogleServer | AzureServer


def memory(positions: bool) -> Callable[[pytest.FixtureRequest, Path], Opening]:
    def make(request: pytest.FixtureRequest, directory: Path) -> Opening:
        storage = MemoryStorage(positions=positions)
        return lambda: storage

    return make


def wrapped(request: pytest.FixtureRequest, directory: Path) -> Opening:
    """What a service has: a storage that asks again, over one that counts, over a network."""
    backend = SimulatedBackend(seed=1, positions=True)

    def opening() -> Storage:
        counting = CountingStorage(backend.storage(), lambda: 0)
        return RetryingStorage(counting, Retries(), no_pause, lambda: 0.0)

    return opening


def no_pause(seconds: float) -> None:
    """The lock's holder is waited for by trying again, at once."""


def directory(request: pytest.FixtureRequest, directory: Path) -> Opening:
    return lambda: PosixStorage(RealFiles(directory / "tier"), no_pause)


def simulated_directory(request: pytest.FixtureRequest, directory: Path) -> Opening:
    disk = SimulatedDisk()
    return lambda: PosixStorage(disk.files(), no_pause)


def object_memory(request: pytest.FixtureRequest, directory: Path) -> Opening:
    """obstore's own store in memory: its calls without a wire."""
    store = MemoryStore()
    return lambda: ObjectStorage(store)


def bucket(server: str) -> Callable[[pytest.FixtureRequest, Path], Opening]:
    """An empty bucket of a server, and a prefix in it whose names need escaping."""

    def make(request: pytest.FixtureRequest, directory: Path) -> Opening:
        started: Server = request.getfixturevalue(server)
        url = f"{started.scheme}://{started.new_bucket()}/a tier/100%25/ü"
        return lambda: open_objects(started.settings(url))

    return make


MAKERS: dict[str, Callable[[pytest.FixtureRequest, Path], Opening]] = {
    "memory": memory(positions=False),
    "memory-positions": memory(positions=True),
    "wrapped": wrapped,
    "directory": directory,
    "simulated-directory": simulated_directory,
    "object-memory": object_memory,
    "moto": bucket("moto"),
    "versitygw": bucket("versitygw"),
    "fake-gcs": bucket("fake_gcs"),
    "azurite": bucket("azurite"),
}
