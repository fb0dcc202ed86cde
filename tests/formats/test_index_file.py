"""Index files: any puts are found again, and damage never makes the reader run in circles."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stratamq.errors import CorruptRecordError
from stratamq.formats.index_file import IndexFileView
from stratamq.formats.index_layout import (
    INDEX_ITEM,
    decode_index_header,
    encode_index_header,
    index_file_bytes,
    item_position,
)
from tests.support.index_files import IndexFileBuilder, query_index_files

SLOTS, ITEMS = 4, 12
puts = st.lists(
    st.tuples(st.sampled_from(["t#a", "t#b", "t#c", "u#é"]), st.integers(0, 5000)), max_size=30
)


def build(operations) -> list[IndexFileBuilder]:
    files = [IndexFileBuilder.create(SLOTS, ITEMS)]
    time_ms = 1_500_000_000_000
    for number, (key, step_ms) in enumerate(operations):
        time_ms += step_ms
        if not files[-1].put(key, number, time_ms):
            last = files[-1].reader.header
            files.append(
                IndexFileBuilder.create(SLOTS, ITEMS, last.end_phy_offset, last.end_timestamp_ms)
            )
            assert files[-1].put(key, number, time_ms)
    return files


@given(puts)
def test_every_key_is_found_newest_first(operations):
    readers = [file.reader for file in build(operations)]
    for key in {key for key, _ in operations}:
        numbers = [n for n, (other, _) in enumerate(operations) if other == key]
        assert query_index_files(readers, key, 64, 0, 2**62) == numbers[::-1]
        assert query_index_files(readers, key, 2, 0, 2**62) == numbers[::-1][:2]
        assert query_index_files(readers, key, 0, 0, 2**62) == []
    assert all(reader.has_geometry_of_its_items() for reader in readers)


@given(puts, st.data())
@settings(max_examples=200)
def test_damage_ends_the_walk(operations, data):
    file = build(operations)[0]
    for _ in range(data.draw(st.integers(1, 6))):
        file.buffer[data.draw(st.integers(0, len(file.buffer) - 1))] = data.draw(
            st.integers(0, 255)
        )
    for key in ("t#a", "t#b"):
        assert len(file.reader.query(key, 64, -(2**62), 2**62)) <= ITEMS
    assert len(list(file.reader)) < ITEMS
    file.reader.has_geometry_of_its_items()
    file.put("t#a", 1, 1_600_000_000_000)


def test_a_circle_is_walked_once():
    file = build([("t#a", 1), ("t#a", 1), ("t#a", 1)])[0]
    position = item_position(1, SLOTS)
    key_hash, offset, seconds, _ = INDEX_ITEM.unpack_from(file.buffer, position)
    INDEX_ITEM.pack_into(file.buffer, position, key_hash, offset, seconds, 3)
    assert file.reader.query("t#a", 64, 0, 2**62) == [2, 1, 0]
    assert not file.reader.has_geometry_of_its_items()


def test_a_buffer_that_is_too_short_is_refused():
    with pytest.raises(CorruptRecordError):
        IndexFileView(bytes(index_file_bytes(SLOTS, ITEMS) - 1), SLOTS, ITEMS)
    IndexFileView(bytes(index_file_bytes(SLOTS, ITEMS) + 1), SLOTS, ITEMS)
    for size in range(40):
        assert decode_index_header(bytes(size)) is None


def test_an_untouched_file_counts_from_one():
    reader = IndexFileView(bytes(index_file_bytes(SLOTS, ITEMS)), SLOTS, ITEMS)
    assert reader.header.next_item == 1
    assert list(reader) == []
    assert reader.query("t#a", 64, 0, 2**62) == []
    assert reader.has_geometry_of_its_items()
    header = build([("t#a", 7)])[0].reader.header
    assert decode_index_header(encode_index_header(header)) == header


def test_a_time_before_the_first_item_counts_as_no_difference():
    file = IndexFileBuilder.create(SLOTS, ITEMS)
    file.put("t#a", 1, 1_500_000_001_999)
    file.put("t#a", 2, 1_400_000_000_000)
    file.put("t#a", 3, 1_500_000_001_999 + 2**31 * 1000)
    assert [item.time_diff_seconds for item in file.reader] == [0, 0, 2**31 - 1]
