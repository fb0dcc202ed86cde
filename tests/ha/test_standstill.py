"""A slave takes whatever its master took; one that cannot says so, as does its master, and does not
count until it can."""

import pytest
from stratamq_ha.following import Standstill
from stratamq_ha.own_log import OwnLogView
from stratamq_ha.slave_connection import Left, SlaveConnection, SlaveSettings, WriteToMaster
from stratamq_ha.slaves import Slaves

from stratamq.client import connect
from stratamq.files.clock import SystemClock
from stratamq.formats.log_state import Role
from stratamq.formats.replication_fields import LENGTH
from stratamq.formats.replication_opening import (
    SlaveOpening,
    decode_slave_opening,
    encode_slave_opening,
)
from tests.ha.own_logs import log_state, show
from tests.ha.pairs import SEGMENT, Pair, ha_status, log_status, until
from tests.ha.test_slaves import Connection, counting
from tests.monitoring.scraping import metric
from tests.support.brokers import DISPATCHER, HA, INDEX
from tests.support.waiting import until_dispatched

MIB = 1 << 20
SIZES = [9 * MIB, 64 * MIB]


@pytest.mark.parametrize("role", ["ASYNC_MASTER", "SYNC_MASTER"])
def test_a_slave_takes_a_message_above_its_own_limit(tmp_path, role):
    """The slave's limits are the smallest there are: its master's decide."""
    sizes = ["commitlog.segment_bytes=134217728"]
    largest = ["commitlog.max_message_bytes=83886080"]
    smallest = ["commitlog.max_message_bytes=1", "commitlog.max_batch_bytes=128"]
    rooms = [DISPATCHER, INDEX]
    with Pair(tmp_path, role=role, rooms=rooms, both=sizes, master=largest, slave=smallest) as pair:
        pair.start()
        bodies = [pair.random.randbytes(size) for size in (*SIZES, 100)]
        with connect(pair.master.root) as client:
            for number, body in enumerate(bodies):
                client.send("t", body, queue_id=0, keys=[f"k{number}"])
        pair.caught_up()
        (slave,) = ha_status(pair.master).slaves
        assert (slave.counts, slave.problem) == (True, "")
        with connect(pair.slave.root) as client:
            until_dispatched(client, log_status(pair.master).appended_offset)
            until(lambda: len(list(client.consume("t"))) == 3, "the slave shows all")
            assert [one.body for one in client.consume("t")] == bodies
            assert [one.body for one in client.query_key("t", "k1").messages] == bodies[1:2]


def test_what_a_slave_cannot_take_is_shown_on_both_sides_and_it_does_not_count(tmp_path):
    with Pair(tmp_path, role="SYNC_MASTER") as pair:
        pair.start()
        pair.send(5)
        pair.caught_up()
        in_the_way = pair.slave.root / "commitlog" / f"{4 * SEGMENT:020}"
        in_the_way.mkdir()
        with connect(pair.master.root) as client:
            while log_status(pair.master).appended_offset < 5 * SEGMENT:
                client.send("t", bytes(3_000), wait_store_ok=False)

        def standing() -> bool:
            (slave,) = ha_status(pair.master).slaves
            return "does not take its master's bytes" in slave.problem and not slave.counts

        until(standing, "the master shows it")
        (slave,) = ha_status(pair.master).slaves
        assert f"from {4 * SEGMENT} on" in slave.problem
        until(lambda: ha_status(pair.slave).following.problem == slave.problem, "the slave, too")
        until(lambda: metric(pair.master, HA, "ha_slaves_standing_still") == 1, "in numbers")
        assert metric(pair.slave, HA, "ha_stands_still") == 1
        assert pair.slave.output(HA).count("slave stalled") == 1
        assert not any(one.counts for one in log_status(pair.master).replicas)
        in_the_way.rmdir()
        pair.caught_up()
        until(lambda: ha_status(pair.master).slaves[0].counts, "it counts again")
        assert ha_status(pair.slave).following.problem == ""
        assert metric(pair.slave, HA, "ha_stands_still") == 0
        until(lambda: metric(pair.master, HA, "ha_slaves_standing_still") == 0, "in numbers")
        pair.slave.stop()
        pair.master.stop()
        pair.assert_equal()


def test_one_refusal_is_no_standstill_and_two_at_one_place_are():
    stands = Standstill()
    stands.failed(100, "opened again")
    stands.failed(200, "opened again")
    assert stands.problem == ""
    stands.failed(200, "no room")
    assert stands.problem == "this log does not take its master's bytes from 200 on: no room"
    stands.over()
    stands.failed(200, "no room")
    assert stands.problem == ""


def test_a_master_that_does_not_answer_an_opening_with_a_problem_gets_the_next_one_without():
    stands = Standstill()
    assert stands.problem_to_report() == ""
    stands.failed(200, "no room")
    stands.failed(200, "no room")
    assert [stands.problem_to_report() for _ in range(4)] == [
        stands.problem,
        "",
        stands.problem,
        "",
    ]
    for _ in range(2):
        assert stands.problem_to_report() == stands.problem
        stands.answered()


def slaves_of_a_log_to(end: int) -> Slaves:
    view = OwnLogView(SystemClock())
    show(view, log_state(Role.SYNC_MASTER, [(7, 0)], end, 1024, "b"))
    return Slaves(view)


def opened(offset: int, problem: str) -> Connection:
    has = SlaveOpening(50, 0, 1024, "b", (), "", 1, problem=problem)
    return Connection("10.0.0.2:1", "b", "", offset, has)


def test_a_slave_that_stands_still_counts_again_once_it_has_more_or_all():
    peer = opened(50, "no room")
    slaves = slaves_of_a_log_to(100)
    slaves.joined(peer)
    assert counting(slaves) == []
    (state,) = slaves.known(0)
    assert (state.problem, state.stands_still) == ("no room", True)
    peer.offset = 51
    assert counting(slaves) == ["10.0.0.2:1"]
    assert slaves.known(0)[0].problem == ""
    has_all = slaves_of_a_log_to(50)
    has_all.joined(opened(50, "no room"))
    assert counting(has_all) == ["10.0.0.2:1"]


def test_a_slave_that_left_because_it_stands_still_shows_that_and_not_the_connection():
    slaves = slaves_of_a_log_to(100)
    peer = opened(50, "no room")
    slaves.joined(peer)
    slaves.left(peer, "the slave closed the connection", 0)
    (state,) = slaves.known(0)
    assert (state.problem, state.connected, state.stands_still) == ("no room", False, True)


def test_an_opening_without_a_problem_has_the_bytes_of_earlier_versions():
    plain = SlaveOpening(50, 0, 1024, "b", ((7, 0),), "m", 1)
    assert encode_slave_opening(plain).hex() == (
        "000000370000000000000032000000000000000000000000000004000000000000000001000162016d"
        "000100000000000000070000000000000000"
    )
    told = SlaveOpening(50, 0, 1024, "b", [(7, 0)], "m", 1, problem="no room")
    assert decode_slave_opening(encode_slave_opening(told)[LENGTH.size :]) == told


def test_a_slave_that_waits_for_its_log_reports_and_finds_its_master_not_silent():
    """Reading waits while much waits for a slow log."""
    machine = SlaveConnection(SlaveSettings(report_ms=5, housekeeping_ms=20), SEGMENT, 0, 0)
    for now_ms in range(10, 100, 10):
        machine.is_heard(now_ms)
        assert isinstance(machine.tick(now_ms), WriteToMaster)
    assert isinstance(machine.tick(200), Left)
