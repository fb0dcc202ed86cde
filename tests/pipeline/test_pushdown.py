"""Filters that are taken off Spark's hands choose what Spark would have chosen."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)
from stratamq_pipeline.batch import BatchReader, PushingBatchReader
from stratamq_pipeline.options import SourceOptions
from stratamq_pipeline.table_columns import TableColumns

from tests.pipeline.written_log import WrittenLog

COLUMNS = ("topic", "queueId", "queueOffset", "physicalOffset", "storeTimestamp", "tags")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
BASE_MS = 1_700_000_000_000
COMPARISONS = {
    EqualTo: lambda left, right: left == right,
    EqualNullSafe: lambda left, right: left == right,
    GreaterThan: lambda left, right: left > right,
    GreaterThanOrEqual: lambda left, right: left >= right,
    LessThan: lambda left, right: left < right,
    LessThanOrEqual: lambda left, right: left <= right,
}


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    log = WrittenLog(tmp_path_factory.mktemp("pushed") / "store")
    for number in range(90):
        tags = {"TAGS": f"t{number % 2}"} if number % 3 else {}
        topic, queue_id = "abc"[number % 3], number % 4
        time_ms = BASE_MS + number // 2
        log.put(topic, queue_id, b"x" * number, time_ms=time_ms, properties=tags)
    return log


def rows(reader):
    found = []
    for partition in reader.partitions():
        for batch in reader.read(partition):
            found += batch.to_pylist()
    return found


def read(log, filters=None, **options):
    given = {"path": str(log.root), "partitionBytes": "1500"} | options
    parsed = SourceOptions.parse(given)
    if filters is None:
        return rows(BatchReader(parsed, TableColumns.named(*COLUMNS))), []
    reader = PushingBatchReader(parsed, TableColumns.named(*COLUMNS))
    left = list(reader.pushFilters(filters))
    return rows(reader), left


def holds(one, row):
    value = row[one.attribute[0]]
    if isinstance(one, IsNotNull):
        return value is not None
    if isinstance(one, In):
        return value in one.value
    if value is None or one.value is None:
        return False
    return COMPARISONS[type(one)](value, one.value)


def moment(microseconds):
    return EPOCH + timedelta(milliseconds=BASE_MS, microseconds=microseconds)


VALUES = {
    "topic": st.sampled_from(["a", "b", "c", "d"]),
    "queueId": st.integers(-1, 5),
    "queueOffset": st.integers(-2, 10),
    "physicalOffset": st.integers(-5, 18_000),
    "storeTimestamp": st.integers(-2_000, 50_000).map(moment),
}


@st.composite
def filters(draw):
    column = draw(st.sampled_from(sorted(VALUES)))
    kind = draw(st.sampled_from([*COMPARISONS, In, IsNotNull]))
    if kind is IsNotNull:
        return IsNotNull((column,))
    if kind is In:
        return In((column,), tuple(draw(st.lists(VALUES[column], max_size=3))))
    return kind((column,), draw(VALUES[column]))


@given(st.lists(filters(), max_size=4))
@settings(max_examples=150)
def test_what_is_pushed_and_what_is_left_choose_together_what_all_do(log, chosen):
    everything, _ = read(log)
    assert len(everything) == 90
    found, left = read(log, chosen)
    assert all(any(one is given for given in chosen) for one in left)
    kept = [row for row in found if all(holds(one, row) for one in left)]
    assert kept == [row for row in everything if all(holds(one, row) for one in chosen)]


@pytest.mark.parametrize(
    ("one", "pushed"),
    [
        (EqualTo(("topic",), "a"), True),
        (In(("queueId",), (1, 2)), True),
        (GreaterThan(("queueOffset",), 3), True),
        (LessThan(("physicalOffset",), 4000), True),
        (GreaterThanOrEqual(("storeTimestamp",), moment(5_000)), True),
        (IsNotNull(("topic",)), True),
        (IsNotNull(("tags",)), False),
        (IsNull(("tags",)), False),
        (EqualTo(("tags",), "t1"), False),
        (GreaterThan(("topic",), "a"), False),
        (StringStartsWith(("topic",), "a"), False),
        (Not(EqualTo(("topic",), "a")), False),
        (EqualTo(("properties", "TAGS"), "t1"), False),
    ],
)
def test_what_header_columns_decide_is_pushed(log, one, pushed):
    _, left = read(log, [one])
    assert left == ([] if pushed else [one])


def test_moments_between_milliseconds_and_in_other_zones(log):
    zone = timezone(timedelta(hours=-7))
    for microseconds in (0, 1, 999, 1000, 20_500, 21_000):
        for kind in COMPARISONS:
            one = kind(("storeTimestamp",), moment(microseconds).astimezone(zone))
            found, left = read(log, [one])
            assert left == []
            assert found == [row for row in read(log)[0] if holds(one, row)]


def test_filters_and_options_hold_together(log):
    found, _ = read(log, [EqualTo(("topic",), "a"), LessThan(("queueOffset",), 3)], queues="0,1")
    assert found == [
        row
        for row in read(log)[0]
        if row["topic"] == "a" and row["queueOffset"] < 3 and row["queueId"] in (0, 1)
    ]
    assert read(log, [EqualTo(("topic",), "a")], subscribe="b,c")[0] == []


def test_parts_that_hold_nothing_wanted_are_not_read(log):
    parsed = SourceOptions.parse({"path": str(log.root), "partitionBytes": "1500"})
    every = len(BatchReader(parsed, TableColumns.named(*COLUMNS)).partitions())
    for one in (
        LessThan(("physicalOffset",), 4000),
        GreaterThan(("storeTimestamp",), moment(40_000)),
    ):
        reader = PushingBatchReader(parsed, TableColumns.named(*COLUMNS))
        assert list(reader.pushFilters([one])) == []
        assert 0 < len(reader.partitions()) < every / 2
