"""The parts of an append's time, by what is waited for."""

import pytest
from stratamq_commitlog.log_state import RoleAndHistory, StateCell
from stratamq_commitlog.messages import LogListener
from stratamq_commitlog.roles import RoleState
from stratamq_commitlog.write.append_times import AppendTimes

from stratamq.errors import UnavailableError
from stratamq.files.simulated import SimulatedClock
from stratamq.formats.log_state import Role
from stratamq.formats.message_status import SendStatus
from tests.support.logs import Store, message

MS = 1_000_000


class Waits:
    """A group commit and an acknowledgement whose answers the test gives."""

    def __init__(self, role: Role, *, sync_flush: bool) -> None:
        self.clock = SimulatedClock()
        self.observed: list[tuple[str, float]] = []
        states = StateCell(RoleAndHistory(RoleState(role)))
        self.times = AppendTimes(
            self.clock, self, self.when_safe, states, self.observe, sync_flush=sync_flush
        )

    def observe(self, part, elapsed_ns):
        self.observed.append((part, elapsed_ns / MS))

    def wait(self, end, resolve):
        self.flushed = resolve

    def when_safe(self, end, finish):
        self.safe = finish

    def passed(self) -> None:
        """A pass that took 2 ms, of something that had waited for 3."""
        self.clock.advance_ms(5)
        now = self.clock.monotonic_ns()
        self.times.passed(100, now - 5 * MS, now - 2 * MS)


def test_the_parts_of_an_append_that_waits_for_disk_and_slaves_are_its_whole():
    waits = Waits(Role.SYNC_MASTER, sync_flush=True)
    waits.passed()
    waits.clock.advance_ms(7)
    waits.flushed(True)
    waits.clock.advance_ms(11)
    waits.safe(SendStatus.PUT_OK, None)
    assert waits.observed == [
        ("queue", 3),
        ("write", 2),
        ("flush", 7),
        ("replicas", 11),
        ("whole", 23),
    ]


def test_no_call_waits_for_slaves_of_an_async_master_nor_for_an_async_flush():
    waits = Waits(Role.ASYNC_MASTER, sync_flush=False)
    waits.passed()
    waits.safe(SendStatus.PUT_OK, None)
    assert waits.observed == [("queue", 3), ("write", 2), ("whole", 5)]


@pytest.mark.parametrize("durable", [None, False])
def test_a_flush_that_failed_or_timed_out_has_no_time_of_its_own(durable):
    waits = Waits(Role.ASYNC_MASTER, sync_flush=True)
    waits.passed()
    waits.flushed(durable)
    assert [part for part, _ in waits.observed] == ["queue", "write"]


def test_an_append_that_was_answered_with_an_error_has_no_time():
    waits = Waits(Role.ASYNC_MASTER, sync_flush=True)
    waits.passed()
    waits.flushed(None)
    waits.safe(SendStatus.UNKNOWN_ERROR, UnavailableError("the flush failed"))
    assert [part for part, _ in waits.observed] == ["queue", "write"]


def test_a_log_observes_once_a_pass_and_not_once_a_message():
    store = Store()
    observed: list[str] = []
    store.listener = LogListener(append_took=lambda part, elapsed_ns: observed.append(part))
    store.start()
    store.send(*(message() for _ in range(10)))
    store.settle()
    assert len(store.frames()) == 10
    assert observed.count("whole") == 1
