"""Spark's rows are those of the log: of RocketMQ's stores, and of a running broker."""

import functools
import json
import threading
from datetime import UTC, datetime, timedelta

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import functions as f
from stratamq_pipeline.batch import BatchReader
from stratamq_pipeline.options import SourceOptions
from stratamq_pipeline.table_columns import TableColumns

import stratamq
from stratamq.client import connect
from stratamq.errors import OffsetOutOfRangeError
from stratamq.formats.file_names import offset_name
from stratamq.formats.properties import split_keys
from stratamq.rpc import discovery
from stratamq.table.schema import COLUMNS
from tests.pipeline.written_log import WrittenLog
from tests.support.fixtures import ALL_STORES, expected
from tests.support.waiting import until_readable_in_files

PUSH_DOWN = "spark.sql.python.filterPushdown.enabled"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def load(spark, path, **options):
    return spark.read.format("stratamq").options(**options).load(str(path))


def rows(frame):
    """Sorted by place in the log, as Arrow gives them."""
    return frame.orderBy("physicalOffset").toArrow().to_pylist()


def spark_refuses(spark, path, reason, **options):
    with pytest.raises(PySparkException) as caught:
        load(spark, path, **options).collect()
    assert reason in str(caught.value)


def row_of(line):
    """RocketMQ's line as a row."""
    properties = line["properties"]
    row = {
        "topic": line["frameTopic"],
        "queueId": line["frameQueueId"],
        "queueOffset": line["queueOffset"],
        "physicalOffset": line["phyOffset"],
        "msgId": line["msgId"],
        "keys": split_keys(properties.get("KEYS", "")),
        "tags": properties.get("TAGS"),
        "properties": properties,
        "flag": line["flag"],
        "sysFlag": line["sysFlag"],
        "bornTimestamp": EPOCH + timedelta(milliseconds=line["bornTimestamp"]),
        "bornHost": host(line["bornHost"]),
        "storeTimestamp": EPOCH + timedelta(milliseconds=line["storeTimestamp"]),
        "storeHost": host(line["storeHost"]),
        "reconsumeTimes": line["reconsumeTimes"],
        "preparedTransactionOffset": line["preparedTransactionOffset"],
        "bodyCrc": line["bodyCRC"],
        "size": line["size"],
    }
    return row | ({"body": line["body"]} if "body" in line else {})


def host(text):
    address, _, port = text.rpartition("|")
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


@pytest.mark.parametrize("name", ALL_STORES)
def test_every_row_is_what_rocketmq_reads(spark, fixture_store, name):
    lines = {line["phyOffset"]: line for line in expected(name, "message")}
    found = rows(load(spark, fixture_store(name), minPartitions="4"))
    assert [row["physicalOffset"] for row in found] == sorted(lines)
    for row in found:
        row["properties"] = dict(row["properties"])
        wanted = row_of(lines[row["physicalOffset"]])
        if "body" in wanted:
            assert bytes(row["body"]) == body_of(wanted.pop("body"))
        assert wanted.items() <= row.items()


def body_of(line):
    return bytes.fromhex(line) if isinstance(line, str) else bytes(line)


def test_the_columns_are_those_of_the_scan(spark, fixture_store):
    frame = load(spark, fixture_store(ALL_STORES[0]))
    assert frame.columns == list(COLUMNS)
    found = rows(frame)
    assert found == stratamq.scan(fixture_store(ALL_STORES[0])).to_arrow().to_pylist()


def ends(store):
    return {room: discovery.read(store, room).address for room in ("commitlog", "dispatcher")}


def test_a_running_broker_gives_what_its_client_gives(spark, broker):
    with connect(broker.root) as client:
        with client.producer(batch_messages=10) as producer:
            for number in range(400):
                producer.send(
                    "ab"[number % 2],
                    bytes([number % 256]) * number,
                    tag=f"T{number % 3}",
                    keys=[f"k{number}", "all"],
                    properties={"number": str(number)},
                )
        client.send("c", b"not asked for")
        received = {
            message.physical_offset: message for topic in "ab" for message in client.consume(topic)
        }
    addresses = ends(broker.root)
    both = ",".join(f"{room}={address}" for room, address in addresses.items())
    until_readable_in_files(broker.root)
    of_directory = rows(load(spark, broker.root, subscribe="a,b"))
    assert len(of_directory) == len(received) == 400
    for row in of_directory:
        message = received[row["physicalOffset"]]
        assert (row["topic"], row["queueId"]) == (message.topic, message.queue_id)
        assert (row["queueOffset"], row["msgId"]) == (message.queue_offset, message.message_id)
        assert dict(row["properties"]) == message.properties
        assert (row["tags"], row["keys"]) == (message.tag, list(message.keys))
        assert row["body"] == message.body
        assert row["size"] == len(message.frame)
        assert row["storeTimestamp"] == EPOCH + timedelta(milliseconds=message.store_timestamp_ms)
        assert row["bornTimestamp"] == EPOCH + timedelta(milliseconds=message.born_timestamp_ms)
    for address in (addresses["commitlog"], both):
        frame = load(spark, address, subscribe="a,b", partitionBytes="30000")
        assert frame.rdd.getNumPartitions() > 2
        assert rows(frame) == of_directory
        assert frame.limit(1).count() == len(frame.take(1)) == 1  # a reader is left half read
    some = load(spark, both, topic="a", startingOffsets='{"a": {"0": 5}}', queues="0")
    assert {row["queueOffset"] for row in rows(some)} == {
        row["queueOffset"]
        for row in of_directory
        if row["topic"] == "a" and row["queueId"] == 0 and row["queueOffset"] >= 5
    }


def test_filters_choose_the_same_with_push_down_and_without(spark, fixture_store):
    root = fixture_store("5.5.1-transactions-delay-batch")
    frame = load(spark, root)
    messages = rows(frame)
    middle = messages[len(messages) // 2]
    topic, moment = middle["topic"], middle["storeTimestamp"]
    filters = [
        f.lit(True),
        (f.col("topic") == topic) & (f.col("queueId") == middle["queueId"]),
        f.col("topic").isin("nothing", topic) & f.col("topic").startswith(topic[:2]),
        f.col("queueOffset").between(1, 2) & (f.col("physicalOffset") > 0),
        f.col("storeTimestamp") > f.lit(moment),
        f.col("tags").isNotNull() & (f.col("queueOffset") == 1.0),
        (f.col("topic") == topic) | (f.col("queueId") == 0),
    ]
    conditions = [one.alias(str(number)) for number, one in enumerate(filters)]
    by_spark = frame.select("physicalOffset", *conditions).collect()
    parts = [
        load(spark, root, pushDown="true")
        .where(one)
        .select(f.lit(number).alias("filter"), "physicalOffset")
        for number, one in enumerate(filters)
    ]
    # Of one DataFrame that is used twice, with two filters in one query: Spark would mix them up.
    parts += [
        frame.where(filters[number]).select(f.lit(100 + number), "physicalOffset")
        for number in (1, 4)
    ]
    spark.conf.set(PUSH_DOWN, "true")
    try:
        pushed = functools.reduce(lambda left, right: left.unionAll(right), parts).collect()
        assert frame.count() == len(messages)
    finally:
        spark.conf.unset(PUSH_DOWN)
    for number in (1, 4):
        assert {place for one, place in pushed if one == number} == {
            place for one, place in pushed if one == 100 + number
        }
    for number in range(len(filters)):
        found = sorted(place for one, place in pushed if one == number)
        assert found == sorted(row.physicalOffset for row in by_spark if row[str(number)])
    counts = [sum(1 for one, _ in pushed if one == number) for number in range(len(filters))]
    assert counts[0] == len(messages)
    assert 0 < counts[1] < counts[0]


def test_spark_still_keeps_what_was_pushed_with_the_dataframe(spark, tmp_path):
    """The fault that makes `pushDown` an option. Where this fails Spark has mended it."""
    log = WrittenLog(tmp_path / "store")
    log.put_many(40)
    frame = load(spark, log.root, pushDown="true")
    spark.conf.set(PUSH_DOWN, "true")
    try:
        assert frame.where("topic = 'a'").count() == 20
        assert frame.count() == 20
    finally:
        spark.conf.unset(PUSH_DOWN)


def test_offsets_of_single_queues(spark, tmp_path):
    log = WrittenLog(tmp_path / "store")
    log.put_many(60)
    options = {
        "startingOffsets": json.dumps({"a": {"0": 3, "1": -1}}),
        "endingOffsets": json.dumps({"a": {"0": 9}, "b": {"0": 2, "1": -2}}),
    }
    found = load(spark, log.root, **options).select("topic", "queueId", "queueOffset").collect()
    wanted = {("a", 0): range(3, 9), ("a", 1): range(0), ("b", 0): range(2), ("b", 1): range(0)}
    assert sorted(map(tuple, found)) == sorted(
        (*queue, offset) for queue, offsets in wanted.items() for offset in offsets
    )
    assert load(spark, log.root, startingOffsets="latest").count() == 0
    assert load(spark, log.root, endingOffsets="earliest").count() == 0


def test_a_start_that_retention_has_taken(spark, tmp_path):
    log = WrittenLog(tmp_path / "store")
    log.put_many(200)
    minimum = log.delete_oldest()
    start = {"topic": "a", "startingOffsets": '{"a": {"0": 2}}'}
    spark_refuses(spark, log.root, "topic a queue 0 begins at 2, and the log has it from", **start)
    found = rows(load(spark, log.root, failOnDataLoss="false", **start))
    kept = [place for (topic, *_), place in log.places.items() if topic == "a" and place >= minimum]
    assert [row["physicalOffset"] for row in found] == kept


def test_segments_that_are_deleted_while_they_are_read(tmp_path, caplog):
    log = WrittenLog(tmp_path / "store")
    log.put_many(200)
    readers = {
        loss: BatchReader(
            SourceOptions.parse({"path": str(log.root), "failOnDataLoss": loss}),
            TableColumns.named("physicalOffset"),
        )
        for loss in ("true", "false")
    }
    planned = {loss: reader.partitions() for loss, reader in readers.items()}
    minimum = log.delete_oldest()
    with pytest.raises(OffsetOutOfRangeError, match="was deleted while it was read"):
        list(readers["true"].read(planned["true"][0]))
    found = [
        place
        for part in planned["false"]
        for batch in readers["false"].read(part)
        for place in batch.column(0).to_pylist()
    ]
    assert found == [place for place in log.places.values() if place >= minimum]
    assert [record.message for record in caplog.records] == ["data lost"]


@pytest.mark.parametrize("loss", ["true", "false"])
def test_a_spark_job_whose_segments_are_deleted_while_it_runs(spark, tmp_path, loss):
    """Its partitions are read one after another; what they would read next is gone."""
    log = WrittenLog(tmp_path / "store")
    log.put_many(300)
    frame = load(spark, log.root, failOnDataLoss=loss, partitionBytes="8192")
    assert frame.rdd.getNumPartitions() > 3
    found = frame.select("physicalOffset", "queueOffset", "topic", "queueId").toLocalIterator()
    read = [next(found)]
    *gone, last = sorted((log.root / "commitlog").iterdir())
    for path in gone:
        path.unlink()
    if loss == "true":
        # Iterating over partitions, Spark hands the worker's error on as the JVM's.
        with pytest.raises(
            (PySparkException, Py4JJavaError), match="was deleted while it was read"
        ):
            read += found
    else:
        read += found
        assert {place for place in log.places.values() if place >= int(last.name)} <= {
            row["physicalOffset"] for row in read
        }
    assert 1 < len(read) < len(log.places)
    for row in read:
        key = (row["topic"], row["queueId"], row["queueOffset"])
        assert log.places[key] == row["physicalOffset"]


def test_damage_ends_a_read_or_is_a_row_of_the_report(spark, tmp_path):
    log = WrittenLog(tmp_path / "store")
    log.put_many(200)
    before = rows(load(spark, log.root))
    victim = before[40]
    place = victim["physicalOffset"]
    segment = log.root / "commitlog" / offset_name(place - place % 4096)
    with open(segment, "r+b") as file:
        file.seek(place % 4096 + 90)
        (byte,) = file.read(1)
        file.seek(-1, 1)
        file.write(bytes([byte ^ 1]))
    spark_refuses(spark, log.root, f"the log is damaged at offset {place}", partitionBytes="10000")
    left = rows(load(spark, log.root, mode="permissive", partitionBytes="10000"))
    assert left == [row for row in before if row["physicalOffset"] != place]
    (report,) = load(spark, log.root, table="damage").collect()
    assert report.asDict() == {
        "file": str(segment),
        "startOffset": place,
        "endOffset": place + victim["size"],
        "reason": "body_crc",
    }


def test_an_empty_store_is_an_empty_table(spark, tmp_path):
    (tmp_path / "config").mkdir()
    assert load(spark, tmp_path).count() == 0
    assert load(spark, tmp_path, table="damage").count() == 0
    spark_refuses(spark, tmp_path / "nothing", "there is no")


def test_at_least_so_many_partitions(spark, fixture_store):
    root = fixture_store("4.9.8-small-clean")
    for count in (2, 9):
        frame = load(spark, root, minPartitions=str(count))
        assert frame.rdd.getNumPartitions() >= count


def test_a_log_that_is_written_to_is_read_up_to_one_place(spark, broker):
    """Whatever a read sees is a beginning of every queue, and it sees what was there before."""
    stop = threading.Event()
    written = []

    def write():
        with connect(broker.root) as client, client.producer() as producer:
            while not stop.is_set():
                place = producer.send("t", b"x" * 300).result()
                written.append(place.physical_offset)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        address = discovery.read(broker.root, "commitlog").address
        for path in (address, broker.root, address):
            known = len(written)
            found = rows(load(spark, path).select("physicalOffset", "queueId", "queueOffset"))
            places = [row["physicalOffset"] for row in found]
            if path == address:
                assert places[:known] == written[:known]
            for queue_id in range(4):
                offsets = [row["queueOffset"] for row in found if row["queueId"] == queue_id]
                assert offsets == list(range(len(offsets)))
    finally:
        stop.set()
        writer.join()
    assert written


def test_columns_and_schemas_are_chosen_and_cast(spark, fixture_store):
    root = fixture_store(ALL_STORES[0])
    full = load(spark, root)
    some = load(spark, root, columns="body,queueOffset")
    assert some.columns == ["body", "queueOffset"]
    assert sorted(some.collect()) == sorted(full.select(*some.columns).collect())
    cast = spark.read.format("stratamq").schema("queueId string, topic string").load(str(root))
    wanted = full.select(f.col("queueId").cast("string"), "topic")
    assert sorted(cast.collect()) == sorted(wanted.collect())
    spark_refuses(spark, root, "no option startingoffset; did you mean", startingOffset="latest")
    spark_refuses(spark, root, "no column bodi; did you mean body?", columns="bodi")


def test_kafkas_shape(spark, fixture_store):
    root = fixture_store(ALL_STORES[0])
    frame = load(spark, root, shape="kafka")
    kinds = "binary binary string int bigint timestamp int array<struct<key:string,value:binary>>"
    assert [kind for _, kind in frame.dtypes] == kinds.split()
    found = frame.selectExpr("topic", "partition", "offset", "hex(value) AS body")
    wanted = load(spark, root, decompress="true")
    wanted = wanted.selectExpr("topic", "queueId", "queueOffset", "hex(body)")
    assert sorted(found.collect()) == sorted(wanted.collect())
    assert frame.selectExpr("size(headers) AS n").groupBy().sum("n").first()[0] > 0
