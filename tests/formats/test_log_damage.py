"""Damaged stretches of the log: found at their first byte, ended at the next whole frame."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stratamq.formats.frame_layout import BLANK, MAGIC_BLANK, MAGIC_V2
from stratamq.formats.log_damage import HEAD_BYTES, examine, next_frame
from tests.support.logs import FIXED, Store, raw_frame

SEGMENT = 4096


def segment(checksum: bool) -> tuple[bytes, list[int]]:
    """One full segment as our log writes it, and where its frames and its blank begin."""
    store = Store(SEGMENT, property_checksum=checksum)
    store.start()
    assert store.log is not None
    while len(store.log.segments.offsets) < 2:
        store.put(b"b" * 150, properties={"KEYS": "k"})
    places = [offset for offset, _, _ in store.members() if offset < SEGMENT]
    return store.segments()[0], places


SEALED, SEALED_PLACES = segment(True)
PLAIN, PLAIN_PLACES = segment(False)
BOTH = pytest.mark.parametrize(
    ("data", "places"), [(SEALED, SEALED_PLACES), (PLAIN, PLAIN_PLACES)], ids=["sealed", "plain"]
)


@BOTH
def test_a_whole_segment_is_good_up_to_its_blank(data, places):
    looked = examine(data, 0, SEGMENT)
    assert (looked.good, looked.frames) == (places[-1], len(places) - 1)
    assert looked.at_end and not looked.reason


@BOTH
def test_every_prefix_is_good_and_reports_how_much_more_it_needs(data, places):
    for length in range(SEGMENT):
        looked = examine(data[:length], 0, SEGMENT)
        assert not looked.reason
        whole = max(place for place in places if place <= length)
        if length >= places[-1] + BLANK.size:
            assert looked.at_end and looked.good == places[-1]
        else:
            assert looked.good == whole
            assert bool(looked.needs) is (length > whole)
            if length >= whole + BLANK.size:
                following = places[places.index(whole) + 1]
                assert looked.needs == following - whole


def test_every_flipped_bit_of_a_sealed_segment_is_found_in_its_frame():
    for position in range(SEALED_PLACES[-1] + BLANK.size):
        damaged = bytearray(SEALED)
        damaged[position] ^= 1 << position % 8
        looked = examine(damaged, 0, SEGMENT)
        assert looked.reason, position
        hit = max(place for place in SEALED_PLACES if place <= position)
        assert looked.good == hit


@BOTH
def test_behind_any_frame_the_next_one_is_found(data, places):
    for place, following in pairwise(places):
        found = next_frame(data[place:], place, SEGMENT)
        assert found is not None and place + found == following


@BOTH
def test_a_beginning_that_is_not_whole_in_the_bytes_is_not_found_yet(data, places):
    following = places[3]
    start = places[2]
    assert next_frame(data[start : following + HEAD_BYTES - 1], start, SEGMENT) is None
    assert next_frame(data[start : following + HEAD_BYTES], start, SEGMENT) == following - start


@given(st.binary(max_size=400))
def test_any_bytes_are_good_or_damaged_and_never_an_error(data):
    looked = examine(data, 0, SEGMENT)
    assert 0 <= looked.good <= len(data)
    found = next_frame(data, 0, SEGMENT)
    assert found is None or 0 < found < len(data)


def test_a_frame_of_another_place_is_no_place_to_continue():
    moved = SEALED[SEALED_PLACES[1] :]
    assert next_frame(b"\0" * 5 + moved[: 5 * FIXED], 0, SEGMENT) is None


def test_a_blank_that_does_not_fill_the_segment_is_damage():
    blank = BLANK.pack(100, MAGIC_BLANK)
    assert examine(blank + bytes(92), 0, SEGMENT).reason == "length"
    assert examine(blank + bytes(92), SEGMENT - 100, SEGMENT).at_end


def alike(count: int, size: int = 120) -> list[bytes]:
    frames = [raw_frame(b"b" * (size - FIXED - len("orders"))) for _ in range(count)]
    assert all(len(frame) == size for frame in frames)
    return frames


@pytest.mark.parametrize("other", ["shorter", "longer", "version", "magic", "zeros", "nothing"])
@pytest.mark.parametrize("count", [1, 9, 10, 11, 40])
def test_a_row_of_equal_frames_ends_where_it_ends(count, other):
    behind = {
        "shorter": alike(1, 110)[0],
        "longer": alike(1, 130)[0],
        "version": raw_frame(b"b" * 22, magic=MAGIC_V2),
        "magic": b"\0\0\0\x78" + bytes(116),
        "zeros": bytes(120),
        "nothing": b"",
    }[other]
    frames = [*alike(count), behind, *alike(count)]
    data = bytearray(b"".join(frames))
    place, places = 0, []
    for frame in frames:
        if other != "nothing" or frame:
            data[place + 28 : place + 36] = place.to_bytes(8, "big")
            places.append(place)
        place += len(frame)
    looked = examine(bytes(data), 0, 1 << 20)
    bad = other in ("magic", "zeros")
    assert looked.frames == (count if bad else 2 * count + (other != "nothing"))
    assert looked.good == (places[count] if bad else len(data))
    assert looked.reason == ("magic" if bad else "")


def test_equal_frames_end_where_the_segment_does():
    data = bytearray(b"".join(alike(40)))
    for place in range(0, len(data), 120):
        data[place + 28 : place + 36] = place.to_bytes(8, "big")
    looked = examine(bytes(data), 0, 20 * 120)
    assert looked.frames == 20
