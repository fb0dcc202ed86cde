"""A running broker's log as a stream and in batches, asked without Spark."""

import json
import logging
import threading
from collections import Counter

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from stratamq_pipeline.batch import BatchReader
from stratamq_pipeline.options import SourceOptions
from stratamq_pipeline.stream import StreamReader
from stratamq_pipeline.table_columns import TableColumns

from stratamq.api.v1 import commitlog_pb2
from stratamq.client import Client, connect
from stratamq.errors import OffsetOutOfRangeError
from stratamq.files.clock import SystemClock
from stratamq.formats.file_names import offset_name
from stratamq.rpc import discovery
from tests.support.waiting import until

COLUMNS = ("topic", "queueId", "queueOffset", "body")
ALL = ReadAllAvailable()
LOOK_S, LOOKS = 0.05, 1200
MINIMUM = 131_072
"""The third segment's beginning."""


@pytest.fixture
def sent(broker):
    """What the broker holds, in the log's order: several segments, the first one begun earlier."""
    with connect(broker.root) as client:
        with client.producer(batch_messages=25) as producer:
            for number in range(900):
                if number == 100:
                    producer.flush()
                    a_millisecond_later()
                producer.send("ab"[number % 2], b"%d" % number + bytes(200))
        found = [message for topic in "ab" for message in client.consume(topic)]
    found.sort(key=lambda message: message.physical_offset)
    return [(one.topic, one.queue_id, one.queue_offset, one.body) for one in found]


def a_millisecond_later():
    clock = SystemClock()
    now_ms = clock.wall_ms()
    until(lambda: clock.wall_ms() > now_ms, "a later moment")


def address(broker):
    return discovery.read(broker.root, "commitlog").address


@pytest.fixture
def make(broker):
    """A function that makes a reader; streams are stopped in the end, as Spark does."""
    made = []

    def of(kind, **options):
        given = {"path": address(broker), "startingOffsets": "earliest"} | options
        made.append(kind(SourceOptions.parse(given), TableColumns.named(*COLUMNS)))
        return made[-1]

    yield of
    for reader in made:
        if isinstance(reader, StreamReader):
            reader.stop()


def rows(reader, partitions):
    found = []
    for partition in partitions:
        for batch in reader.read(partition):
            found += [tuple(row.values()) for row in batch.to_pylist()]
    return found


def follow(reader, limit, start):
    batches = []
    while True:
        end = json.loads(json.dumps(reader.latestOffset(start, limit)))
        if end == start:
            return batches, end
        batches.append(rows(reader, reader.partitions(start, end)))
        reader.commit(end)
        start = end


def test_a_stream_is_cut_exactly_and_divided(broker, make, sent):
    reader = make(StreamReader, partitionBytes="20000")
    batches, end = follow(reader, ReadMaxRows(130), reader.initialOffset())
    assert [len(batch) for batch in batches] == [130] * 6 + [120]
    assert [row for batch in batches for row in batch] == sent
    with connect(broker.root) as client:
        client.send("late", b"x", queue_id=0)
    ((late,),), _ = follow(reader, ALL, end)
    assert late == ("late", 0, 0, b"x")


@pytest.mark.parametrize("knows_heads", [True, False])
def test_a_driver_asks_for_heads_and_executors_for_bodies(
    broker, make, sent, monkeypatch, knows_heads
):
    """A log service of an earlier version sends whole frames, and the batches are the same."""
    asked = Counter()
    heads, frames = Client.log_heads, Client.log_frames

    def log_heads(self, begin, end=0):
        whole = ((offset, data, b"") for offset, data in frames(self, begin, end))
        for one in heads(self, begin, end) if knows_heads else whole:
            asked["heads"] += len(one[1]) + len(one[2])
            yield one

    def log_frames(self, begin, end=0):
        for one in frames(self, begin, end):
            asked["frames"] += len(one[1])
            yield one

    monkeypatch.setattr(Client, "log_heads", log_heads)
    monkeypatch.setattr(Client, "log_frames", log_frames)
    reader = make(StreamReader, partitionBytes="20000")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadMaxRows(800))
    assert not asked["frames"] and asked["heads"]
    assert (asked["heads"] < 130 * len(sent)) == knows_heads
    assert rows(reader, reader.partitions(start, end)) == sent[:800]
    assert asked["frames"] > 200 * 800
    batches, _ = follow(reader, ALL, end)
    assert [row for batch in batches for row in batch] == sent[800:]


def test_a_backlog_is_handed_out_in_pieces(broker, make, sent):
    reader = make(StreamReader, partitionBytes="20000")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    parts = reader.partitions(start, end)
    assert len(parts) > 3
    assert rows(reader, parts) == sent
    after_a_restart = make(StreamReader, partitionBytes="20000").partitions(start, end)
    assert rows(reader, after_a_restart) == sent
    # The numbers of a batch's rows are their identity for readers of what it stored.
    bounds = [(part.begin, part.end) for part in parts]
    assert bounds == [(part.begin, part.end) for part in after_a_restart]
    with connect(broker.root) as client:
        client.send("in-between", bytes(5_000), queue_id=0)
    assert bounds == [(part.begin, part.end) for part in reader.partitions(start, end)]


def test_a_stream_has_at_least_so_many_partitions_also_within_a_segment(broker, make, sent):
    reader = make(StreamReader, minPartitions="12")
    start = reader.initialOffset()
    end = json.loads(json.dumps(reader.latestOffset(start, ReadMaxRows(60))))
    assert end["log"] < 65_536
    parts = reader.partitions(start, end)
    assert len(parts) == len(end["cuts"]) + 1 >= 12
    sizes = [len(rows(reader, [part])) for part in parts]
    assert sum(sizes) == 60
    assert max(sizes) <= 6
    # Done again without a dispatcher, by other options, it has the same rows in each.
    again = make(StreamReader, path=f"commitlog={address(broker)}", minPartitions="3")
    others = again.partitions(start, end)
    assert [rows(again, [part]) for part in others] == [rows(reader, [part]) for part in parts]
    # A checkpoint of an earlier version has no cuts.
    (whole,) = again.partitions(start, {"log": end["log"], "queues": end["queues"]})
    assert rows(again, [whole]) == sent[:60]


def test_a_batch_is_divided_by_the_queues_units(broker, make, sent):
    places = f"commitlog={address(broker)},"
    places += f"dispatcher={discovery.read(broker.root, 'dispatcher').address}"
    alone = make(BatchReader, path=f"commitlog={address(broker)}", partitionBytes="10000")
    divided = make(BatchReader, path=places, partitionBytes="10000")
    parts = divided.partitions()
    assert len(parts) > len(alone.partitions()) > 2
    assert rows(divided, parts) == sent


def test_moments_choose_segments(broker, make, sent):
    with connect(broker.root) as client:
        middle = client.message_at(client.log_state().segment_bytes * 2).store_timestamp_ms
        late = [
            (one.topic, one.queue_id, one.queue_offset, one.body)
            for topic in "ab"
            for one in client.consume(topic)
            if one.store_timestamp_ms >= middle
        ]
    reader = make(BatchReader, startingTimestamp=str(middle))
    assert sorted(rows(reader, reader.partitions())) == sorted(late)
    assert 0 < len(late) < len(sent)


def delete_below(broker, offset):
    """Until the files are gone: followers may hold them a little longer."""
    request = commitlog_pb2.DeleteBelowRequest(offset=offset, max_segments=9, urgent=True)
    oldest = offset_name(offset)
    for _ in range(LOOKS):
        minimum = broker.log.DeleteBelow(request).minimum_offset
        files = [path.name for path in (broker.root / "commitlog").iterdir()]
        if minimum == offset and min(files) == oldest:
            return
        threading.Event().wait(LOOK_S)
    pytest.fail(f"{offset} is not the minimum: {minimum}, {sorted(files)}")


def test_retention_overtakes_streams_and_batches(broker, make, sent, caplog):
    strict, tolerant = (make(StreamReader, failOnDataLoss=loss) for loss in ("true", "false"))
    start = strict.initialOffset()
    end = strict.latestOffset(start, ReadMaxRows(100))
    planned = {loss: make(BatchReader, failOnDataLoss=loss) for loss in ("true", "false")}
    parts = planned["true"].partitions()
    with connect(broker.root) as client:
        messages = [message for topic in "ab" for message in client.consume(topic)]
    gone = sum(message.physical_offset < MINIMUM for message in messages)
    kept = sent[gone:]
    assert end["log"] < MINIMUM
    delete_below(broker, MINIMUM)
    with pytest.raises(OffsetOutOfRangeError, match=r"topic a queue 0: offsets \d+ to \d+"):
        strict.latestOffset(end, ALL)
    with pytest.raises(OffsetOutOfRangeError):
        rows(planned["true"], parts)
    with caplog.at_level(logging.WARNING):
        (found,), _ = follow(tolerant, ALL, end)
        assert found == kept
        assert rows(planned["false"], parts) == kept
    assert {"data lost"} == {record.message for record in caplog.records}
