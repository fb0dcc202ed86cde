"""The builder of queue units by columns, held against the scalar codec and RocketMQ's files."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stratamq.formats.dispatch import DispatchColumns, dispatch_columns, scan_lengths
from stratamq.formats.queue_unit import (
    PRE_BLANK,
    decode_queue_unit,
    encode_queue_unit,
)
from stratamq.formats.queue_units import (
    decode_units,
    ordered_prefix,
    pre_blank_fill,
    pre_blank_units,
    unit_runs,
    valid_units,
)
from tests.support import fixtures

Row = tuple[str, int, int, int, int]
"""topic, queue id, queue offset, tags code, sys flag."""


def columns_of(rows: list[Row]) -> DispatchColumns:
    topics = list(dict.fromkeys(row[0] for row in rows))
    count = len(rows)
    empty = np.zeros(0, np.int32)
    return DispatchColumns(
        physical_offset=np.arange(count, dtype=np.int64) * 100 + 7_000,
        size=np.full(count, 100, np.int32),
        queue_id=np.array([row[1] for row in rows], np.int32),
        queue_offset=np.array([row[2] for row in rows], np.int64),
        store_timestamp_ms=np.arange(count, dtype=np.int64) + 5,
        sys_flag=np.array([row[4] for row in rows], np.int32),
        tags_code=np.array([row[3] for row in rows], np.int64),
        topic_index=np.array([topics.index(row[0]) for row in rows], np.int32),
        topics=topics,
        key_row=empty,
        key_hash=empty,
    )


def one_by_one(rows: list[Row]) -> dict[tuple[str, int], list[tuple[int, bytes]]]:
    """Queue offsets and unit bytes of every queue, in log order, without columns."""
    queues: dict[tuple[str, int], list[tuple[int, bytes]]] = {}
    for index, (topic, queue_id, queue_offset, tags_code, sys_flag) in enumerate(rows):
        if sys_flag & 0xC in (0, 8):
            unit = encode_queue_unit(7_000 + 100 * index, 100, tags_code)
            queues.setdefault((topic, queue_id), []).append((queue_offset, unit))
    return queues


rows = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "ünïcödé", "%RETRY%g"]),
        st.sampled_from([0, 1, 7, 2**31 - 1, -1]),
        st.integers(0, 3),
        st.integers(-(2**63), 2**63 - 1),
        st.sampled_from([0, 1, 4, 8, 12]),
    ),
    max_size=40,
)


@given(rows)
def test_runs_hold_every_unit_of_every_queue_in_log_order(rows):
    queues: dict[tuple[str, int], list[tuple[int, bytes]]] = {}
    for run in unit_runs(columns_of(rows)):
        units = bytes(run.units)
        assert len(units) == 20 * run.count
        for index in range(run.count):
            queues.setdefault((run.topic, run.queue_id), []).append(
                (run.first_queue_offset + index, units[20 * index : 20 * index + 20])
            )
    assert queues == one_by_one(rows)


@given(rows)
def test_a_run_knows_where_its_messages_are(rows):
    for run in unit_runs(columns_of(rows)):
        first = decode_queue_unit(run.units)
        last = decode_queue_unit(run.units, 20 * (run.count - 1))
        assert run.first_physical_offset == first.physical_offset
        assert run.end_offset == last.physical_offset + last.size
        assert run.newest_store_timestamp_ms == 5 + (last.physical_offset - 7_000) // 100


def test_prepared_and_rollback_frames_are_in_no_queue():
    assert unit_runs(columns_of([("t", 0, 0, 0, 4), ("t", 0, 0, 0, 12)])) == []
    (run,) = unit_runs(columns_of([("t", 0, 0, 0, 4), ("t", 0, 0, 0, 8), ("t", 0, 1, 0, 0)]))
    assert (run.first_queue_offset, run.count) == (0, 2)


def test_a_run_ends_where_queue_offsets_do_not_continue():
    runs = unit_runs(columns_of([("t", 0, n, 0, 0) for n in (4, 5, 0, 1, 1)]))
    assert [(run.first_queue_offset, run.count) for run in runs] == [(4, 2), (0, 2), (1, 1)]


def test_thousands_of_topics_and_large_queue_ids_are_still_grouped():
    rows = [(f"t{n % 300}", n % 7 * 10_000_000, n // 2100, 1, 0) for n in range(4200)]
    runs = unit_runs(columns_of(rows))
    assert len(runs) == 2100
    assert {run.count for run in runs} == {2}


@pytest.mark.parametrize("name", fixtures.CLEAN_STORES)
def test_units_of_a_whole_log_are_the_files_that_rocketmq_wrote(name, tmp_path):
    root = fixtures.unpack(name, tmp_path)
    (end,) = (line["maxPhyOffset"] for line in fixtures.expected(name, "recovery"))
    queues: dict[tuple[str, int], bytes] = {}
    for start, content in fixtures.log_files(root):
        lengths = scan_lengths(content, start, min(start + len(content), end))
        for run in unit_runs(dispatch_columns(content, start, lengths)):
            queues[run.topic, run.queue_id] = queues.get((run.topic, run.queue_id), b"") + bytes(
                run.units
            )
    on_disk: dict[tuple[str, int], bytes] = {}
    for path in sorted(Path(root, "consumequeue").rglob("0*")):
        if path.is_file():
            key = (path.parent.parent.name, int(path.parent.name))
            on_disk[key] = on_disk.get(key, b"") + path.read_bytes()
    assert set(queues) == set(on_disk)
    for key, units in queues.items():
        assert on_disk[key].rstrip(b"\0") == units.rstrip(b"\0")
        assert not any(on_disk[key][len(units) :])


@pytest.mark.parametrize("count", [0, 1, 3, 1 << 16, (1 << 16) + 1, 299_999])
def test_pre_blank_units_fill_exactly_what_is_asked_for(count):
    assert b"".join(pre_blank_fill(count)) == PRE_BLANK * count


def units(*fields: tuple[int, int]) -> np.ndarray:
    return decode_units(b"".join(encode_queue_unit(at, size, 0) for at, size in fields))


@pytest.mark.parametrize(
    ("fields", "below", "after", "length"),
    [
        ([], 1000, -1, 0),
        ([(0, 100), (100, 100), (300, 50)], 1000, -1, 3),
        ([(0, 100), (100, 100), (300, 50)], 300, -1, 2),
        ([(0, 100), (99, 100)], 1000, -1, 1),  # overlaps the one before it
        ([(0, 100), (0, 0), (200, 100)], 1000, -1, 1),  # zeroed space ends a queue
        ([(0, 100), (100, -5)], 1000, -1, 1),
        ([(-8, 100)], 1000, -1, 0),
        ([(50, 100)], 1000, 51, 0),  # must not begin before what came before
        ([(50, 100)], 1000, 50, 1),
        ([(0, 2**31 - 1), (100, 100)], 1000, -1, 0),  # pre-blank is no message
    ],
)
def test_the_ordered_prefix_ends_at_the_first_unit_that_cannot_follow(fields, below, after, length):
    assert ordered_prefix(units(*fields), below, after) == length


@given(st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**31), 2**31 - 1))))
def test_validity_is_the_scalar_codecs(fields):
    array = units(*fields)
    scalar = [decode_queue_unit(array.tobytes(), 20 * n) for n in range(len(fields))]
    assert valid_units(array).tolist() == [unit.is_valid for unit in scalar]
    assert pre_blank_units(array).tolist() == [unit.is_pre_blank for unit in scalar]


@given(st.binary(max_size=200))
def test_any_bytes_decode_to_their_whole_units(data):
    array = decode_units(data)
    assert array.tobytes() == data[: len(data) // 20 * 20]
