"""Rows become messages: what is in which column, and keys that are the same each time."""

import pyarrow as pa
import pytest
from stratamq_pipeline.sink_rows import rows_by_topic

from stratamq.errors import InvalidRequestError
from stratamq.formats.properties import decode_properties


def messages(columns, topic="t", first=0, schema=None):
    batch = pa.RecordBatch.from_pydict(columns, schema)
    return [
        (its_topic, queue_id, body, decode_properties(properties))
        for its_topic, queue_id, rows in rows_by_topic(batch, topic, "query-7-3", first)
        for body, properties in rows
    ]


def test_every_column_has_its_place():
    columns = {
        "body": [b"\x00one", b"two"],
        "keys": [["k1", "k2"], None],
        "tags": ["T", None],
        "properties": [[("p", "1"), ("q", "")], None],
        "queueId": pa.array([3, None], pa.int32()),
    }
    assert messages(
        columns | {"properties": pa.array(columns["properties"], pa.map_(pa.string(), pa.string()))}
    ) == [
        ("t", 3, b"\x00one", {"KEYS": "k1 k2", "TAGS": "T", "UNIQ_KEY": "query-7-3-0", "p": "1"}),
        ("t", None, b"two", {"UNIQ_KEY": "query-7-3-1"}),
    ]


def test_rows_are_numbered_on_and_keep_their_order_in_each_queue():
    columns = {"topic": ["a", "b", "a"], "body": ["1", "2", "3"]}
    found = messages(columns, topic=None, first=40)
    keys = [(topic, body, properties["UNIQ_KEY"]) for topic, _, body, properties in found]
    assert keys == [
        ("a", b"1", "query-7-3-40"),
        ("a", b"3", "query-7-3-42"),
        ("b", b"2", "query-7-3-41"),
    ]


def test_the_option_is_stronger_than_the_column():
    assert messages({"topic": ["a"], "body": ["1"]}, topic="z")[0][0] == "z"


def test_a_key_of_the_data_replaces_ours():
    found = messages({"body": ["1", "2"], "uniqueKey": ["u", None]})
    assert [properties["UNIQ_KEY"] for *_, properties in found] == ["u", "query-7-3-1"]


def test_what_columns_contain_is_not_taken_from_the_properties_that_were_read():
    read = [[("TAGS", "old"), ("KEYS", "old"), ("UNIQ_KEY", "old"), ("__CRC32#", "1"), ("p", "q")]]
    columns = {"body": ["1"], "properties": pa.array(read, pa.map_(pa.string(), pa.string()))}
    assert messages(columns)[0][3] == {"UNIQ_KEY": "query-7-3-0", "p": "q"}


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"body": [None]}, "row 0: a message has a topic and a body"),
        ({"body": ["x"], "topic": [""]}, "row 0: a message has a topic and a body"),
        ({"body": ["x"], "keys": [["two words"]]}, "a key is a word"),
        ({"body": ["x"], "tags": ["a\x02b"]}, "separator"),
    ],
)
def test_what_is_no_message_is_refused(columns, reason):
    with pytest.raises(InvalidRequestError, match=reason):
        messages(columns, topic=None if "topic" in columns else "t")
