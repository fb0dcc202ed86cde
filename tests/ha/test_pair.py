"""A slave of ours behind a master of ours, as real processes: it has every byte, whatever happens.

Segments are compared file by file, blanks and their tails included.
"""

import random
from typing import Any

import grpc
import pytest

from stratamq.api.v1 import commitlog_pb2 as log_pb
from stratamq.api.v1 import common_pb2
from stratamq.client import connect
from stratamq.rpc.status import from_rpc_error
from tests.ha.pairs import SEGMENT, Pair, ha_status, log_status, tail_torn_off, until
from tests.support.brokers import COMMITLOG, DISPATCHER, HA, INDEX


def test_a_slave_has_every_byte_and_serves_what_it_has(tmp_path):
    with Pair(tmp_path, rooms=[DISPATCHER, INDEX]) as pair:
        pair.start()
        pair.send(200)
        pair.caught_up()
        pair.served_equally()
        with connect(pair.master.root) as client, connect(pair.slave.root) as slave:
            for message in list(client.consume("t1"))[::10]:
                (key,) = message.keys
                assert [m.body for m in slave.query_key("t1", key).messages] == [message.body]
                at = message.store_timestamp_ms
                assert slave.offset_at_time("t1", message.queue_id, at) == client.offset_at_time(
                    "t1", message.queue_id, at
                )
        pair.master.stop()
        pair.slave.stop()
        pair.assert_equal()
        assert len(list((tmp_path / "slave" / "commitlog").iterdir())) > 3


def test_a_slave_takes_no_messages_and_names_the_master_that_does(tmp_path):
    with Pair(tmp_path) as pair:
        pair.start()
        until(lambda: ha_status(pair.slave).following.connected, "the slave follows")
        request = log_pb.AppendRequest(messages=[log_pb.Message(topic="t", body=b"x")])
        answer = pair.slave.log.Append(request).results[0]
        assert answer.status == common_pb2.PUT_MESSAGE_STATUS_SERVICE_NOT_AVAILABLE
        with connect(pair.master.root) as client:
            assert client.log_state().writable
        target = pair.master._channels[COMMITLOG]._channel.target().decode()
        address = target.removeprefix("ipv4:").removeprefix("dns:///")
        # The slave's log learns of the address with its first metadata.
        until(
            lambda: address in pair.slave.log.Append(request).results[0].error,
            "the refusal names the master's log",
        )


def test_a_slave_that_joins_late_gets_the_log_from_its_minimum_on(tmp_path):
    with Pair(tmp_path) as pair:
        pair.start_master()
        pair.send(300)
        # A snapshot at the end: what is below may go.
        pair.master.terminate(COMMITLOG)
        pair.master.start([COMMITLOG])
        minimum = 2 * SEGMENT
        pair.delete_below(minimum)
        pair.start_slave()
        pair.send(20)
        pair.caught_up()
        assert log_status(pair.slave).minimum_offset == minimum
        pair.assert_equal_from(minimum)


def test_slaves_and_services_that_are_killed_at_random_continue_where_they_were(tmp_path):
    """Either log, either replication."""
    chance = random.Random(7)
    with Pair(tmp_path) as pair:
        pair.start()
        for _ in range(6):
            broker, room = chance.choice(
                [(broker, room) for broker in (pair.master, pair.slave) for room in (COMMITLOG, HA)]
            )
            pair.send(chance.randrange(10, 60))
            broker.kill(room)
            if (broker, room) != (pair.master, COMMITLOG):
                pair.send(chance.randrange(10, 60))
            broker.start([room])
            if (broker, room) == (pair.master, HA):
                pair.find_master_again()
        pair.caught_up()
        pair.assert_equal()
        assert not list((tmp_path / "slave" / "stratamq" / "aside").glob("commitlog-*"))


def test_a_master_that_is_killed_begins_a_generation_and_the_slave_learns_it(tmp_path):
    with Pair(tmp_path) as pair:
        pair.start()
        for _ in range(3):
            pair.send(50)
            pair.master.kill(COMMITLOG)
            pair.master.start([COMMITLOG])
        pair.send(20)
        pair.caught_up()
        pair.assert_equal()
        master, slave = log_status(pair.master), log_status(pair.slave)
        assert slave.generations[-1].generation == master.generations[-1].generation
        assert len(master.generations) == 4


def test_a_slave_that_is_cut_off_longer_than_the_housekeeping_is_left_and_comes_back(tmp_path):
    fast = ["ha.heartbeat_ms=100", "ha.housekeeping_ms=600"]
    with Pair(tmp_path, both=fast) as pair:
        pair.start()
        pair.send(50)
        pair.caught_up()
        pair.wire.hold()
        pair.send(100)
        until(
            lambda: not any(one.connected for one in ha_status(pair.master).slaves),
            "the master leaves the silent slave",
        )
        assert any("sent nothing for" in one.problem for one in ha_status(pair.master).slaves)
        until(lambda: not ha_status(pair.slave).following.connected, "the slave leaves, too")
        pair.wire.release()
        pair.wire.cut()
        pair.caught_up()
        pair.assert_equal()


def test_connections_that_break_again_and_again_lose_nothing(tmp_path):
    with Pair(tmp_path) as pair:
        pair.start()
        for _ in range(10):
            pair.send(30)
            pair.wire.cut()
        pair.send(1)
        pair.caught_up()
        pair.assert_equal()


def test_a_slave_whose_end_was_deleted_at_the_master_begins_anew(tmp_path):
    with Pair(tmp_path, rooms=[DISPATCHER, INDEX]) as pair:
        pair.start()
        pair.send(60)
        pair.caught_up()
        pair.slave.stop()
        pair.send(300)
        end = log_status(pair.master).appended_offset
        # A snapshot at the end: what is below may go.
        pair.master.terminate(COMMITLOG)
        pair.master.start([COMMITLOG])
        minimum = end - end % SEGMENT
        assert minimum >= 3 * SEGMENT
        pair.delete_below(minimum)
        pair.start_slave()
        pair.caught_up()
        assert log_status(pair.slave).minimum_offset == minimum
        pair.assert_equal_from(minimum)
        pair.served_equally()
        assert list((tmp_path / "slave" / "stratamq" / "aside").glob("commitlog-*"))


def test_a_slave_with_a_tail_that_its_master_lost_is_cut_by_an_operators_word_alone(tmp_path):
    """The master loses what it had acknowledged under async flush; the slave has it."""
    settings = ["commitlog.flush_disk_type=ASYNC_FLUSH", "commitlog.snapshot_interval_ms=3600000"]
    with Pair(tmp_path, master=settings, rooms=[DISPATCHER, INDEX]) as pair:
        pair.start()
        pair.send(50)
        pair.caught_up()
        pair.served_equally()
        pair.master.kill_all()
        lost = tail_torn_off(pair.master, 5_000)
        pair.master.start(pair.rooms)
        pair.find_master_again()
        assert log_status(pair.master).appended_offset == lost
        until(
            lambda: "has this log's history up to" in log_status(pair.master).held_reason,
            "the master hears that its slave has more, and takes nothing",
        )
        with connect(pair.master.root) as client:
            client.admin.promote(force=True)
        pair.send(50)
        pair.caught_up()
        pair.assert_equal()
        pair.served_equally()
        kept = list((tmp_path / "slave" / "stratamq" / "aside").glob(f"commitlog-{lost:020}-*"))
        assert len(kept) == 1


def needs_resync(pair: Pair) -> Any:
    """What the slave reports of its master; None while it can still follow it."""
    following = ha_status(pair.slave).following
    return following if following.needs_resync else None


def test_a_log_of_another_history_waits_for_an_operator(tmp_path):
    with Pair(tmp_path, rooms=[DISPATCHER, INDEX]) as pair:
        pair.start_master()
        pair.send(50)
        other = pair.new_slave("slave", "commitlog.role=ASYNC_MASTER")
        with other:
            other.start([COMMITLOG])
            pair.send(20, broker=other)
            other.stop()
        before = (tmp_path / "slave" / "commitlog" / ("0" * 20)).read_bytes()
        pair.start_slave()
        following = until(lambda: needs_resync(pair), "the slave reports that it needs a resync")
        assert "replica resync" in following.problem
        assert (tmp_path / "slave" / "commitlog" / ("0" * 20)).read_bytes() == before
        pair.resync()
        pair.caught_up()
        pair.assert_equal()
        pair.served_equally()
        (kept,) = (tmp_path / "slave" / "stratamq" / "aside").glob("commitlog-*")
        assert kept.read_bytes() == before


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("commitlog.broker_name=other", "the slave is of other"),
        ("commitlog.segment_bytes=131072", "segments have 65536 bytes here"),
    ],
)
def test_a_slave_that_does_not_fit_is_refused_with_the_reason(tmp_path, setting, sentence):
    with Pair(tmp_path, slave=[setting]) as pair:
        pair.start()
        until(
            lambda: sentence in ha_status(pair.slave).following.problem,
            "the slave reports the reason",
        )


def test_only_allowed_slaves_get_in(tmp_path):
    with Pair(tmp_path, master=["ha.allowed_slaves=10.0.0.0/8"]) as pair:
        pair.start()
        until(lambda: "ha.allowed_slaves" in pair.master.output(HA), "the refusal is logged")
        assert not ha_status(pair.slave).following.connected


def test_two_slaves_and_one_from_the_last_segment_only(tmp_path):
    with Pair(tmp_path) as pair:
        pair.start_master()
        pair.send(200)
        end = log_status(pair.master).appended_offset
        with pair.new_slave("late", "ha.sync_from=LAST") as late:
            late.start(pair.rooms)
            pair.start_slave()
            pair.send(50)
            pair.caught_up()
            pair.caught_up(late)
            pair.assert_equal()
            first = log_status(late).minimum_offset
            assert 0 < first <= end
            pair.assert_equal_from(first, late)
            assert len([one for one in ha_status(pair.master).slaves if one.connected]) == 2


def test_a_master_that_is_asked_to_resync_answers_that_it_follows_no_master(tmp_path):
    with Pair(tmp_path) as pair:
        pair.start_master()
        with pytest.raises(grpc.RpcError) as caught:
            pair.resync(pair.master)
        assert "follows no master" in str(from_rpc_error(caught.value))


def test_a_slave_ships_nothing_to_slaves_of_its_own(tmp_path):
    with Pair(tmp_path) as pair:
        pair.start()
        pair.wire.lead_to(pair.listening(pair.slave))
        with pair.new_slave("of-the-slave") as third:
            third.start(pair.rooms)
            until(lambda: "a slave itself" in pair.slave.output(HA), "it is refused")
            assert not ha_status(third).following.connected
