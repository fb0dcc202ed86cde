"""What a log's messages look like, by topic and time: DataFrames in, small DataFrames out."""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

COLUMNS = (
    "topic",
    "queueId",
    "queueOffset",
    "keys",
    "tags",
    "bornHost",
    "bornTimestamp",
    "storeTimestamp",
    "size",
)
"""The source's columns that are read: no bodies, no properties."""

_ACCURACY = 1000


def topics(rows: DataFrame) -> DataFrame:
    """A row for each topic, the one with most messages first."""
    seconds = F.expr("(unix_micros(max(storeTimestamp)) - unix_micros(min(storeTimestamp))) / 1e6")
    delay_ms = (F.unix_micros("storeTimestamp") - F.unix_micros("bornTimestamp")) / 1000
    return (
        rows.groupBy("topic")
        .agg(
            F.count("*").alias("messages"),
            F.sum("size").alias("bytes"),
            F.countDistinct("queueId").alias("queues"),
            F.percentile_approx("size", F.lit(0.5), _ACCURACY).alias("medianSize"),
            F.percentile_approx("size", F.lit(0.99), _ACCURACY).alias("p99Size"),
            F.max("size").alias("maxSize"),
            F.sum(F.size("keys")).alias("keys"),
            F.sum((F.size("keys") == 0).cast("int")).alias("withoutKeys"),
            F.sum(F.col("tags").isNull().cast("int")).alias("withoutTags"),
            F.approx_count_distinct(address(F.col("bornHost"))).alias("producers"),
            F.avg(delay_ms).alias("meanDelayMs"),
            F.min("storeTimestamp").alias("first"),
            F.max("storeTimestamp").alias("last"),
            seconds.alias("seconds"),
        )
        .withColumn(
            "messagesPerSecond",
            F.when(F.col("seconds") > 0, F.col("messages") / F.col("seconds")),
        )
        .orderBy(F.col("messages").desc(), "topic")
    )


def times(rows: DataFrame, bucket_ms: int) -> DataFrame:
    """Messages and bytes by topic in stretches of `bucket_ms`; `start` in ms. Silence is no row."""
    milliseconds = F.unix_millis("storeTimestamp")
    return (
        rows.groupBy("topic", (milliseconds - milliseconds % bucket_ms).alias("start"))
        .agg(F.count("*").alias("messages"), F.sum("size").alias("bytes"))
        .orderBy("start", "topic")
    )


def sizes(rows: DataFrame) -> DataFrame:
    """Messages by size: `upTo` is a power of two, in bytes."""
    upto = F.expr("CAST(pow(2, ceil(log2(size))) AS BIGINT)")
    return rows.groupBy("topic", upto.alias("upTo")).agg(F.count("*").alias("messages"))


def tags(rows: DataFrame, most: int) -> DataFrame:
    """The most frequent tags, over all topics."""
    return _most(rows.where("tags IS NOT NULL"), ["topic", "tags"], most)


def keys(rows: DataFrame, most: int) -> DataFrame:
    """The most frequent keys: those that stand in more than one message of a topic."""
    exploded = rows.select("topic", F.explode("keys").alias("key"))
    return _most(exploded, ["topic", "key"], most).where("messages > 1")


def producers(rows: DataFrame, most: int) -> DataFrame:
    """By address, without the port, which a producer changes with each connection."""
    return _most(rows.withColumn("address", address(F.col("bornHost"))), ["address"], most)


def queue_gaps(rows: DataFrame) -> DataFrame:
    """Where the queue offsets of a queue leave some out, or go back."""
    ordered = Window.partitionBy("topic", "queueId").orderBy("storeTimestamp", "queueOffset")
    before = F.lag("queueOffset").over(ordered)
    return (
        rows.select("topic", "queueId", "queueOffset", "storeTimestamp", before.alias("before"))
        .where("before IS NOT NULL AND queueOffset != before + 1")
        .withColumn("missing", F.col("queueOffset") - F.col("before") - 1)
        .orderBy("topic", "queueId", "storeTimestamp")
    )


def silences(rows: DataFrame, most: int) -> DataFrame:
    """The longest time without a message, of each topic; the longest of them first."""
    ordered = Window.partitionBy("topic").orderBy("storeTimestamp")
    before = F.lag("storeTimestamp").over(ordered)
    pauses = rows.select("topic", before.alias("after"), F.col("storeTimestamp").alias("until"))
    seconds = (F.unix_micros("until") - F.unix_micros("after")) / 1e6
    longest = F.row_number().over(
        Window.partitionBy("topic").orderBy(F.col("seconds").desc(), "after")
    )
    return (
        pauses.where("after IS NOT NULL")
        .withColumn("seconds", seconds)
        .withColumn("rank", longest)
        .where("rank = 1")
        .drop("rank")
        .orderBy(F.col("seconds").desc(), "topic")
        .limit(most)
    )


def address(host: Column) -> Column:
    """`address:port` without the port."""
    return F.regexp_replace(host, ":[0-9]+$", "")


def _most(rows: DataFrame, columns: list[str], most: int) -> DataFrame:
    counted = rows.groupBy(*columns).agg(F.count("*").alias("messages"))
    return counted.orderBy(F.col("messages").desc(), *columns).limit(most)
