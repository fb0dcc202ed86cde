"""The storage map's pictures: to scale, bounded, and names in them are text."""

import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest
from stratamq_console.log_picture import MAX_CELLS, age_class, cells_of, log_picture
from stratamq_console.treemap import HEIGHT, WIDTH, Box, Tile, squarified, treemap

from stratamq.client import StorageMap, StoredSegment, StoredSegments
from stratamq.client.values import CleaningLook, CleaningStep
from stratamq.formats.log_damage import Damage
from stratamq.formats.log_state import LogState, ReplicaState, ScrubState

NOW_MS = 1_800_000_000_000
HOUR_MS = 3_600_000
HOSTILE = '<script>alert(1)</script>"&'


def stored(count: int, used: int | None = None) -> StorageMap:
    """So many segments of 1 000 bytes, an hour apart."""
    segments = tuple(
        StoredSegment(
            number * 1_000,
            number * 1_000 + 1_000,
            None if number == count - 1 else NOW_MS - (count - number) * HOUR_MS,
            None,
        )
        for number in range(count)
    )
    log = LogState(appended_offset=count * 1_000 if used is None else used, segment_bytes=1_000)
    where = StoredSegments(segments, NOW_MS, 10_000, 5_000, "", 0)
    return StorageMap(log, where, None, None, None, ())


def rectangles(svg: str, kind: str) -> list[ET.Element]:
    return [one for one in ET.fromstring(svg).iter() if kind in one.get("class", "").split()]


def width_of(one: ET.Element) -> float:
    return float(one.get("width", "0"))


@pytest.mark.parametrize("count", [1, 2, 100, MAX_CELLS, MAX_CELLS + 1, 20_000])
def test_a_log_of_any_length_is_drawn_whole_in_a_bounded_picture(count):
    found = stored(count)
    cells = cells_of(found.mapped())
    assert len(cells) <= MAX_CELLS
    assert sum(one.segments for one in cells) == count
    assert (cells[0].start, cells[-1].end) == (0, count * 1_000)
    picture = str(log_picture(found))
    assert len(picture) < 150_000
    assert len(rectangles(picture, "room")) == len(cells)


def test_the_last_segment_is_as_full_as_it_is():
    picture = str(log_picture(stored(4, used=3_250)))
    rooms = rectangles(picture, "room")
    (last,) = rectangles(picture, "age-0")[-1:]
    assert float(last.get("height")) == pytest.approx(float(rooms[-1].get("height")) / 4, abs=0.01)


def test_what_goes_is_held_or_damaged_is_marked_where_it_is():
    found = stored(10)
    steps = {
        "deletions": (CleaningStep(0, 1_000, "expired", "it is old"),),
        "held": (CleaningStep(1_000, 2_000, "replicated", "no slave has it"),),
    }
    plan = CleaningLook(NOW_MS, 0.5, 10, kept=None, alarm="", deleted=(), minimum_offset=0, **steps)
    scrub = ScrubState(position_offset=5_000, damage=(Damage(3_100, 3_200, "body_crc"),))
    planned = replace(found.segments, plan=plan)
    found = replace(found, segments=planned, log=replace(found.log, scrub=scrub))
    picture = str(log_picture(found))
    for kind in ("goes", "held", "damage"):
        assert len(rectangles(picture, kind)) == 1, kind
    assert "no slave has it" in picture
    (verified,) = rectangles(picture, "verified")
    rooms = rectangles(picture, "room")
    end = float(verified.get("x")) + width_of(verified)
    assert end == pytest.approx(float(rooms[5].get("x")), abs=1)


def test_names_in_the_picture_are_text():
    found = stored(3)
    slave = ReplicaState(HOSTILE, 2_000, True, member=HOSTILE)
    found = replace(found, log=replace(found.log, replicas=(slave,)))
    picture = str(log_picture(found))
    assert "<script" not in picture
    assert any(HOSTILE in (one.text or "") for one in ET.fromstring(picture).iter())
    tiles = str(treemap(HOSTILE, [Tile(HOSTILE, 1, "1 B", "/topics/" + HOSTILE)]))
    assert "<script" not in tiles
    assert ET.fromstring(tiles).get("aria-label") == HOSTILE


def test_ages_are_by_the_hour_and_what_is_being_written_is_young():
    ages = [age_class(NOW_MS - int(hours * HOUR_MS), NOW_MS) for hours in (0.5, 1, 6, 24, 72)]
    assert ages == [0, 1, 2, 3, 4]
    assert age_class(None, NOW_MS) == 0


# --- the treemap ---


@pytest.mark.parametrize(
    "values",
    [[1.0], [6, 6, 4, 3, 2, 2, 1], [1_000_000, 1], [5.0] * 21, [2.0**-n for n in range(21)]],
)
def test_tiles_have_the_area_of_their_value_and_fill_the_box(values):
    box = Box(0, 0, WIDTH, HEIGHT)
    boxes = list(squarified(values, box))
    assert len(boxes) == len(values)
    scale = WIDTH * HEIGHT / sum(values)
    for value, one in zip(values, boxes, strict=True):
        assert one.width * one.height == pytest.approx(value * scale, rel=1e-6)
        assert one.x >= -1e-6 and one.x + one.width <= WIDTH + 1e-6
        assert one.y >= -1e-6 and one.y + one.height <= HEIGHT + 1e-6


def test_tiles_are_nearly_square_where_the_values_allow_it():
    ratios = [
        max(one.width / one.height, one.height / one.width)
        for one in squarified([6, 6, 4, 3, 2, 2, 1], Box(0, 0, 600, 400))
    ]
    assert max(ratios) < 3


def test_a_tile_without_a_value_is_left_out_and_the_largest_comes_first():
    tiles = [Tile("small", 1, "1 B"), Tile("none", 0, "0 B"), Tile("large", 9, "9 B")]
    texts = [one.text for one in ET.fromstring(str(treemap("t", tiles))).iter() if one.text]
    assert texts[0] == "large: 9 B"
    assert not any("none" in text for text in texts)
