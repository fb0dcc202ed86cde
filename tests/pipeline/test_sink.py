"""Rows that Spark writes are messages of a running broker, and their keys distinguish them."""

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as f

from stratamq.client import connect
from stratamq.rpc import discovery
from tests.pipeline.written_log import WrittenLog
from tests.support.waiting import until_readable_in_files


def consumed(root, topic):
    with connect(root) as client:
        return list(client.consume(topic))


def unique_key(message):
    return message.properties["UNIQ_KEY"]


def test_a_batch_becomes_messages(spark, broker):
    columns = "topic string, body binary, keys array<string>, tags string, "
    columns += "properties map<string,string>, queueId int"
    data = [
        ("x", b"\x00one", ["k1", "k2"], "T1", {"p": "1"}, 2),
        ("x", b"two", None, None, None, 2),
        ("y", b"three", [], None, {}, None),
    ]
    frame = spark.createDataFrame(data, columns).coalesce(1)
    frame.write.format("stratamq").mode("append").save(str(broker.root))
    one, two = consumed(broker.root, "x")
    (three,) = consumed(broker.root, "y")
    assert (one.body, one.tag, list(one.keys), one.queue_id) == (b"\x00one", "T1", ["k1", "k2"], 2)
    assert one.properties["p"] == "1"
    assert (two.body, two.queue_id, three.body) == (b"two", 2, b"three")
    origins = {unique_key(message).rpartition("-")[0] for message in (one, two, three)}
    assert len(origins) == 1
    assert [unique_key(m).rpartition("-")[2] for m in (one, two, three)] == ["0", "1", "2"]


def test_a_large_batch_by_address_spreads_over_queues_and_numbers_every_row(spark, broker):
    frame = spark.range(5000, numPartitions=3).select(f.col("id").cast("string").alias("body"))
    address = discovery.read(broker.root, "commitlog").address
    writer = frame.write.format("stratamq").mode("append").option("topic", "many")
    writer.option("queryName", "mine").save(address)
    messages = consumed(broker.root, "many")
    assert sorted(int(message.body) for message in messages) == list(range(5000))
    assert len({message.queue_id for message in messages}) > 1
    keys = {unique_key(message): int(message.body) for message in messages}
    assert len(keys) == 5000
    starts = {0: 0, 1: 1666, 2: 3333}
    for key, number in keys.items():
        query, batch, partition, row = key.split("-")
        assert (query, batch) == ("mine", "0")
        assert starts[int(partition)] + int(row) == number


def test_what_was_read_can_be_written_again(spark, broker):
    with connect(broker.root) as client:
        client.send("from", b"body", tag="T", keys=["k"], properties={"p": "q"})
        first = client.send("from", b"other").unique_key
    until_readable_in_files(broker.root)
    frame = spark.read.format("stratamq").option("subscribe", "from").load(str(broker.root))
    writer = frame.write.format("stratamq").mode("append").option("topic", "to")
    writer.save(str(broker.root))
    found = {message.body: message for message in consumed(broker.root, "to")}
    assert found.keys() == {b"body", b"other"}
    one = found[b"body"]
    assert (one.tag, list(one.keys), one.properties["p"]) == ("T", ["k"], "q")
    assert unique_key(found[b"other"]) != first


def test_a_stream_becomes_messages_once_over_restarts(spark, broker, tmp_path):
    log = WrittenLog(tmp_path / "log")

    def run():
        frame = spark.readStream.format("stratamq").option("startingOffsets", "earliest")
        frame = frame.option("maxOffsetsPerTrigger", "40").load(str(log.root))
        frame = frame.select(f.concat_ws("/", "topic", "queueId", "queueOffset").alias("body"))
        query = (
            frame.writeStream.format("stratamq")
            .option("topic", "out")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(broker.root))
        )
        query.awaitTermination()
        return query

    log.put_many(60)
    first = run()
    log.put_many(30)
    log.put("late", 5)
    second = run()
    assert [one["numInputRows"] for one in first.recentProgress] == [40, 20]
    assert [one["numInputRows"] for one in second.recentProgress] == [31]
    messages = consumed(broker.root, "out")
    wanted = sorted("/".join(map(str, row)) for row in log.stored)
    assert sorted(message.body.decode() for message in messages) == wanted
    keys = [unique_key(message).split("-") for message in messages]
    assert {query for query, *_ in keys} == {first.id.replace("-", "")}
    assert {batch for _, batch, *_ in keys} == {"0", "1", "2"}
    assert len(set(map(tuple, keys))) == 91


def test_the_documented_de_duplication(spark, broker):
    """A task that was done twice: the same keys, each message kept once."""
    frame = spark.range(50, numPartitions=2).select(f.col("id").cast("string").alias("body"))
    for _ in range(2):
        writer = frame.write.format("stratamq").mode("append").option("topic", "twice")
        writer.option("queryName", "again").save(str(broker.root))

    def found():
        return spark.read.format("stratamq").option("subscribe", "twice").load(str(broker.root))

    until_readable_in_files(broker.root)
    read = found()
    assert read.count() == 100
    kept = read.withColumn("uniqueKey", f.col("properties")["UNIQ_KEY"])
    kept = kept.dropDuplicates(["uniqueKey"])
    assert sorted(int(row.body) for row in kept.select("body").collect()) == list(range(50))


def test_what_cannot_be_written_is_refused(spark, broker):
    frame = spark.createDataFrame([("x",)], "body string")
    write = frame.write.format("stratamq")
    with pytest.raises(PySparkException, match="no topic"):
        write.mode("append").save(str(broker.root))
    with pytest.raises(PySparkException, match="a log is only appended to"):
        write.option("topic", "t").mode("overwrite").save(str(broker.root))
    with pytest.raises(PySparkException, match="a message has a topic and a body"):
        empty = spark.createDataFrame([(None,)], "body string")
        empty.write.format("stratamq").mode("append").option("topic", "t").save(str(broker.root))
