"""Heads have the columns of their frames, and no bodies."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stratamq.errors import CorruptRecordError
from stratamq.formats.columns import columns_at, frame_columns
from stratamq.formats.frame_heads import LENGTH, columns_of_heads, heads_of
from tests.formats.shapes import FRAMES

SAME = (
    *("queue_id", "queue_offset", "physical_offset", "sys_flag", "store_timestamp_ms", "flag"),
    *("born_timestamp_ms", "reconsume_times", "prepared_transaction_offset", "body_crc"),
)


def array(raw):
    return np.frombuffer(raw, np.uint8)


def of_frames(*raws):
    return frame_columns(array(b"".join(raws)), np.array([len(raw) for raw in raws]))


def of_heads(heads, sizes):
    return columns_of_heads(array(heads), np.array(sizes, LENGTH), 0)


def topics(raw, columns):
    places = zip(columns.topic_start.tolist(), columns.topic_length.tolist(), strict=True)
    return [bytes(raw[at : at + length]) for at, length in places]


def test_heads_of_every_shape_have_all_that_is_no_body_and_no_property():
    raws = list(FRAMES.values())
    frames, whole = of_frames(*raws), b"".join(raws)
    heads = heads_of(array(whole), frames)
    found = of_heads(heads, frames.size)
    for name in SAME:
        assert getattr(found, name).tolist() == getattr(frames, name).tolist(), name
    assert found.size.tolist() == [len(raw) for raw in raws]
    assert topics(heads, found) == topics(whole, frames)
    assert not found.body_length.any() and not found.properties_length.any()
    assert len(heads) == len(whole) - frames.body_length.sum() - frames.properties_length.sum()


def test_frames_that_lie_apart_give_heads_one_behind_the_other():
    first, second = list(FRAMES.values())[:2]
    raw = array(b"xx" + first + b"yyy" + second)
    starts, sizes = np.array([2, len(first) + 5]), np.array([len(first), len(second)])
    together = heads_of(array(first + second), of_frames(first, second))
    assert heads_of(raw, columns_at(raw, starts, sizes)) == together
    assert heads_of(raw, columns_at(raw, starts[:0], sizes[:0])) == b""


def test_as_many_lengths_as_heads_come():
    raw = FRAMES["v1"]
    heads = heads_of(array(raw), of_frames(raw))
    for given_heads, sizes in ((heads, []), (heads, [1, 2]), (heads[:-1], [1]), (b"", [1])):
        with pytest.raises(CorruptRecordError):
            of_heads(given_heads, sizes)


@given(place=st.integers(0, 10_000), byte=st.integers(0, 255))
def test_a_changed_byte_gives_columns_or_an_error(place, byte):
    raw = FRAMES["v1"]
    heads = bytearray(heads_of(array(raw), of_frames(raw)))
    heads[place % len(heads)] = byte
    try:
        assert len(of_heads(bytes(heads), [len(raw)])) == 1
    except CorruptRecordError as error:
        assert error.position == 0
