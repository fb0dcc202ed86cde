"""Families of segment files, and a follower's reader, on both disks."""

import contextlib
import gc
import os

import pytest

from stratamq.errors import OffsetOutOfRangeError
from stratamq.files.port import Files
from stratamq.files.real import RealFiles
from stratamq.files.simulated import SimulatedDisk
from stratamq.formats.file_names import offset_name
from stratamq.store.segment_reader import SegmentReader, UnreadableError
from stratamq.store.segments import FindingKind, scan_family
from tests.support.disks import PAGE, write_file

SEGMENT = 2 * PAGE


def segment_bytes(offset: int) -> bytes:
    return (offset // SEGMENT + 1).to_bytes(4, "big") * (SEGMENT // 4)


def make_log(files: Files, count: int, first: int = 0) -> None:
    for index in range(first, first + count):
        write_file(
            files, f"commitlog/{offset_name(index * SEGMENT)}", segment_bytes(index * SEGMENT)
        )


def findings(files: Files) -> list[tuple[FindingKind, str]]:
    report = scan_family(files, "commitlog", SEGMENT)
    return [(finding.kind, finding.name) for finding in report.findings]


# --- scan_family ---


def test_an_orderly_family_has_no_findings(files):
    make_log(files, 3, first=2)
    report = scan_family(files, "commitlog", SEGMENT)
    assert report.clean
    assert [segment.offset for segment in report.segments] == [
        2 * SEGMENT,
        3 * SEGMENT,
        4 * SEGMENT,
    ]
    assert (report.minimum_offset, report.end_offset) == (2 * SEGMENT, 5 * SEGMENT)


def test_a_missing_or_empty_directory_is_an_empty_family(files):
    assert scan_family(files, "commitlog", SEGMENT).clean
    files.make_directory("commitlog")
    report = scan_family(files, "commitlog", SEGMENT)
    assert report.clean
    assert (report.segments, report.end_offset) == ((), 0)


def test_a_gap_is_named_by_the_segment_behind_it(files):
    make_log(files, 1)
    make_log(files, 2, first=2)
    assert findings(files) == [(FindingKind.GAP, offset_name(2 * SEGMENT))]


def test_wrong_sizes_are_named_and_stay_in_the_list(files):
    make_log(files, 1)
    write_file(files, f"commitlog/{offset_name(SEGMENT)}", b"short")
    report = scan_family(files, "commitlog", SEGMENT)
    assert findings(files) == [(FindingKind.WRONG_SIZE, offset_name(SEGMENT))]
    assert report.segments[1].size == 5


def test_a_last_file_of_no_bytes_is_distinguished_from_one_in_the_middle(files):
    files.create(f"commitlog/{offset_name(0)}", 0)
    make_log(files, 1, first=1)
    files.create(f"commitlog/{offset_name(2 * SEGMENT)}", 0)
    assert findings(files) == [
        (FindingKind.EMPTY, offset_name(0)),
        (FindingKind.EMPTY_LAST, offset_name(2 * SEGMENT)),
    ]


def test_an_offset_off_the_grid_is_named(files):
    write_file(files, f"commitlog/{offset_name(100)}", segment_bytes(0))
    assert findings(files) == [(FindingKind.UNALIGNED, offset_name(100))]


@pytest.mark.parametrize(
    "name", ["readme.txt", "0" * 19, "0" * 21, "9" * 20, "-" + "0" * 19, "٣" * 20]
)
def test_a_name_that_is_no_offset_is_a_stray(files, name):
    make_log(files, 1)
    write_file(files, f"commitlog/{name}", b"x")
    assert findings(files) == [(FindingKind.STRAY, name)]


def test_directories_and_links_are_named_even_under_a_segments_name(place):
    place.files.make_directory(f"commitlog/{offset_name(0)}")
    place.make_link(f"commitlog/{offset_name(SEGMENT)}")
    assert findings(place.files) == [
        (FindingKind.DIRECTORY, offset_name(0)),
        (FindingKind.LINK, offset_name(SEGMENT)),
    ]


def test_a_file_in_the_familys_place_is_a_finding_and_no_exception(files):
    write_file(files, "commitlog", b"x")
    assert findings(files) == [(FindingKind.OTHER, "")]


def test_findings_can_be_asked_by_kind(files):
    make_log(files, 1)
    write_file(files, "commitlog/x", b"")
    report = scan_family(files, "commitlog", SEGMENT)
    assert [f.name for f in report.of_kind(FindingKind.STRAY)] == ["x"]
    assert report.of_kind(FindingKind.GAP) == []


# --- SegmentReader ---


@pytest.fixture
def log(files):
    make_log(files, 3)
    return SegmentReader(files, "commitlog", SEGMENT, maximum_files=2)


def test_a_window_reaches_from_its_offset_to_the_end_of_the_segment(log):
    window = log.window(SEGMENT + 100, SEGMENT)
    assert window.readonly
    assert bytes(window) == segment_bytes(SEGMENT)[100:]
    assert bytes(log.window(SEGMENT + 100, limit=7)) == segment_bytes(SEGMENT)[100:107]
    assert len(log.window(2 * SEGMENT - 1, limit=100)) == 1


def test_reads_cross_segments_and_stop_at_the_end(log):
    whole = b"".join(segment_bytes(index * SEGMENT) for index in range(3))
    assert log.read(SEGMENT - 3, SEGMENT + 10) == whole[SEGMENT - 3 : 2 * SEGMENT + 7]
    assert log.read(0, 10 * SEGMENT) == whole
    assert log.read(5, 0) == b""


@pytest.mark.parametrize("offset", [-1, 3 * SEGMENT, 1 << 62])
def test_outside_the_log_the_error_carries_its_bounds(log, offset):
    for ask in (lambda at: log.window(at, 1), lambda at: log.read(at, 1)):
        with pytest.raises(OffsetOutOfRangeError) as caught:
            ask(offset)
        assert (caught.value.minimum, caught.value.maximum) == (0, 3 * SEGMENT)


def test_new_segments_are_found_when_asked_for(files, log):
    log.window(0, SEGMENT)
    make_log(files, 1, first=3)
    assert bytes(log.window(3 * SEGMENT, SEGMENT)) == segment_bytes(3 * SEGMENT)
    make_log(files, 1, first=4)
    assert log.read(4 * SEGMENT, 4) == segment_bytes(4 * SEGMENT)[:4]
    assert log.bounds() == (0, 5 * SEGMENT)


def test_an_open_segment_outlives_its_unlinking_and_another_does_not(files, log):
    log.window(0, SEGMENT)
    for index in (0, 1):
        files.unlink(f"commitlog/{offset_name(index * SEGMENT)}")
    assert bytes(log.window(0, SEGMENT)) == segment_bytes(0)
    with pytest.raises(OffsetOutOfRangeError) as caught:
        log.window(SEGMENT, SEGMENT)
    assert caught.value.minimum == 2 * SEGMENT
    with pytest.raises(OffsetOutOfRangeError):
        log.read(SEGMENT, 1)


def test_a_kept_window_stays_valid_when_its_file_leaves_the_list(log):
    first = log.window(0, SEGMENT)
    log.window(SEGMENT, SEGMENT)
    log.window(2 * SEGMENT, SEGMENT)
    gc.collect()
    assert bytes(first) == segment_bytes(0)


def test_after_release_from_the_new_file_of_the_same_name_is_read(files, log):
    log.window(2 * SEGMENT, SEGMENT)
    path = f"commitlog/{offset_name(2 * SEGMENT)}"
    files.unlink(path)
    write_file(files, path, bytes(SEGMENT))
    assert bytes(log.window(2 * SEGMENT, SEGMENT)) == segment_bytes(2 * SEGMENT)
    log.release_from(2 * SEGMENT + 5)
    assert bytes(log.window(2 * SEGMENT, SEGMENT)) == bytes(SEGMENT)


def test_a_segment_shorter_than_it_should_be_ends_where_its_bytes_end(files, log):
    write_file(files, f"commitlog/{offset_name(3 * SEGMENT)}", b"abc")
    assert bytes(log.window(3 * SEGMENT + 1, SEGMENT)) == b"bc"
    for ask in (log.window, log.read):
        with pytest.raises(UnreadableError, match="the file ends before 3, and should have 8192"):
            ask(3 * SEGMENT + 3, 1)
    assert log.read(3 * SEGMENT - 1, 100)[1:] == b"abc"


def open_segments(root) -> list[str]:
    """Names of the segments that this process has open, and of those that it has mapped."""
    there = []
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            there.append(os.readlink(f"/proc/self/fd/{number}"))
    with open("/proc/self/maps") as maps:
        there += [f"{line.split()[5]} mapped" for line in maps if f"{root}/commitlog" in line]
    return sorted(os.path.basename(path) for path in there if f"{root}/commitlog" in path)


def test_a_segment_that_other_reads_pushed_out_is_opened_again(tmp_path):
    files = RealFiles(tmp_path / "store")
    make_log(files, 3)
    log = SegmentReader(files, "commitlog", SEGMENT, maximum_files=1)
    assert bytes(log.window(0, 5)) == segment_bytes(0)[:5]
    log.read(SEGMENT, 5)
    assert bytes(log.window(5, 5)) == segment_bytes(0)[5:10]


def test_only_the_last_used_segments_stay_open_and_released_ones_go(tmp_path):
    files = RealFiles(tmp_path / "store")
    make_log(files, 4)
    log = SegmentReader(files, "commitlog", SEGMENT, maximum_files=2)
    for index in (0, 1, 0, 2):
        log.window(index * SEGMENT, SEGMENT)
    assert open_segments(files.root) == [offset_name(0), offset_name(2 * SEGMENT)]
    log.read(3 * SEGMENT, 10)
    assert open_segments(files.root) == [offset_name(2 * SEGMENT), offset_name(3 * SEGMENT)]
    log.drop_cache(3 * SEGMENT, 10)
    log.release_below(3 * SEGMENT)
    assert open_segments(files.root) == [offset_name(3 * SEGMENT)]
    log.close()
    assert open_segments(files.root) == []


def test_a_segment_that_is_cut_short_under_a_reader_ends_where_its_bytes_end(tmp_path):
    """A page of a mapping that is gone kills the process."""
    files = RealFiles(tmp_path / "store")
    make_log(files, 2)
    log = SegmentReader(files, "commitlog", SEGMENT)
    whole = log.window(0, SEGMENT)
    os.truncate(files.root / "commitlog" / offset_name(0), 100)
    assert bytes(whole) == segment_bytes(0), "what was read stays"
    assert bytes(log.window(0, SEGMENT)) == segment_bytes(0)[:100]
    for ask in (log.window, log.read):
        with pytest.raises(UnreadableError):
            ask(100, 1)
    assert log.read(SEGMENT, 5) == segment_bytes(SEGMENT)[:5]


def test_what_the_device_refuses_is_a_named_error_and_the_rest_is_read():
    disk = SimulatedDisk()
    files = disk.files()
    make_log(files, 2)
    log = SegmentReader(files, "commitlog", SEGMENT)
    path = f"commitlog/{offset_name(SEGMENT)}"
    for ask in (log.window, log.read):
        fault = disk.fail("read", path)
        with pytest.raises(UnreadableError, match="Input/output error") as caught:
            ask(SEGMENT + 5, 7)
        assert (caught.value.file, caught.value.position) == (path, 5)
        assert fault.met == 1
        assert bytes(ask(SEGMENT + 5, 7)) == segment_bytes(SEGMENT)[5:12]


def test_a_log_that_grows_is_followed_without_listing_it_for_each_segment(files, monkeypatch):
    make_log(files, 1)
    listed, list_directory = [], files.list
    monkeypatch.setattr(files, "list", lambda path: (listed.append(path), list_directory(path))[1])
    reader = SegmentReader(files, "commitlog", SEGMENT)
    assert reader.read(0, 4) == segment_bytes(0)[:4]
    for index in range(1, 20):
        offset = index * SEGMENT
        with pytest.raises(OffsetOutOfRangeError):
            reader.read(offset, 4)
        at_its_absence = len(listed)
        make_log(files, 1, first=index)
        assert reader.read(offset + 4, 4) == segment_bytes(offset)[:4]
        assert len(listed) == at_its_absence
    make_log(files, 1, first=22)
    assert reader.read(22 * SEGMENT, 4) == segment_bytes(22 * SEGMENT)[:4]
    assert reader.bounds() == (0, 23 * SEGMENT)
