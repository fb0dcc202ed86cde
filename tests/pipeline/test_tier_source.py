"""Spark's rows of a tier, and of a log together with its tier, are those of the scan."""

import pytest
from pyspark.errors import PySparkException
from stratamq_pipeline.options import SourceOptions

import stratamq
from stratamq.errors import InvalidRequestError
from tests.pipeline.test_batch import load
from tests.pipeline.tiers import STORE, cut_log, in_tier, uploaded, without_place
from tests.support.fixtures import expected, unpack

ORDER = ("topic", "queueId", "queueOffset", "physicalOffset")


def spark_rows(spark, path, **options):
    return load(spark, path, **options).orderBy(*ORDER).toArrow().to_pylist()


def scanned(*arguments, **options):
    found = stratamq.scan(*arguments, **options).to_arrow().to_pylist()
    return sorted(found, key=lambda row: tuple(row[name] for name in ORDER))


@pytest.fixture(scope="module")
def tier(tmp_path_factory):
    """Of the whole store."""
    scratch = tmp_path_factory.mktemp("whole")
    return uploaded(unpack(STORE, scratch), scratch / "tier")


@pytest.fixture(scope="module")
def half(tmp_path_factory):
    """A store, and a tier of its first segment."""
    scratch = tmp_path_factory.mktemp("half")
    store = unpack(STORE, scratch / "store")
    return store, uploaded(cut_log(store, scratch / "cut", 1), scratch / "tier")


def test_a_tier_alone_is_a_table(spark, tier):
    found = spark_rows(spark, tier)
    assert found == scanned(tier)
    assert len(found) == len([line for line in expected(STORE, "message") if in_tier(line)])


def test_log_and_tier_are_one_table(spark, half):
    store, tier = half
    found = spark_rows(spark, store, tier=tier, partitionBytes=20_000)
    assert found == scanned(store, tier=tier)
    places = [row["physicalOffset"] for row in found]
    assert -1 in places
    assert max(places) > 0
    assert without_place(found) == without_place(scanned(store))


def test_options_and_filters_choose_in_both(spark, half):
    store, tier = half
    found = spark_rows(spark, store, tier=tier, subscribe="orders", queues="0,1")
    assert found == scanned(store, tier=tier, topic="orders", queues=(0, 1))
    frame = load(spark, store, tier=tier)
    assert frame.where("topic = 'orders' AND queueOffset < 5").count() == len(
        scanned(store, tier=tier, topic="orders", offsets=(0, 5))
    )
    assert frame.where("physicalOffset = -1").count() == len(scanned(tier))


def test_filters_are_pushed_into_both(spark, half):
    store, tier = half
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        for condition in ("topic = 'orders'", "physicalOffset < 0", "physicalOffset >= 1000"):
            pushed = load(spark, store, tier=tier, pushDown="true").where(condition)
            plain = load(spark, store, tier=tier).where(condition)
            assert pushed.count() == plain.count()
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_damage_in_the_tier_ends_the_query_and_is_passed_over_when_permissive(spark, tmp_path):
    tier = uploaded(unpack(STORE, tmp_path), tmp_path / "tier")
    whole = len(scanned(tier))
    path = max(tier.rglob("orders/0/COMMIT_LOG/*"), key=lambda one: one.stat().st_size)
    content = bytearray(path.read_bytes())
    content[100] ^= 1
    path.write_bytes(content)
    with pytest.raises(PySparkException, match="is damaged in the tier"):
        load(spark, tier).collect()
    assert load(spark, tier, mode="permissive").count() == whole - 1


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"path": "localhost:10911", "tier": "/tier"}, "reads its tier itself"),
        ({"path": "/store", "tier": "/tier", "table": "damage"}, "verify-tier"),
    ],
)
def test_what_does_not_go_with_a_tier_is_refused(options, sentence):
    with pytest.raises(InvalidRequestError, match=sentence):
        SourceOptions.parse(options)


def test_a_url_is_a_tier():
    options = SourceOptions.parse({"path": "s3://bucket/prefix", "broker": "broker-b"})
    assert (options.path, options.tier, options.broker) == ("", "s3://bucket/prefix", "broker-b")


def test_a_stream_of_a_tier_is_refused(spark, tier):
    stream = spark.readStream.format("stratamq").load(str(tier))
    with pytest.raises(PySparkException, match="a stream follows a log"):
        stream.writeStream.format("noop").start().awaitTermination()
