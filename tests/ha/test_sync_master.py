"""SYNC_MASTER over real processes: what an answer means, and what consumers see. Spec 5.5."""

import threading

import pytest

from stratamq.api.v1 import commitlog_pb2 as log_pb
from stratamq.client import Message, SendStatus, connect
from stratamq.errors import BusyError, NotWritableError
from stratamq.files.clock import SystemClock
from tests.ha.pairs import Pair, ha_status, log_status, until
from tests.support.brokers import COMMITLOG, DISPATCHER, HA


def ready_slaves(pair: Pair, count: int) -> None:
    """The log itself reports so many slaves."""
    until(
        lambda: len([one for one in log_status(pair.master).replicas if one.connected]) == count,
        f"the log reports {count} slaves",
    )


def send(pair: Pair, **fields) -> SendStatus:
    with connect(pair.master.root) as client:
        return client.send_all([message(**fields)])[0].status


def sent_in_time(pair: Pair) -> None:
    """Until a message is acknowledged within a short `slave_timeout_ms`."""
    until(lambda: send(pair) is SendStatus.PUT_OK, "the slave acknowledges in time")


def message(**fields):
    return Message("t", b"x" * fields.pop("size", 100), **fields)


def test_what_is_acknowledged_is_on_the_slave(tmp_path):
    with Pair(tmp_path, role="SYNC_MASTER") as pair:
        pair.start()
        ready_slaves(pair, 1)
        for _ in range(20):
            assert send(pair) is SendStatus.PUT_OK
            end = log_status(pair.master).appended_offset
            assert log_status(pair.slave).flushed_offset == end
        pair.send(300)
        pair.caught_up()
        pair.assert_equal()


def test_without_a_slave_messages_are_stored_and_shown_when_a_slave_has_them(tmp_path):
    with Pair(tmp_path, role="SYNC_MASTER", rooms=[DISPATCHER]) as pair:
        pair.start_master()
        assert send(pair) is SendStatus.SLAVE_NOT_AVAILABLE
        assert send(pair, wait_store_ok=False) is SendStatus.PUT_OK
        with connect(pair.master.root) as client:
            assert list(client.consume("t")) == []
            pair.start_slave()
            until(lambda: len(list(client.consume("t"))) == 2, "the slave has both")


def test_without_hold_without_slave_consumers_see_what_no_slave_has(tmp_path):
    settings = ["commitlog.hold_without_slave=false"]
    with Pair(tmp_path, role="SYNC_MASTER", rooms=[DISPATCHER], master=settings) as pair:
        pair.start_master()
        assert send(pair) is SendStatus.SLAVE_NOT_AVAILABLE
        with connect(pair.master.root) as client:
            until(lambda: len(list(client.consume("t"))) == 1, "confirmed continues without slaves")
        pair.start_slave()
        ready_slaves(pair, 1)
        assert send(pair) is SendStatus.PUT_OK
        pair.caught_up()
        pair.assert_equal()


def test_a_slave_that_does_not_answer_in_time(tmp_path):
    """It is waited for; consumers see nothing that it does not have; far behind it does not
    count any more."""
    settings = ["commitlog.slave_timeout_ms=300", "commitlog.slave_max_gap_bytes=20000"]
    with Pair(tmp_path, role="SYNC_MASTER", master=settings) as pair:
        pair.start()
        ready_slaves(pair, 1)
        sent_in_time(pair)
        before = log_status(pair.master).appended_offset
        pair.wire.hold()
        assert send(pair) is SendStatus.FLUSH_SLAVE_TIMEOUT
        assert send(pair, wait_store_ok=False) is SendStatus.PUT_OK
        status = log_status(pair.master)
        assert status.confirmed_offset == before < status.appended_offset
        assert send(pair, size=30_000) is SendStatus.SLAVE_NOT_AVAILABLE
        assert send(pair) is SendStatus.SLAVE_NOT_AVAILABLE
        status = log_status(pair.master)
        assert status.confirmed_offset == before
        pair.wire.release()
        pair.caught_up()
        ready_slaves(pair, 1)
        sent_in_time(pair)
        pair.caught_up()
        pair.assert_equal()


def test_consumers_see_nothing_that_slaves_do_not_have(tmp_path):
    with Pair(tmp_path, role="SYNC_MASTER") as pair:
        pair.start()
        ready_slaves(pair, 1)
        assert send(pair) is SendStatus.PUT_OK
        before = log_status(pair.master).confirmed_offset
        pair.slave.kill_all()
        ready_slaves(pair, 0)
        assert send(pair) is SendStatus.SLAVE_NOT_AVAILABLE
        assert log_status(pair.master).confirmed_offset == before
        pair.slave.start(pair.rooms)
        pair.caught_up()
        end = log_status(pair.master).appended_offset
        until(lambda: log_status(pair.master).confirmed_offset == end, "consumers see all of it")


def test_two_slaves_must_have_it_when_two_are_required(tmp_path):
    settings = ["commitlog.required_replicas=2"]
    with Pair(tmp_path, role="SYNC_MASTER", master=settings) as pair:
        pair.start()
        ready_slaves(pair, 1)
        assert send(pair) is SendStatus.SLAVE_NOT_AVAILABLE
        with pair.new_slave("second") as second:
            second.start(pair.rooms)
            ready_slaves(pair, 2)
            pair.caught_up(second)
            assert send(pair) is SendStatus.PUT_OK
            end = log_status(pair.master).appended_offset
            assert log_status(pair.slave).flushed_offset == end
            assert log_status(second).flushed_offset == end


def test_a_slave_that_has_nothing_to_acknowledge_is_not_taken_for_lost(tmp_path):
    """The log takes its replication service for dead after five seconds without a report."""
    with Pair(tmp_path, role="SYNC_MASTER") as pair:
        pair.start()
        ready_slaves(pair, 1)
        assert send(pair) is SendStatus.PUT_OK
        pair.caught_up()
        clock, pause = SystemClock(), threading.Event()
        until_ns = clock.monotonic_ns() + 7_000_000_000
        while clock.monotonic_ns() < until_ns:
            assert any(one.connected for one in log_status(pair.master).replicas)
            pause.wait(0.1)
        assert send(pair) is SendStatus.PUT_OK


def test_when_replication_itself_dies_no_producer_waits_for_its_slaves_for_long(tmp_path):
    with Pair(tmp_path, role="SYNC_MASTER") as pair:
        pair.start()
        ready_slaves(pair, 1)
        pair.master.kill(HA)
        ready_slaves(pair, 0)
        assert send(pair) is SendStatus.SLAVE_NOT_AVAILABLE
        pair.master.start([HA])
        pair.find_master_again()
        ready_slaves(pair, 1)
        assert send(pair) is SendStatus.PUT_OK


@pytest.mark.parametrize("room", [COMMITLOG, HA])
def test_what_was_acknowledged_is_on_the_slave_whatever_dies_there(tmp_path, room):
    """Bodies of every PUT_OK are found in the slave's log after kills."""
    with Pair(tmp_path, role="SYNC_MASTER") as pair:
        pair.start()
        ready_slaves(pair, 1)
        acknowledged = []
        with connect(pair.master.root) as client:
            for number in range(60):
                if number in (20, 40):
                    pair.slave.kill(room)
                    pair.slave.spawn(room)
                if number in (30, 50):
                    ready_slaves(pair, 1)
                result = client.send_all([message(unique_key=f"u{number}")])[0]
                if result.status is SendStatus.PUT_OK:
                    acknowledged.append(result.physical_offset)
        assert len(acknowledged) > 20  # those before the first kill, and some behind it
        pair.slave.kill_all()
        pair.slave.start([COMMITLOG])
        for offset in acknowledged:
            frame = log_pb.GetFrameRequest(physical_offset=offset)
            ours = pair.master.log.GetFrame(frame).frame.frame
            # A slave that has lost its master shows what it last knew to be confirmed.
            stored = log_pb.ReadRangeRequest(
                start_offset=offset, end_offset=offset + len(ours), unconfirmed=True
            )
            assert b"".join(one.data for one in pair.slave.log.ReadRange(stored)) == ours


def test_the_lag_of_a_slave_is_reported_in_bytes_and_time(tmp_path):
    with Pair(tmp_path) as pair:
        pair.start()
        pair.send(10)
        pair.caught_up()
        (one,) = ha_status(pair.master).slaves
        assert (one.lag_bytes, one.lag_ms, one.name) == (0, 0, "broker-a")
        pair.wire.hold()

        def sent_in_vain() -> bool:
            """What was on its way when the wire was held may still arrive, and be acknowledged."""
            pair.send(1)
            return any(s.lag_bytes and s.lag_ms > 200 for s in ha_status(pair.master).slaves)

        until(sent_in_vain, "the lag is seen")
        end = log_status(pair.master).appended_offset

        def is_seen(states) -> bool:
            """An ASYNC_MASTER's replication hears of the log's end every 50 ms."""
            ends = [s.acknowledged_offset + s.lag_bytes for s in states if s.lag_ms > 200]
            return ends == [end]

        until(lambda: is_seen(ha_status(pair.master).slaves), "replication reports it")
        until(lambda: is_seen(log_status(pair.master).replicas), "the log reports it, too")


def test_a_producer_that_requires_slaves_is_refused_without_them_and_nothing_is_stored(tmp_path):
    with Pair(tmp_path, role="SYNC_MASTER") as pair:
        pair.start_master()
        with connect(pair.master.root) as client:
            with pytest.raises(BusyError, match="fewer than 1 are connected"):
                client.send("t", b"alone", require_replicas=True)
            with client.producer(require_replicas=True, retry=False) as producer:
                delivery = producer.send("t", b"streamed")
                with pytest.raises(BusyError, match="nothing was stored"):
                    delivery.result()
            assert log_status(pair.master).appended_offset == 0
            pair.start_slave()
            ready_slaves(pair, 1)
            assert client.send("t", b"1", require_replicas=True).status is SendStatus.PUT_OK
            with client.producer(require_replicas=True) as producer:
                assert producer.send("t", b"2").result().status is SendStatus.PUT_OK


def test_a_producer_that_requires_slaves_is_refused_by_a_master_that_waits_for_none(tmp_path):
    with Pair(tmp_path) as pair:
        pair.start_master()
        with connect(pair.master.root) as client:
            with pytest.raises(NotWritableError, match="waits for none"):
                client.send("t", b"x", require_replicas=True)
            assert client.send("t", b"x").status is SendStatus.PUT_OK
