"""The simulated disk discards unsynced data, keeps synced data, and is else a normal disk."""

import mmap
import os
import subprocess
import sys
from pathlib import Path

import pytest
from stratamq_torture.processes.power import ForgetfulDisk, missing

from stratamq.files.real import RealFiles

pytestmark = pytest.mark.skipif(bool(missing()), reason=f"no forgetful disk: {missing()}")


@pytest.fixture
def disk():
    with ForgetfulDisk() as made:
        yield made


def durable_file(directory: Path, name: str, size: int) -> Path:
    path = directory / name
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
    os.posix_fallocate(descriptor, 0, size)
    os.fsync(descriptor)
    os.close(descriptor)
    sync_directory(directory)
    return path


def sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


def write_at(path: Path, position: int, data: bytes, sync: bool) -> None:
    descriptor = os.open(path, os.O_RDWR)
    os.pwrite(descriptor, data, position)
    if sync:
        os.fdatasync(descriptor)
    os.close(descriptor)


def test_what_was_synced_is_kept_and_what_was_not_is_forgotten(disk):
    path = durable_file(disk.mountpoint, "a", 16384)
    write_at(path, 0, b"synced", True)
    write_at(path, 8192, b"not", False)
    lost = disk.lose_power("nothing", 0)
    content = path.read_bytes()
    assert (content[:6], content[8192:8195]) == (b"synced", b"\0\0\0")
    assert lost["page"] == 1


def test_stores_into_a_mapping_are_durable_from_the_sync_on(disk):
    path = durable_file(disk.mountpoint, "a", 16384)
    descriptor = os.open(path, os.O_RDWR)
    with mmap.mmap(descriptor, 16384) as mapping:
        mapping[0:6] = b"synced"
        os.fdatasync(descriptor)
        mapping[4096:4105] = b"by msync "
        mapping.flush(4096, 4096)
        mapping[8192:8195] = b"not"
    os.close(descriptor)
    assert disk.lose_power("nothing", 0)["page"] >= 1
    content = path.read_bytes()
    assert content[:6] == b"synced" and content[4096:4105] == b"by msync "
    assert content[8192:8195] == b"\0\0\0"


def test_a_file_whose_directory_was_not_synced_is_gone(disk):
    (disk.mountpoint / "kept").write_bytes(b"1")
    sync_directory(disk.mountpoint)
    (disk.mountpoint / "gone").write_bytes(b"2")
    disk.lose_power("nothing", 0)
    assert os.listdir(disk.mountpoint) == ["kept"]


def test_a_rename_whose_directory_was_not_synced_is_undone(disk):
    durable_file(disk.mountpoint, "old", 10)
    os.rename(disk.mountpoint / "old", disk.mountpoint / "new")
    disk.lose_power("nothing", 0)
    assert os.listdir(disk.mountpoint) == ["old"]


def test_everything_can_be_kept_as_if_the_kernel_had_just_written_it(disk):
    path = durable_file(disk.mountpoint, "a", 8192)
    write_at(path, 0, b"not synced", False)
    disk.lose_power("everything", 0)
    assert path.read_bytes()[:10] == b"not synced"


def test_a_random_part_is_a_part(disk):
    pages = 64
    path = durable_file(disk.mountpoint, "a", pages * 4096)
    kept = set()
    for seed in range(6):
        for page in range(pages):
            write_at(path, page * 4096, bytes([seed + 1]), False)
        disk.lose_power("random", seed)
        content = path.read_bytes()
        kept.add(sum(content[page * 4096] == seed + 1 for page in range(pages)))
    assert any(0 < count < pages for count in kept)


def test_a_sync_of_the_whole_volume_reaches_every_file(disk):
    """`syncfs` stops at the kernel on FUSE; the file room must not take it for durable there."""
    store = RealFiles(disk.mountpoint / "store")
    lock = store.lock("stratamq/test.lock", b"text")
    for path, sparse in (("queue/0/a", True), ("queue/1/b", False)):
        store.create(path, 8192, sparse=sparse)
        file = store.open(path, writable=True)
        file.write(100, b"units")
        file.close()
    store.sync_all()
    second = [sys.executable, "-c", _TRY_LOCK, str(disk.mountpoint / "store/stratamq/test.lock")]
    assert subprocess.run(second, check=False).returncode == 1  # the lock is still held
    lock.close()
    del store, file
    assert disk.lose_power("nothing", 0)["page"] == 0
    for name in ("queue/0/a", "queue/1/b"):
        assert (disk.mountpoint / "store" / name).read_bytes()[100:105] == b"units"


def test_a_store_in_a_directory_that_was_just_made_is_there_after_a_power_loss(disk):
    """As `mkdir` and `stratamq up` create it: the parent directory is not synced."""
    root = disk.mountpoint / "data/store"
    root.mkdir(parents=True)
    store = RealFiles(root)
    store.create("queue/0/a", 4096)
    del store
    disk.lose_power("nothing", 0)
    assert (root / "queue/0/a").exists()


_TRY_LOCK = """
import fcntl, os, sys
descriptor = os.open(sys.argv[1], os.O_RDWR)
try:
    fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
except BlockingIOError:
    sys.exit(1)
"""
