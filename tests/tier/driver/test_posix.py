"""A directory as the storage: crashes at every call of the disk, processes, and odd directories."""

import errno
import os
import random
import subprocess
import sys
import textwrap

import pytest

from stratamq.errors import BusyError, NotWritableError
from stratamq.files.port import EntryKind
from stratamq.files.real import RealFiles
from stratamq.files.simulated import SimulatedCrash, SimulatedDisk, keep_nothing
from stratamq.tier.driver.calls import (
    AbsentError,
    Create,
    Delete,
    Folders,
    List,
    Load,
    Read,
    Size,
    StorageRefusedError,
    StorageUnavailableError,
    Swap,
    WriteAt,
)
from stratamq.tier.driver.memory import content_version
from stratamq.tier.driver.posix import PosixStorage
from tests.support.disks import every_crash
from tests.support.storages import no_pause

PATH = "cluster/broker/topic/0/object"
OLD, NEW = b"old" * 3000, b"new!" * 3000


def opened(disk):
    return PosixStorage(disk.files(), no_pause)


def found(disk, path=PATH):
    """The content that the next process finds; None: no object."""
    try:
        return opened(disk).perform(Load(path))[0]
    except AbsentError:
        return None


def outcomes(disk):
    """What crashes now can leave: all of them where they are few, else seeded ones."""
    if len(disk.crash_items()) <= 8:
        return {found(image) for image in every_crash(disk)}
    return {found(disk.image(random.Random(seed))) for seed in range(40)}


def crashes_of(call, prepared):
    """(whether the call returned, what may be left) for a crash before each call of the disk."""
    number = 0
    while True:
        number += 1
        disk = SimulatedDisk(seed=number)
        if prepared is not None:
            opened(disk).perform(Create(PATH, prepared))
        storage = opened(disk)
        disk.crash_at(disk.calls + number)
        try:
            storage.perform(call)
        except SimulatedCrash:
            disk.clear_faults()
            yield False, outcomes(disk)
        else:
            disk.clear_faults()
            yield True, outcomes(disk)
            return


WHOLE_CALLS = [
    pytest.param(Create(PATH, NEW), None, NEW, id="create"),
    pytest.param(Swap(PATH, NEW, None), None, NEW, id="first-swap"),
    pytest.param(Swap(PATH, NEW, content_version(OLD)), OLD, NEW, id="swap"),
    pytest.param(Delete(PATH), OLD, None, id="delete"),
]


@pytest.mark.parametrize(("call", "before", "after"), WHOLE_CALLS)
def test_a_crash_inside_a_call_leaves_the_old_content_or_the_new_one(call, before, after):
    crashes = list(crashes_of(call, before))
    for returned, left in crashes:
        assert left <= {before, after}
        if returned:
            assert left == {after}, "what returned is durable"
    assert len(crashes) > 3
    assert {before, after} <= set.union(*(left for _, left in crashes))


@pytest.mark.parametrize(("call", "before", "after"), WHOLE_CALLS)
def test_the_same_call_is_whole_when_it_is_repeated_after_a_crash_of_the_process(
    call, before, after
):
    number, crashed = 0, True
    while crashed:
        number += 1
        disk = SimulatedDisk(seed=number)
        if before is not None:
            opened(disk).perform(Create(PATH, before))
        storage = opened(disk)
        disk.crash_at(disk.calls + number)
        try:
            storage.perform(call)
            crashed = False
        except SimulatedCrash:
            disk.clear_faults()
            disk.kill()
            again = opened(disk)
            if found(disk) != after:
                again.perform(call)
            assert found(disk) == after
            assert [listed.path for listed in again.perform(List(""))] == (
                [PATH] if after is not None else []
            )


@pytest.mark.parametrize("position", [0, 5000, 9000])
def test_a_crash_inside_a_write_keeps_every_byte_below_its_position(position):
    for returned, left in crashes_of(WriteAt(PATH, position, NEW), OLD):
        for content in left:
            assert content is not None
            assert content[:position] == OLD[:position]
            assert len(OLD) <= len(content) <= max(len(OLD), position + len(NEW))
        if returned:
            whole = OLD[:position] + NEW + OLD[position + len(NEW) :]
            assert left == {whole}


def test_a_first_write_that_returned_is_durable_with_the_file_and_its_directories():
    disk = SimulatedDisk()
    opened(disk).perform(WriteAt(PATH, 0, NEW))
    disk.crash(keep_nothing)
    assert found(disk) == NEW


@pytest.mark.parametrize("operation", ["extend", "flush"])
def test_a_write_that_failed_is_completed_by_the_same_call(operation):
    disk = SimulatedDisk()
    storage = opened(disk)
    storage.perform(WriteAt(PATH, 0, OLD))
    disk.fail(operation, PATH, error=errno.EIO)
    with pytest.raises(StorageUnavailableError):
        storage.perform(WriteAt(PATH, len(OLD), NEW))
    storage.perform(WriteAt(PATH, len(OLD), NEW))
    disk.crash(keep_nothing)
    assert found(disk) == OLD + NEW


@pytest.mark.parametrize(("call", "before", "after"), WHOLE_CALLS)
def test_an_error_of_any_call_of_the_disk_leaves_the_old_content_or_the_new_one(
    call, before, after
):
    number, failed = 0, True
    while failed:
        number += 1
        disk = SimulatedDisk(seed=number)
        if before is not None:
            opened(disk).perform(Create(PATH, before))
        storage = opened(disk)
        disk.fail_at(disk.calls + number, errno.EIO)
        try:
            storage.perform(call)
            failed = False
        except StorageUnavailableError:
            disk.clear_faults()
            assert found(disk) in (before, after)


def test_a_full_disk_is_refused_and_leaves_the_old_content():
    disk = SimulatedDisk(capacity_bytes=64 << 10)
    storage = opened(disk)
    storage.perform(Create(PATH, OLD))
    with pytest.raises(StorageRefusedError, match="No space left"):
        storage.perform(Swap(PATH, bytes(range(256)) * 1000, content_version(OLD)))
    assert found(disk) == OLD


def test_a_writer_that_was_replaced_does_not_shorten_what_its_successor_wrote():
    """The first one has opened the file before the second appends."""
    disk = SimulatedDisk()
    opened(disk).perform(WriteAt(PATH, 0, OLD))

    class Overtaken:
        """Files whose opened file is appended to by another process, at the last moment."""

        def __init__(self):
            self.files = disk.files()

        def __getattr__(self, name):
            return getattr(self.files, name)

        def open(self, path, *, writable=False):
            file = self.files.open(path, writable=writable)
            opened(disk).perform(WriteAt(PATH, len(OLD), NEW))
            return file

    PosixStorage(Overtaken(), no_pause).perform(WriteAt(PATH, len(OLD), NEW[:100]))
    assert found(disk) == OLD + NEW


def test_a_create_never_replaces_what_a_write_makes_meanwhile():
    """The first write of the file waits for the create that has found nothing there, and the other
    way round."""
    disk = SimulatedDisk()
    waiting = []

    class Meeting:
        """Files that, asked whether the object is there, let another process write it first."""

        def __init__(self):
            self.files = disk.files()

        def __getattr__(self, name):
            return getattr(self.files, name)

        def entry(self, path):
            found = self.files.entry(path)
            if path == PATH and not waiting:
                waiting.append(path)
                with pytest.raises(BusyError):
                    opened(disk).perform(WriteAt(PATH, 0, OLD))
            return found

    PosixStorage(Meeting(), no_pause).perform(Create(PATH, NEW))
    assert waiting
    assert found(disk) == NEW


INCREMENT = """
import sys, time
from stratamq.files.real import RealFiles
from stratamq.tier.driver.calls import Load, Swap, SwapLostError
from stratamq.tier.driver.posix import PosixStorage

storage = PosixStorage(RealFiles(sys.argv[1]), time.sleep)
for _ in range(int(sys.argv[2])):
    while True:
        data, version = storage.perform(Load("counter"))
        try:
            storage.perform(Swap("counter", b"%d" % (int(data) + 1), version))
            break
        except SwapLostError:
            continue
"""


def test_no_swap_of_several_processes_is_lost_unseen(tmp_path):
    PosixStorage(RealFiles(tmp_path), no_pause).perform(Create("counter", b"0"))
    command = [sys.executable, "-c", textwrap.dedent(INCREMENT), str(tmp_path), "40"]
    processes = [subprocess.Popen(command) for _ in range(3)]
    assert [process.wait(120) for process in processes] == [0, 0, 0]
    assert PosixStorage(RealFiles(tmp_path), no_pause).perform(Load("counter"))[0] == b"120"


def test_a_swap_waits_for_another_processes_lock_and_then_gives_up_with_nothing_done():
    disk = SimulatedDisk()
    other = disk.files()
    for number in range(256):
        other.lock(f"stratamq/locks/{number:02x}", b"")
    pauses = []
    storage = PosixStorage(disk.files(), pauses.append)
    with pytest.raises(BusyError):
        storage.perform(Create(PATH, NEW))
    assert sum(pauses) == pytest.approx(2)
    other.kill()
    storage.perform(Create(PATH, NEW))


def test_a_folder_has_one_writer_of_the_machine():
    disk = SimulatedDisk()
    first, second = opened(disk), opened(disk)
    first.hold_writer("cluster/broker-a")
    with pytest.raises(NotWritableError, match="stop it first"):
        second.hold_writer("cluster/broker-a")
    second.hold_writer("cluster/broker-b")
    first.close()
    second.hold_writer("cluster/broker-a")


def test_locks_and_temporary_files_are_no_objects(tmp_path):
    storage = PosixStorage(RealFiles(tmp_path), no_pause)
    storage.hold_writer("cluster")
    storage.perform(Create("a/b", b"x"))
    assert (tmp_path / "stratamq").is_dir()
    assert [listed.path for listed in storage.perform(List(""))] == ["a/b"]
    assert storage.perform(Folders("")) == ["a"]
    storage.close()


def test_a_link_is_no_object_and_is_not_followed(tmp_path):
    storage = PosixStorage(RealFiles(tmp_path / "tier"), no_pause)
    storage.perform(Create("a/b", b"x"))
    (tmp_path / "outside").write_bytes(b"secret")
    os.symlink(tmp_path / "outside", tmp_path / "tier" / "a" / "link")
    assert storage.perform(Size("a/link")) is None
    assert [listed.path for listed in storage.perform(List(""))] == ["a/b"]
    with pytest.raises(StorageRefusedError):
        storage.perform(Read("a/link", 0, 1))
    with pytest.raises(StorageRefusedError):
        storage.perform(WriteAt("a/link", 0, b"x"))
    assert (tmp_path / "outside").read_bytes() == b"secret"


def test_a_directory_and_what_is_below_a_file_are_absent():
    disk = SimulatedDisk()
    storage = opened(disk)
    storage.perform(Create("a/b", b"x"))
    for path in ("a", "a/b/c"):
        assert storage.perform(Size(path)) is None
        with pytest.raises(AbsentError):
            storage.perform(Load(path))
        storage.perform(Delete(path))
    assert storage.perform(List("a/b")) == []
    assert found(disk, "a/b") == b"x"


def test_rocketmqs_files_are_listed_with_their_sizes_and_times(tmp_path):
    path = "c/b/%RETRY%g/0/COMMIT_LOG/cfcd208400000000000000000000"
    file = tmp_path / path
    file.parent.mkdir(parents=True)
    file.write_bytes(bytes(300))
    os.utime(file, ns=(0, 1_700_000_000_123_000_000))
    [listed] = PosixStorage(RealFiles(tmp_path), no_pause).perform(List("c/b"))
    assert (listed.path, listed.size, listed.modified_ms) == (path, 300, 1_700_000_000_123)


def test_a_file_whose_name_is_no_name_is_no_object(tmp_path):
    storage = PosixStorage(RealFiles(tmp_path), no_pause)
    storage.perform(Create("a/b", b"x"))
    for name in (b"new\nline", b"\xff\xfe"):
        (tmp_path / "a" / os.fsdecode(name)).write_bytes(b"")
    assert [listed.path for listed in storage.perform(List(""))] == ["a/b"]


def test_foreign_devices_and_links_are_no_objects():
    disk = SimulatedDisk()
    storage = opened(disk)
    storage.perform(Create("a/b", b"x"))
    disk.plant("a/special", EntryKind.OTHER)
    assert [listed.path for listed in storage.perform(List(""))] == ["a/b"]
