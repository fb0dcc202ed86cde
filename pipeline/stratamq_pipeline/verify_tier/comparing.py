"""Keys checked against the index, and messages against the log: each grouped by topic and queue."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

QUEUE = ("topic", "queueId")
PAIR = (*QUEUE, "position", "value")


def key_counts(keys: DataFrame, items: DataFrame) -> DataFrame:
    """A row for each distinct key of a message: whether a message has it, and how many items."""
    both = keys.select(*PAIR, F.lit(1).alias("key"), F.lit(0).alias("item")).unionByName(
        items.select(*PAIR, F.lit(0).alias("key"), F.lit(1).alias("item"))
    )
    return both.groupBy(*PAIR).agg(F.max("key").alias("key"), F.sum("item").alias("items"))


def missing_keys(counts: DataFrame) -> DataFrame:
    """A fault for each queue that has keys which are in no file."""
    missing = counts.where("key = 1 AND items = 0").groupBy(*QUEUE)
    found = missing.agg(F.count("*").alias("n"), F.min("position").alias("position"))
    return found.select(
        F.lit("tier-key-missing").alias("kind"),
        *QUEUE,
        "position",
        F.lit(0).cast("long").alias("value"),
        F.format_string(
            "%d keys are in no file of the index, the first of the record at place %d",
            "n",
            "position",
        ).alias("detail"),
    )


def beside_the_log(messages: DataFrame, log: DataFrame, queues: DataFrame) -> DataFrame:
    """A row for each message of either: `state` is `same`, `waiting` (the tier has not come to it),
    `gone` (one of both has deleted it), or a kind of fault."""
    of_log = log.groupBy(*QUEUE, "position").agg(F.collect_set("value").alias("values"))
    spans = log.groupBy(*QUEUE).agg(F.min("position").alias("logBegin"))
    ends = queues.select(*QUEUE, F.col("position").alias("begin"), F.col("value").alias("end"))
    of_tier = messages.select(*QUEUE, "position", "value")
    rows = of_tier.join(of_log, [*QUEUE, "position"], "full").join(ends, list(QUEUE), "left")
    return rows.join(spans, list(QUEUE), "left").select(*QUEUE, "position", _state().alias("state"))


def _state() -> Column:
    in_tier, in_log = F.col("value").isNotNull(), F.col("values").isNotNull()
    return (
        F.when(in_tier & in_log & F.expr("array_contains(values, value)"), "same")
        .when(in_tier & in_log, "tier-other")
        .when(in_log & (F.col("end").isNull() | F.expr("position >= end")), "waiting")
        .when(in_log & F.expr("position >= begin"), "tier-missing")
        .when(in_tier & F.expr("position >= logBegin"), "tier-unknown")
        .otherwise("gone")
    )


def differences(states: DataFrame) -> DataFrame:
    """The faults among them."""
    return states.where("state LIKE 'tier-%'").select(
        F.col("state").alias("kind"),
        *QUEUE,
        "position",
        F.lit(0).cast("long").alias("value"),
        F.format_string("queue offset %d", "position").alias("detail"),
    )
