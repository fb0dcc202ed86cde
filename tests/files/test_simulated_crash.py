"""What power loss, a process kill and the kernel do on the simulated disk."""

import errno
import random

import pytest

from stratamq.files.simulated import (
    CrashItem,
    SimulatedCrash,
    SimulatedDisk,
    keep_everything,
    keep_nothing,
)
from tests.support.disks import PAGE, every_crash, names, read_file, write_file


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk(seed=1)


def dirty_file(disk: SimulatedDisk, pages: int = 3):
    """A file `a` whose every page was stored into and not flushed."""
    files = disk.files()
    files.create("a", pages * PAGE)
    file = files.open("a", writable=True)
    for page in range(pages):
        file.write(page * PAGE, b"new!")
    return file


def after(disk: SimulatedDisk, path: str = "a") -> bytes:
    return read_file(disk.files(), path)


# --- pages ---


def test_a_crash_that_keeps_nothing_reverts_to_what_was_flushed(disk):
    file = dirty_file(disk)
    file.flush()
    flushed = file.read(0, file.size)
    file.write(0, b"\xff" * file.size)
    disk.crash(keep_nothing)
    assert after(disk) == flushed


def test_a_crash_that_keeps_everything_loses_nothing(disk):
    file = dirty_file(disk)
    seen = file.read(0, file.size)
    disk.crash(keep_everything)
    assert after(disk) == seen


def test_every_subset_of_dirty_pages_can_survive(disk):
    dirty_file(disk, pages=3)
    outcomes = {after(image) for image in every_crash(disk)}
    assert len(outcomes) == 8
    parts = {tuple(outcome[page * PAGE] != 0 for page in range(3)) for outcome in outcomes}
    assert len(parts) == 8


def test_flush_makes_only_its_range_durable(disk):
    file = dirty_file(disk, pages=3)
    file.flush(PAGE, 1)
    assert disk.crash_items() == [CrashItem("page", "a", 0), CrashItem("page", "a", 2)]


def test_writing_what_is_there_already_dirties_its_page(disk):
    file = dirty_file(disk, pages=1)
    file.flush()
    assert disk.crash_items() == []
    file.write(0, b"new!")
    assert disk.crash_items() == [CrashItem("page", "a", 0)]


def test_a_torn_page_keeps_the_chosen_sectors(disk):
    files = disk.files()
    files.create("a", PAGE)
    files.open("a", writable=True).write(0, b"\xff" * PAGE)
    disk.crash(lambda item: 0b10000010)
    kept = [after(disk)[sector * 512] != 0 for sector in range(8)]
    assert kept == [False, True, False, False, False, False, False, True]


def test_seeded_crashes_tear_pages_keep_some_and_lose_some():
    shapes = set()
    for seed in range(60):
        disk = SimulatedDisk(seed)
        files = disk.files()
        files.create("a", 2 * PAGE)
        files.open("a", writable=True).write(0, b"\xff" * (2 * PAGE))
        disk.crash()
        shapes.add(tuple(after(disk)[sector * 512] != 0 for sector in range(16)))
    whole = {(first,) * 8 + (second,) * 8 for first in (True, False) for second in (True, False)}
    assert whole < shapes


def test_a_seed_replays_exactly():
    def run(seed: int) -> tuple[bytes, list[str]]:
        disk = SimulatedDisk(seed)
        file = dirty_file(disk, pages=5)
        disk.files().unlink("a")
        file.flush(0, PAGE)
        disk.crash()
        left = names(disk.files(), "")
        return (after(disk) if "a" in left else b""), left

    assert [run(seed) for seed in range(20)] == [run(seed) for seed in range(20)]


def test_an_image_leaves_the_running_disk_alone(disk):
    file = dirty_file(disk)
    image = disk.image(keep_nothing)
    write_file(image.files(), "b", b"x")
    file.flush()
    assert names(disk.files(), "") == ["a", "stratamq"]
    assert after(image) == bytes(3 * PAGE)


def test_a_size_that_was_not_synced_may_be_lost(disk):
    files = disk.files()
    write_file(files, "a", b"abc")
    files.open("a", writable=True).resize(10)
    assert {len(after(image)) for image in every_crash(disk)} == {3, 10}


def test_a_crash_kills_every_process_and_its_files(disk):
    file = dirty_file(disk)
    other = disk.files()
    disk.crash(keep_everything)
    for call in (file.flush, lambda: file.read(0, 1), lambda: other.list("")):
        with pytest.raises(SimulatedCrash):
            call()
    file.close()


def test_a_kill_loses_no_byte_and_no_entry(disk):
    file = dirty_file(disk)
    seen = file.read(0, file.size)
    disk.kill()
    assert after(disk) == seen
    with pytest.raises(SimulatedCrash):
        file.flush()


def test_processes_share_the_page_cache(disk):
    file = dirty_file(disk, pages=1)
    view = disk.files().open("a").view()
    file.write(10, b"hot")
    assert view[10:13] == b"hot"


# --- failed flushes ---


def test_after_a_failed_flush_pages_read_well_and_a_second_flush_does_not_save_them(disk):
    file = dirty_file(disk)
    disk.fail("flush")
    with pytest.raises(OSError) as caught:
        file.flush()
    assert caught.value.errno == errno.EIO
    assert file.read(0, 4) == b"new!"
    file.flush()
    disk.files().sync_all()
    assert disk.crash_items() == []
    disk.crash(keep_everything)
    assert after(disk) == bytes(3 * PAGE)


def test_a_failed_flush_outlasts_a_restart_of_the_process(disk):
    file = dirty_file(disk)
    disk.fail("flush")
    with pytest.raises(OSError):
        file.flush()
    disk.kill()
    again = disk.files().open("a", writable=True)
    assert again.read(0, 4) == b"new!"
    again.flush()
    disk.crash(keep_everything)
    assert after(disk) == bytes(3 * PAGE)


def test_writing_again_after_a_failed_flush_saves_equal_bytes(disk):
    file = dirty_file(disk)
    disk.fail("flush")
    with pytest.raises(OSError):
        file.flush()
    file.write(0, bytes(file.view()[:PAGE]))
    file.flush()
    disk.crash(keep_nothing)
    assert after(disk) == b"new!" + bytes(3 * PAGE - 4)


def test_storing_other_bytes_after_a_failed_flush_saves_the_whole_page(disk):
    file = dirty_file(disk)
    disk.fail("flush")
    with pytest.raises(OSError):
        file.flush()
    file.write(100, b"\x01")
    file.flush()
    disk.crash(keep_nothing)
    assert after(disk)[:101] == b"new!" + bytes(96) + b"\x01"


def test_zeroing_after_a_failed_flush_is_durable_though_the_cache_shows_zeros(disk):
    files = disk.files()
    write_file(files, "a", b"\xff" * PAGE)
    file = files.open("a", writable=True)
    file.write(0, bytes(PAGE))
    disk.fail("flush")
    with pytest.raises(OSError):
        file.flush()
    file.flush()
    assert disk.durable_contents("a") == b"\xff" * PAGE
    file.zero(0, PAGE)
    file.flush()
    disk.crash(keep_nothing)
    assert after(disk) == bytes(PAGE)


def test_eviction_shows_the_disk_through_a_live_mapping(disk):
    file = dirty_file(disk)
    buffer = file.view()
    disk.fail("flush")
    with pytest.raises(OSError):
        file.flush(0, 2 * PAGE)
    assert disk.evict() == [("a", 0), ("a", 1)]
    assert bytes(buffer[:4]) == bytes(buffer[PAGE : PAGE + 4]) == bytes(4)
    assert bytes(buffer[2 * PAGE : 2 * PAGE + 4]) == b"new!"
    assert disk.evict(random.Random(1)) == []


def test_eviction_never_touches_dirty_pages(disk):
    file = dirty_file(disk)
    assert disk.evict() == []
    assert file.read(0, 4) == b"new!"


def test_dropping_the_cache_after_a_failed_flush_shows_the_disk(disk):
    file = dirty_file(disk)
    disk.fail("flush")
    with pytest.raises(OSError):
        file.flush()
    file.drop_cache(0, PAGE)
    assert (file.read(0, 4), file.read(PAGE, 4)) == (bytes(4), b"new!")


def test_a_partly_failed_flush_leaves_some_pages_durable_and_some_not():
    shapes = set()
    for seed in range(20):
        disk = SimulatedDisk(seed)
        file = dirty_file(disk, pages=4)
        disk.fail("flush", partial=True)
        with pytest.raises(OSError):
            file.flush()
        shapes.add(tuple(disk.durable_contents("a")[page * PAGE] != 0 for page in range(4)))
    assert len(shapes) > 5


def test_failed_background_write_back_is_reported_once_and_loses_the_pages(disk):
    file = dirty_file(disk)
    disk.write_back(error=errno.EIO)
    with pytest.raises(OSError):
        file.flush()
    file.flush()
    assert file.read(0, 4) == b"new!"
    disk.crash(keep_everything)
    assert after(disk) == bytes(3 * PAGE)


def test_background_write_back_makes_pages_durable(disk):
    dirty_file(disk)
    disk.write_back()
    disk.crash(keep_nothing)
    assert after(disk)[:4] == b"new!"


def test_a_failed_sync_of_everything_fails_all_dirty_pages_and_entries(disk):
    file = dirty_file(disk)
    files = disk.files()
    files.replace("a", "b")
    disk.fail("sync_all")
    with pytest.raises(OSError):
        files.sync_all()
    files.sync_all()
    file.flush()
    disk.crash(keep_nothing)
    assert after(disk, "a") == bytes(3 * PAGE)


# --- directory entries ---


def test_a_created_file_survives_any_crash(disk):
    disk.files().create("d/e/a", PAGE)
    assert disk.crash_items() == []
    disk.crash(keep_nothing)
    assert names(disk.files(), "d/e") == ["a"]


@pytest.mark.parametrize("synced", [False, True])
def test_a_rename_may_be_lost_until_its_directory_is_synced(disk, synced):
    files = disk.files()
    write_file(files, "d/old", b"x")
    files.replace("d/old", "d/new")
    if synced:
        files.sync_directory("d")
    seen = {tuple(names(image.files(), "d")) for image in every_crash(disk)}
    assert seen == ({("new",)} if synced else {("old",), ("new",)})


def test_an_unlink_may_be_lost_until_its_directory_is_synced(disk):
    files = disk.files()
    write_file(files, "d/a", b"x")
    files.unlink("d/a")
    assert {tuple(names(image.files(), "d")) for image in every_crash(disk)} == {("a",), ()}
    files.sync_directory("d")
    disk.crash(keep_nothing)
    assert names(disk.files(), "d") == []


def test_two_renames_are_lost_independently_and_each_is_whole(disk):
    files = disk.files()
    write_file(files, "main", b"1")
    write_file(files, "main.tmp", b"2")
    files.replace("main", "main.bak")
    files.replace("main.tmp", "main")
    found = set()
    for image in every_crash(disk):
        after_files = image.files()
        found.add(
            tuple(
                (name, read_file(after_files, name))
                for name in names(after_files, "")
                if name != "stratamq"
            )
        )
    assert found == {
        (("main", b"1"), ("main.tmp", b"2")),
        (("main.bak", b"1"), ("main.tmp", b"2")),
        (("main", b"2"),),
        (("main", b"2"), ("main.bak", b"1")),
    }


def test_a_rename_between_directories_with_only_the_target_synced_leaves_both_names(disk):
    files = disk.files()
    write_file(files, "from/a", b"x")
    files.make_directory("to")
    files.replace("from/a", "to/a")
    files.sync_directory("to")
    disk.crash(keep_nothing)
    files = disk.files()
    assert (names(files, "from"), names(files, "to")) == (["a"], ["a"])


def test_a_directory_whose_sync_failed_is_made_anew_by_the_next_attempt(disk):
    files = disk.files()
    disk.fail("sync_directory")
    with pytest.raises(OSError):
        files.create("d/file", 1)
    files.create("d/file", 1)
    disk.crash(keep_nothing)
    assert names(disk.files(), "d") == ["file"]


def test_a_failed_directory_sync_is_not_made_good_by_a_second(disk):
    files = disk.files()
    write_file(files, "d/old", b"x")
    files.replace("d/old", "d/new")
    disk.fail("sync_directory")
    with pytest.raises(OSError):
        files.sync_directory("d")
    files.sync_directory("d")
    disk.crash(keep_nothing)
    assert names(disk.files(), "d") == ["old"]


def test_a_later_change_that_was_synced_overtakes_one_whose_sync_failed(disk):
    files = disk.files()
    write_file(files, "d/a", b"1")
    write_file(files, "d/b", b"2")
    files.unlink("d/a")
    disk.fail("sync_directory")
    with pytest.raises(OSError):
        files.sync_directory("d")
    files.replace("d/b", "d/a")
    files.sync_directory("d")
    assert [names(image.files(), "d") for image in every_crash(disk)] == [["a"]]


# --- locks, time, several stores ---


def test_a_lock_excludes_other_processes_until_its_own_is_killed(disk):
    holder, other = disk.files(), disk.files()
    holder.lock("lock", b"one")
    with pytest.raises(BlockingIOError):
        other.lock("lock", b"two")
    assert read_file(other, "lock") == b"one"
    holder.kill()
    assert other.lock("lock", b"two").previous_text == b"one"


def test_a_lock_and_its_text_survive_a_crash_as_text_only(disk):
    disk.files().lock("stratamq/log.lock", b"one")
    disk.crash(keep_nothing)
    assert disk.files().lock("stratamq/log.lock", b"two").previous_text == b"one"


def test_two_stores_on_one_disk_do_not_see_each_other(disk):
    master, slave = disk.files("master"), disk.files("slave")
    write_file(master, "a", b"m")
    write_file(slave, "a", b"s")
    assert (read_file(master, "a"), read_file(slave, "a")) == (b"m", b"s")
    assert names(disk.files(), "") == ["master", "slave"]


def test_modification_times_come_from_the_clock(disk):
    files = disk.files()
    write_file(files, "a", b"x")
    disk.clock.advance_ms(5000)
    write_file(files, "b", b"x")
    assert files.entry("b").mtime_ns - files.entry("a").mtime_ns == 5_000_000_000


def test_a_set_time_may_be_lost_until_the_file_is_flushed(disk):
    files = disk.files()
    write_file(files, "a", b"x")
    files.set_mtime("a", 7)
    assert len({image.files().entry("a").mtime_ns for image in every_crash(disk)}) == 2
    files.open("a", writable=True).flush()
    disk.crash(keep_nothing)
    assert disk.files().entry("a").mtime_ns == 7


def test_rot_changes_what_is_read_and_what_is_on_disk(disk):
    write_file(disk.files(), "a", b"abcdef")
    disk.rot("a", 2, b"X")
    assert after(disk) == disk.durable_contents("a") == b"abXdef"
    assert disk.crash_items() == []
