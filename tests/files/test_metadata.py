"""Metadata files: what is found after damage, crashes, faults and RocketMQ."""

import errno
import json

import pytest

from stratamq.files.metadata import CHECKSUMS_DIRECTORY, LoadOutcome, MetadataFile, remove_metadata
from stratamq.files.simulated import SimulatedCrash, SimulatedDisk
from stratamq.formats.json_files import format_json
from tests.support.disks import edit_file, names, read_file, write_file

OWN = "stratamq/generations.json"
TOPICS = "config/topics.json"
BOTH = pytest.mark.parametrize("path", [OWN, TOPICS])
ONE, TWO, THREE = {"n": 1}, {"n": 2}, {"n": 3}


def previous_of(path: str) -> str:
    return f"{path}.previous" if path == OWN else f"{path}.bak"


def overwrite(files, path: str, data: bytes) -> None:
    """As a disk does that gives other bytes back: the modification time stays."""
    before = files.entry(path)
    if before is not None:
        files.unlink(path)
    write_file(files, path, data)
    if before is not None:
        files.set_mtime(path, before.mtime_ns)


def store_all(files, path: str, *contents) -> None:
    metadata = MetadataFile(files, path)
    for content in contents:
        metadata.store(content)


def load(files, path: str, **options):
    metadata = MetadataFile(files, path)
    data = metadata.load(**options)
    assert data == metadata.found.data
    return data, metadata.found.outcome


@BOTH
def test_what_was_stored_is_loaded_and_verified(files, path):
    store_all(files, path, ONE, TWO)
    assert load(files, path) == (TWO, LoadOutcome.OK)
    assert MetadataFile(files, path).found.faults == ()


@BOTH
def test_nothing_stored_is_missing_and_no_fault(files, path):
    assert load(files, path) == (None, LoadOutcome.MISSING)
    assert files.list("stratamq/aside") == []


@BOTH
def test_the_last_good_content_is_kept(files, path):
    store_all(files, path, ONE, TWO, THREE)
    files.unlink(path)
    assert load(files, path) == (TWO, LoadOutcome.USED_PREVIOUS)


@BOTH
def test_a_main_file_that_was_taken_away_is_told(files, path):
    store_all(files, path, ONE, TWO)
    files.unlink(path)
    metadata = MetadataFile(files, path)
    assert metadata.load() == ONE
    assert metadata.found.faults == (f"{path}: missing, though it was written here",)
    assert not metadata.is_lost
    files.unlink(previous_of(path))
    # Of ours nothing is left that could tell.
    assert metadata.is_lost is (path == TOPICS)
    assert metadata.load() is None
    assert bool(metadata.found.faults) is (path == TOPICS)


@BOTH
def test_what_was_moved_aside_is_not_taken_for_a_file_taken_away(files, path):
    store_all(files, path, ONE)
    files.unlink(path)
    files.make_directory(path)
    assert load(files, path) == (None, LoadOutcome.DAMAGED)
    metadata = MetadataFile(files, path)
    assert metadata.load() is None
    assert not metadata.is_lost and metadata.found.faults == ()


@BOTH
@pytest.mark.parametrize("before", [(), (ONE,)])
@pytest.mark.parametrize("in_pieces", [False, True])
def test_crashes_in_two_stores_are_not_taken_for_a_file_taken_away(path, before, in_pieces):
    def store(metadata: MetadataFile) -> None:
        if not in_pieces:
            metadata.store(THREE)
            return
        metadata.begin()
        metadata.add(b"{}")
        metadata.finish()

    def crashed(disk: SimulatedDisk, step: int) -> bool:
        """Whether a store ended before its `step`th call."""
        metadata = MetadataFile(disk.files(), path)
        metadata.load()
        disk.crash_at(disk.calls + step)
        try:
            store(metadata)
        except SimulatedCrash:
            disk.crash()
            return True
        return False

    first = 0
    while first := first + 1:
        for second in range(1, 10):  # while the temporary file is made
            disk = SimulatedDisk(first)
            store_all(disk.files(), path, *before)
            if not crashed(disk, first):
                return
            if not crashed(disk, second):
                break
            metadata = MetadataFile(disk.files(), path)
            metadata.load()
            told = [fault for fault in metadata.found.faults if "missing" in fault]
            assert not told and not metadata.is_lost, (first, second)


@BOTH
def test_no_temporary_file_stays(files, path):
    store_all(files, path, ONE, TWO)
    directory, _, name = path.rpartition("/")
    present = [entry for entry in names(files, directory) if entry.startswith(name)]
    assert present == sorted([name, previous_of(name if path == TOPICS else path).split("/")[-1]])


def damages(good: bytes) -> dict[str, bytes]:
    return {
        "empty": b"",
        "truncated": good[:-3],
        "zeroed": bytes(len(good)),
        "extended": good + b"}",
        "not text": b"\xff\xfe\x00" * 10,
        "not an object": b"[1]",
        "nested": b"[" * 100_000,
        "flipped digit": good.replace(b"2", b"6"),
        "version of the future": good.replace(b'"version":1', b'"version":9') + b" ",
    }


@BOTH
@pytest.mark.parametrize("damage", damages(b""))
def test_a_damaged_main_file_gives_the_previous_one_and_is_kept_aside(files, path, damage):
    store_all(files, path, ONE, TWO)
    bad = damages(read_file(files, path))[damage]
    overwrite(files, path, bad)
    metadata = MetadataFile(files, path)
    assert metadata.load() == ONE
    assert metadata.found.outcome is LoadOutcome.USED_PREVIOUS
    assert path in metadata.found.faults[0]
    (copy,) = metadata.found.kept_aside
    assert read_file(files, copy) == bad
    metadata.store(THREE)
    assert load(files, path) == (THREE, LoadOutcome.OK)
    files.unlink(path)
    assert load(files, path)[0] == ONE


@BOTH
def test_both_damaged_are_kept_aside_and_nothing_is_returned(files, path):
    store_all(files, path, ONE, TWO)
    overwrite(files, path, b"main!")
    overwrite(files, previous_of(path), b"previous!")
    metadata = MetadataFile(files, path)
    assert metadata.load() is None
    assert metadata.found.outcome is LoadOutcome.DAMAGED
    kept = {read_file(files, copy) for copy in metadata.found.kept_aside}
    assert kept == {b"main!", b"previous!"}
    assert len(metadata.found.faults) == 2


@BOTH
def test_every_flipped_bit_of_a_main_file_is_noticed(path):
    disk = SimulatedDisk()
    files = disk.files()
    store_all(files, path, ONE, TWO)
    for position, byte in enumerate(disk.contents(path)):
        for bit in range(8):
            disk.rot(path, position, bytes([byte ^ (1 << bit)]))
            assert load(files, path, keep_aside=False) == (ONE, LoadOutcome.USED_PREVIOUS)
        disk.rot(path, position, bytes([byte]))
    assert load(files, path) == (TWO, LoadOutcome.OK)


@BOTH
def test_loading_twice_keeps_one_copy_aside(files, path):
    store_all(files, path, ONE, TWO)
    overwrite(files, path, b"bad")
    for _ in range(3):
        load(files, path)
    assert len(names(files, "stratamq/aside")) == 1


@BOTH
def test_a_reader_that_keeps_nothing_aside_changes_nothing(files, path):
    store_all(files, path, ONE, TWO)
    overwrite(files, path, b"bad")
    assert load(files, path, keep_aside=False) == (ONE, LoadOutcome.USED_PREVIOUS)
    assert files.list("stratamq/aside") == []


@BOTH
def test_a_directory_or_link_in_its_place_is_moved_aside(place, path):
    files = place.files
    store_all(files, path, ONE, TWO)
    files.unlink(path)
    files.make_directory(path)
    assert load(files, path) == (ONE, LoadOutcome.USED_PREVIOUS)
    assert files.entry(path) is None
    place.make_link(path)
    metadata = MetadataFile(files, path)
    assert metadata.load() == ONE
    metadata.store(THREE)
    assert load(files, path) == (THREE, LoadOutcome.OK)


@BOTH
def test_an_unreadable_main_file_gives_the_previous_one(path):
    disk = SimulatedDisk()
    files = disk.files()
    store_all(files, path, ONE, TWO)
    disk.fail("open", path, error=errno.EACCES, repeat=True)
    assert load(files, path) == (ONE, LoadOutcome.USED_PREVIOUS)


def test_rocketmqs_work_counts_when_it_is_declared_to_have_run(files):
    store_all(files, TOPICS, ONE, TWO)
    overwrite(files, f"{TOPICS}.bak", read_file(files, TOPICS))
    overwrite(files, TOPICS, json.dumps(THREE).encode())
    assert load(files, TOPICS, foreign=True) == (THREE, LoadOutcome.UNVERIFIED)
    assert load(files, TOPICS) == (TWO, LoadOutcome.USED_PREVIOUS)


def test_an_operators_edit_counts_and_is_reported(files):
    store_all(files, TOPICS, ONE, TWO)
    for edited in ({"n": 7}, {"n": 8}):
        edit_file(files, TOPICS, b'{"n":%d}' % edited["n"])
        for _ in range(2):
            metadata = MetadataFile(files, TOPICS)
            assert metadata.load() == edited
            assert metadata.found.outcome is LoadOutcome.UNVERIFIED
            assert metadata.found.faults == (
                "config/topics.json: edited since it was written here; it counts as it is",
            )
            assert metadata.found.kept_aside == ()
        metadata.store(THREE)
        assert load(files, TOPICS) == (THREE, LoadOutcome.OK)
        overwrite(files, TOPICS, b"damaged")
        assert load(files, TOPICS) == (edited, LoadOutcome.USED_PREVIOUS)


def test_an_edit_that_was_adopted_is_vouched_for_and_may_be_damaged_like_any_other(files):
    store_all(files, TOPICS, ONE, TWO)
    edit_file(files, TOPICS, b'{"n": 7}')
    metadata = MetadataFile(files, TOPICS)
    metadata.load()
    metadata.adopt()
    assert load(files, TOPICS) == ({"n": 7}, LoadOutcome.OK)
    overwrite(files, TOPICS, b'{"n": 9}')
    assert load(files, TOPICS) == ({"n": 9}, LoadOutcome.UNVERIFIED)  # no other is vouched for
    overwrite(files, TOPICS, b'{"n": ')
    assert load(files, TOPICS) == (ONE, LoadOutcome.USED_PREVIOUS)


def test_an_edit_that_is_no_json_is_kept_aside_and_the_last_good_content_counts(files):
    store_all(files, TOPICS, ONE, TWO)
    edit_file(files, TOPICS, b'{"n": 7')
    metadata = MetadataFile(files, TOPICS)
    assert metadata.load() == ONE
    assert metadata.found.outcome is LoadOutcome.USED_PREVIOUS
    assert [read_file(files, kept) for kept in metadata.found.kept_aside] == [b'{"n": 7']


def test_checksums_of_a_release_that_kept_no_times_cannot_distinguish_an_edit_from_damage(files):
    store_all(files, TOPICS, ONE, TWO)
    checksums = MetadataFile(files, f"{CHECKSUMS_DIRECTORY}/{TOPICS}")
    sealed = read_file(files, f"{CHECKSUMS_DIRECTORY}/{TOPICS}")
    contents = json.loads(sealed)["data"]["contents"]
    checksums.store({"contents": contents})
    assert load(files, TOPICS) == (TWO, LoadOutcome.OK)
    edit_file(files, TOPICS, b'{"n": 7}')
    assert load(files, TOPICS) == (ONE, LoadOutcome.USED_PREVIOUS)


def test_a_file_that_only_rocketmq_ever_wrote_is_read_unverified(files):
    write_file(files, "config/delayOffset.json", b'{"offsetTable":{1:5,2:7}}')
    data, outcome = load(files, "config/delayOffset.json")
    assert outcome is LoadOutcome.UNVERIFIED
    assert data == {"offsetTable": {"1": 5, "2": 7}}


def test_rocketmq_reads_what_we_write_as_plain_json(files):
    store_all(files, TOPICS, ONE)
    assert json.loads(read_file(files, TOPICS)) == ONE


def test_damaged_checksums_leave_the_file_unverified(files):
    store_all(files, TOPICS, ONE, TWO)
    overwrite(files, "stratamq/checksums/config/topics.json", b"junk")
    assert load(files, TOPICS) == (TWO, LoadOutcome.UNVERIFIED)


def calls_of_a_store(path: str) -> range:
    disk = SimulatedDisk()
    store_all(disk.files(), path, ONE, TWO)
    before = disk.calls
    metadata = MetadataFile(disk.files(), path)
    metadata.load()
    loaded = disk.calls
    metadata.store(THREE)
    assert loaded > before
    return range(1, disk.calls - loaded + 1)


@BOTH
def test_a_store_that_fails_at_any_call_raises_and_loses_nothing(path):
    for step in calls_of_a_store(path):
        disk = SimulatedDisk()
        files = disk.files()
        store_all(files, path, ONE, TWO)
        metadata = MetadataFile(files, path)
        metadata.load()
        disk.fail_at(disk.calls + step, errno.ENOSPC)
        with pytest.raises(OSError):
            metadata.store(THREE)
        assert load(files, path)[0] in (TWO, THREE)
        metadata.store(THREE)
        assert load(files, path) == (THREE, LoadOutcome.OK)


@BOTH
def test_a_crash_at_any_call_of_a_store_leaves_the_old_content_or_the_new(path):
    seen = set()
    for step in calls_of_a_store(path):
        for seed in range(12):
            disk = SimulatedDisk(seed)
            files = disk.files()
            store_all(files, path, ONE, TWO)
            metadata = MetadataFile(files, path)
            metadata.load()
            disk.crash_at(disk.calls + step)
            with pytest.raises(SimulatedCrash):
                metadata.store(THREE)
            disk.crash() if seed else disk.kill()
            files = disk.files()
            data, outcome = load(files, path)
            assert data in (TWO, THREE), (step, seed)
            assert outcome in (LoadOutcome.OK, LoadOutcome.USED_PREVIOUS)
            seen.add(data["n"])
            store_all(files, path, ONE)
            assert load(files, path) == (ONE, LoadOutcome.OK)
    assert seen == {2, 3}


@BOTH
def test_a_store_is_durable_on_return(path):
    disk = SimulatedDisk()
    store_all(disk.files(), path, ONE, TWO)
    disk.crash(lambda item: False)
    assert load(disk.files(), path) == (TWO, LoadOutcome.OK)


def test_a_removed_file_is_gone_for_good_with_all_that_belongs_to_it():
    disk = SimulatedDisk()
    path = "stratamq/a.json"
    store_all(disk.files(), path, ONE, TWO)
    disk.files().sync_all()
    remove_metadata(disk.files(), path)
    disk.crash(lambda item: False)
    assert load(disk.files(), path) == (None, LoadOutcome.MISSING)
    remove_metadata(disk.files(), path)


def test_a_content_in_pieces_is_durable_when_it_is_finished():
    disk = SimulatedDisk()
    path = "config/a.json"
    metadata = MetadataFile(disk.files(), path)
    metadata.store(ONE)
    metadata.begin()
    raw = format_json(TWO)
    for start in range(0, len(raw), 3):
        metadata.add(raw[start : start + 3])
    metadata.finish()
    disk.crash(lambda item: False)
    assert load(disk.files(), path) == (TWO, LoadOutcome.OK)
