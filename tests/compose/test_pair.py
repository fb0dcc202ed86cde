"""A master and its replica: `docker compose -f compose.yaml -f replica.yaml up --build --wait`."""

import pytest

from stratamq.client import SendStatus
from tests.compose.load import Load, keys_of, lost
from tests.compose.stack import Stack, until

pytestmark = pytest.mark.compose

REPLICA = "replica-"
BIG = b"m" * 100_000
"""Eleven of them fill a segment."""


def assert_same(pair: Stack) -> None:
    """The replica gets everything the master has; then their segments are the same bytes."""
    with pair.client() as master, pair.client(REPLICA) as replica:
        end = until(lambda: master.log_state().appended_offset, "the master's end")
        until(lambda: replica.log_state().flushed_offset == end, f"the replica to have {end}")
    segments = pair.segments()
    assert segments and pair.segments(REPLICA) == segments


def until_in_step(pair: Stack) -> None:
    """An append is answered PUT_OK again: the master waits for its replica, and it answers."""
    with pair.client() as master:
        until(
            lambda: master.send("in-step", b"?").status is SendStatus.PUT_OK,
            "an append that the replica has",
        )


def test_the_replica_has_every_byte_and_serves_it(pair: Stack):
    until_in_step(pair)
    with pair.client() as master:
        for number in range(40):
            result = master.send("big", BIG + b"%d" % number, keys=[f"big-{number}"])
            assert result.status is SendStatus.PUT_OK
    assert_same(pair)
    assert len(pair.segments()) >= 4
    with pair.client(REPLICA) as replica:
        until(lambda: len(list(replica.consume("big"))) == 40, "the replica's queues")
        until(lambda: replica.query_key("big", "big-7").messages, "the replica's index")


def test_each_side_reports_which_broker_the_other_is(pair: Stack):
    until_in_step(pair)
    told = pair.execute("commitlog", "stratamq", "replica", "status")
    assert "slaves connect to ha:10912" in told
    assert "ha:10912" in pair.execute("replica-commitlog", "stratamq", "replica", "status")
    # An error for a send to a slave contains the master's address.
    told = pair.run("exec", "-T", "replica-commitlog", "stratamq", "status").stdout
    assert "send them to its master at commitlog:10911" in told


@pytest.mark.parametrize("service", ["replica-commitlog", "replica-ha"])
def test_a_replica_that_crashes_under_load_catches_up(pair: Stack, service: str):
    until_in_step(pair)
    with Load(pair, f"crash-{service}") as load:
        load.goes_on()
        pair.crash(service)
        load.goes_on()
    pair.until_healthy(service)
    assert_same(pair)
    assert lost(pair, load, REPLICA) == set()


@pytest.mark.parametrize("service", ["commitlog", "ha"])
def test_a_master_that_crashes_under_load_is_followed_again(pair: Stack, service: str):
    until_in_step(pair)
    with Load(pair, f"crash-{service}") as load:
        load.goes_on()
        pair.crash(service)
        load.goes_on()
    pair.until_healthy(service)
    until_in_step(pair)
    assert_same(pair)
    assert lost(pair, load) == set()
    assert lost(pair, load, REPLICA) == set()


@pytest.mark.parametrize("fault", ["pause", "disconnect"])
@pytest.mark.parametrize("service", ["replica-ha", "ha"])
def test_a_silence_longer_than_housekeeping_is_reported_and_caught_up(
    pair: Stack, service: str, fault: str
):
    until_in_step(pair)
    begin, end = (pair.pause, pair.unpause) if fault == "pause" else (pair.disconnect, pair.connect)
    begin(service)
    try:
        with pair.client() as master:
            statuses = {master.send("silence", fault.encode()).status}
            until(
                lambda: (
                    statuses.add(master.send("silence", fault.encode()).status)
                    or SendStatus.SLAVE_NOT_AVAILABLE in statuses
                ),
                "the master to say that no slave is there",
            )
            assert statuses <= {
                SendStatus.FLUSH_SLAVE_TIMEOUT,
                SendStatus.SLAVE_NOT_AVAILABLE,
            }
    finally:
        end(service)
    pair.until_healthy(service)
    until_in_step(pair)
    assert_same(pair)
    with pair.client() as master:
        stored = len(list(master.consume("silence")))
    until(lambda: len(keys_of(pair, "silence", REPLICA)) == stored, "the replica's queues")


def test_down_and_up_keep_both(pair: Stack):
    until_in_step(pair)
    before = pair.segments(REPLICA)
    pair.down()
    pair.up()
    until_in_step(pair)
    assert_same(pair)
    assert set(before) <= set(pair.segments(REPLICA))
