"""A master that waits for no slave answers PUT_OK only while its agent grants it."""

import pytest
from stratamq_commitlog.messages import PutStatus, Role
from stratamq_commitlog.replica.role_change import RoleChange
from stratamq_commitlog.write.lease import Lease

from stratamq.errors import InvalidRequestError, NotWritableError
from stratamq.files.simulated_time import SimulatedClock
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
    assert refused.status is PutStatus.SERVICE_NOT_AVAILABLE
    assert isinstance(refused.error, NotWritableError)
    assert store.end() == 0
    granted(store, 5_000)
    assert store.put(b"in time").status is PutStatus.PUT_OK
    store.clock.advance_ms(5_000)
    assert store.put(b"late").status is PutStatus.SERVICE_NOT_AVAILABLE


def test_what_is_stored_when_the_lease_ends_is_not_answered_put_ok():
    store = Store(1 << 17, lease=True)
    log = store.start()
    granted(store, 5_000)
    log.put([message()], False, store.answers.puts.append)
    store.clock.advance_ms(5_000)
    store.settle()
    assert [one.status for one in store.answers.puts[0]] == [PutStatus.FLUSH_SLAVE_TIMEOUT]


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
    assert store.put(b"one").status is PutStatus.PUT_OK
