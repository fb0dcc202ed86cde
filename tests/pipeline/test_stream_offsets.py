"""The driver's half of a stream, called without Spark: offsets, limits, losses."""

import json
import logging

import pytest
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
)
from stratamq_pipeline import offsets
from stratamq_pipeline.offsets import StreamOffset
from stratamq_pipeline.options import SourceOptions
from stratamq_pipeline.stream import StreamReader
from stratamq_pipeline.table_columns import TableColumns

from stratamq.errors import InvalidRequestError, NotFoundError, OffsetOutOfRangeError
from stratamq.files.metadata import MetadataFile
from stratamq.files.real import RealFiles
from stratamq.formats.store_paths import GENERATIONS_PATH
from stratamq.store.generations import generations_document
from tests.pipeline.written_log import WrittenLog

ALL = ReadAllAvailable()


@pytest.fixture
def log(tmp_path):
    return WrittenLog(tmp_path / "store")


def stream(log, **options):
    given = {"path": str(log.root), "startingOffsets": "earliest"} | options
    columns = ("topic", "queueId", "queueOffset")
    return StreamReader(SourceOptions.parse(given), TableColumns.named(*columns))


def rows(reader, start, end):
    """As executors read them, each partition by itself."""
    found = []
    for partition in reader.partitions(start, end):
        for batch in reader.read(partition):
            found += [tuple(row.values()) for row in batch.to_pylist()]
    return found


def follow(reader, limit=ALL, start=None):
    """Batches until there is no more: (rows, end) each."""
    start = reader.initialOffset() if start is None else start
    batches = []
    while True:
        end = json.loads(json.dumps(reader.latestOffset(start, limit)))
        if end == start:
            return batches
        batches.append((rows(reader, start, end), end))
        start = end


def test_everything_is_read_once_in_the_order_of_the_log(log):
    log.put_many(100)
    ((found, end),) = follow(stream(log))
    assert found == log.stored
    assert end == {
        "log": log.end,
        "queues": {"a": {"0": 25, "1": 25}, "b": {"0": 25, "1": 25}},
    }


@pytest.mark.parametrize("most", [1, 7, 50, 99, 100, 101])
def test_a_limit_of_rows_cuts_exactly(log, most):
    log.put_many(100)
    batches = follow(stream(log, maxOffsetsPerTrigger=str(most)), ReadMaxRows(most))
    assert [len(found) for found, _ in batches[:-1]] == [most] * (len(batches) - 1)
    assert [row for found, _ in batches for row in found] == log.stored


def test_a_limit_of_bytes_takes_what_fits_and_at_least_one(log):
    log.put_many(60)
    large = follow(stream(log, maxBytesPerTrigger="1000"), ReadMaxBytes(1000))
    assert [row for found, _ in large for row in found] == log.stored
    assert all(1 < len(found) <= 10 for found, _ in large[:-1])
    single = follow(stream(log, maxBytesPerTrigger="1"), ReadMaxBytes(1))
    assert [len(found) for found, _ in single] == [1] * 60


def test_both_limits_hold_together(log):
    log.put_many(40)
    reader = stream(log, maxOffsetsPerTrigger="3", maxBytesPerTrigger="300")
    batches = follow(reader, reader.getDefaultReadLimit())
    assert max(len(found) for found, _ in batches) <= 3
    assert min(len(found) for found, _ in batches) < 3
    assert [row for found, _ in batches for row in found] == log.stored


def test_spark_may_ask_for_everything_whatever_the_options_are(log):
    log.put_many(30)
    assert len(follow(stream(log, maxOffsetsPerTrigger="3"), ALL)) == 1


def test_a_batch_that_was_planned_before_is_the_same_when_it_is_read_again(log):
    log.put_many(50)
    reader = stream(log)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadMaxRows(20))
    before = rows(reader, start, end)
    log.put_many(50)
    assert rows(stream(log), start, end) == before == log.stored[:20]


def test_batches_are_read_in_many_parts(log):
    log.put_many(100)
    reader = stream(log, partitionBytes="1500")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    assert len(reader.partitions(start, end)) > 8
    assert rows(reader, start, end) == log.stored
    assert len(stream(log, minPartitions="20").partitions(start, end)) >= 20


def test_topics_and_queues_that_come_later_appear(log):
    log.put("a", 0)
    reader = stream(log, subscribePattern="a.*")
    ((_, first),) = follow(reader)
    log.put("a", 7)
    log.put("b", 0)
    log.put("ab", 1)
    ((found, end),) = follow(reader, start=first)
    assert found == [("a", 7, 0), ("ab", 1, 0)]
    assert end["queues"] == {"a": {"0": 1, "7": 1}, "ab": {"1": 1}}


def test_what_is_not_wanted_makes_no_batches(log):
    log.put("a", 0)
    reader = stream(log, subscribe="a")
    ((_, end),) = follow(reader)
    for _ in range(3):
        log.put_many(100, topics="b")
        assert reader.latestOffset(end, ALL) is end
    log.put("a", 0)
    assert [found for found, _ in follow(reader, start=end)] == [[("a", 0, 1)]]


def test_a_long_way_without_anything_wanted_is_taken_by_an_empty_batch(log, monkeypatch):
    monkeypatch.setattr("stratamq_pipeline.stream._IDLE_BYTES", 10_000)
    log.put_many(200, topics="b")
    ((found, end),) = follow(stream(log, subscribe="a"))
    assert (found, end) == ([], {"log": log.end, "queues": {}})


def test_it_begins_at_the_end_by_default(log):
    log.put_many(10)
    reader = StreamReader(
        SourceOptions.parse({"path": str(log.root)}), TableColumns.named("queueOffset")
    )
    start = reader.initialOffset()
    assert start == {"log": log.end, "queues": {}}
    log.put("a", 0)
    assert len(follow(reader, start=start)[0][0]) == 1


def test_it_begins_at_a_moment(log):
    for number in range(100):
        log.put(time_ms=1000 + number)
    reader = stream(log, startingTimestamp="1050")
    assert reader.initialOffset()["log"] > 0
    ((found, _),) = follow(reader)
    assert found == log.stored[50:]


def test_single_queues_begin_at_named_offsets_and_the_others_with_the_log(log):
    log.put_many(40, topics="ab", queues=2)
    starting = {"a": {"0": 4, "1": -1}, "b": {"0": -2, "1": 12}}
    reader = stream(log, startingOffsets=json.dumps(starting))
    start = reader.initialOffset()
    assert start["skip"] == {"a": {"0": 4, "1": 10}, "b": {"1": 12}}
    ((found, end),) = follow(reader, start=start)
    wanted = {("a", 0): 4, ("a", 1): 10, ("b", 0): 0, ("b", 1): 12}
    assert found == [row for row in log.stored if row[2] >= wanted[row[:2]]]
    assert end["skip"] == {"a": {"1": 10}, "b": {"1": 12}}
    log.put_many(40, topics="ab", queues=2)
    ((found, end),) = follow(reader, start=end)
    assert found == [row for row in log.stored[40:] if row[2] >= wanted[row[:2]]]
    assert "skip" not in end


def test_a_queue_that_begins_anew_is_no_gap(log):
    log.put_many(10, topics="a", queues=1)
    reader = stream(log)
    ((_, end),) = follow(reader)
    log.next.clear()  # RocketMQ does so when a topic was deleted
    log.put("a", 0)
    assert [found for found, _ in follow(reader, start=end)] == [[("a", 0, 0)]]


def test_available_now_ends_with_what_was_there_and_takes_limits(log):
    log.put_many(25)
    reader = stream(log, maxOffsetsPerTrigger="10", minOffsetsPerTrigger="10")
    reader.prepareForTriggerAvailableNow()
    log.put_many(25)
    batches = follow(reader, reader.getDefaultReadLimit())
    assert [len(found) for found, _ in batches] == [10, 10, 5]


def test_a_least_number_is_waited_for_but_not_for_ever(log):
    log.put_many(5)
    reader = stream(log, minOffsetsPerTrigger="8", maxTriggerDelay="1h")
    start = reader.initialOffset()
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMinRows(8)
    assert reader.latestOffset(start, limit) is start
    log.put_many(5)
    assert [len(found) for found, _ in follow(reader, limit)] == [10]
    log.put_many(5)
    hasty = stream(log, minOffsetsPerTrigger="80", maxTriggerDelay="0ms")
    assert [len(found) for found, _ in follow(hasty, limit)] == [15]


def test_lag_is_the_logs_end(log):
    log.put_many(30)
    reader = stream(log, maxOffsetsPerTrigger="10")
    end = reader.latestOffset(reader.initialOffset(), ReadMaxRows(10))
    assert reader.reportLatestOffset()["log"] == log.end > end["log"]


def overtaken(log):
    """Where a stream stood, and the log's minimum now: two segments further."""
    log.put_many(20, topics="a", queues=2)
    _, end = follow(stream(log))[-1]
    log.put_many(200, topics="a", queues=2)
    log.delete_oldest()
    log.delete_oldest()
    return end, log.delete_oldest()


def test_retention_that_overtakes_is_an_error_that_names_queue_and_offsets(log):
    end, minimum = overtaken(log)
    first = [next(r for r in log.stored if r[1] == q and log.places[r] >= minimum) for q in (0, 1)]
    for ask in (lambda reader: follow(reader, start=end), lambda reader: planned(reader, end)):
        with pytest.raises(OffsetOutOfRangeError) as caught:
            ask(stream(log))
        for queue_id, oldest in enumerate(first):
            reason = f"topic a queue {queue_id}: offsets 10 to {oldest[2] - 1}"
            assert reason in str(caught.value)


def planned(reader, start):
    """A batch that an earlier run had planned."""
    return rows(reader, start, {**start, "log": start["log"] + 100_000})


def test_retention_that_overtakes_is_passed_over_by_option(log, caplog):
    end, minimum = overtaken(log)
    kept = [row for row in log.stored if log.places[row] >= minimum]
    with caplog.at_level(logging.WARNING):
        ((found, _),) = follow(stream(log, failOnDataLoss="false"), start=end)
    assert found == kept
    (record,) = [record for record in caplog.records if record.message == "data lost"]
    assert "topic a queue 0: offsets 10" in record.lost[0]


def test_retention_of_what_was_read_or_is_not_wanted_is_no_loss(log):
    log.put("a", 0)
    reader = stream(log, subscribe="a")
    ((found, end),) = follow(reader)
    assert found == [("a", 0, 0)]
    log.put_many(200, topics="b")
    log.put("a", 0)
    log.delete_oldest()
    assert end["log"] < log.delete_oldest()
    for following in (reader, stream(log, subscribe="a")):
        assert [found for found, _ in follow(following, start=end)] == [[("a", 0, 1)]]


def test_a_log_that_was_cut_in_front_of_the_stream_is_reported(log, tmp_path):
    log.put_many(50)
    ((_, end),) = follow(stream(log))
    shorter = WrittenLog(tmp_path / "other")
    shorter.put_many(10)
    with pytest.raises(OffsetOutOfRangeError, match="the log ends at"):
        stream(shorter).latestOffset(end, ALL)
    reader = stream(shorter, failOnDataLoss="false")
    moved = reader.latestOffset(end, ALL)
    assert rows(reader, end, moved) == []
    shorter.put("a", 0)
    assert len(follow(reader, start=moved)[0][0]) == 1


@pytest.mark.parametrize("again", [0, 1, 2])
def test_a_log_that_is_cut_while_it_is_followed_is_reported(log, again):
    """By RocketMQ's recovery; whether or not as much was written again."""
    log.put_many(12)
    reader = stream(log)
    ((_, end),) = follow(reader)
    log.cut(log.places["b", 1, 1])
    for _ in range(again):
        log.put("c", 0, b"another length")
    with pytest.raises(OffsetOutOfRangeError, match="the log ends at"):
        reader.latestOffset(end, ALL)


def list_generations(log, *generations):
    """As the log service does before it serves in one: (number, start) each."""
    MetadataFile(RealFiles(log.root), GENERATIONS_PATH).store(
        generations_document(generations, log.segment_bytes)
    )


def promoted(log):
    """A stream has come to message 12 in generation 3; the promoted log has 6 of them, and as much
    again behind those: where the stream stood, where the log was cut, what came there."""
    list_generations(log, (3, 0))
    log.put_many(12)
    ((found, end),) = follow(stream(log))
    assert end["generation"] == 3 and len(found) == 12
    cut = log.places["a", 1, 1]
    kept = [row for row in log.stored if log.places[row] < cut]
    log.cut(cut)
    log.next = {("a", 0): 2, ("a", 1): 1, ("b", 0): 1, ("b", 1): 1}
    log.stored = list(kept)
    list_generations(log, (3, 0), (5, cut))
    log.put_many(40)
    assert log.end > end["log"]
    return end, cut, log.stored[len(kept) :]


def test_a_log_that_was_cut_by_a_promotion_is_reported_whatever_was_written_since(log):
    end, cut, _ = promoted(log)
    for ask in (lambda reader: follow(reader, start=end), lambda reader: planned(reader, end)):
        with pytest.raises(OffsetOutOfRangeError, match=f"cut at offset {cut}, below {end['log']}"):
            ask(stream(log))


def test_a_stream_that_may_goes_back_to_the_cut_and_reads_what_took_its_place(log, caplog):
    end, cut, new = promoted(log)
    with caplog.at_level(logging.WARNING):
        batches = follow(stream(log, failOnDataLoss="false"), ReadMaxRows(7), start=end)
    assert [row for found, _ in batches for row in found] == new
    assert {after["generation"] for _, after in batches} == {5}
    assert next(one.goes_back_to for one in caplog.records if one.message == "log cut") == cut


def test_a_batch_that_was_planned_and_cut_ends_at_the_cut(log):
    end, _, new = promoted(log)
    reader = stream(log, failOnDataLoss="false")
    assert rows(reader, {"log": 0, "queues": {}, "generation": 3}, end) == log.stored[: -len(new)]


def test_a_walk_that_was_cut_begins_again(log):
    list_generations(log, (3, 0))
    log.put_many(12)
    reader = stream(log, minOffsetsPerTrigger="20")
    start = reader.initialOffset()
    limit = reader.getDefaultReadLimit()
    assert reader.latestOffset(start, limit) == start  # it waits, and has walked to the end
    kept = [row for row in log.stored if log.places[row] < log.places["a", 1, 1]]
    log.cut(log.places["a", 1, 1])
    log.next, log.stored = {("a", 0): 2, ("a", 1): 1, ("b", 0): 1, ("b", 1): 1}, kept
    list_generations(log, (3, 0), (5, log.end))
    log.put_many(40)
    assert rows(reader, start, reader.latestOffset(start, limit)) == log.stored


def test_a_checkpoint_without_a_generation_is_continued_and_gets_one(log):
    list_generations(log, (3, 0))
    log.put_many(12)
    ((_, end),) = follow(stream(log))
    del end["generation"]
    log.put_many(8)
    ((found, after),) = follow(stream(log), start=end)
    assert (len(found), after["generation"]) == (8, 3)


@pytest.mark.parametrize(
    ("starting", "reason"),
    [
        ({"a": {"0": 0}}, "topic a queue 0 begins at 0, and the log has it from"),
        ({"a": {"9": 3}}, "topic a queue 9 begins at 3, and no message"),
    ],
)
def test_a_named_start_that_is_gone_is_reported(log, starting, reason):
    log.put_many(200)
    log.delete_oldest()
    options = {"startingOffsets": json.dumps(starting)}
    with pytest.raises(OffsetOutOfRangeError, match=reason):
        stream(log, **options).initialOffset()
    reader = stream(log, failOnDataLoss="false", **options)
    ((found, _),) = follow(reader)
    assert found == [row for row in log.stored if log.places[row] >= 4096 and row[0] == "a"]


def test_an_empty_store_is_followed_from_its_first_message(tmp_path):
    (tmp_path / "store" / "config").mkdir(parents=True)
    reader = StreamReader(
        SourceOptions.parse({"path": str(tmp_path / "store")}), TableColumns.named("topic")
    )
    start = reader.initialOffset()
    assert follow(reader, start=start) == []
    log = WrittenLog(tmp_path / "store")
    log.put()
    assert [found for found, _ in follow(reader, start=start)] == [[("a",)]]


def test_what_streams_cannot_do_is_refused(log, tmp_path):
    with pytest.raises(InvalidRequestError, match="endingOffsets is for batches"):
        stream(log, endingOffsets="latest")
    with pytest.raises(InvalidRequestError, match="table=damage"):
        stream(log, table="damage")
    with pytest.raises(NotFoundError):
        stream(log, path=str(tmp_path / "nothing")).initialOffset()


def test_offsets_come_back_from_json():
    offset = StreamOffset(99, {("a", 1): 7, ("b", 0): 2}, {("a", 1): 8}, 7)
    assert StreamOffset.from_json(json.loads(json.dumps(offset.to_json()))) == offset


def test_queues_that_retention_has_emptied_leave_the_checkpoint_oldest_first(log, monkeypatch):
    """The last `MAX_EMPTY` stay; a restart does not know where a queue's last message lay, but that
    it lay in front of the checkpoint's place."""
    monkeypatch.setattr(offsets, "MAX_EMPTY", 2)
    for number in range(5):
        log.put("gone", number)
        log.put("kept", 0, bytes(1500))
        log.put("kept", 0, bytes(1500))
    reader = stream(log)
    ((_, end),) = follow(reader)
    assert set(end["queues"]["gone"]) == {"0", "1", "2", "3", "4"}
    for _ in range(3):
        minimum = log.delete_oldest()
    there = {number for number in range(5) if log.places["gone", number, 0] >= minimum}
    assert there == {4}
    log.put("kept")
    restarted = stream(log)
    for one in (reader, restarted):
        ((found, later),) = follow(one, start=end)
        assert found == [("kept", 0, 10)]
        if one is reader:
            assert later["queues"] == {"gone": {str(n): 1 for n in (2, 3, 4)}, "kept": {"0": 11}}
        else:
            assert later == {**end, "log": log.end, "queues": later["queues"]}
            assert later["queues"]["gone"] == end["queues"]["gone"]
    log.put("kept", 0, bytes(3000))
    log.put("kept", 0, bytes(3000))
    ((_, later),) = follow(restarted, start=later)
    while log.delete_oldest() < end["log"]:
        pass
    log.put("kept")
    ((_, last),) = follow(restarted, start=later)
    assert len(last["queues"]["gone"]) == 2 and last["queues"]["kept"] == {"0": 14}
