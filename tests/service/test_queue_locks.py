"""The table of queue locks: one client for each queue, and what is done about locks that were
lost."""

import pytest

from stratamq.files.simulated_time import SimulatedClock
from stratamq.formats.log_state import LogState, Role
from stratamq.service.queue_locks import LOCK_S, STOPS_S, QueueLocks, QueueName

MASTER, SLAVE = LogState(role=Role.ASYNC_MASTER, term=3), LogState(role=Role.SLAVE, term=3)
FIRST, SECOND = QueueName("a", "steps", 0), QueueName("a", "steps", 1)


@pytest.fixture
def clock():
    return SimulatedClock()


@pytest.fixture
def locks(clock):
    made = QueueLocks(clock)
    made.settle(MASTER)
    return made


def granted(locks, client, *queues, kept=False):
    return locks.lock("g", client, queues, kept=kept).granted


def test_a_queue_has_one_client_until_it_lets_go_or_says_nothing_more(clock, locks):
    clock.advance_ms(STOPS_S * 1_000 + 1)
    assert granted(locks, "one", FIRST) == [FIRST]
    assert granted(locks, "two", FIRST, SECOND) == [SECOND]
    assert locks.lock("others", "two", [FIRST]).granted == [FIRST]
    clock.advance_ms(LOCK_S * 1_000)
    assert granted(locks, "two", FIRST) == [], "not before its time is over"
    locks.unlock("g", "two", [FIRST])
    assert granted(locks, "two", FIRST) == [], "it was not its own"
    locks.unlock("g", "one", [FIRST])
    assert granted(locks, "two", FIRST) == [FIRST]
    clock.advance_ms(LOCK_S * 1_000 + 1)
    assert granted(locks, "one", FIRST) == [FIRST]


def test_locks_that_were_lost_are_given_to_who_had_them_alone(clock, locks):
    """Others wait until all who had some have stopped."""
    assert locks.lock("g", "two", [FIRST]) == ([], [FIRST])
    assert granted(locks, "one", FIRST, kept=True) == [FIRST]
    assert locks.lock("g", "two", [FIRST], kept=True) == ([], []), "whatever it says"
    locks.unlock("g", "one", [FIRST])
    assert granted(locks, "two", FIRST) == [FIRST], "its holder has let it go"
    clock.advance_ms(STOPS_S * 1_000 + 1)
    assert granted(locks, "two", SECOND) == [SECOND]


@pytest.mark.parametrize("between", [SLAVE, LogState(role=Role.ASYNC_MASTER, term=4)])
def test_a_broker_that_becomes_the_master_has_no_locks_of_before(clock, locks, between):
    clock.advance_ms(STOPS_S * 1_000 + 1)
    granted(locks, "one", FIRST)
    locks.settle(MASTER)
    assert locks.lock("g", "two", [FIRST]) == ([], [])
    locks.settle(between)
    assert locks.lock("g", "one", [FIRST]) == ([], [FIRST])


def test_a_table_that_has_learned_goes_on_with_who_has_a_lock_and_knows_of_no_others(clock, locks):
    """A gateway while the delivery service does not answer: another gateway may have given what is
    not here."""
    clock.advance_ms(STOPS_S * 1_000 + 1)
    locks.learn("g", "one", [FIRST, SECOND], [FIRST, SECOND])
    locks.learn("g", "one", [SECOND], [])
    clock.advance_ms(LOCK_S * 1_000)
    locks.begin_again()
    assert locks.lock("g", "one", [FIRST, SECOND]) == ([FIRST], [SECOND])
    assert locks.lock("g", "two", [FIRST, SECOND]) == ([], [SECOND])
    clock.advance_ms(STOPS_S * 1_000 + 1)
    assert locks.lock("g", "two", [FIRST, SECOND]) == ([SECOND], [])


def test_a_lock_that_was_learned_and_has_ended_counts_no_more(clock, locks):
    locks.learn("g", "one", [FIRST], [FIRST])
    clock.advance_ms(LOCK_S * 1_000 + 1)
    locks.begin_again()
    assert locks.lock("g", "two", [FIRST]) == ([], [FIRST])
