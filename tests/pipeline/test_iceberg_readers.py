"""Other programs read an Iceberg export, in a directory and in S3, and all its files are known."""

import os
import re
import shlex
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb
import pytest
from stratamq_pipeline.iceberg.orphans import OrphanOptions, orphans, run_iceberg_orphans

import stratamq
from stratamq.errors import InvalidRequestError
from stratamq.files.clock import SystemClock
from tests.pipeline.iceberg_tables import (
    DEFAULT_TABLE,
    compact,
    export,
    in_order,
    rows,
    scanned,
    table_of,
)
from tests.pipeline.written_log import WrittenLog
from tests.support import s3_servers

ROOT = Path(__file__).resolve().parents[2]
SOON = timedelta(minutes=1)


@pytest.fixture
def log(tmp_path):
    written = WrittenLog(tmp_path / "store")
    written.put_many(30)
    return written


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out"


def test_duckdb_reads_what_a_scan_gives(fixture_store, out):
    root = fixture_store("5.5.1-small-clean")
    export(root, out)
    exported, log = table_of(out).scan().to_arrow(), stratamq.scan(root).to_arrow()
    question = (
        "SELECT topic, count(*), sum(size), min(queueOffset), max(storeTimestamp), sum(bodyCrc) "
        "FROM {} GROUP BY topic ORDER BY topic"
    )
    assert len(exported) == len(log)
    answer = duckdb.sql(question.format("exported")).fetchall()
    assert answer == duckdb.sql(question.format("log")).fetchall()
    # Its reader of Parquet, too: files alone, whatever made them.
    paths = table_of(out).inspect.data_files()["file_path"].to_pylist()
    listed = ", ".join(f"'{path.removeprefix('file://')}'" for path in paths)
    assert duckdb.sql(question.format(f"read_parquet([{listed}])")).fetchall() == answer
    columns = "physicalOffset, msgId, keys, tags, body, properties"
    first = duckdb.sql(f"SELECT {columns} FROM exported ORDER BY physicalOffset").fetchall()
    assert first == duckdb.sql(f"SELECT {columns} FROM log ORDER BY physicalOffset").fetchall()


def test_a_warehouse_in_a_bucket_is_found_as_a_tier_is(log, tmp_path, monkeypatch):
    with s3_servers.moto_server() as server:
        monkeypatch.setenv("AWS_ENDPOINT", server.endpoint)
        monkeypatch.setenv("AWS_REGION", "us-east-1")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3_servers.ACCESS_KEY)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3_servers.SECRET_KEY)
        out = f"s3://{server.new_bucket()}/lake"
        with pytest.raises(InvalidRequestError, match="give --catalog"):
            export(log.root, out)
        catalog = f"sqlite:///{tmp_path}/catalog.db"
        export(log.root, out, catalog=catalog)
        log.put_many(20)
        export(log.root, out, catalog=catalog)
        table = table_of(out, catalog=catalog)
        assert in_order(table.scan().to_arrow().to_pylist()) == scanned(log.root)
        compact(table)
        assert orphans(table, datetime.now(UTC) + SOON) == {}
        table.io.new_output(f"{table.location()}/data/left.parquet").create().close()
        found = orphans(table, datetime.now(UTC) + SOON)
        assert [Path(path).name for path in found] == ["left.parquet"]
        table.io.delete(next(iter(found)))
        assert orphans(table, datetime.now(UTC) + SOON) == {}


def test_what_no_snapshot_names_is_counted_and_removed(log, out):
    export(log.root, out)
    table = table_of(out)
    compact(table)
    assert orphans(table, datetime.now(UTC) + SOON) == {}
    table.maintenance.expire_snapshots().older_than(datetime.now(UTC) + SOON).commit()
    left = out / "stratamq/messages/data/1970-01-01/left.parquet"
    left.write_bytes(b"of a killed run")
    names = {Path(path).name for path in orphans(table, datetime.now(UTC) + SOON)}
    assert "left.parquet" in names and len(names) > 3
    for hours, remove, count in ((72.0, True, 0), (-0.1, False, len(names))):
        options = OrphanOptions(str(out), DEFAULT_TABLE, None, hours, remove)
        facts = run_iceberg_orphans(options, SystemClock(), lambda what: None).facts
        assert facts["files"] == count
    assert left.exists()
    options = OrphanOptions(str(out), DEFAULT_TABLE, None, -0.1, True)
    run_iceberg_orphans(options, SystemClock(), lambda what: None)
    assert not left.exists()
    assert rows(out) == scanned(log.root)
    log.put_many(5)
    export(log.root, out)
    assert rows(out) == scanned(log.root)


def test_every_file_and_its_name_are_synced_before_the_catalog_names_it(log, out, monkeypatch):
    synced, fsync = set(), os.fsync

    def recorded(descriptor):
        synced.add(os.readlink(f"/proc/self/fd/{descriptor}"))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", recorded)
    export(log.root, out)
    written = [path for path in out.rglob("*") if path.name != "catalog.db"]
    assert {str(path) for path in written} <= synced
    assert str(out) in synced


def page():
    return (ROOT / "docs/iceberg.md").read_text()


def test_the_commands_of_the_page_do_what_it_says(log, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    log.root.rename(tmp_path / "data")
    lines = re.findall(r"^stratamq pipeline .*$", page(), re.MULTILINE)
    here = [
        one for one in lines if "://" not in one and ":7000" not in one and "--follow" not in one
    ]
    assert len(here) == 2
    said = [
        subprocess.run(
            [sys.executable, "-m", "stratamq.cli", *shlex.split(line)[1:]],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for line in here
    ]
    assert "published" in said[0] and "counted" in said[1]
    (example,) = re.findall(r"```python\n(.*?)```", page(), re.DOTALL)
    names = {}
    exec(example, names)
    assert names["orders"].num_rows == 0
    assert len(names["table"].scan().to_arrow()) == 30
