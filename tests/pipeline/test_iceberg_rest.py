"""An export into a REST catalog, that of Iceberg's own tests: conflicts, outages, bodies."""

import pytest
from stratamq_pipeline.iceberg.committing import commit_rows
from stratamq_pipeline.iceberg.position import ExportSelection

from stratamq.errors import BusyError, UnavailableError
from tests.pipeline.iceberg_tables import (
    SMALL,
    batches_and_position,
    compact,
    export,
    in_order,
    positions,
    scanned,
    table_of,
)
from tests.pipeline.rest_catalog import rest_catalog
from tests.pipeline.test_bodies import AVRO_SCHEMA, ROW, avro, put
from tests.pipeline.written_log import WrittenLog

pytestmark = [pytest.mark.java, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def catalog(tmp_path_factory):
    directory = tmp_path_factory.mktemp("catalog")
    with rest_catalog(directory, f"file://{directory}") as address:
        yield address


@pytest.fixture
def log(tmp_path):
    return WrittenLog(tmp_path / "store")


def rows(out, catalog, table):
    return in_order(table_of(out, catalog, table).scan().to_arrow().to_pylist())


def test_a_table_in_a_rest_catalog_has_each_message_once_over_several_runs(log, tmp_path, catalog):
    out, table = tmp_path / "out", "first.messages"
    for more in (300, 40, 0):
        log.put_many(more)
        export(log.root, out, table, catalog=catalog, commit_bytes=SMALL)
    assert rows(out, catalog, table) == scanned(log.root)
    assert positions(out, catalog, table)[0] == log.end
    assert len(positions(out, catalog, table)) > 5


def test_bodies_have_columns_in_a_rest_catalog(log, tmp_path, catalog):
    put(log, avro(), b"bad", avro({**ROW, "id": 8}))
    out, table = tmp_path / "out", "bodies.messages"
    chosen = ExportSelection(topics=("t",))
    export(log.root, out, table, catalog=catalog, selection=chosen, bodies=AVRO_SCHEMA)
    found = rows(out, catalog, table)
    assert [row["row"] and row["row"]["id"] for row in found] == [7, None, 8]
    assert [row["body"] for row in found] == [None, b"bad", None]


def test_of_two_exporters_into_a_rest_catalog_one_is_told_that_the_other_was_faster(
    log, tmp_path, catalog
):
    log.put_many(30)
    out, table = tmp_path / "out", "two.messages"
    export(log.root, out, table, catalog=catalog)
    end = log.end
    log.put_many(10)
    mine = batches_and_position(log, table_of(out, catalog, table), end)
    export(log.root, out, table, catalog=catalog)
    with pytest.raises(BusyError, match="leave one of them"):
        commit_rows(*mine)
    assert rows(out, catalog, table) == scanned(log.root)


def test_a_commit_into_a_rest_catalog_that_met_another_programs_is_repeated(log, tmp_path, catalog):
    log.put_many(30)
    out, table = tmp_path / "out", "compacted.messages"
    export(log.root, out, table, catalog=catalog)
    end = log.end
    log.put_many(10)
    mine = batches_and_position(log, table_of(out, catalog, table), end)
    compact(table_of(out, catalog, table))
    commit_rows(*mine)
    assert rows(out, catalog, table) == scanned(log.root)
    assert export(log.root, out, table, catalog=catalog).facts["result"] == "nothing new"


def test_a_rest_catalog_that_is_away_is_told_of_and_the_next_run_goes_on(log, tmp_path):
    log.put_many(30)
    out, table = tmp_path / "out", "away.messages"
    with rest_catalog(tmp_path, f"file://{tmp_path}") as catalog:
        export(log.root, out, table, catalog=catalog)
    log.put_many(10)
    with pytest.raises(UnavailableError, match="the catalog does not answer"):
        export(log.root, out, table, catalog=catalog)
    with rest_catalog(tmp_path, f"file://{tmp_path}") as catalog:
        assert export(log.root, out, table, catalog=catalog).facts["messages"] == 10
        assert rows(out, catalog, table) == scanned(log.root)
