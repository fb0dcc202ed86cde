"""Index files one by one: what is on the disk when a call returns."""

import numpy as np
import pytest
from stratamq_index.index_file import (
    IndexFileReader,
    SyncError,
    WritableIndexFile,
    path_of,
    rewrite,
    sync_files,
)

from stratamq.files.simulated import SimulatedDisk, keep_nothing
from tests.index.harness import Follower, TestLog, names


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk(3)


@pytest.fixture
def follower(disk) -> Follower:
    """Some full files, on the disk."""
    log = TestLog(disk.files())
    log.fill(60)
    follower = Follower(log).start()
    follower.sync()
    assert len(names(log.files)) > 2
    return follower


def shortened(follower: Follower) -> tuple[str, bytes]:
    """Rewrite a full file up to its seventh item; its path, and what it must hold now."""
    files, geometry = follower.log.files, follower.engine.geometry
    record = follower.engine.records[1]
    path = path_of(record.name)
    source = IndexFileReader.open(files, path, geometry)
    kept = b"".join(records.tobytes() for _, records in source.pieces(1, 7))
    source.close()
    table = np.zeros(geometry.slots, np.int32)
    rewrite(files, path, geometry, 7, record.header, table).close()
    return path, kept


def content(follower: Follower, path: str) -> bytes:
    file = follower.log.files.open(path)
    try:
        return file.read(0, file.size)
    finally:
        file.close()


def test_a_rewritten_file_is_whole_on_the_disk_when_it_takes_the_place_of_the_old_one(
    disk, follower
):
    path, kept = shortened(follower)
    expected = content(follower, path)
    assert kept in expected
    disk.crash(keep_nothing)
    again = disk.files().open(path)
    assert again.read(0, again.size) == expected


def test_a_file_that_cannot_be_made_durable_leaves_the_old_one_in_place(disk, follower):
    path = path_of(follower.engine.records[1].name)
    before = content(follower, path)
    disk.fail("flush", "stratamq/tmp/*")
    with pytest.raises(SyncError):
        shortened(follower)
    disk.clear_faults()
    assert content(follower, path) == before


def test_files_that_others_wrote_are_on_the_disk_when_that_was_asked_for(disk, follower):
    files = follower.log.files
    name = names(files)[0]
    file = files.open(path_of(name), writable=True)
    file.write(100, b"written by another process")
    file.close()
    sync_files(files, [name, "20990101000000000"])
    disk.crash(keep_nothing)
    again = disk.files().open(path_of(name))
    assert again.read(100, 26) == b"written by another process"


def test_a_failed_sync_is_reported(disk, follower):
    name = names(follower.log.files)[0]
    disk.fail("flush", path_of(name), repeat=True)
    with pytest.raises(SyncError):
        sync_files(follower.log.files, [name])
    file = follower.log.files.open(path_of(name), writable=True)
    geometry = follower.engine.geometry
    with pytest.raises(SyncError):
        WritableIndexFile(file, geometry, np.zeros(geometry.slots, np.int32)).sync()
