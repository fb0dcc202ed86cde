"""What engines may rely on, on the real disk and on the simulated one alike."""

import errno
import gc
import os
from contextlib import closing

import pytest

from stratamq.files.port import EntryKind, Files
from tests.support.disks import PAGE, names, read_file, write_file


def test_a_created_file_has_its_size_and_reads_as_zeros(files: Files):
    files.create("commitlog/a", 3 * PAGE + 5)
    assert read_file(files, "commitlog/a") == bytes(3 * PAGE + 5)
    assert files.entry("commitlog/a").size == 3 * PAGE + 5


def test_a_created_file_leaves_nothing_temporary(files: Files):
    files.create("commitlog/a", PAGE)
    assert files.list("stratamq/tmp") == []


def test_many_files_are_made_whole_by_one_sync_before_they_have_names(files: Files):
    write_file(files, "consumequeue/t/1/a", b"old")
    paths = [f"consumequeue/t/{number}/a" for number in range(3)]
    seen = []

    def sync_all():
        seen.append([path for path in paths if files.entry(path) is not None])
        files.sync_all()

    assert files.create_many(paths, PAGE, sync_all) == [paths[0], paths[2]]
    assert seen == [[paths[1]]]
    assert read_file(files, paths[0]) == read_file(files, paths[2]) == bytes(PAGE)
    assert read_file(files, paths[1]) == b"old"
    assert files.list("stratamq/tmp") == []


def test_many_files_that_cannot_be_synced_leave_nothing(files: Files):
    def fail():
        raise OSError(errno.EIO, "bad")

    with pytest.raises(OSError):
        files.create_many(["consumequeue/t/0/a", "consumequeue/t/1/a"], PAGE, fail)
    assert files.list("consumequeue/t/0") == files.list("consumequeue/t/1") == []
    assert files.list("stratamq/tmp") == []


def test_creating_over_an_existing_file_is_refused_and_changes_nothing(files: Files):
    write_file(files, "a", b"old")
    with pytest.raises(FileExistsError):
        files.create("a", PAGE)
    assert read_file(files, "a") == b"old"
    assert files.list("stratamq/tmp") == []


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("size", [0, 1, PAGE])
def test_files_of_any_size_can_be_created_mapped_and_read(files: Files, size, sparse):
    files.create("a", size, sparse=sparse)
    file = files.open("a", writable=True)
    assert len(file.view()) == file.size == size
    assert file.read(0, 100) == bytes(min(size, 100))


def test_parents_are_made_on_the_way(files: Files):
    files.create("consumequeue/topic/0/a", 10)
    assert [(e.name, e.kind) for e in files.list("consumequeue/topic")] == [
        ("0", EntryKind.DIRECTORY)
    ]


def test_a_parent_that_is_a_file_is_an_error(files: Files):
    write_file(files, "a", b"x")
    with pytest.raises(NotADirectoryError):
        files.create("a/b", 10)


def test_what_is_written_is_seen_by_every_reader_at_once(files: Files):
    files.create("a", 2 * PAGE)
    writer, reader = files.open("a", writable=True), files.open("a")
    view = reader.view()
    writer.write(PAGE, b"abc")
    assert reader.read(PAGE, 3) == view[PAGE : PAGE + 3] == b"abc"


def test_a_view_refuses_stores(files: Files):
    files.create("a", PAGE)
    view = files.open("a").view()
    assert view.readonly
    with pytest.raises(TypeError):
        view[0] = 1


def test_a_view_is_always_the_same_object(files: Files):
    files.create("a", PAGE)
    file = files.open("a", writable=True)
    assert file.view() is file.view()


def test_a_file_opened_for_reading_refuses_every_change(files: Files):
    files.create("a", PAGE)
    file = files.open("a")
    changes = (
        lambda: file.write(0, b"x"),
        lambda: file.zero(0, 1),
    )
    for change in changes:
        with pytest.raises(PermissionError):
            change()


@pytest.mark.parametrize("position,length", [(-1, 1), (PAGE, 1), (PAGE - 1, 2)])
def test_writing_outside_the_size_is_refused(files: Files, position, length):
    files.create("a", PAGE)
    file = files.open("a", writable=True)
    with pytest.raises(ValueError):
        file.write(position, bytes(length))
    with pytest.raises(ValueError):
        file.zero(position, length)
    assert files.entry("a").size == PAGE


def test_a_file_that_is_extended_keeps_what_was_there(files: Files):
    write_file(files, "a", b"0123456789")
    file = files.open("a", writable=True)
    file.extend(8, b"abcd")
    file.extend(0, b"x")
    file.flush()
    assert file.size == files.entry("a").size == 12
    assert read_file(files, "a") == b"x1234567abcd"
    with pytest.raises(ValueError):
        file.extend(13, b"beyond")
    file.close()


def test_what_is_extended_is_never_shorter_than_another_made_it(files: Files):
    files.create("a", 0)
    slow, fast = files.open("a", writable=True), files.open("a", writable=True)
    fast.extend(0, b"0123456789")
    slow.extend(0, b"01")
    assert read_file(files, "a") == b"0123456789"
    slow.close()
    fast.close()


def test_reads_are_short_only_at_the_end(files: Files):
    write_file(files, "a", b"0123456789")
    file = files.open("a")
    assert (file.read(2, 3), file.read(8, 5), file.read(10, 5)) == (b"234", b"89", b"")


@pytest.mark.parametrize("warm", [0, PAGE, 5 * PAGE])
def test_a_cold_read_gives_what_a_read_gives(files: Files, warm):
    content = os.urandom(5 * PAGE)
    write_file(files, "a", content)
    file = files.open("a", writable=True)
    file.flush()
    file.drop_cache(0, len(content))
    assert file.read(0, warm) == content[:warm]
    assert file.read_cold(100, 3 * PAGE) == content[100 : 100 + 3 * PAGE]
    assert file.read_cold(4 * PAGE, 9 * PAGE) == content[4 * PAGE :]


def test_zero_clears_exactly_its_range(files: Files):
    write_file(files, "a", b"\xff" * (3 * PAGE))
    file = files.open("a", writable=True)
    shown = file.view()
    file.zero(100, 2 * PAGE)
    expected = b"\xff" * 100 + bytes(2 * PAGE) + b"\xff" * (PAGE - 100)
    assert file.read(0, 3 * PAGE) == bytes(shown) == expected


def test_allocate_and_drop_cache_change_no_byte(files: Files):
    data = bytes(range(256)) * 64
    files.create("a", len(data), sparse=True)
    file = files.open("a", writable=True)
    file.write(0, data)
    file.allocate()
    file.flush()
    file.drop_cache(0, len(data))
    assert bytes(file.view()) == read_file(files, "a") == data


def test_resize_grows_with_zeros_and_shrinks(files: Files):
    write_file(files, "a", b"abcdef")
    file = files.open("a", writable=True)
    file.resize(3)
    file.resize(5)
    assert (file.size, file.read(0, 9)) == (5, b"abc\0\0")


def test_a_mapped_file_cannot_be_resized(files: Files):
    write_file(files, "a", b"abcdef")
    file = files.open("a", writable=True)
    shown = file.view()
    with pytest.raises(ValueError):
        file.resize(3)
    assert bytes(shown) == b"abcdef"


def test_a_mapping_outlives_its_closed_and_unlinked_file(files: Files):
    write_file(files, "a", b"abcdef")
    file = files.open("a")
    view = file.view()
    file.close()
    files.unlink("a")
    del file
    gc.collect()
    assert bytes(view) == b"abcdef"


def test_a_closed_file_refuses_work_and_closes_twice(files: Files):
    write_file(files, "a", b"abcdef")
    file = files.open("a")
    file.close()
    file.close()
    with pytest.raises(ValueError):
        file.read(0, 1)


def test_send_carries_the_bytes_to_a_descriptor(files: Files):
    write_file(files, "a", b"0123456789")
    reading, writing = os.pipe()
    try:
        assert files.open("a").send(writing, 3, 4) == 4
        assert os.read(reading, 10) == b"3456"
    finally:
        os.close(reading)
        os.close(writing)


def test_opening_what_is_no_file_fails_by_errno(place):
    place.files.make_directory("directory")
    place.make_link("link")
    for path, number in (
        ("missing", errno.ENOENT),
        ("directory", errno.EISDIR),
        ("link", errno.ELOOP),
    ):
        with pytest.raises(OSError) as caught:
            place.files.open(path)
        assert caught.value.errno == number


def test_entries_are_listed_by_name_with_their_kinds(place):
    files = place.files
    files.make_directory("d/c")
    write_file(files, "d/a", b"123")
    place.make_link("d/b")
    listed = [(e.name, e.kind, e.size) for e in files.list("d")]
    assert listed == [
        ("a", EntryKind.FILE, 3),
        ("b", EntryKind.LINK, 0),
        ("c", EntryKind.DIRECTORY, 0),
    ]
    assert files.entry("d/b").kind is EntryKind.LINK
    assert files.entry("d/none") is None
    assert files.list("none") == []


def test_replace_is_a_rename_over_what_was_there(files: Files):
    write_file(files, "a", b"new")
    write_file(files, "d/b", b"old")
    files.replace("a", "d/b")
    assert read_file(files, "d/b") == b"new"
    assert files.entry("a") is None


def test_a_directory_moves_with_what_is_in_it(files: Files):
    write_file(files, "d/a", b"x")
    files.replace("d", "e")
    assert read_file(files, "e/a") == b"x"


def test_modification_times_can_be_set_and_read(files: Files):
    write_file(files, "a", b"x")
    files.set_mtime("a", 1_600_000_000_123_000_000)
    assert files.entry("a").mtime_ns == 1_600_000_000_123_000_000


def test_only_empty_directories_are_removed(files: Files):
    write_file(files, "d/a", b"x")
    with pytest.raises(OSError) as caught:
        files.remove_directory("d")
    assert caught.value.errno == errno.ENOTEMPTY
    files.unlink("d/a")
    files.remove_directory("d")
    files.make_directory("d/e")
    assert names(files, "d") == ["e"]


def test_syncs_of_files_directories_and_all_succeed(files: Files):
    write_file(files, "d/a", b"x")
    files.sync_directory("d")
    files.sync_directory("")
    files.sync_all()


@pytest.mark.parametrize("path", ["/etc/passwd", "../a", "a/../../b", "a\0b"])
def test_a_path_that_leaves_the_store_is_refused(files: Files, path):
    with pytest.raises(ValueError):
        files.entry(path)
    with pytest.raises(ValueError):
        files.create(path, 1)


def test_space_is_used_by_allocation(files: Files):
    files.create("first", 1)
    before = files.space()
    files.create("a", 64 << 20)
    after = files.space()
    assert before.available_bytes - after.available_bytes >= 32 << 20
    assert before.total_bytes >= after.available_bytes
    assert 0 <= before.used_ratio < after.used_ratio <= 1


def test_the_lock_gives_back_the_previous_text_and_leaves_its_own(files: Files):
    first = files.lock("lock", b"a rather long text")
    assert first.previous_text == b""
    first.close()
    second = files.lock("lock", b"short")
    assert second.previous_text == b"a rather long text"
    second.close()
    assert read_file(files, "lock") == b"short"


def test_a_lock_without_text_leaves_the_text_that_is_there(files: Files):
    files.lock("lock", b"old").close()
    lock = files.lock("lock", b"")
    assert lock.previous_text == b"old"
    with pytest.raises(BlockingIOError):
        files.lock("lock", b"")
    lock.close()
    assert read_file(files, "lock") == b"old"


def test_a_lock_is_refused_to_its_own_process_and_cannot_be_dropped_by_opening(files: Files):
    lock = files.lock("stratamq/room.lock", b"x")
    with pytest.raises(BlockingIOError):
        files.lock("stratamq/room.lock", b"y")
    with pytest.raises(OSError) as caught:
        files.open("stratamq/room.lock")
    assert caught.value.errno == errno.EBUSY
    lock.close()
    lock.close()
    files.lock("stratamq/room.lock", b"z").close()


def test_clean_temporary_leaves_alone_what_another_service_is_making(files: Files):
    for name in ("index-1", "indexed", "other"):
        files.create(f"stratamq/tmp/{name}", 1)
    assert list(files.clean_temporary(spare=("index-",))) == ["indexed", "other"]
    assert [entry.name for entry in files.list("stratamq/tmp")] == ["index-1"]


def test_clean_temporary_of_an_orderly_store_finds_nothing(files: Files):
    assert list(files.clean_temporary()) == []
    files.create("a", 1)
    assert list(files.clean_temporary()) == []


@pytest.mark.parametrize("places", [(), (0,), (5,), (3, 40), (63,)])
def test_behind_the_end_of_the_data_all_reads_as_zeros(files: Files, places):
    """The data that other pages hold, written through any descriptor, is before it."""
    files.create("commitlog/a", 64 * PAGE)
    with closing(files.open("commitlog/a", writable=True)) as file:
        for place in places:
            file.write(place * PAGE + 7, b"data")
        last = places[-1] * PAGE + 11 if places else 0
        for position in (0, 2 * PAGE, 10 * PAGE):
            end = file.data_end(position)
            assert max(position, last) <= end <= file.size
            assert not any(file.read(end, file.size - end))
        assert file.data_end(file.size) == file.size
