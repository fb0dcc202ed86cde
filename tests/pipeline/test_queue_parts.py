"""A few queues of a running broker are read by its dispatcher, and give the rows of the log."""

import logging
import threading

import pytest
from stratamq_pipeline.batch import BatchReader
from stratamq_pipeline.broker_view import BrokerPart
from stratamq_pipeline.options import SourceOptions
from stratamq_pipeline.queue_parts import QueuesPart
from stratamq_pipeline.table_columns import TableColumns

from stratamq.client import connect
from stratamq.errors import OffsetOutOfRangeError
from stratamq.rpc import discovery
from stratamq.table.schema import COLUMNS
from tests.pipeline.test_stream_of_broker import a_millisecond_later, delete_below
from tests.support.waiting import until, until_dispatched, until_readable_in_files

ALL = TableColumns.named(*COLUMNS)


@pytest.fixture
def filled(broker):
    """Ten topics with 600 messages, in several segments; the second half is later."""
    with connect(broker.root) as client:
        with client.producer(batch_messages=25) as producer:
            for number in range(600):
                if number == 300:
                    producer.flush()
                    a_millisecond_later()
                body = b"%d" % number + bytes(300)
                producer.send(f"t{number % 10}", body, keys=[f"k{number}"])
        until_dispatched(client)
    until_readable_in_files(broker.root)
    return broker


def of_broker(broker, *, dispatcher=True, **options):
    address = discovery.read(broker.root, "commitlog").address
    path = address if dispatcher else f"commitlog={address}"
    return BatchReader(SourceOptions.parse({"path": path} | options), ALL)


def rows(reader, partitions):
    found = [row for part in partitions for batch in reader.read(part) for row in batch.to_pylist()]
    return sorted(found, key=lambda row: row["physicalOffset"])


def of_files(broker, **options):
    reader = BatchReader(SourceOptions.parse({"path": str(broker.root)} | options), ALL)
    return rows(reader, reader.partitions())


def kinds(partitions):
    return {type(part) for part in partitions}


def test_a_few_queues_are_read_by_the_dispatcher_and_give_the_same_rows(filled):
    middle = of_files(filled)[300]["storeTimestamp"]
    for options in (
        {"subscribe": "t3"},
        {"subscribe": "t3,t4,nothing"},
        {"subscribePattern": "t[12]", "queues": "0,2"},
        {"startingOffsets": '{"t5": {"0": 3, "1": -1}}', "endingOffsets": '{"t5": {"2": 7}}'},
        {"subscribe": "t6", "startingTimestamp": str(round(middle.timestamp() * 1000))},
        {"subscribe": "t6", "endingTimestamp": str(round(middle.timestamp() * 1000))},
    ):
        reader = of_broker(filled, **options)
        parts = reader.partitions()
        assert kinds(parts) == {QueuesPart}
        found = rows(reader, parts)
        assert found == of_files(filled, **options)
        assert found or "nothing" in options


def test_what_the_dispatcher_cannot_give_comes_from_the_log(filled):
    of_t3 = of_files(filled, subscribe="t3")
    alone = of_broker(filled, dispatcher=False, subscribe="t3")
    assert kinds(alone.partitions()) == {BrokerPart}
    assert rows(alone, alone.partitions()) == of_t3
    # Most of the log is read faster in its order.
    most = of_broker(filled, subscribe="t0,t1,t2,t3,t4,t5,t6")
    assert kinds(most.partitions()) == {BrokerPart}
    unqueued = of_broker(filled, subscribe="t3", includeUnqueued="true")
    assert kinds(unqueued.partitions()) == {BrokerPart}


def test_queues_are_divided_into_at_least_so_many_partitions(filled):
    for options in ({"minPartitions": "7"}, {"partitionBytes": "4000"}):
        reader = of_broker(filled, subscribe="t3", **options)
        parts = reader.partitions()
        assert kinds(parts) == {QueuesPart}
        assert 6 <= len(parts) <= 9
        assert rows(reader, parts) == of_files(filled, subscribe="t3")


def test_queues_that_are_written_to_are_read_once_up_to_one_place(filled):
    """The dispatcher is behind the log at most times, and what it has not applied is read there."""
    stop, written = threading.Event(), []

    def write():
        with connect(filled.root) as client, client.producer() as producer:
            while not stop.is_set():
                written.append(producer.send("t3", bytes(300), queue_id=1).result().queue_offset)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(5):
            known = len(written)
            until(lambda known=known: len(written) > known + 5, "more was written")
            sent = written[-1]
            reader = of_broker(filled, subscribe="t3", queues="1")
            parts = reader.partitions()
            assert QueuesPart in kinds(parts)
            offsets = [row["queueOffset"] for row in rows(reader, parts)]
            assert offsets == list(range(len(offsets)))
            assert len(offsets) > sent
    finally:
        stop.set()
        writer.join()


def test_what_retention_takes_is_an_error_or_passed_over(filled, caplog):
    readers = {
        loss: of_broker(filled, subscribe="t3", failOnDataLoss=loss) for loss in ("true", "false")
    }
    planned = {loss: reader.partitions() for loss, reader in readers.items()}
    everything = rows(readers["true"], planned["true"])
    delete_below(filled, 131_072)
    with pytest.raises(OffsetOutOfRangeError):
        rows(readers["true"], planned["true"])
    with caplog.at_level(logging.WARNING):
        left = rows(readers["false"], planned["false"])
    assert left == [row for row in everything if row["physicalOffset"] >= 131_072]
    assert 0 < len(left) < len(everything)
    assert {"data lost"} == {record.message for record in caplog.records}
