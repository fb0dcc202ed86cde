"""An Iceberg table that follows a log stays near it, has few files, and each message once."""

import sqlite3
import threading
from collections import Counter
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from stratamq_pipeline.iceberg.committing import commit_rewrite
from stratamq_pipeline.iceberg.following import expire, follow_iceberg_export
from stratamq_pipeline.iceberg.job import IcebergOptions
from stratamq_pipeline.iceberg.merging import FILES_OF_A_SIZE, SmallFiles, size_class
from stratamq_pipeline.iceberg.table import CATALOG_FILE, MAX_AGE, catalog_at
from stratamq_pipeline.iceberg.writing import DataFileWriter, FileLimits

import stratamq
from stratamq.errors import UnavailableError
from stratamq.files.clock import SystemClock
from tests.pipeline.iceberg_tables import DEFAULT_TABLE, compact, export, rows, scanned, table_of
from tests.pipeline.written_log import WrittenLog
from tests.support.waiting import until

TODAY = datetime(1970, 1, 1, tzinfo=UTC).date()
"""The store time of the messages."""


@pytest.fixture
def log(tmp_path):
    return WrittenLog(tmp_path / "store")


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out"


def file_sizes(out):
    """How many files there are of each topic and size class."""
    files = table_of(out).inspect.data_files()
    topics = [partition["topic"] for partition in files["partition"].to_pylist()]
    sizes = map(size_class, files["file_size_in_bytes"].to_pylist())
    return Counter(zip(topics, sizes, strict=True))


def commits(log, out, count):
    for _ in range(count):
        log.put_many(6)
        export(log.root, out)


def test_classes_of_size_are_factors_of_eight():
    assert [size_class(size) for size in (1, 1 << 14, (1 << 14) + 1, 1 << 17)] == [0, 0, 1, 1]
    assert [size_class(size) for size in ((1 << 17) + 1, 1 << 20, 1 << 23)] == [2, 2, 3]


def test_eight_files_of_one_size_become_one(log, out):
    commits(log, out, FILES_OF_A_SIZE - 1)
    small = SmallFiles(table_of(out), FileLimits())
    small.look(TODAY)
    assert small.merge() == 0
    commits(log, out, 1)
    small = SmallFiles(table_of(out), FileLimits())
    small.look(TODAY)
    before = file_sizes(out)
    assert set(before.values()) == {FILES_OF_A_SIZE}
    assert small.merge() == len(before) * (FILES_OF_A_SIZE - 1)
    assert set(file_sizes(out).values()) == {1}
    assert rows(out) == scanned(log.root)
    assert export(log.root, out).facts["result"] == "nothing new"


def test_a_merge_gives_way_to_a_commit_that_was_faster(log, out):
    commits(log, out, FILES_OF_A_SIZE)
    table = table_of(out)
    old = [task.file for task in table.scan().plan_files()]
    commits(log, out, 1)
    writer = DataFileWriter(table, FileLimits())
    writer.write(stratamq.scan(log.root).to_arrow().to_batches()[0])
    new = writer.finish()
    paths = [Path(file.file_path.removeprefix("file://")) for file in new]
    assert all(path.exists() for path in paths)
    assert not commit_rewrite(table, old, new)
    assert not any(path.exists() for path in paths)
    assert rows(out) == scanned(log.root)


def test_rows_that_another_program_deleted_stay_deleted(log, out):
    commits(log, out, FILES_OF_A_SIZE)
    small = SmallFiles(table_of(out), FileLimits())
    small.look(TODAY)
    commits(log, out, 1)
    table, before = table_of(out), rows(out)
    gone = next(iter(table.scan(row_filter="topic == 'a'").plan_files())).file
    with table.transaction() as transaction, transaction.update_snapshot().overwrite() as snapshot:
        snapshot.delete_data_file(gone)
    kept = rows(out)
    assert len(kept) == len(before) - gone.record_count
    assert small.merge() > 0
    assert rows(out) == kept


def test_a_table_that_follows_has_few_files(log, out):
    options = IcebergOptions(str(log.root), str(out), DEFAULT_TABLE)
    log.put_many(6)
    rounds = []

    class Rounds(threading.Event):
        """In the place of time: at the end of each round the log grows."""

        def wait(self, timeout=None):
            assert timeout == 7
            rounds.append(log.end)
            log.put_many(6)
            return len(rounds) == 30

    follow_iceberg_export(options, 7, Rounds(), SystemClock())
    assert max(file_sizes(out).values()) < FILES_OF_A_SIZE
    written = [row for row in scanned(log.root) if row["physicalOffset"] < rounds[-1]]
    assert rows(out) == written


def test_a_catalog_that_does_not_answer_is_asked_in_the_next_round(log, out):
    options = IcebergOptions(str(log.root), str(out), DEFAULT_TABLE)
    log.put_many(6)
    said = []

    def rename(name, other):
        with closing(sqlite3.connect(out / CATALOG_FILE)) as database:
            database.execute(f"ALTER TABLE {name} RENAME TO {other}")

    class Rounds(threading.Event):
        """In the place of time: behind the first round the catalog is away, for one round."""

        rounds = 0

        def wait(self, timeout=None):
            self.rounds += 1
            log.put_many(6)
            if self.rounds == 1:
                rename("iceberg_tables", "away")
            if self.rounds == 2:
                rename("away", "iceberg_tables")
            return self.rounds == 3

    follow_iceberg_export(options, 7, Rounds(), SystemClock(), said.append)
    asked = [what for what in said if "asked again in 7 s: the catalog does not answer" in what]
    assert len(asked) == 1
    assert len(rows(out)) == 18


def test_a_catalog_behind_an_address_where_nothing_listens_is_unavailable(out):
    refused = pytest.raises(UnavailableError, match="the catalog does not answer")
    with refused, catalog_at(str(out), "http://127.0.0.1:1"):
        pass


def test_following_ends_behind_a_commit_when_it_is_told_to(log, out):
    options = IcebergOptions(str(log.root), str(out), DEFAULT_TABLE, commit_bytes=1)
    log.put_many(200)
    stop, said = threading.Event(), []

    def progress(what):
        said.append(what)
        if "committed" in what:
            stop.set()

    summary = follow_iceberg_export(options, 0.01, stop, SystemClock(), progress)
    assert summary.facts["commits"] == 1
    end = summary.facts["end_offset"]
    assert rows(out) == [row for row in scanned(log.root) if row["physicalOffset"] < end]


def test_a_table_is_a_moment_behind_its_log(log, out):
    export(log.root, out)
    options = IcebergOptions(str(log.root), str(out), DEFAULT_TABLE)
    stop = threading.Event()
    thread = threading.Thread(
        target=follow_iceberg_export, args=(options, 0.05, stop, SystemClock())
    )
    thread.start()
    try:
        for _ in range(3):
            log.put_many(5)
            until(
                lambda: rows(out) == scanned(log.root),
                "the table has what the log has",
            )
    finally:
        stop.set()
        thread.join()


def test_old_snapshots_are_forgotten_and_the_position_is_not(log, out):
    commits(log, out, 3)
    table = table_of(out)
    now = datetime.now(UTC)
    expire(table, now)
    assert len(table.snapshots()) == 3
    expire(table, now + timedelta(days=2))
    assert len(table.snapshots()) == 1
    with table.transaction() as transaction:
        transaction.set_properties({MAX_AGE: "0"})
    compact(table)
    expire(table, now + timedelta(minutes=1))
    assert len(table.snapshots()) == 1
    log.put_many(5)
    assert export(log.root, out).facts["messages"] == 5
    assert rows(out) == scanned(log.root)
