"""Parts of a store that are mounts: new files on their volume, nothing without its final name."""

import contextlib
import errno
import os

import pytest

from stratamq.files import system_calls
from stratamq.files.port import EntryKind
from stratamq.files.real import RealFiles
from stratamq.files.simulated import SimulatedCrash, SimulatedDisk
from tests.support.disks import Place, read_file, real_place, simulated_place, write_file
from tests.support.mounts import part_mounted

PAGE = 4096


def names(files, directory: str) -> list[str]:
    return [entry.name for entry in files.list(directory)]


@pytest.fixture(params=["bind", "tmpfs", "simulated"])
def files(request, tmp_path):
    """A store whose log is a mount."""
    if request.param == "simulated":
        disk = SimulatedDisk()
        disk.mount("commitlog")
        yield disk.files()
        return
    root = tmp_path / "store"
    with part_mounted(request.param, root / "commitlog", tmp_path / "elsewhere"):
        yield RealFiles(root)


def test_a_file_is_created_in_a_mount(files):
    files.create("commitlog/a", PAGE)
    assert read_file(files, "commitlog/a") == bytes(PAGE)
    assert names(files, "commitlog") == ["a"]
    assert names(files, "stratamq/tmp") == []
    with pytest.raises(FileExistsError):
        files.create("commitlog/a", PAGE)


def test_a_file_in_a_mount_is_replaced_whole(files):
    write_file(files, "commitlog/a", b"before")
    old = files.open("commitlog/a")
    files.rewrite("commitlog/a", PAGE, lambda file: file.write(0, b"after"))
    assert read_file(files, "commitlog/a") == b"after".ljust(PAGE, b"\0")
    assert old.read(0, PAGE) == b"before"
    assert names(files, "commitlog") == ["a"]


def test_a_file_that_cannot_be_written_leaves_the_old_one(files):
    write_file(files, "commitlog/a", b"before")

    def fail(file):
        raise OSError(errno.EIO, "bad")

    with pytest.raises(OSError):
        files.rewrite("commitlog/a", PAGE, fail)
    assert read_file(files, "commitlog/a") == b"before"
    assert names(files, "commitlog") == ["a"]
    assert names(files, "stratamq/tmp") == []


def test_files_and_directories_move_out_of_a_mount(files):
    write_file(files, "commitlog/a", b"one")
    write_file(files, "commitlog/d/e/b", b"two")
    files.make_directory("stratamq/aside")
    for name in ("a", "d"):
        files.replace(f"commitlog/{name}", f"stratamq/aside/{name}")
    assert read_file(files, "stratamq/aside/a") == b"one"
    assert read_file(files, "stratamq/aside/d/e/b") == b"two"
    assert names(files, "commitlog") == []


def test_a_volume_full_of_log_is_not_the_volume_of_the_store():
    disk = SimulatedDisk(capacity_bytes=100 * PAGE)
    disk.mount("commitlog", 10 * PAGE)
    files = disk.files()
    files.create("commitlog/a", 8 * PAGE)
    assert files.space("commitlog").available_bytes == 2 * PAGE
    assert files.space().available_bytes == 100 * PAGE
    with pytest.raises(OSError) as caught:
        files.create("commitlog/b", 3 * PAGE)
    assert caught.value.errno == errno.ENOSPC
    files.create("b", 3 * PAGE)
    assert files.space("commitlog").volume_id != files.space().volume_id
    assert files.space("index").volume_id == files.space().volume_id


def test_lost_and_found_of_a_volume_is_not_listed(tmp_path):
    for place in (real_place(tmp_path / "store"), simulated_place()):
        check_lost_and_found(place)


def check_lost_and_found(place: Place) -> None:
    place.files.make_directory("index/lost+found")
    write_file(place.files, "index/d/lost+found", b"a file of that name is no such thing")
    assert names(place.files, "index") == ["d"]
    assert [(e.name, e.kind) for e in place.files.list("index/d")] == [
        ("lost+found", EntryKind.FILE)
    ]


def steps(action) -> int:
    disk = SimulatedDisk()
    disk.mount("commitlog")
    files = disk.files()
    write_file(files, "commitlog/a", b"before")
    files.make_directory("stratamq/aside")
    before = disk.calls
    action(files)
    return disk.calls - before


def rewrite(files):
    files.rewrite("commitlog/a", 6, lambda file: file.write(0, b"after!"))


def move(files):
    files.replace("commitlog/a", "stratamq/aside/a")


@pytest.mark.parametrize("call", range(1, steps(rewrite) + 1))
def test_a_crash_while_a_file_in_a_mount_is_replaced_leaves_one_of_both_whole(call):
    for seed in range(8):
        disk = SimulatedDisk(seed)
        disk.mount("commitlog")
        files = disk.files()
        write_file(files, "commitlog/a", b"before")
        disk.crash_at(disk.calls + call)
        with pytest.raises(SimulatedCrash):
            rewrite(files)
        disk.crash()
        assert read_file(disk.files(), "commitlog/a") in (b"before", b"after!")


@pytest.mark.parametrize("call", range(1, steps(move) + 2))
def test_a_crash_during_a_move_between_mounts_leaves_the_file_somewhere(call):
    for seed in range(8):
        disk = SimulatedDisk(seed)
        disk.mount("commitlog")
        files = disk.files()
        write_file(files, "commitlog/a", b"before")
        files.make_directory("stratamq/aside")
        if call <= steps(move):
            disk.crash_at(disk.calls + call)
        with contextlib.suppress(SimulatedCrash):
            move(files)
        disk.crash()  # the last time behind the move, whose directories nobody has synced yet
        files = disk.files()
        there = [p for p in ("commitlog/a", "stratamq/aside/a") if files.entry(p) is not None]
        assert there
        assert all(read_file(files, path) == b"before" for path in there)


@pytest.mark.parametrize("seed", range(8))
def test_a_link_that_moved_between_mounts_is_there_after_a_crash(seed):
    disk = SimulatedDisk(seed)
    disk.mount("commitlog")
    files = disk.files()
    files.make_directory("commitlog")
    files.make_directory("stratamq/aside")
    disk.plant("commitlog/l", EntryKind.LINK)
    files.replace("commitlog/l", "stratamq/aside/l")
    disk.crash()
    assert disk.files().entry("stratamq/aside/l") is not None


def test_a_mount_without_unnamed_files_is_refused_with_what_to_do(tmp_path, monkeypatch):
    root = tmp_path / "store"
    with part_mounted("bind", root / "commitlog", tmp_path / "elsewhere"):
        files = RealFiles(root)
        opened = os.open

        def without_unnamed(path, flags, mode=0o777, **more):
            if flags & os.O_TMPFILE == os.O_TMPFILE:
                raise OSError(errno.EOPNOTSUPP, "no", path)
            return opened(path, flags, mode, **more)

        monkeypatch.setattr(os, "open", without_unnamed)
        with pytest.raises(OSError, match=r"O_TMPFILE.*ext4") as caught:
            files.create("commitlog/a", PAGE)
        assert caught.value.filename.endswith("commitlog")


def test_a_bind_mount_of_the_same_file_system_is_another_mount(tmp_path):
    with part_mounted("bind", tmp_path / "at", tmp_path / "elsewhere"):
        assert system_calls.mount_of(str(tmp_path / "at")) != system_calls.mount_of(str(tmp_path))
        assert (tmp_path / "at").stat().st_dev == tmp_path.stat().st_dev


def test_everything_is_synced_on_each_volume(tmp_path, monkeypatch):
    synced = []
    sync = system_calls.sync_file_system

    def seen(descriptor):
        synced.append(os.fstat(descriptor).st_dev)
        sync(descriptor)

    monkeypatch.setattr(system_calls, "sync_file_system", seen)
    root = tmp_path / "store"
    with part_mounted("tmpfs", root / "consumequeue", tmp_path / "elsewhere"):
        files = RealFiles(root)
        write_file(files, "consumequeue/t/0/0", b"unit")
        files.sync_all()
        devices = [os.stat(path).st_dev for path in (root, root / "consumequeue")]
        assert synced == devices and len(set(devices)) == 2
