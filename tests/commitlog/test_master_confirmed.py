"""A slave serves nothing that its master has not confirmed, and stores the confirmed offset."""

from typing import Any

import pytest
from stratamq_commitlog.recovery.cut_file import CutOrder
from stratamq_commitlog.recovery.own_state import CUT_PATH, MASTER_CONFIRMED_PATH
from stratamq_commitlog.replica.master_confirmed import after_opening
from stratamq_commitlog.replica.role_change import RoleChange

from stratamq.errors import NotWritableError
from stratamq.files.simulated import SimulatedCrash, keep_nothing
from stratamq.formats.generation_number import Generation, make_number
from stratamq.formats.log_state import Role
from tests.commitlog.test_cutting import ask, boundaries
from tests.commitlog.test_slave import master, pieces, slave
from tests.support.listeners import Listener
from tests.support.logs import Store


def follows(
    copy: Store, original: Store, confirmed: int | None, *, offset: int | None = None
) -> None:
    """The slave opens with its master, whose offset is `confirmed`."""
    generations = tuple(original.log.state.generations) if confirmed is not None else ()
    end = copy.end() if offset is None else offset
    done = ask(copy, CutOrder(end, False, generations, confirmed))
    assert done.error is None
    if done.reopen:
        copy.log.close()
        copy.log.open()


def copies(copy: Store, original: Store, end: int, confirmed: int | None) -> None:
    for offset, data in pieces(original, copy.end()):
        if offset < end:
            assert copy.append_data(offset, data[: end - offset], confirmed) is None


def test_a_slave_confirms_what_its_master_confirmed_and_no_more():
    original, copy = master(), slave()
    listener = Listener(copy)
    places = boundaries(original)
    follows(copy, original, 0)
    listener = Listener(copy)
    for end in places[1:-1:4]:
        copies(copy, original, end, None)
        assert copy.log.offsets.confirmed <= copy.log.master_confirmed.value
        listener.listen()
        assert listener.position == copy.log.offsets.confirmed
        before = copy.log.offsets.confirmed
        assert copy.append_data(copy.end(), b"", end) is None
        assert before < copy.log.offsets.confirmed == end
        listener.listen()
        assert listener.position == end


def test_bytes_that_are_confirmed_before_they_come_are_shown_when_they_are_there():
    original, copy = master(), slave()
    follows(copy, original, original.end())
    end = boundaries(original)[9]
    copies(copy, original, end, None)
    assert copy.log.offsets.confirmed == end


def test_the_slave_of_a_master_that_sends_no_confirmed_offset_shows_what_it_has():
    original, copy = master(), slave()
    follows(copy, original, None)
    copies(copy, original, original.end(), None)
    assert copy.log.master_confirmed.value is None
    assert copy.log.offsets.confirmed == original.end()


def test_a_slave_that_has_copied_a_part_knows_after_a_power_loss_how_far_its_master_had_confirmed():
    original, copy = master(), slave()
    follows(copy, original, original.end())
    copies(copy, original, boundaries(original)[6], None)
    copy.power_loss(keep_nothing)
    copy.start()
    assert copy.log.master_confirmed.value == original.end() > copy.end()


def test_what_is_confirmed_beyond_the_slaves_end_is_durable_within_a_second():
    original, copy = master(), slave()
    follows(copy, original, 0)
    copies(copy, original, boundaries(original)[6], original.end())
    copy.pass_time(1_100)
    copy.power_loss(keep_nothing)
    copy.start()
    assert copy.log.master_confirmed.value == original.end()


def test_after_a_restart_a_slave_shows_no_more_than_before():
    original, copy = master(), slave()
    follows(copy, original, 0)
    places = boundaries(original)
    copies(copy, original, places[12], places[5])
    copies(copy, original, places[12], None)
    assert copy.append_data(copy.end(), b"", places[5]) is None
    confirmed = copy.log.offsets.confirmed
    assert confirmed <= places[5] < copy.end()
    copy.restart()
    assert copy.log.offsets.confirmed == confirmed
    follows(copy, original, places[5])
    assert copy.append_data(copy.end(), b"", copy.end()) is None
    assert copy.log.offsets.confirmed == copy.end()


def test_a_slave_that_closes_does_not_wait_for_its_master_to_confirm():
    original, copy = master(), slave(followers=("dispatcher",))
    follows(copy, original, 0)
    copies(copy, original, boundaries(original)[12], None)
    listener = Listener(copy)
    copy.log.begin_close()
    copy.settle()
    listener.listen()
    assert listener.closed_at == copy.log.offsets.confirmed < copy.end()
    listener.report()
    assert copy.log.close_ready()


def test_a_promoted_slave_bounds_nothing_and_forgets_the_old_master():
    original, copy = master(), slave()
    follows(copy, original, 0)
    copies(copy, original, boundaries(original)[12], None)
    answers: list[object] = []
    copy.log.set_role(RoleChange(Role.ASYNC_MASTER, 1), answers.append)
    copy.settle()
    assert answers == [None]
    assert copy.log.master_confirmed.value is None
    assert copy.log.offsets.confirmed == copy.end()
    assert copy.files.entry(MASTER_CONFIRMED_PATH) is None


def passing_seconds(copy: Store, answers: list[object], *, idle_steps: int = 0) -> None:
    """Until there is an answer, with a tick of the clock after every step of a worker, but for the
    first ones."""
    for _ in range(idle_steps):
        copy.scheduler.run_one()
    while not answers:
        copy.scheduler.run_one()
        copy.clock.advance_ms(1_000)
        copy.log.tick()
    copy.settle()


def ahead(original: Store) -> Store:
    """A slave that knows that its master has confirmed more than it has."""
    copy = slave()
    follows(copy, original, 0)
    copies(copy, original, boundaries(original)[9], original.end())
    return copy


@pytest.mark.parametrize("idle_steps", range(5))
def test_a_promoted_slave_stores_no_bound_while_it_is_promoted(idle_steps):
    copy = ahead(master())
    answers: list[object] = []
    copy.log.set_role(RoleChange(Role.ASYNC_MASTER, 1), answers.append)
    passing_seconds(copy, answers, idle_steps=idle_steps)
    assert answers == [None]
    assert copy.files.entry(MASTER_CONFIRMED_PATH) is None


def test_an_opening_that_ends_while_the_slave_is_promoted_stores_no_bound():
    original = master()
    copy = ahead(original)
    cut: list[Any] = []
    answers: list[object] = []
    generations = tuple(original.log.state.generations)
    copy.log.cut(CutOrder(copy.end(), False, generations, 2 * original.end()), cut.append)
    copy.log.set_role(RoleChange(Role.ASYNC_MASTER, 1), answers.append)
    passing_seconds(copy, answers)
    assert (cut[0].error, answers) == (None, [None])
    assert copy.files.entry(MASTER_CONFIRMED_PATH) is None


@pytest.mark.parametrize("confirmed", [None, 0])
def test_a_bound_that_another_master_replaces_is_stored_no_more(confirmed):
    original = master()
    copy = ahead(original)
    other = (Generation(make_number(1, 1, 1), copy.end()),) if confirmed is not None else ()
    done: list[object] = []
    generations = (*original.log.state.generations, *other)
    copy.log.cut(CutOrder(copy.end(), False, generations, confirmed), done.append)
    passing_seconds(copy, done)
    expected = None if confirmed is None else copy.end()
    assert copy.log.master_confirmed.value == expected
    copy.kill()
    copy.start()
    assert copy.log.master_confirmed.value == expected


@pytest.mark.parametrize("confirmed", [None, 0])
def test_a_slave_that_is_cut_knows_no_more_of_the_history_that_went(confirmed):
    original = master()
    copy = ahead(original)
    place = boundaries(original)[5]
    other = (Generation(make_number(1, 1, 1), place),)
    generations = (*original.log.state.generations, *other)
    for _ in range(2):
        done: list[Any] = []
        copy.log.cut(CutOrder(place, False, generations, confirmed), done.append)
        passing_seconds(copy, done)
        if done[0].reopen:
            copy.log.close()
            copy.log.open()
        assert done[0].error is None
        assert copy.log.master_confirmed.value == (None if confirmed is None else place)
    assert copy.end() == place


def test_a_cut_that_could_not_be_written_leaves_the_bound_in_force():
    """Of another master's history: the lower bound that goes with that is written already."""
    original = master()
    copy = ahead(original)
    place = boundaries(original)[5]
    generations = (*original.log.state.generations, Generation(make_number(1, 1, 1), place))
    copy.disk.fail("flush", f"{CUT_PATH}.tmp")
    assert isinstance(ask(copy, CutOrder(place, False, generations, 0)).error, NotWritableError)
    copy.disk.clear_faults()
    copy.pass_time(1_100)
    copy.power_loss(keep_nothing)
    copy.start()
    assert copy.log.master_confirmed.value == original.end()


@pytest.mark.parametrize(
    ("known", "confirmed", "own", "masters", "expected"),
    [
        (None, 50, [(1, 0)], [(1, 0)], 100),  # its own confirmed counts
        (80, 50, [(1, 0)], [(1, 0)], 80),  # a master that restarted knows less
        (80, 90, [(1, 0)], [(1, 0)], 90),
        (80, 50, [(1, 0)], [(1, 0), (2, 70)], 70),  # an earlier master's counts up to its end
        (80, 75, [(1, 0)], [(1, 0), (2, 70)], 75),
        (80, 0, [(1, 0)], [(7, 0)], 0),  # another history
    ],
)
def test_what_an_earlier_master_confirmed_counts_as_far_as_its_history_continues(
    known, confirmed, own, masters, expected
):
    def listed(pairs):
        return [Generation(number, start) for number, start in pairs]

    assert after_opening(known, 100, confirmed, listed(own), listed(masters)) == expected


def test_a_crash_at_any_call_of_an_opening_leaves_the_bound_or_a_slave_without_bytes():
    """Bytes of the master never come before the bound is durable."""
    original = master()
    held_bytes = 0
    for point in range(1, 400):
        copy = slave()
        copy.disk.crash_at(copy.disk.calls + point)
        try:
            follows(copy, original, original.end())
            copies(copy, original, original.end(), None)
        except SimulatedCrash:
            copy.power_loss(keep_nothing)
            copy.disk.clear_faults()
            copy.start()
            if copy.end():
                held_bytes += 1
                assert copy.log.master_confirmed.value == original.end()
        else:
            break
    assert point > 10 and held_bytes > 0
