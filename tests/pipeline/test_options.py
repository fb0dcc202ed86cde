"""Options are checked at once, in Kafka's words and the old connector's."""

import pytest
from stratamq_pipeline.options import EARLIEST, LATEST, SourceOptions
from stratamq_pipeline.sink import SinkOptions
from stratamq_pipeline.table_columns import KAFKA_SCHEMA

from stratamq.errors import InvalidRequestError

FOREVER = (1 << 63) - 1


def parse(**options):
    return SourceOptions.parse({"path": "data"} | options)


def test_names_do_not_distinguish_upper_and_lower_case():
    options = parse(STARTINGOFFSETS="latest", FailOnDataLoss="FALSE", minpartitions="3")
    assert (options.starting, options.fail_on_data_loss, options.min_partitions) == (-1, False, 3)


@pytest.mark.parametrize("name", ["subscribe", "topic", "topics"])
def test_topics_by_any_name(name):
    assert parse(**{name: "a, b,"}).topics == {"a", "b"}


def test_offsets_of_single_queues():
    options = parse(
        startingOffsets='{"a": {"0": 23, "1": -2}, "b": {"0": -1}}',
        endingOffsets='{"a": {"0": 40, "2": 9}}',
    )
    assert options.starting == {("a", 0): 23, ("a", 1): EARLIEST, ("b", 0): LATEST}
    selection = options.selection()
    assert selection.topics == {"a", "b"}
    assert selection.offsets == {
        ("a", 0): (23, 40),
        ("a", 1): (0, FOREVER),
        ("a", 2): (0, 9),
        ("b", 0): (0, 0),
    }


def test_broker_names_of_the_old_connector_are_passed_over():
    options = parse(startingOffsets='{"a": {"broker-a": {"0": 23, "1": -1}}}')
    assert options.starting == {("a", 0): 23, ("a", 1): LATEST}


def test_all_in_the_old_connectors_word_is_all():
    assert parse(subExpression="*", topic="a").topics == {"a"}


def test_what_is_subscribed_is_read_and_nothing_that_offsets_name_beside_it():
    selection = parse(subscribe="a", startingOffsets='{"b": {"0": 5}}').selection()
    assert selection.topics == {"a"}


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [("500ms", 500), ("30s", 30_000), ("15 m", 900_000), ("1H", 3_600_000)],
)
def test_delays(text, milliseconds):
    assert parse(maxTriggerDelay=text).max_delay_ms == milliseconds


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"path": ""}, "no path"),
        ({"subscribe": "a", "subscribePattern": "b"}, "exclude each other"),
        ({"subscribePattern": "("}, "subscribePattern is no regular expression"),
        ({"startingOffsets": "soon"}, "startingOffsets is earliest, latest, or JSON"),
        ({"endingOffsets": '{"a": 5}'}, "endingOffsets is earliest, latest, or JSON"),
        ({"startingOffsets": '{"a": {"0": -3}}'}, "an offset is 0 or more"),
        ({"failOnDataLoss": "perhaps"}, "failOnDataLoss is true or false"),
        ({"minPartitions": "-1"}, "minPartitions is 0 or more"),
        ({"maxOffsetsPerTrigger": "many"}, "maxOffsetsPerTrigger is a number"),
        ({"maxTriggerDelay": "soon"}, "maxTriggerDelay is a time like"),
        ({"mode": "loose"}, "mode is failfast or permissive"),
        ({"table": "queues"}, "table is messages or damage"),
        ({"assign": '{"a": [0]}'}, "no option assign here: name topics by subscribe"),
        ({"subExpression": "A || B"}, "no option subExpression here: choose by the column tags"),
        ({"startingOffset": "latest"}, "no option startingoffset; did you mean startingOffsets"),
        ({"zebra": "red"}, "there is no option zebra$"),
        ({"includeHeaders": "true"}, "there is no option includeheaders"),
        ({"kafka.bootstrap.servers": "a:1"}, "name the broker as the path"),
        ({"shape": "kafka", "table": "damage"}, "shape=kafka is of messages"),
        ({"path": "127.0.0.1:10911", "mode": "permissive"}, "a broker gives no damaged"),
        ({"path": "commitlog=127.0.0.1:10911", "table": "damage"}, "a broker gives no damaged"),
    ],
)
def test_impossible_options_are_refused(options, reason):
    with pytest.raises(InvalidRequestError, match=reason):
        parse(**options)


@pytest.mark.parametrize(
    ("options", "columns", "reason"),
    [
        ({}, ("body",), "no path"),
        ({"path": "x"}, ("body",), "no topic"),
        ({"path": "x", "topic": "t"}, ("value",), "no column body"),
        ({"path": "x", "topic": "t"}, ("body", "colour"), "'colour' is nothing of a message"),
        ({"path": "x", "topic": "t", "retry": "-1"}, ("body",), "retry is a number"),
        ({"path": "x", "topic": "t", "queryName": "a b"}, ("body",), "queryName is a word"),
        ({"path": "x", "topik": "t"}, ("topic", "body"), "no option topik; did you mean topic"),
        ({"path": "x", "topic": "t"}, ("body", "bodies"), "message; did you mean body"),
    ],
)
def test_what_cannot_be_written_is_refused(options, columns, reason):
    with pytest.raises(InvalidRequestError, match=reason):
        SinkOptions.parse(options, columns)


def test_kafkas_shape_gives_bodies_as_producers_had_them():
    options = parse(shape="kafka", includeHeaders="false")
    assert (options.kafka, options.decompress) == (True, True)
    assert options.columns == tuple(name for name in KAFKA_SCHEMA.names if name != "headers")
    assert not parse(shape="kafka", decompress="false").decompress
    assert parse(columns="body, topic").columns == ("body", "topic")


def test_what_spark_adds_for_a_streams_sink_is_no_mistake():
    options = {"path": "x", "topic": "t", "checkpointlocation": "c", "queryname": "q"}
    assert SinkOptions.parse(options, ("body",)).query == "q"


def test_what_was_read_can_be_written():
    options = {"path": "x", "topic": "t"}
    assert SinkOptions.parse(options, ("topic", "msgId", "storeTimestamp", "body")).topic == "t"
