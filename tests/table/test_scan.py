"""`stratamq.scan` over directories and files: every option, and every state a log can be in."""

import os
import shutil
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pytest

import stratamq
from stratamq.errors import (
    CorruptionError,
    InvalidRequestError,
    NotFoundError,
    OffsetOutOfRangeError,
)
from stratamq.formats.checkpoint import Checkpoint, encode_checkpoint
from stratamq.formats.compression import decompress_body
from stratamq.store.confirmed import CHECKPOINT_PATH, LOCK_PATH
from stratamq.table.schema import COLUMNS
from tests.table.conftest import SEGMENT_BYTES, TOPICS


@pytest.fixture
def copy(filled, tmp_path):
    """The store, to be changed."""
    shutil.copytree(filled.root, tmp_path / "store")
    return tmp_path / "store"


def rows(*arguments, **options):
    return stratamq.scan(*arguments, **options).to_arrow().to_pylist()


def moment(row):
    return round(row["storeTimestamp"].timestamp() * 1000)


# --- where ---


def test_a_directory_gives_what_the_client_reads(filled):
    assert rows(filled.root) == filled.rows
    assert rows(os.fspath(filled.root)) == filled.rows


def test_so_do_its_commitlog_directory_and_a_list_of_its_segments(filled):
    assert len(filled.segments) > 2
    assert rows(filled.root / "commitlog") == filled.rows
    assert rows(filled.segments) == filled.rows
    assert rows([os.fspath(path) for path in reversed(filled.segments)]) == filled.rows


def test_single_segments_are_parts_of_it(filled):
    parts = [rows([path]) for path in filled.segments]
    assert [row for part in parts for row in part] == filled.rows
    assert rows(filled.segments[1]) == parts[1]


def test_it_can_be_read_again(filled):
    scan = stratamq.scan(filled.root, columns=["size"])
    assert scan.to_arrow().equals(scan.to_arrow())
    assert all(batch.num_rows for batch in scan)


@pytest.mark.parametrize(
    "where", ["missing", ["notes.txt"], [], "localhost", "localhost:port"], ids=str
)
def test_what_is_no_log_is_refused(tmp_path, monkeypatch, where):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises((NotFoundError, InvalidRequestError)):
        stratamq.scan(where).to_arrow()


def test_a_directory_that_is_no_store_is_refused(tmp_path):
    with pytest.raises(NotFoundError, match="is no store"):
        stratamq.scan(tmp_path).to_arrow()


def test_a_store_without_messages_has_no_rows(tmp_path):
    (tmp_path / "config").mkdir()
    table = stratamq.scan(tmp_path).to_arrow()
    assert len(table) == 0
    assert table.column_names == list(COLUMNS)
    (tmp_path / "commitlog").mkdir()
    assert rows(tmp_path) == []
    (tmp_path / "commitlog" / "0".zfill(20)).write_bytes(bytes(4096))
    assert rows(tmp_path) == []


# --- which messages ---


def test_topics(filled):
    expected = filled.where(lambda row: row["topic"] == "orders")
    assert rows(filled.root, topic="orders") == expected
    assert rows(filled.root, topic=["orders", "unknown"]) == expected
    assert rows(filled.root, topic=set(TOPICS)) == filled.rows
    assert rows(filled.root, topic="unknown") == []


def test_queues(filled):
    expected = filled.where(lambda row: row["queueId"] == 1)
    assert rows(filled.root, queues=1) == expected
    assert rows(filled.root, queues=range(1, 5)) == expected
    assert rows(filled.root, queues=[]) == []


def test_offsets_of_every_queue(filled):
    expected = filled.where(lambda row: 10 <= row["queueOffset"] < 20)
    assert len(expected) == 40
    assert rows(filled.root, offsets=(10, 20)) == expected


def test_offsets_of_single_queues(filled):
    spans = {("orders", 1): (5, 7), ("flights", 0): (0, 3), ("unknown", 0): (0, 9)}
    expected = filled.where(
        lambda row: row["queueOffset"] in range(*spans.get((row["topic"], row["queueId"]), (0, 0)))
    )
    assert len(expected) == 5
    assert rows(filled.root, offsets=spans) == expected


def test_times_are_compared_to_the_millisecond(filled):
    """`since` is inclusive, `until` is not, at every store time that there is."""
    moments = sorted({moment(row) for row in filled.rows})
    assert len(moments) >= 40, "too few store times show nothing"
    columns = ["physicalOffset"]
    for at in moments[:: len(moments) // 20]:
        for options, wanted in (
            ({"since": at}, lambda time, at=at: time >= at),
            ({"since": at + 1}, lambda time, at=at: time > at),
            ({"until": at}, lambda time, at=at: time < at),
            ({"until": at + 1}, lambda time, at=at: time <= at),
        ):
            expected = filled.where(lambda row, wanted=wanted: wanted(moment(row)))
            found = rows(filled.root, columns=columns, **options)
            assert [row["physicalOffset"] for row in found] == [
                row["physicalOffset"] for row in expected
            ]


@pytest.mark.parametrize("share", [0.0, 0.3, 0.5, 0.9])
def test_since_and_until_as_numbers_and_as_datetimes(filled, share):
    since = moment(filled.rows[int(share * len(filled.rows))])
    until = moment(filled.rows[-1])
    expected = filled.where(lambda row: since <= moment(row) < until)
    assert rows(filled.root, since=since, until=until) == expected
    begin, end = (datetime.fromtimestamp(ms / 1000, UTC) for ms in (since, until))
    assert rows(filled.root, since=begin, until=end) == expected
    assert rows(filled.root, since=begin.astimezone().replace(tzinfo=None), until=end) == expected
    assert rows(filled.root, since=until + 1) == []
    assert rows(filled.root, until=moment(filled.rows[0])) == []


def test_conditions_are_joined(filled):
    since = moment(filled.rows[100])
    expected = filled.where(
        lambda row: (
            row["topic"] == "orders"
            and row["queueId"] == 0
            and 20 <= row["queueOffset"] < 180
            and moment(row) >= since
        )
    )
    assert expected
    found = rows(filled.root, topic="orders", queues=0, offsets=(20, 180), since=since)
    assert found == expected


@pytest.mark.parametrize("offsets", [(5, 2), (-1, 2), {("orders", 0): (3, 1)}, (0, "x")])
def test_a_range_that_is_none_is_refused(filled, offsets):
    with pytest.raises(InvalidRequestError, match="range of queue offsets"):
        stratamq.scan(filled.root, offsets=offsets)


# --- which columns ---


def test_columns_come_in_the_order_asked_for(filled):
    names = ["body", "queueOffset", "topic"]
    table = stratamq.scan(filled.root, columns=names).to_arrow()
    assert table.column_names == names
    assert table.to_pylist() == [{name: row[name] for name in names} for row in filled.rows]


@pytest.mark.parametrize("columns", [["topic", "flight"], ["topic", "topic"], []], ids=str)
def test_columns_that_are_none_are_refused(filled, columns):
    with pytest.raises(InvalidRequestError, match="there are topic, queueId"):
        stratamq.scan(filled.root, columns=columns)


def test_bodies_can_be_had_as_producers_sent_them(filled):
    packed = [row for row in filled.rows if row["sysFlag"] & 1]
    assert packed
    plain = [decompress_body(row["body"], row["sysFlag"]) for row in filled.rows]
    found = rows(filled.root, columns=["body"], decompress=True)
    assert [row["body"] for row in found] == plain


# --- into other programs ---


def test_pandas_gets_the_types_of_the_table(filled):
    frame = stratamq.scan(filled.root).to_pandas()
    assert frame["queueOffset"].dtype == np.int64
    assert frame["queueId"].dtype == np.int32
    assert str(frame["storeTimestamp"].dtype) == "datetime64[us, UTC]"
    assert frame["body"].iloc[1] == filled.rows[1]["body"]
    assert frame["tags"].iloc[0] is None
    assert list(frame["keys"].iloc[2]) == filled.rows[2]["keys"]
    assert frame["topic"].tolist() == [row["topic"] for row in filled.rows]


def test_polars_gets_the_same_rows(filled):
    names = ["topic", "queueId", "queueOffset", "storeTimestamp", "tags", "keys", "body"]
    frame = stratamq.scan(filled.root, columns=names).to_polars()
    assert frame.to_dicts() == [{name: row[name] for name in names} for row in filled.rows]


def test_duckdb_queries_a_scan(filled):
    duckdb = pytest.importorskip("duckdb")
    log = stratamq.scan(filled.root)
    with duckdb.connect() as connection:
        connection.register("log", log.reader())
        found = connection.execute(
            "SELECT topic, queueId, count(*), max(queueOffset), sum(size) FROM log "
            "GROUP BY ALL ORDER BY ALL"
        ).fetchall()
    expected = []
    for topic in TOPICS:
        for queue in (0, 1):
            own = filled.where(lambda row: (row["topic"], row["queueId"]) == (topic, queue))  # noqa: B023
            last = max(row["queueOffset"] for row in own)
            expected.append((topic, queue, len(own), last, sum(row["size"] for row in own)))
    assert found == expected


def test_duckdb_finds_a_scan_by_the_name_of_its_variable(filled):
    duckdb = pytest.importorskip("duckdb")
    orders = stratamq.scan(filled.root, topic="orders", columns=["tags"])  # noqa: F841
    found = duckdb.sql("SELECT count(*), count(tags) FROM orders").fetchall()
    own = filled.where(lambda row: row["topic"] == "orders")
    assert found == [(len(own), sum(row["tags"] is not None for row in own))]


def test_the_protocol_of_arrow_streams(filled):
    scan = stratamq.scan(filled.root, columns=["size"])
    table = pa.table(scan)
    assert table.equals(scan.to_arrow())


# --- damage ---


def damage(root, offset, data):
    path = root / "commitlog" / str(offset // SEGMENT_BYTES * SEGMENT_BYTES).zfill(20)
    with path.open("r+b") as file:
        file.seek(offset % SEGMENT_BYTES)
        file.write(data)
    return path


@pytest.fixture
def damaged(filled, copy):
    """One frame's body, and three frames with their lengths: the path and the rows touched."""
    flipped, cut = filled.rows[70], filled.rows[400:403]
    path = damage(copy, flipped["physicalOffset"] + 120, b"\xff\xff")
    start, last = cut[0]["physicalOffset"], cut[-1]
    other = damage(copy, start, bytes(last["physicalOffset"] + last["size"] - start))
    return copy, [(path, [flipped]), (other, cut)]


def test_damage_is_an_error_that_names_file_and_position(damaged):
    root, places = damaged
    path, (flipped,) = places[0]
    batches = iter(stratamq.scan(root))
    with pytest.raises(CorruptionError) as caught:
        for _ in batches:
            pass
    assert caught.value.file == os.fspath(path)
    assert caught.value.position == flipped["physicalOffset"]


def test_damage_can_be_passed_over_and_hides_nothing_else(filled, damaged):
    root, places = damaged
    reported = []
    found = rows(root, on_damage=lambda path, stretch: reported.append((path, stretch)))
    touched = [row for _, some in places for row in some]
    assert found == [row for row in filled.rows if row not in touched]
    expected = [
        (os.fspath(path), some[0]["physicalOffset"], some[-1]["physicalOffset"] + some[-1]["size"])
        for path, some in places
    ]
    assert [(path, one.start, one.end) for path, one in reported] == expected
    assert all(one.reason for _, one in reported)


def test_without_verifying_only_shapes_are_looked_at(filled, damaged):
    root, places = damaged
    touched = places[1][1]
    found = rows(root, verify=False, columns=["physicalOffset"], on_damage=lambda *_: None)
    expected = [row["physicalOffset"] for row in filled.rows if row not in touched]
    assert [row["physicalOffset"] for row in found] == expected


# --- where the log ends ---


def confirm(root, offset):
    (root / CHECKPOINT_PATH).write_bytes(encode_checkpoint(Checkpoint(confirm_phy_offset=offset)))


@pytest.mark.parametrize("number", [1, 5, 500])
def test_of_ours_nothing_is_read_above_what_is_confirmed(filled, copy, number):
    confirm(copy, filled.rows[number]["physicalOffset"])
    assert rows(copy) == filled.rows[:number]


def test_when_the_other_program_has_held_it_the_frames_determine_where_it_ends(filled, copy):
    confirm(copy, 0)
    (copy / LOCK_PATH).write_bytes(b"lock")
    assert rows(copy) == filled.rows
    last = filled.rows[-1]
    damage(copy, last["physicalOffset"] + 4, b"\0\0\0\0")
    assert rows(copy) == filled.rows[:-1]


def test_a_list_of_segments_ends_at_the_first_frame_that_fails(filled, copy):
    confirm(copy, filled.rows[5]["physicalOffset"])
    assert rows(sorted((copy / "commitlog").iterdir())) == filled.rows


def test_a_log_whose_oldest_segments_are_gone_begins_later(filled, copy):
    sorted((copy / "commitlog").iterdir())[0].unlink()
    assert rows(copy) == filled.where(lambda row: row["physicalOffset"] >= SEGMENT_BYTES)


def test_a_segment_deleted_before_its_turn_is_reported(filled, copy):
    paths = sorted((copy / "commitlog").iterdir())
    found, scan = [], iter(stratamq.scan(copy))
    found += next(scan).to_pylist()
    for path in paths[:3]:
        path.unlink()
    with pytest.raises(OffsetOutOfRangeError) as caught:
        for batch in scan:
            found += batch.to_pylist()
    assert found == filled.rows[: len(found)]
    assert found[-1]["physicalOffset"] < SEGMENT_BYTES
    assert caught.value.minimum == 2 * SEGMENT_BYTES
