"""A log that runs is promoted or demoted: what is durable when, what followers and clients hear."""

import random
from typing import Any

import pytest
from stratamq_commitlog.log_state import RoleAndHistory, StateCell
from stratamq_commitlog.recovery.cut_file import CutOrder
from stratamq_commitlog.replica.role_change import RoleChange
from stratamq_commitlog.roles import ROLE_PATH, RoleState
from stratamq_commitlog.steps import Blocking

from stratamq.errors import InvalidRequestError, NotWritableError, UnavailableError
from stratamq.files.simulated import SimulatedCrash, keep_nothing, random_choice
from stratamq.formats.generation_number import Generation, make_number
from stratamq.formats.log_state import ReplicaState, Role
from stratamq.formats.message_status import SendStatus
from tests.commitlog.test_slave import copied, master, pieces, slave
from tests.support.listeners import Listener
from tests.support.logs import Store, message

MASTER = RoleChange(Role.ASYNC_MASTER)
TO_SLAVE = RoleChange(Role.SLAVE, master="m:10912")


def ask(store: Store, change: RoleChange) -> Any:
    answers: list[Any] = []
    store.log.set_role(change, answers.append)
    store.settle()
    return answers[0]


def hold(store: Store, reason: str, has_peers: bool) -> Any:
    answers: list[Any] = []
    store.log.hold_writes(reason, has_peers, answers.append)
    store.settle()
    return answers[0]


# --- durable, then shown ---


def test_no_part_sees_a_state_before_it_is_durable():
    states = StateCell(RoleAndHistory(RoleState(Role.SLAVE), (Generation(7, 0),)))
    before, shown = states.now, []
    coming = {"assigned": RoleState(Role.ASYNC_MASTER), "generations": (Generation(8, 9),)}
    change = states.change(lambda: shown.append(states.now), **coming)
    step = next(change)
    assert isinstance(step, Blocking)
    assert states.now is before
    step.task()
    assert shown == [before]
    with pytest.raises(StopIteration):
        change.send(None)
    assert (states.now.role, states.now.generation) == (Role.ASYNC_MASTER, 8)


def test_a_state_that_could_not_be_written_is_never_seen():
    states = StateCell(RoleAndHistory(RoleState(Role.SLAVE)))
    before = states.now
    change = states.change(lambda: None, assigned=RoleState(Role.ASYNC_MASTER))
    next(change)
    with pytest.raises(OSError, match="no space"):
        change.throw(OSError("no space"))
    assert states.now is before


@pytest.mark.parametrize("durable", [{"assigned": RoleState(Role.SLAVE)}, {"generations": ()}])
def test_what_is_durable_is_not_changed_without_being_written(durable):
    states = StateCell(RoleAndHistory(RoleState(Role.ASYNC_MASTER), (Generation(7, 0),)))
    with pytest.raises(AssertionError, match="by `change` alone"):
        states.swap(**durable)
    with pytest.raises(AttributeError):
        states.now = states.now


# --- promotion ---


def test_a_promoted_slave_takes_messages_in_a_generation_of_a_higher_term():
    original = master()
    copy = copied(original)
    end = copy.end()
    assert ask(copy, MASTER) is None
    last = copy.log.state.generations[-1]
    assert (last.term, last.start) == (1, end)
    for (topic, queue_id), following in copy.queues().items():
        if "SYS" not in topic:
            result = copy.put_all(message(b"x", topic, queue_id))[0]
            assert (result.status, result.queue_offset) == (SendStatus.PUT_OK, following)
    (offset, data), *_ = pieces(original, 0)
    assert isinstance(copy.append_data(offset, data), NotWritableError)
    assert copy.frame_bytes()[: len(original.frames())] == original.frame_bytes()


def test_a_promotion_survives_a_restart_and_the_configured_role_is_reported():
    copy = copied(master())
    assert ask(copy, MASTER) is None
    copy.put(b"after")
    copy.restart()
    assert copy.log.role is Role.ASYNC_MASTER
    assert [g.term for g in copy.log.state.generations][-2:] == [1, 1]
    (line,) = [line for line in copy.log.report if "commitlog.role" in line]
    assert line == (
        "the role is ASYNC_MASTER and not SLAVE (commitlog.role): it was promoted to term 1"
    )
    assert copy.put(b"again").status is SendStatus.PUT_OK


def test_what_was_not_flushed_is_durable_before_the_generation_begins():
    original = master(6)
    copy = slave(flush_disk_type="ASYNC_FLUSH", flush_interval_ms=3_600_000)
    for offset, data in pieces(original):
        assert copy.append_data(offset, data) is None
    assert copy.log.offsets.flushed < copy.end()
    assert ask(copy, MASTER) is None
    assert copy.log.offsets.flushed == copy.end()
    copy.power_loss(keep_nothing)
    copy.start()
    assert copy.frame_bytes() == original.frame_bytes()


def test_a_promoted_slave_gives_no_store_time_before_its_masters_last():
    """Its own clock may be behind: searches by time and retention count on the order."""
    original = master(4)
    original.clock.advance_ms(7_200_000)
    newest = original.put(b"from the future").store_timestamp_ms
    copy = copied(original)
    assert copy.clock.wall_ms() < newest
    assert ask(copy, MASTER) is None
    assert copy.put(b"mine").store_timestamp_ms == newest


def test_followers_open_again_and_continue_in_the_new_generation():
    copy = copied(master())
    listener = Listener(copy)
    listener.listen()
    assert ask(copy, MASTER) is None
    assert listener.session.ended
    again = Listener(copy, generation=listener.opened.generation, position=listener.position)
    assert again.opened.cut_to == listener.position == again.opened.generation_start
    assert again.opened.generation == copy.log.generation
    copy.put(b"more")
    again.listen()
    assert again.position == copy.end()


def test_while_a_role_changes_nothing_is_taken():
    original = master()
    copy = copied(original)
    answers: list[Any] = []
    copy.log.set_role(MASTER, answers.append)
    refused: list[Any] = []
    copy.log.append_data(copy.log.generation, copy.end(), b"x", refused.append)
    copy.log.set_role(TO_SLAVE, refused.append)
    copy.log.cut(CutOrder(copy.end(), False, ()), lambda done: refused.append(done.error))
    assert [type(error) for error in refused] == [UnavailableError] * 3
    copy.settle()
    assert answers == [None]


def test_data_that_waits_is_refused_when_a_promotion_begins():
    original = master(4)
    copy = slave()
    (offset, data), *_ = pieces(original)
    waiting: list[Any] = []
    copy.log.append_data(copy.log.generation, offset, data, waiting.append)
    assert ask(copy, MASTER) is None
    assert isinstance(waiting[0], UnavailableError)
    assert copy.end() == 0


def test_terms_only_go_up():
    copy = copied(master())
    assert ask(copy, RoleChange(Role.SYNC_MASTER, term=7)) is None
    assert copy.log.state.generations[-1].term == 7
    assert isinstance(ask(copy, RoleChange(Role.ASYNC_MASTER, term=7)), NotWritableError)
    assert ask(copy, MASTER) is None
    assert copy.log.state.generations[-1].term == 8
    assert isinstance(ask(copy, RoleChange(Role.ASYNC_MASTER, term=4096)), InvalidRequestError)
    assert ask(copy, RoleChange(Role.ASYNC_MASTER, term=4095)) is None
    assert "no term after" in str(ask(copy, MASTER))


def test_a_slave_that_has_learned_a_term_is_promoted_above_it():
    copy = copied(master())
    assert ask(copy, RoleChange(Role.SLAVE, term=5, master="m:1")) is None
    assert ask(copy, MASTER) is None
    assert copy.log.state.generations[-1].term == 6


def test_a_slave_that_is_configured_a_master_later_begins_a_higher_term():
    copy = copied(master())
    copy.restart(role="ASYNC_MASTER")
    assert copy.log.state.generations[-1].term == 1
    copy.restart()
    assert copy.log.state.generations[-1].term == 1


# --- demotion ---


def test_a_demoted_master_takes_no_messages_and_takes_its_masters_bytes():
    first, second = master(8), master(8)
    assert ask(first, TO_SLAVE) is None
    refused = first.put(b"late")
    assert refused.status is SendStatus.SERVICE_NOT_AVAILABLE
    assert "a slave takes no messages" in str(refused.error)
    second.put(b"more")
    offset = first.end()
    for at, data in pieces(second, offset):
        assert first.append_data(at, data) is None
    assert first.frame_bytes() == second.frame_bytes()


def test_a_demotion_survives_a_restart_and_knows_whom_to_follow():
    store = master(5)
    generations = list(store.log.state.generations)
    assert ask(store, TO_SLAVE) is None
    store.restart()
    assert store.log.role is Role.SLAVE
    assert store.log.state.assigned.master == "m:10912"
    assert store.log.state.generations == tuple(generations)
    assert any("not ASYNC_MASTER (commitlog.role)" in line for line in store.log.report)


def test_messages_that_wait_are_refused_and_those_stored_are_answered_when_flushed():
    store = Store()
    store.start()
    store.send(message(b"stored"))
    store.step()
    store.scheduler.run_until_idle()
    store.step()
    store.send(message(b"waits"))
    assert ask(store, TO_SLAVE) is None
    assert sorted(status.name for status in store.answers.statuses) == [
        "FLUSH_SLAVE_TIMEOUT",
        "SERVICE_NOT_AVAILABLE",
    ], "stored, and not confirmed: another is the master"
    assert [frame.body for frame in store.frames()] == [b"stored"]


def test_messages_that_wait_for_slaves_are_answered_when_the_master_is_demoted():
    """The log's end may be cut next and the log reopened: then they would get no answer."""
    store = Store(role="SYNC_MASTER", slave_timeout_ms=1_000)
    store.start()
    store.log.report_replication(store.log.generation, [ReplicaState("s:1", 0, connected=True)])
    store.send(message(b"no slave has it"))
    store.settle()
    assert store.answers.results == []
    assert ask(store, TO_SLAVE) is None
    assert store.answers.statuses == [SendStatus.FLUSH_SLAVE_TIMEOUT]
    store.pass_time(1_000)
    assert len(store.answers.results) == 1


def test_consumers_of_a_demoted_master_do_not_see_what_no_slave_had():
    store = Store(role="SYNC_MASTER")
    store.start()
    store.put(b"both have it")
    end = store.end()
    store.log.report_replication(store.log.generation, [ReplicaState("s:1", end, connected=True)])
    store.send(message(b"only here"))
    store.settle()
    assert store.log.status().confirmed_offset == end < store.end()
    assert ask(store, TO_SLAVE) is None
    assert store.log.status().confirmed_offset == end
    assert ask(store, MASTER) is None
    assert store.log.status().confirmed_offset == store.end()


# --- taking no messages for the time being ---


def test_a_held_master_reports_why_and_continues_when_it_is_released():
    store = Store()
    store.start()
    assert hold(store, "no member of x:1 answers", has_peers=True) is None
    refused = store.put(b"x")
    assert (refused.status, str(refused.error)) == (
        SendStatus.SERVICE_NOT_AVAILABLE,
        "no member of x:1 answers",
    )
    assert store.log.status().not_writable_reason == "no member of x:1 answers"
    assert hold(store, "", has_peers=True) is None
    assert store.put(b"x").status is SendStatus.PUT_OK
    store.restart()
    assert "has not asked the others yet" in str(store.put(b"x").error)
    assert hold(store, "", has_peers=False) is None
    store.restart()
    assert store.put(b"x").status is SendStatus.PUT_OK
    assert isinstance(hold(copied(master(2)), "x", has_peers=True), NotWritableError)


def taking_over(term: int) -> tuple[Store, list[Any]]:
    """A slave while it takes over the history of a master of this term, and its answers."""
    copy = copied(master())
    later = Generation(make_number(term, 1, 1), copy.end())
    answers: list[Any] = []
    generations = (*copy.log.state.generations, later)
    copy.log.cut(CutOrder(copy.end(), False, generations, 0), answers.append)
    return copy, answers


def test_a_promotion_beside_a_masters_opening_begins_a_term_above_that_masters():
    copy, answers = taking_over(8)
    copy.log.set_role(MASTER, answers.append)
    copy.settle()
    assert (answers[0].error, answers[1]) == (None, None)
    assert [g.term for g in copy.log.state.generations][-2:] == [8, 9]
    assert copy.log.state.assigned.term == 9


@pytest.mark.parametrize("wanted", [Role.ASYNC_MASTER, Role.SYNC_MASTER])
def test_a_term_below_that_of_a_history_that_is_being_taken_over_is_too_late(wanted):
    copy, answers = taking_over(8)
    copy.log.set_role(RoleChange(wanted, 3), answers.append)
    copy.settle()
    assert isinstance(answers[1], NotWritableError)
    assert copy.log.role is Role.SLAVE
    assert copy.log.state.generations[-1].term == 8
    assert copy.log.gate.shut() == ""


def test_a_change_of_role_does_not_undo_what_a_hold_is_writing():
    store = Store()
    store.start()
    answers: list[Any] = []
    store.log.hold_writes("", True, answers.append)
    store.log.set_role(TO_SLAVE, answers.append)
    store.log.hold_writes("", False, answers.append)
    store.settle()
    assert [type(answer) for answer in answers[:2]] == [UnavailableError] * 2
    assert answers[2] is None and store.log.state.assigned.peers
    assert ask(store, TO_SLAVE) is None
    assert store.log.state.assigned.peers


def test_a_hold_that_could_not_be_written_leaves_the_role_free_to_change():
    store = Store()
    store.start()
    store.disk.fail("flush", f"{ROLE_PATH}.tmp")
    assert isinstance(hold(store, "", has_peers=True), NotWritableError)
    assert ask(store, TO_SLAVE) is None


def test_a_promotion_of_a_held_master_releases_it():
    store = Store(wait_for_peers=True)
    store.start()
    assert store.put(b"x").status is SendStatus.SERVICE_NOT_AVAILABLE
    assert ask(store, MASTER) is None
    assert store.put(b"x").status is SendStatus.PUT_OK
    assert store.log.state.generations[-1].term == 1


def test_a_master_that_was_killed_shows_nothing_that_may_be_its_own_only_before_it_is_let():
    """A slave may have been promoted without it."""
    for settings in ({"wait_for_peers": True}, {"role": "SYNC_MASTER"}):
        store = Store(**settings)
        store.start()
        hold(store, "", has_peers="wait_for_peers" in settings)
        store.put(b"confirmed")
        end = store.end()
        store.log.report_replication(
            store.log.generation, [ReplicaState("s:1", end, connected=True)]
        )
        store.pass_time(1_000, ticks=2)
        store.send(message(b"perhaps seen by no consumer"))
        store.settle()
        store.kill()
        store.start()
        store.pass_time(1_000, ticks=2)
        assert store.log.status().confirmed_offset == end < store.end()
        store.kill()
        store.start()
        listener = Listener(store)
        assert listener.opened.confirmed == end < listener.opened.generation_start
        hold(store, "", has_peers="wait_for_peers" in settings)
        replicas = [ReplicaState("s:1", store.end(), connected=True)]
        store.log.report_replication(store.log.generation, replicas)
        listener.listen()
        assert store.log.status().confirmed_offset == listener.position == store.end()


@pytest.mark.parametrize("stops", [Store.kill, Store.stop, lambda store: store.power_loss()])
def test_a_demoted_master_shows_no_more_after_a_start_than_it_had_confirmed(stops):
    """The master that it is to follow may have cut it to less."""
    store = Store(role="SYNC_MASTER")
    store.start()
    store.put(b"confirmed")
    end = store.end()
    store.log.report_replication(store.log.generation, [ReplicaState("s:1", end, connected=True)])
    store.send(message(b"perhaps on this broker alone"))
    store.settle()
    assert ask(store, TO_SLAVE) is None
    assert store.log.status().confirmed_offset == end < store.end()
    stops(store)
    store.start()
    assert store.log.status().confirmed_offset == end < store.end()


# --- taking back ---


def lossy(**settings) -> Store:
    """A SYNC_MASTER under asynchronous flush with peers, after a power loss that took its tail."""
    store = Store(
        role="SYNC_MASTER",
        flush_disk_type="ASYNC_FLUSH",
        flush_interval_ms=3_600_000,
        snapshot_interval_ms=3_600_000,
        wait_for_peers=True,
    )
    store.start()
    assert hold(store, "", has_peers=True) is None
    for number in range(4):
        store.put(b"%d" % number)
    before = store.frame_bytes()
    store.power_loss(keep_nothing)
    store.start(**settings)
    assert len(store.frame_bytes()) < len(before) == 4
    store.lost = before
    return store


def test_a_sync_master_that_lost_its_tail_takes_its_own_bytes_back_and_begins_behind_them():
    store = lossy()
    assert store.log.state.recovering_tail
    assert store.put(b"x").status is SendStatus.SERVICE_NOT_AVAILABLE
    generation, known = store.log.generation, len(store.log.state.generations)
    for frame in store.lost[len(store.frame_bytes()) :]:
        assert store.append_data(store.end(), frame) is None
    term = store.log.state.generations[-1].term
    assert ask(store, RoleChange(Role.SYNC_MASTER, resumes=True)) is None
    assert store.frame_bytes() == store.lost
    last = store.log.state.generations[-1]
    assert (last.term, last.start, len(store.log.state.generations)) == (
        term,
        store.end(),
        known + 1,
    )
    assert last.number > generation
    assert store.put(b"x").physical_offset == last.start
    assert isinstance(ask(store, RoleChange(Role.SYNC_MASTER, resumes=True)), NotWritableError)


def test_a_clean_stop_or_synchronous_flush_needs_nothing_back():
    assert not lossy(flush_disk_type="SYNC_FLUSH").log.state.recovering_tail
    assert not lossy(role="ASYNC_MASTER").log.state.recovering_tail
    assert not lossy(take_back=False).log.state.recovering_tail
    store = lossy()
    assert ask(store, RoleChange(Role.SYNC_MASTER)) is None, "an operator does not want it back"
    assert store.put(b"x").status is SendStatus.SLAVE_NOT_AVAILABLE
    store.restart()
    assert not store.log.state.recovering_tail


# --- what fails ---


@pytest.mark.parametrize(
    ("change", "path"),
    [(MASTER, ROLE_PATH), (MASTER, "stratamq/generations.json"), (TO_SLAVE, ROLE_PATH)],
)
def test_a_role_that_cannot_be_written_stops_the_log_until_a_restart(change, path):
    store = copied(master(4)) if change is MASTER else master(4)
    frames = store.frame_bytes()
    store.disk.fail("flush", f"{path}.tmp")
    error = ask(store, change)
    assert isinstance(error, NotWritableError) and "restart the service" in str(error)
    assert store.put(b"x").status is SendStatus.SERVICE_NOT_AVAILABLE
    assert store.append_data(store.end(), b"x") is not None
    store.kill()
    store.disk.clear_faults()
    store.start()
    assert store.frame_bytes() == frames
    if path == ROLE_PATH:
        assert (store.log.role is Role.SLAVE) is (change is MASTER)
    else:
        assert (store.log.role, store.log.state.generations[-1].term) == (Role.ASYNC_MASTER, 1)


@pytest.mark.parametrize("power", [False, True])
def test_a_crash_anywhere_in_a_promotion_leaves_a_slave_or_a_master_of_the_higher_term(power):
    """Every disk call may be the last. Nothing is acknowledged in between."""
    original = master(10)
    roles = set()
    for crash_at in range(1, 200):
        copy = copied(original)
        answers: list[Any] = []
        copy.disk.crash_at(copy.disk.calls + crash_at)
        try:
            copy.log.set_role(MASTER, answers.append)
            copy.settle()
        except SimulatedCrash:
            pass
        else:
            assert crash_at > 10, "the crashes came too late to show anything"
            break
        assert answers == []
        if power:
            copy.power_loss(random_choice(random.Random(crash_at)))
        else:
            copy.kill()
        copy.disk.clear_faults()
        copy.start()
        assert copy.frame_bytes() == original.frame_bytes()
        terms = {g.term for g in copy.log.state.generations}
        roles.add(copy.log.role)
        if copy.log.role is Role.SLAVE:
            assert terms == {0}, "a slave has no term that no master has"
        else:
            assert copy.log.state.generations[-1].term == max(terms) == 1
            assert copy.put(b"after").status is SendStatus.PUT_OK
    else:
        raise AssertionError("the promotion has no end")
    assert roles == {Role.SLAVE, Role.ASYNC_MASTER}


@pytest.mark.parametrize("power", [False, True])
def test_a_crash_anywhere_in_a_demotion_leaves_a_master_or_a_slave(power):
    roles = set()
    for crash_at in range(1, 200):
        store = master(5)
        before = store.frame_bytes()
        answers: list[Any] = []
        store.disk.crash_at(store.disk.calls + crash_at)
        try:
            store.log.set_role(TO_SLAVE, answers.append)
            store.settle()
        except SimulatedCrash:
            pass
        else:
            break
        if power:
            store.power_loss(random_choice(random.Random(crash_at)))
        else:
            store.kill()
        store.disk.clear_faults()
        store.start()
        roles.add(store.log.role)
        assert store.frame_bytes() == before
    assert Role.ASYNC_MASTER in roles
    assert power or Role.SLAVE in roles
