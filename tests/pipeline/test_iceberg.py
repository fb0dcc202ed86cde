"""Each message is in an Iceberg table exactly once, and the table alone says how far it is."""

import sys
from datetime import date
from types import SimpleNamespace

import pyarrow.parquet as pq
import pytest
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.expressions import EqualTo
from stratamq_pipeline.iceberg.committing import commit_rows
from stratamq_pipeline.iceberg.position import ExportSelection
from stratamq_pipeline.iceberg.table import asking_the_catalog
from stratamq_pipeline.iceberg.writing import FileLimits

from stratamq.client import connect
from stratamq.errors import (
    BusyError,
    InvalidRequestError,
    NotFoundError,
    OffsetOutOfRangeError,
    UnavailableError,
)
from stratamq.formats.frame_layout import MAGIC_V2
from stratamq.rpc import discovery
from tests.pipeline.iceberg_tables import (
    SMALL,
    batches_and_position,
    compact,
    export,
    in_order,
    list_generations,
    positions,
    rows,
    scanned,
    table_of,
)
from tests.pipeline.written_log import WrittenLog
from tests.support.waiting import until_readable_in_files


@pytest.fixture
def log(tmp_path):
    written = WrittenLog(tmp_path / "store")
    written.put_many(30)
    return written


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out"


@pytest.mark.parametrize("name", ["5.5.1-ipv6-v2-crc", "4.9.8-small-clean"])
def test_every_column_of_every_message_is_in_the_table(fixture_store, out, name):
    root = fixture_store(name)
    summary = export(root, out)
    assert rows(out) == scanned(root)
    assert summary.facts["messages"] == len(scanned(root))
    topic = scanned(root)[0]["topic"]
    assert rows(out, row_filter=EqualTo("topic", topic)) == scanned(root, topic=topic)


def test_each_file_has_the_rows_of_its_partition_alone(fixture_store, out):
    """Spark takes a partition's value for those of all rows in its files."""
    root = fixture_store("5.5.1-ipv6-v2-crc")
    export(root, out)
    table = table_of(out)
    for task in table.scan().plan_files():
        found = pq.read_table(task.file.file_path.removeprefix("file://")).to_pylist()
        assert {row["topic"] for row in found} == {task.file.partition[0]}
        days = {(row["storeTimestamp"].date() - date(1970, 1, 1)).days for row in found}
        assert days == {task.file.partition[1]}
        assert found == in_order(found)


def test_a_log_that_is_not_there_leaves_no_table_behind(tmp_path, out):
    with pytest.raises(NotFoundError, match="no-store"):
        export(tmp_path / "no-store", out)
    with pytest.raises(NoSuchTableError):
        table_of(out)


def test_a_dry_run_says_what_a_run_would_take_and_writes_nothing(log, out):
    dry = export(log.root, out, dry_run=True).facts
    assert not out.exists()
    assert dry["result"] == "dry run" and dry["messages"] == 0
    done = export(log.root, out).facts
    assert (dry["begin_offset"], dry["end_offset"]) == (done["begin_offset"], done["end_offset"])
    before = sorted(out.rglob("*"))
    log.put_many(3)
    again = export(log.root, out, dry_run=True).facts
    assert again["begin_offset"] == done["end_offset"] < again["end_offset"]
    assert sorted(out.rglob("*")) == before


def test_each_run_takes_what_is_new(log, out):
    assert export(log.root, out).facts["messages"] == 30
    assert export(log.root, out).facts["result"] == "nothing new"
    assert len(positions(out)) == 1
    log.put_many(25)
    assert export(log.root, out).facts["messages"] == 25
    assert rows(out) == scanned(log.root)
    assert positions(out)[0] == log.end


def test_a_long_log_is_committed_in_pieces_each_with_its_position(log, out):
    log.put_many(300)
    assert export(log.root, out, commit_bytes=SMALL).facts["commits"] > 5
    assert rows(out) == scanned(log.root)
    table = table_of(out)
    for snapshot in table.snapshots():
        end = int(snapshot.summary.additional_properties["stratamq.offset"])
        there = table.scan(snapshot_id=snapshot.snapshot_id).to_arrow()
        assert max(there["physicalOffset"].to_pylist()) < end
        assert len(there) == sum(row["physicalOffset"] < end for row in scanned(log.root))


def test_a_table_that_was_rolled_back_is_filled_again(log, out):
    for _ in range(3):
        export(log.root, out)
        log.put_many(10)
    table = table_of(out)
    first = table.snapshots()[0].snapshot_id
    table.manage_snapshots().rollback_to_snapshot(first).commit()
    assert export(log.root, out).facts["messages"] == 30
    assert rows(out) == scanned(log.root)


def test_another_programs_snapshots_have_the_position_of_those_before(log, out):
    export(log.root, out)
    table = table_of(out)
    compact(table)
    log.put_many(10)
    assert export(log.root, out).facts["messages"] == 10
    assert rows(out) == scanned(log.root)


def test_the_position_outlives_the_snapshots_of_the_export(log, out):
    export(log.root, out)
    table = table_of(out)
    compact(table)
    mine = [one.snapshot_id for one in table.snapshots()][:-1]
    table.maintenance.expire_snapshots().by_ids(mine).commit()
    log.put_many(10)
    assert export(log.root, out).facts["messages"] == 10
    assert rows(out) == scanned(log.root)


def test_rolled_back_to_a_snapshot_without_a_position_it_is_refused(log, out):
    """The property of the table says where a later snapshot ended."""
    export(log.root, out)
    table = table_of(out)
    compact(table)
    kept = table.current_snapshot().snapshot_id
    log.put_many(10)
    export(log.root, out)
    table.refresh()
    others = [one.snapshot_id for one in table.snapshots() if one.snapshot_id != kept]
    table.manage_snapshots().rollback_to_snapshot(kept).commit()
    table.maintenance.expire_snapshots().by_ids(others).commit()
    with pytest.raises(InvalidRequestError, match="no snapshot says which part"):
        export(log.root, out)


def test_a_hive_catalog_that_does_not_answer_is_told_of_in_one_sentence(monkeypatch):
    class Refused(Exception):
        """As Thrift's, which is no dependency."""

    monkeypatch.setitem(sys.modules, "thrift.Thrift", SimpleNamespace(TException=Refused))
    told = "does not answer as it should: no connection$"
    with pytest.raises(UnavailableError, match=told), asking_the_catalog():
        raise Refused("no connection\nto any of them")


def test_of_two_exporters_one_is_told_that_the_other_was_faster(log, out):
    export(log.root, out)
    end = log.end
    log.put_many(10)
    mine = batches_and_position(log, table_of(out), end)
    export(log.root, out)
    with pytest.raises(BusyError, match="leave one of them"):
        commit_rows(*mine)
    assert rows(out) == scanned(log.root)


def test_a_commit_that_met_another_programs_is_repeated(log, out):
    export(log.root, out)
    end = log.end
    log.put_many(10)
    mine = batches_and_position(log, table_of(out), end)
    compact(table_of(out))
    commit_rows(*mine)
    assert rows(out) == scanned(log.root)
    assert export(log.root, out).facts["result"] == "nothing new"


def test_a_commit_of_which_the_answer_was_lost_is_not_repeated(log, out):
    export(log.root, out)
    end = log.end
    log.put_many(10)
    table, files, before, now = batches_and_position(log, table_of(out), end)
    commit_rows(table, files, before, now)
    commit_rows(table_of(out), [], before, now)
    with pytest.raises(BusyError):
        commit_rows(table, files, before, now.at(now.offset + 1, None))
    assert rows(out) == scanned(log.root)


def cut(log, *, kept):
    """The log has the first `kept` messages and others behind them, of a new generation."""
    at = log.places[log.stored[kept]]
    log.cut(at)
    log.next = {}
    for topic, queue, offset in log.stored[:kept]:
        log.next[topic, queue] = offset + 1
    log.stored = log.stored[:kept]
    list_generations(log, (3, 0), (5, at))
    log.put_many(60)
    return at


def test_a_log_that_was_cut_is_refused_and_the_table_rolled_back_when_that_is_allowed(log, out):
    list_generations(log, (3, 0))
    export(log.root, out)
    log.put_many(20)
    export(log.root, out)
    at = cut(log, kept=34)
    before = rows(out)
    with pytest.raises(InvalidRequestError, match=f"was cut at log offset {at}.*--roll-back"):
        export(log.root, out)
    export(log.root, out, roll_back=True, dry_run=True)
    assert rows(out) == before
    export(log.root, out, roll_back=True)
    assert rows(out) == scanned(log.root)
    assert export(log.root, out).facts["result"] == "nothing new"


def test_a_cut_below_every_snapshot_needs_another_table(log, out):
    list_generations(log, (3, 0))
    export(log.root, out)
    cut(log, kept=12)
    with pytest.raises(InvalidRequestError, match="no snapshot from in front of the cut"):
        export(log.root, out, roll_back=True)


def test_another_log_is_refused_by_its_last_message_or_its_generations(log, out, tmp_path):
    export(log.root, out)
    other = WrittenLog(tmp_path / "other")
    for number in range(60):
        other.put(body=b"else %d" % number + bytes(100))
    with pytest.raises(InvalidRequestError, match="is not the log"):
        export(other.root, out)
    shorter = WrittenLog(tmp_path / "shorter")
    shorter.put_many(3)
    with pytest.raises(InvalidRequestError, match="ends at"):
        export(shorter.root, out)


def test_what_retention_took_is_an_error_or_passed_over(log, out):
    export(log.root, out)
    log.put_many(300)
    log.delete_oldest()
    with pytest.raises(OffsetOutOfRangeError, match="--accept-gap"):
        export(log.root, out)
    before = rows(out)
    export(log.root, out, accept_gap=True)
    assert rows(out) == before + scanned(log.root)


def test_one_table_has_one_selection(log, out):
    chosen = ExportSelection(("a",), False)
    export(log.root, out, selection=chosen)
    log.put_many(10)
    export(log.root, out, selection=chosen)
    assert rows(out) == scanned(log.root, topic="a")
    with pytest.raises(InvalidRequestError, match="was begun with"):
        export(log.root, out)


def test_a_table_that_is_no_export_is_left_alone(log, out):
    export(log.root, out)
    table = table_of(out)
    with table.transaction() as transaction:
        transaction.remove_properties("stratamq.position")
    mine = table.current_snapshot().snapshot_id
    compact(table)
    table.maintenance.expire_snapshots().by_id(mine).commit()
    with pytest.raises(InvalidRequestError, match="it is no export"):
        export(log.root, out)


def test_columns_of_a_later_version_are_added_and_those_of_others_are_kept(log, out):
    export(log.root, out)
    table = table_of(out)
    with table.update_schema() as update:
        update.delete_column("storeHost")
    with table.update_schema() as update:
        update.add_column("remark", table.schema().find_type("tags"))
    log.put_many(10)
    export(log.root, out)
    found = rows(out)
    assert [row.pop("remark") for row in found] == [None] * 40
    hosts = [row.pop("storeHost") for row in found]
    expected = scanned(log.root)
    assert hosts == [None] * 30 + [row.pop("storeHost") for row in expected][30:]
    assert found == expected


def test_files_are_of_limited_size_and_few_are_open(log, out):
    log.put_many(300)
    limits = FileLimits(buffered_bytes=2000, file_bytes=6000, open_files=2)
    summary = export(log.root, out, limits=limits)
    files = table_of(out).inspect.files()
    assert len(files) == summary.facts["files"] > 8
    assert max(files["record_count"].to_pylist()) < 100
    assert rows(out) == scanned(log.root)


def test_a_topic_may_be_longer_than_a_file_name(out, tmp_path):
    log = WrittenLog(tmp_path / "long")
    log.put("%RETRY%" + "l" * 240, magic=MAGIC_V2)
    export(log.root, out)
    assert rows(out) == scanned(log.root)


def test_a_running_broker_is_exported_as_its_files_are(broker, out):
    address = discovery.read(broker.root, "commitlog").address
    for count in (400, 100):
        with connect(broker.root) as client, client.producer(batch_messages=20) as producer:
            for number in range(count):
                producer.send("ab"[number % 2], b"%d" % number + bytes(300))
        assert export(address, out, commit_bytes=50_000).facts["messages"] == count
    until_readable_in_files(broker.root)
    assert rows(out) == scanned(broker.root)
    assert export(broker.root, out).facts["result"] == "nothing new"
