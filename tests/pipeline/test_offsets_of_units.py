"""Consume queue files, where they are correct, reduce what is read, and never what is found."""

import json

import pytest
from stratamq_pipeline.batch import BatchReader
from stratamq_pipeline.options import SourceOptions
from stratamq_pipeline.table_columns import TableColumns

from stratamq.formats.queue_unit import encode_queue_unit
from tests.pipeline.written_log import WrittenLog

WANTED = {"topic": "a", "queues": "1"}


@pytest.fixture
def log(tmp_path):
    log = WrittenLog(tmp_path / "store")
    log.put_many(300)
    log.write_queue("a", 0)
    log.write_queue("a", 1)
    return log


def reader(log, begin=30, end=40, **options):
    bounds = {
        "startingOffsets": json.dumps({"a": {"1": begin}}),
        "endingOffsets": json.dumps({"a": {"1": end}}),
    }
    given = {"path": str(log.root), "partitionBytes": "1500"} | WANTED | bounds | options
    return BatchReader(
        SourceOptions.parse(given), TableColumns.named("topic", "queueId", "queueOffset")
    )


def check(log, begin=30, end=40):
    """The partitions' ranges, all rows being there."""
    asked = reader(log, begin, end)
    parts = asked.partitions()
    rows = [row for part in parts for batch in asked.read(part) for row in batch.to_pylist()]
    found = [tuple(row.values()) for row in rows]
    assert found == [row for row in log.stored if row[:2] == ("a", 1) and begin <= row[2] < end]
    return [(part.part.begin, part.part.end) for part in parts]


def test_units_lead_to_the_messages(log):
    ranges = check(log)
    assert ranges[0][0] == log.places["a", 1, 30]
    assert ranges[-1][1] == log.places["a", 1, 40]


def whole(log):
    return (0, log.end)


def span(ranges):
    return (ranges[0][0], ranges[-1][1])


def test_an_offset_that_no_unit_shows_narrows_nothing(log):
    assert span(check(log, 30, 1000))[1] == log.end
    assert span(check(log, 1000, 2000)) == whole(log)


@pytest.mark.parametrize("fault", ["other queue", "other offset", "no frame", "outside", "blank"])
def test_wrong_units_are_not_believed(log, fault):
    path = log.write_queue("a", 1)
    units = bytearray(path.read_bytes())
    place = {
        "other queue": log.places["b", 1, 30],
        "other offset": log.places["a", 1, 31],
        "no frame": log.places["a", 1, 30] + 4,
        "outside": 1 << 40,
        "blank": 0,
    }[fault]
    size = log._size(place if fault.startswith("other") else log.places["a", 1, 30])
    size = (1 << 31) - 1 if fault == "blank" else size
    for index in (30, 40):
        units[index * 20 : index * 20 + 20] = encode_queue_unit(place, size, 0)
    path.write_bytes(units)
    assert span(check(log)) == whole(log)


def test_no_queue_files_narrow_nothing(log, tmp_path):
    other = WrittenLog(tmp_path / "other")
    other.put_many(300)
    assert span(check(other)) == whole(other)


def test_queues_that_are_not_named_are_not_narrowed(log):
    asked = reader(log, queues="")
    assert asked.partitions()[0].part.begin == 0
