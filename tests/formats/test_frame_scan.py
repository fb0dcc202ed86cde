"""Frame positions from their headers alone, and what ends a scan."""

import random

import pytest

from stratamq.formats.frame_layout import BLANK, MAGIC_BLANK, MAGIC_V1, MAGIC_V2, MIN_FRAME_BYTES
from stratamq.formats.frame_scan import FrameScan, ScanEnd, scan_frames

LEAST = MIN_FRAME_BYTES


def frames(*sizes: int, magic: int = MAGIC_V1) -> bytes:
    return b"".join(BLANK.pack(size, magic) + bytes(size - BLANK.size) for size in sizes)


def outcome(scan: FrameScan) -> tuple[list[int], int, ScanEnd, int, int]:
    return scan.sizes.tolist(), scan.end, scan.stop, scan.size, scan.magic


@pytest.mark.parametrize("least", [1, 31, 32, 33, 64, 95, 96, 97, 1000])
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_frames_alike_are_found_to_the_last(least, kind):
    """As many as are looked for singly, together, and one more or less."""
    sizes = [200] * least + [LEAST, 300, 300]
    assert outcome(scan_frames(kind(frames(*sizes)))) == (sizes, sum(sizes), ScanEnd.END, 0, 0)


def test_versions_mix():
    data = frames(*[100] * 40) + frames(*[100] * 40, magic=MAGIC_V2) + frames(100)
    assert outcome(scan_frames(data))[:3] == ([100] * 81, 8100, ScanEnd.END)


def test_any_row_of_sizes_is_found_from_anywhere_in_any_portions():
    chance = random.Random(4)
    for _ in range(60):
        sizes: list[int] = []
        while len(sizes) < 300:
            sizes += [chance.randrange(LEAST, 400)] * chance.choice((1, 1, 2, 40, 90))
        data = frames(*sizes)
        skipped = chance.randrange(len(sizes))
        start, most = sum(sizes[:skipped]), chance.randrange(1, 200)
        scan = scan_frames(data, start, most=most)
        assert scan.sizes.tolist() == sizes[skipped : skipped + most]
        assert scan.end == sum(sizes[: skipped + most])
        assert scan.stop is (ScanEnd.ENOUGH if skipped + most <= len(sizes) else ScanEnd.END)


@pytest.mark.parametrize("before", [0, 3, 70])
@pytest.mark.parametrize(
    ("behind", "stop", "size", "magic"),
    [
        (b"", ScanEnd.END, 0, 0),
        (frames(100)[:7], ScanEnd.WITHIN, 0, 0),
        (frames(100)[:8], ScanEnd.WITHIN, 100, MAGIC_V1),
        (frames(100)[:99], ScanEnd.WITHIN, 100, MAGIC_V1),
        (BLANK.pack(12, MAGIC_BLANK), ScanEnd.BLANK, 12, MAGIC_BLANK),
        (BLANK.pack(-1, MAGIC_BLANK), ScanEnd.BLANK, -1, MAGIC_BLANK),
        (bytes(8), ScanEnd.MAGIC, 0, 0),
        (BLANK.pack(100, MAGIC_V1 + 1), ScanEnd.MAGIC, 100, MAGIC_V1 + 1),
        (BLANK.pack(LEAST - 1, MAGIC_V1) + bytes(200), ScanEnd.LENGTH, LEAST - 1, MAGIC_V1),
        (BLANK.pack(-1, MAGIC_V2) + bytes(200), ScanEnd.LENGTH, -1, MAGIC_V2),
    ],
)
def test_what_stands_behind_the_frames_ends_the_scan(before, behind, stop, size, magic):
    data = frames(*[200] * before) + behind
    assert outcome(scan_frames(data)) == ([200] * before, 200 * before, stop, size, magic)


@pytest.mark.parametrize("before", [0, 70])
def test_a_frame_that_would_leave_the_segment_has_no_length(before):
    data, end = frames(*[200] * (before + 5)), 200 * before
    for limit in (end + 8, end + 199):
        assert outcome(scan_frames(data, limit=limit))[1:4] == (end, ScanEnd.LENGTH, 200)
    assert outcome(scan_frames(data, limit=end + 200))[1:3] == (end + 200, ScanEnd.END)
    beyond = outcome(scan_frames(data[: end + 50], limit=end + 200))
    assert beyond[1:4] == (end, ScanEnd.WITHIN, 200)


def test_nothing_is_wanted_or_there():
    assert outcome(scan_frames(frames(100), most=0)) == ([], 0, ScanEnd.ENOUGH, 0, 0)
    assert outcome(scan_frames(b"")) == ([], 0, ScanEnd.END, 0, 0)
