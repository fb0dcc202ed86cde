"""What only the real directory can show: descriptors, other processes, the kernel's own calls."""

import errno
import fcntl
import os
import subprocess
import sys
from contextlib import closing

import pytest

from stratamq.files import real, system_calls
from stratamq.files.real import RealFiles
from tests.support.disks import read_file, write_file


@pytest.fixture
def store(tmp_path) -> RealFiles:
    return RealFiles(tmp_path / "store")


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def in_other_process(code: str, *arguments: str) -> str:
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


LOCK_AND_SAY = """
import fcntl, os, sys
fd = os.open(sys.argv[1], os.O_RDWR)
try:
    fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
    print("taken")
except OSError:
    print("held")
"""


def test_a_mapped_segment_costs_one_descriptor_and_a_closed_one_none(store):
    store.create("a", 1 << 20)
    before = descriptors()
    file = store.open("a", writable=True)
    view = file.view()
    assert descriptors() - before == 1
    file.close()
    assert descriptors() == before
    store.open("a", writable=True).write(0, b"\x07")
    assert view[0] == 7


def test_mappings_are_returned_to_the_kernel(store):
    store.create("a", 1 << 20)
    file = store.open("a", writable=True)
    file.view()
    mapped = f"{store.root}/a"
    with open("/proc/self/maps") as maps:
        assert mapped in maps.read()
    file.close()
    del file
    with open("/proc/self/maps") as maps:
        assert mapped not in maps.read()


def test_a_created_file_has_all_its_blocks_and_a_sparse_one_none(store):
    store.create("full", 1 << 20)
    store.create("sparse", 1 << 20, sparse=True)
    assert os.stat(store.root / "full").st_blocks * 512 >= 1 << 20
    assert os.stat(store.root / "sparse").st_blocks * 512 < 1 << 20
    file = store.open("sparse", writable=True)
    file.allocate()
    assert os.stat(store.root / "sparse").st_blocks * 512 >= 1 << 20


def test_zero_writes_where_the_file_system_has_no_zero_range(store, monkeypatch):
    monkeypatch.setattr(system_calls, "zero_range", lambda *_: False)
    monkeypatch.setattr(real, "_ZEROS", bytes(100))
    write_file(store, "a", b"\xff" * 1000)
    store.open("a", writable=True).zero(10, 555)
    assert read_file(store, "a") == b"\xff" * 10 + bytes(555) + b"\xff" * 435


@pytest.mark.parametrize("link_error", [None, errno.EPERM])
def test_create_refuses_to_replace_also_without_renameat2(store, monkeypatch, link_error):
    monkeypatch.setattr(system_calls, "_renameat2", None)
    if link_error:

        def no_links(*_, **__):
            raise OSError(link_error, "no links here")

        monkeypatch.setattr(os, "link", no_links)
    store.create("a", 10)
    assert os.stat(store.root / "a").st_nlink == 1
    with pytest.raises(FileExistsError):
        system_calls.rename_without_replacing(*([os.fspath(store.root / "a")] * 2))
    write_file(store, "b", b"b")
    with pytest.raises(FileExistsError):
        system_calls.rename_without_replacing(
            os.fspath(store.root / "a"), os.fspath(store.root / "b")
        )
    assert read_file(store, "b") == b"b"


def test_create_never_replaces_a_file_that_appears_meanwhile(store, monkeypatch):
    store.create("first", 1)
    allocate = os.posix_fallocate

    def allocate_while_another_is_faster(*arguments):
        (store.root / "a").write_bytes(b"theirs")
        allocate(*arguments)

    monkeypatch.setattr(os, "posix_fallocate", allocate_while_another_is_faster)
    with pytest.raises(FileExistsError):
        store.create("a", 10)
    assert read_file(store, "a") == b"theirs"
    assert store.list("stratamq/tmp") == []


def test_create_syncs_the_file_before_its_rename_and_both_directories_after(store, monkeypatch):
    store.create("d/first", 1)
    steps = []
    fsync, rename = os.fsync, system_calls.rename_without_replacing

    def synced(descriptor):
        fsync(descriptor)
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        steps.append(os.path.relpath(path, store.root).partition(".")[0])

    def renamed(*arguments):
        rename(*arguments)
        steps.append("rename")

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(system_calls, "rename_without_replacing", renamed)
    store.create("d/a", 10)
    assert steps == ["stratamq/tmp/a", "rename", "d", "stratamq/tmp"]


@pytest.mark.parametrize("step", ["posix_fallocate", "fsync"])
def test_a_failed_create_leaves_nothing_behind(store, monkeypatch, step):
    store.create("first", 1)

    def fail(*_):
        raise OSError(errno.ENOSPC, "full")

    with monkeypatch.context() as patched:
        patched.setattr(os, step, fail)
        with pytest.raises(OSError) as caught:
            store.create("d/a", 10)
        assert caught.value.errno == errno.ENOSPC
    assert store.entry("d/a") is None
    assert store.list("stratamq/tmp") == []
    store.create("d/a", 10)


def test_the_lock_excludes_another_process_by_posix_record_lock(store):
    lock = store.lock("lock", b"text")
    path = os.fspath(store.root / "lock")
    assert in_other_process(LOCK_AND_SAY, path) == "held"
    with pytest.raises(OSError):
        store.open("lock")  # Were it opened and closed, the lock would be gone.
    store.list("")
    store.entry("lock")
    assert in_other_process(LOCK_AND_SAY, path) == "held"
    lock.close()
    assert in_other_process(LOCK_AND_SAY, path) == "taken"


def test_a_lock_that_another_process_holds_is_refused_and_its_text_kept(store):
    store.lock("lock", b"first").close()
    code = """
import sys
from stratamq.files.real import RealFiles
lock = RealFiles(sys.argv[1]).lock("lock", b"theirs")
print("ready", flush=True)
sys.stdin.read()
"""
    command = [sys.executable, "-c", code, os.fspath(store.root)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout.readline() == "ready\n"
        with pytest.raises(BlockingIOError):
            store.lock("lock", b"mine")
        other.stdin.close()
        other.wait()
    lock = store.lock("lock", b"mine")
    assert lock.previous_text == b"theirs"
    lock.close()


def test_clean_temporary_removes_what_a_dead_process_left_and_spares_a_living_one(store):
    store.create("a", 1)
    folder = store.root / "stratamq/tmp"
    (folder / "abandoned.1.1").write_bytes(b"x")
    living = os.open(folder / "living.1.1", os.O_RDWR | os.O_CREAT)
    fcntl.flock(living, fcntl.LOCK_EX)
    assert list(store.clean_temporary()) == ["abandoned.1.1"]
    assert os.listdir(folder) == ["living.1.1"]
    os.close(living)
    assert list(store.clean_temporary()) == ["living.1.1"]


def test_a_temporary_name_that_is_taken_is_not_used(store):
    store.make_directory("stratamq/tmp")
    taken = store.root / f"stratamq/tmp/a.{os.getpid()}.1"
    taken.write_bytes(b"another container has this process id too")
    store.create("a", 1)
    assert taken.read_bytes()


def test_directories_that_another_program_made_are_synced_before_anything_is_made_in_them(
    store, monkeypatch
):
    """Who made them may have died before the sync, and a power loss takes them with all in them."""
    os.makedirs(store.root / "a/b")
    steps = []
    sync = real.system_calls.sync_directory

    def synced(path):
        sync(path)
        steps.append(os.path.relpath(path, store.root))

    monkeypatch.setattr(real.system_calls, "sync_directory", synced)
    store.create("a/b/file", 10)
    assert steps.index(".") < steps.index("a") < steps.index("a/b")
    assert ".." in steps, "the root's own entry"
    steps.clear()
    store.make_directory("a/b")
    assert steps == [], "what was synced once is durable"


def test_a_flush_brings_the_file_to_the_disk_and_hides_no_error(store, monkeypatch):
    write_file(store, "a", b"x")
    flushed = []
    sync = os.fdatasync

    def synced(descriptor):
        sync(descriptor)
        flushed.append(os.readlink(f"/proc/self/fd/{descriptor}"))

    def fail(descriptor):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    file = store.open("a", writable=True)
    monkeypatch.setattr(os, "fdatasync", synced)
    file.flush()
    file.flush(0, 1)
    assert flushed == [f"{store.root}/a"] * 2
    monkeypatch.setattr(os, "fdatasync", fail)
    with pytest.raises(OSError):
        file.flush()


def test_a_directory_whose_sync_failed_is_removed_again(store, monkeypatch):
    def fail(path):
        raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    store.make_directory("there")
    with monkeypatch.context() as broken:
        broken.setattr(real.system_calls, "sync_directory", fail)
        for path in ("new", "there/new"):
            with pytest.raises(OSError):
                store.make_directory(path)
    assert [entry.name for entry in store.list("")] == ["there"]
    assert store.list("there") == []
    store.make_directory("there/new")
    assert [entry.name for entry in store.list("there")] == ["new"]


def test_space_follows_rocketmqs_formula(store):
    store.create("a", 1)
    volume = os.statvfs(store.root)
    used = volume.f_blocks - volume.f_bfree
    expected = used / (used + volume.f_bavail)
    assert store.space().used_ratio == pytest.approx(expected, abs=0.01)


def test_opening_a_pipe_neither_waits_nor_succeeds(store):
    store.make_directory("d")
    os.mkfifo(store.root / "d/pipe")
    with pytest.raises(OSError) as caught:
        store.open("d/pipe")
    assert caught.value.errno == errno.EINVAL


def test_what_was_never_written_is_not_read(store):
    """Where the file system says so; the file's blocks are allocated."""
    store.create("commitlog/a", 1 << 20)
    with closing(store.open("commitlog/a", writable=True)) as file:
        file.write(0, b"frames")
        file.flush()
        if file.data_end(0) == file.size:
            pytest.skip("this file system does not know what was written")
        assert file.data_end(0) <= 1 << 16
        file.write(900_000, b"behind a hole")
        assert file.data_end(0) >= 900_013


def test_what_another_process_wrote_through_a_mapping_is_data(store):
    """RocketMQ writes so, and the kernel may not have stored it yet."""
    store.create("commitlog/a", 1 << 20)
    write = "import mmap, sys; f = open(sys.argv[1], 'r+b'); mmap.mmap(f.fileno(), 0)[800000] = 1"
    in_other_process(write, str(store.root / "commitlog/a"))
    with closing(store.open("commitlog/a")) as file:
        assert file.data_end(0) > 800_000
