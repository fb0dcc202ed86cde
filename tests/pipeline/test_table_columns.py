"""Columns are chosen, cast and named as Kafka's before Spark sees them."""

import pyarrow as pa
import pytest
from pyspark.sql.datasource import EqualTo, GreaterThan
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructType,
    TimestampType,
)
from stratamq_pipeline.batch import BatchReader
from stratamq_pipeline.options import SourceOptions
from stratamq_pipeline.table_columns import KAFKA_SCHEMA, TableColumns, spark_schema

import stratamq
from stratamq.errors import InvalidRequestError
from stratamq.table.schema import COLUMNS, SCHEMA
from tests.pipeline.written_log import WrittenLog
from tests.support.fixtures import ALL_STORES


@pytest.fixture
def log(tmp_path):
    return WrittenLog(tmp_path / "store")


def read(path, output, **options):
    reader = BatchReader(SourceOptions.parse({"path": str(path)} | options), output)
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    return pa.Table.from_batches(batches, output.schema)


def test_only_what_is_asked_for_is_decoded():
    assert TableColumns.named("body", "topic").decoded == ("body", "topic")
    schema = StructType().add("queueOffset", LongType())
    assert TableColumns.of(SCHEMA, schema).decoded == ("queueOffset",)


def test_a_schema_of_the_user_is_taken_and_cast(log):
    log.put("a", 0, "Zürich".encode())
    log.put("b", 1, b"x")
    schema = StructType().add("body", StringType()).add("queueId", LongType())
    schema = schema.add("queueOffset", StringType()).add("topic", BinaryType())
    found = read(log.root, TableColumns.of(SCHEMA, schema))
    assert found.to_pylist() == [
        {"body": "Zürich", "queueId": 0, "queueOffset": "0", "topic": b"a"},
        {"body": "x", "queueId": 1, "queueOffset": "0", "topic": b"b"},
    ]


def test_a_value_that_cannot_be_cast_names_its_message(log):
    log.put("a", 0, b"good")
    log.put("a", 3, b"\xff\xfe")
    schema = StructType().add("body", StringType())
    with pytest.raises(InvalidRequestError, match="topic a queue 3 offset 0: column body cannot"):
        read(log.root, TableColumns.of(SCHEMA, schema))


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        (StructType().add("boddy", BinaryType()), "no column boddy; did you mean body?"),
        (StructType().add("body", IntegerType()), "column body as int32, and it is binary"),
        (StructType().add("storeTimestamp", LongType()), "cast it in the query"),
        (StructType().add("bornTimestamp", StringType()), "cast it in the query"),
        (StructType().add("tags", StringType(), False), "tags is NOT NULL, and it may be null"),
        (StructType(), "at least one"),
        (StructType().add("topic", StringType()).add("topic", StringType()), "each column once"),
    ],
)
def test_impossible_schemas_are_refused(schema, reason):
    with pytest.raises(InvalidRequestError, match=reason.replace("?", r"\?")):
        TableColumns.of(SCHEMA, schema)


def test_the_option_columns_is_a_schema(log):
    assert spark_schema(SCHEMA, ("body", "topic")).names == ["body", "topic"]
    assert spark_schema(SCHEMA, None).names == list(COLUMNS)
    with pytest.raises(InvalidRequestError, match="no column partitions; did you mean partition"):
        spark_schema(KAFKA_SCHEMA, ("partitions",))


def kafka():
    return TableColumns.of(KAFKA_SCHEMA, spark_schema(KAFKA_SCHEMA, None))


@pytest.mark.parametrize("name", ALL_STORES)
def test_each_row_in_kafkas_shape_is_that_of_the_scan(fixture_store, name):
    root = fixture_store(name)
    found = read(root, kafka(), shape="kafka").to_pylist()
    assert found == [
        {
            "key": " ".join(row["keys"]).encode() if row["keys"] else None,
            "value": row["body"],
            "topic": row["topic"],
            "partition": row["queueId"],
            "offset": row["queueOffset"],
            "timestamp": row["storeTimestamp"],
            "timestampType": 1,
            "headers": [{"key": key, "value": value.encode()} for key, value in row["properties"]],
        }
        for row in stratamq.scan(root, decompress=True).to_arrow().to_pylist()
    ]


def test_filters_are_translated_to_columns_of_messages():
    output = kafka()
    assert output.of_message(EqualTo(("partition",), 3)) == EqualTo(("queueId",), 3)
    assert output.of_message(GreaterThan(("offset",), 3)) == GreaterThan(("queueOffset",), 3)
    assert output.of_message(EqualTo(("timestampType",), 3)) is None
    assert output.of_message(EqualTo(("key",), b"k")) is None
    cast = TableColumns.of(
        SCHEMA, StructType().add("queueId", StringType()).add("topic", StringType())
    )
    assert cast.of_message(EqualTo(("queueId",), "3")) is None
    assert cast.of_message(EqualTo(("topic",), "a")) == EqualTo(("topic",), "a")
    assert output.of_message(EqualTo(("headers", "key"), "a")) is None


def test_times_keep_their_type():
    schema = StructType().add("storeTimestamp", TimestampType())
    assert (
        TableColumns.of(SCHEMA, schema).schema.field(0).type == SCHEMA.field("storeTimestamp").type
    )
