"""A master that waits for no slave answers PUT_OK only while its agent grants it."""

import pytest
from stratamq_commitlog.replica.role_change import RoleChange
from stratamq_commitlog.write.write_gate import Lease

from stratamq.errors import InvalidRequestError, NotWritableError
from stratamq.files.simulated_time import SimulatedClock
from stratamq.formats.log_state import ReplicaState, Role
from stratamq.formats.message_status import SendStatus
from tests.support.logs import Store, message

SECOND_NS = 1_000_000_000
BOOT = ""
"""The engine's, where none is configured."""


def test_a_lease_lasts_to_the_moment_that_was_granted_and_grows_only():
    clock = SimulatedClock()
    lease = Lease(clock, "boot", required=True)
    assert "no agent" in lease.fault
    lease.grant("boot", clock.monotonic_ns() + 2 * SECOND_NS)
    lease.grant("boot", clock.monotonic_ns() + SECOND_NS)
    assert (lease.fault, lease.remaining_ms) == ("", 2_000)
    clock.advance_ms(1_999)
    assert not lease.fault
    clock.advance_ms(1)
    assert "is over" in lease.fault
    assert lease.remaining_ms == 0


def test_a_lease_of_another_machine_or_of_more_than_an_hour_is_refused():
    clock = SimulatedClock()
    lease = Lease(clock, "boot", required=True)
    with pytest.raises(InvalidRequestError, match="another start"):
        lease.grant("other", clock.monotonic_ns() + SECOND_NS)
    with pytest.raises(InvalidRequestError, match="an hour"):
        lease.grant("boot", clock.monotonic_ns() + 3_601 * SECOND_NS)
    assert lease.fault


def granted(store: Store, ms: int) -> None:
    lease = store.log.gate.lease
    lease.grant(BOOT, store.clock.monotonic_ns() + ms * 1_000_000)


def test_without_a_lease_nothing_is_taken_and_with_one_it_is():
    store = Store(1 << 17, lease=True)
    store.start()
    refused = store.put(b"early")
    assert refused.status is SendStatus.SERVICE_NOT_AVAILABLE
    assert isinstance(refused.error, NotWritableError)
    assert store.end() == 0
    granted(store, 5_000)
    assert store.put(b"in time").status is SendStatus.PUT_OK
    store.clock.advance_ms(5_000)
    assert store.put(b"late").status is SendStatus.SERVICE_NOT_AVAILABLE


def test_what_is_stored_when_the_lease_ends_is_not_answered_put_ok():
    store = Store(1 << 17, lease=True)
    log = store.start()
    granted(store, 5_000)
    log.put([message()], False, store.answers.puts.append)
    store.clock.advance_ms(5_000)
    store.settle()
    assert [one.status for one in store.answers.puts[0]] == [SendStatus.FLUSH_SLAVE_TIMEOUT]


def test_a_change_of_role_ends_the_lease():
    store = Store(1 << 17, lease=True)
    log = store.start()
    granted(store, 5_000)
    store.put(b"one")
    for role in (Role.SLAVE, Role.ASYNC_MASTER):
        answers: list[object] = []
        log.set_role(RoleChange(role), answers.append)
        store.settle()
        assert answers == [None]
    assert "no agent" in log.gate.lease.fault


def test_a_master_that_waits_for_slaves_needs_none():
    store = Store(1 << 17, lease=True, role="SYNC_MASTER", required_replicas=0)
    store.start()
    assert store.put(b"one").status is SendStatus.PUT_OK


def test_a_lead_that_ended_is_not_granted_by_what_was_sent_before():
    clock = SimulatedClock()
    lease = Lease(clock, "boot", required=True)
    now_ns = clock.monotonic_ns()
    lease.grant("boot", now_ns + 5 * SECOND_NS)
    lease.end_lead("boot", now_ns + 6 * SECOND_NS, "b leads")
    assert (lease.fault, lease.remaining_ms) == ("b leads", 0)
    with pytest.raises(NotWritableError, match="b leads"):
        lease.grant("boot", now_ns + 6 * SECOND_NS)
    lease.grant("boot", now_ns + 6 * SECOND_NS + 1)
    assert not lease.fault


def ended(store: Store) -> None:
    store.log.end_lead(BOOT, store.clock.monotonic_ns() + 5 * SECOND_NS, "b takes over")


@pytest.mark.parametrize("role", ["ASYNC_MASTER", "SYNC_MASTER"])
def test_a_master_whose_lead_ended_takes_nothing_and_shows_nothing_more(role):
    store = Store(1 << 17, role=role)
    log = store.start()
    store.put(b"one")
    confirmed = store.end()
    log.report_replication(log.generation, [ReplicaState("s", confirmed, connected=True)])
    log.put([message()], False, store.answers.puts.append)
    log.run_pass()
    assert store.end() > confirmed
    ended(store)
    store.settle()
    log.report_replication(log.generation, [ReplicaState("s", store.end(), connected=True)])
    assert store.answers.puts[-1][0].status is not SendStatus.PUT_OK
    assert log.offsets.confirmed == confirmed
    refused = store.put(b"late")
    assert refused.status is SendStatus.SERVICE_NOT_AVAILABLE
    assert (refused.error.reason, str(refused.error)) == ("held", "b takes over")
    log.grant_lease(BOOT, store.clock.monotonic_ns() + 6 * SECOND_NS)
    assert log.offsets.confirmed == store.end()
    assert log.writable == (True, "")


def test_producers_that_wait_for_slaves_are_answered_when_the_lead_ends():
    store = Store(1 << 17, role="SYNC_MASTER")
    log = store.start()
    log.report_replication(log.generation, [ReplicaState("s", 0, connected=True)])
    log.put([message()], False, store.answers.puts.append)
    store.settle()
    assert store.answers.puts == []
    ended(store)
    assert [one.status for one in store.answers.puts[0]] == [SendStatus.FLUSH_SLAVE_TIMEOUT]
