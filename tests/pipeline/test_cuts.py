"""A batch is divided evenly at beginnings of frames, however many frames there are."""

import json

import numpy as np
import pytest
from stratamq_pipeline.cuts import MAX_CUTS, MAX_PLACES, FramePlaces, bounds_of
from stratamq_pipeline.offsets import StreamOffset


def walked(sizes, at_once=1000):
    """Frames of these sizes, from 0 on, added in chunks; their places, and the end."""
    starts = np.cumsum([0, *sizes[:-1]])
    places = FramePlaces()
    for first in range(0, len(starts), at_once):
        places.add(starts[first : first + at_once])
    return places, starts.tolist(), sum(sizes)


@pytest.mark.parametrize("part_bytes", [1, 700, 1000, 9_999, 10_000])
def test_each_cut_is_the_first_frame_behind_its_share(part_bytes):
    places, starts, end = walked([100] * 100)
    cuts = places.cuts(0, end, part_bytes)
    count = min(-(-end // part_bytes), MAX_CUTS + 1)
    shares = [end * number // count for number in range(1, count)]
    found = {next((at for at in starts if at >= share), None) for share in shares}
    assert cuts == sorted(found - {None, 0})


def test_a_range_that_is_one_part_has_no_cuts():
    places, _, end = walked([100] * 100)
    assert places.cuts(0, end, end) == places.cuts(0, end, 10 * end) == []
    assert FramePlaces().cuts(0, 100, 10) == []


def test_cuts_are_within_the_range_that_is_left():
    places, _, end = walked([100] * 100)
    assert all(5_000 < cut < end for cut in places.cuts(5_000, end, 100))
    assert bounds_of(150, 480, [100, 300, 150, 480, 200, 900]) == [150, 200, 300, 480]


@pytest.mark.parametrize("at_once", [1, 777, 100_000])
def test_of_very_many_frames_a_bounded_number_is_kept_evenly(at_once):
    sizes = [90 + number % 41 for number in range(100_000)]
    places, starts, end = walked(sizes, at_once)
    assert MAX_PLACES // 4 < len(places.places) <= MAX_PLACES
    assert set(places.places) <= set(starts)
    assert sorted(places.places) == places.places
    cuts = places.cuts(0, end, end // 16)
    widths = np.diff([0, *cuts, end])
    assert len(widths) in (16, 17)
    assert widths.max() < end / 15
    assert len(places.cuts(0, end, 1)) <= MAX_CUTS


def test_cuts_stand_in_the_checkpoint_and_belong_to_one_batch():
    end = StreamOffset(5).after(900, {("a", 0): 3}, 7, [300, 600])
    kept = json.loads(json.dumps(end.to_json()))
    assert kept["cuts"] == [300, 600]
    assert StreamOffset.from_json(kept) == end
    assert StreamOffset.from_json(kept).after(950, {}, 7).cuts == ()
    assert "cuts" not in StreamOffset(5).to_json()
