"""What a member's log holds to by itself, whatever its replication service asks for."""

import random
from typing import Any

import pytest
from stratamq_commitlog.recovery.cut_file import CutOrder
from stratamq_commitlog.replica.membership import MEMBERS_PATH
from stratamq_commitlog.replica.role_change import RoleChange
from stratamq_commitlog.roles import REMOVED, ROLE_PATH

from stratamq.errors import InvalidRequestError, NotWritableError, StoreRefusedError
from stratamq.formats.generation_number import Generation, make_number
from stratamq.formats.log_state import ReplicaState, Role
from stratamq.formats.members import Members, configured_members
from stratamq.formats.message_status import SendStatus
from stratamq.store.identity import IDENTITY_PATH, mark_restored
from tests.commitlog.test_slave import copied, master, pieces
from tests.support.logs import Store, message

THREE = configured_members([("a", "a:1"), ("b", "b:1"), ("c", "c:1")], 1)


def ask(call: Any, *arguments: Any, store: Store) -> Any:
    answers: list[Any] = []
    call(*arguments, answers.append)
    store.settle()
    return answers[0]


def put(store: Store, members: Members = THREE, own: str = "b") -> Any:
    return ask(store.log.membership.put, members, own, store=store)


def change(store: Store, wanted: RoleChange) -> Any:
    return ask(store.log.set_role, wanted, store=store)


def promise(store: Store, term: int, candidate: str) -> Any:
    return change(store, RoleChange(Role.SLAVE, term, f"{candidate}:1", "", candidate=candidate))


def joined(store: Store, value: bool = True) -> None:
    assert ask(store.log.membership.set_joined, value, store=store) is None


def member(own: str = "b") -> Store:
    """A slave of term 0 that counts."""
    store = copied(master())
    assert put(store, own=own) is None
    joined(store)
    return store


# --- promises ---


def test_a_term_is_promised_to_one_member_alone_whatever_dies():
    store = member()
    assert promise(store, 8, "a") is None
    for restart in (store.settle, store.restart):
        restart()
        assert store.log.state.assigned.candidate == "a"
        assert promise(store, 8, "a") is None, "it promises the same again"
        assert isinstance(promise(store, 8, "c"), InvalidRequestError), "8 is a term of slot 0"
        assert isinstance(promise(store, 2, "c"), NotWritableError), "too late"
    assert promise(store, 10, "c") is None
    assert isinstance(promise(store, 8, "a"), NotWritableError)


def test_a_term_that_was_only_learned_can_be_promised():
    store = member()
    assert change(store, RoleChange(Role.SLAVE, 8)) is None
    assert store.log.state.assigned.candidate == ""
    assert promise(store, 8, "a") is None
    assert store.log.state.assigned.candidate == "a"


def test_only_active_members_are_promised_anything():
    store = member()
    assert put(store, THREE.without("c")) is None
    assert isinstance(promise(store, 2, "c"), InvalidRequestError)
    assert isinstance(promise(store, 3, "d"), InvalidRequestError)
    alone = copied(master())
    assert isinstance(promise(alone, 8, "a"), InvalidRequestError), "it has no members"


def test_who_has_promised_a_term_takes_no_bytes_of_a_master_of_a_lower_one():
    original = master()
    store = copied(original)
    assert put(store) is None
    joined(store)
    original.put(b"more")
    assert promise(store, 8, "a") is None
    for offset, data in pieces(original, store.end()):
        error = store.append_data(offset, data)
        assert isinstance(error, NotWritableError) and "term 8 was promised to a" in str(error)
    generations = tuple(original.log.state.generations)
    refused = ask(store.log.cut, CutOrder(store.end(), False, generations), store=store).error
    assert isinstance(refused, NotWritableError) and "a master of term 0" in str(refused)
    later = (*generations, Generation(make_number(8, 1, 1), original.end()))
    assert ask(store.log.cut, CutOrder(store.end(), False, later), store=store).error is None
    for offset, data in pieces(original, store.end()):
        assert store.append_data(offset, data) is None


# --- terms ---


def test_a_member_opens_only_the_term_that_is_promised_to_it():
    store = member("b")
    assert isinstance(change(store, RoleChange(Role.SYNC_MASTER, 1)), NotWritableError)
    assert promise(store, 1, "b") is None
    assert isinstance(change(store, RoleChange(Role.SYNC_MASTER, 9)), NotWritableError)
    assert promise(store, 10, "c") is None
    assert isinstance(change(store, RoleChange(Role.SYNC_MASTER, 1)), NotWritableError), "not now"
    assert promise(store, 17, "b") is None
    assert change(store, RoleChange(Role.SYNC_MASTER, 17)) is None
    assert store.log.state.generations[-1].term == 17
    assert isinstance(change(store, RoleChange(Role.SYNC_MASTER, 17)), NotWritableError), "once"


def test_a_removed_member_opens_no_term():
    store = member()
    assert promise(store, 1, "b") is None
    assert put(store, THREE.without("b")) is None
    assert isinstance(change(store, RoleChange(Role.SYNC_MASTER, 1)), NotWritableError)


@pytest.mark.parametrize("order", range(8))
def test_a_master_that_learns_of_its_removal_confirms_nothing_by_the_members_that_are_left(order):
    """One of two was promoted while this one was cut off, and has removed it: k is 0 then. `order`:
    of the flush and the members' file."""
    store = Store(role="SYNC_MASTER", flush_disk_type="SYNC_FLUSH", seed=order)
    store.start()
    two = configured_members([("a", ""), ("b", "")], 1)
    assert put(store, two, "a") is None
    silent = [ReplicaState("b:1", 0, connected=True)]
    store.log.report_replication(store.log.generation, silent)
    before = store.log.offsets.confirmed
    store.send(message(b"only here"))
    store.log.run_pass()
    assert put(store, two.without("a"), "a") is None
    assert store.log.replicas.required == 0
    assert store.answers.statuses == [SendStatus.FLUSH_SLAVE_TIMEOUT]
    assert store.log.offsets.confirmed == before < store.end()
    assert store.put(b"x").status is SendStatus.SERVICE_NOT_AVAILABLE
    store.restart()
    assert store.log.offsets.confirmed == before, "nor after a restart"
    assert store.put(b"x").status is SendStatus.SERVICE_NOT_AVAILABLE


def test_a_member_that_is_configured_a_master_later_begins_no_term_by_that():
    """No member promised it a term."""
    store = member()
    store.restart(role="ASYNC_MASTER")
    assert store.log.role is Role.SLAVE
    assert {g.term for g in store.log.state.generations} == {0}
    assert any("`stratamq replica promote` alone" in line for line in store.log.report)


@pytest.mark.parametrize(
    "wanted",
    [RoleChange(Role.SLAVE, 257, "a:1"), RoleChange(Role.SLAVE, 4088, "a:1", candidate="a")],
)
def test_a_term_far_above_all_known_ones_is_not_believed_and_changes_nothing(wanted):
    store = master()
    assert put(store, own="a") is None
    joined(store)
    error = change(store, wanted)
    assert isinstance(error, NotWritableError) and "it is ignored" in str(error)
    assert store.log.role is not Role.SLAVE
    assert store.put(b"x").status is SendStatus.PUT_OK
    assert change(store, RoleChange(Role.SLAVE, 256, "a:1")) is None


def test_a_slave_follows_no_master_of_a_term_far_above_all_known_ones():
    store = member()
    far = (*store.log.state.generations, Generation(make_number(300, 1, 1), store.end()))
    refused = ask(store.log.cut, CutOrder(store.end(), False, far), store=store).error
    assert isinstance(refused, NotWritableError) and "it is ignored" in str(refused)
    joined(store, False)
    assert ask(store.log.cut, CutOrder(store.end(), False, far), store=store).error is None, (
        "it is new"
    )


# --- members and k ---


def test_members_are_durable_and_only_later_ones_replace_them():
    store = member()
    assert put(store, THREE.without("c")) is None
    assert isinstance(put(store, THREE), NotWritableError)
    assert isinstance(put(store, THREE.without("a")), NotWritableError), "another version 2"
    moved = configured_members([("a", "x:1"), ("b", "y:1"), ("c", "z:1")], 1)
    here = THREE.without("c").with_addresses_of(moved)
    assert put(store, here) is None, "addresses decide nothing"
    assert isinstance(put(store, here, own="d"), InvalidRequestError)
    store.restart()
    assert store.log.membership.members == here
    assert store.log.membership.member == "b"


def test_k_is_the_members_k():
    store = Store(role="SYNC_MASTER", required_replicas=2)
    store.start()
    assert put(store, configured_members([("a", ""), ("b", ""), ("c", "")], 2), "a") is None
    one = [ReplicaState("b:1", 0, connected=True)]
    store.log.report_replication(store.log.generation, one)
    assert store.put(b"x").status is SendStatus.SLAVE_NOT_AVAILABLE
    less = store.log.membership.members.without("c")
    assert put(store, less, "a") is None
    store.log.report_replication(
        store.log.generation, [ReplicaState("b:1", 1 << 20, connected=True)]
    )
    assert store.put(b"x").status is SendStatus.SLAVE_NOT_AVAILABLE, "more than there is"
    assert put(store, less.without("b"), "a") is None
    assert store.put(b"x").status is SendStatus.PUT_OK, "no other member is left"
    store.restart()
    assert store.log.replicas.required == 0


def test_a_slave_that_does_not_count_is_not_waited_for():
    store = Store(role="SYNC_MASTER")
    store.start()
    end = store.end()
    replicas = [ReplicaState("b:1", end, connected=True, counts=False)]
    store.log.report_replication(store.log.generation, replicas)
    assert store.put(b"x").status is SendStatus.SLAVE_NOT_AVAILABLE


def test_an_acknowledgement_below_the_start_of_the_masters_generation_confirms_nothing():
    """Who has only a part of what an older generation left may lose to another history."""
    store = Store(role="SYNC_MASTER")
    store.start()
    store.put(b"first")
    middle = store.end()
    store.put(b"second")
    assert change(store, RoleChange(Role.SYNC_MASTER, 1)) is None
    start = store.log.state.generations[-1].start
    assert store.log.offsets.confirmed < middle < start == store.end()
    for acknowledged, confirmed in ((middle, store.log.offsets.confirmed), (start, start)):
        slave = [ReplicaState("b:1", acknowledged, connected=True)]
        store.log.report_replication(store.log.generation, slave)
        assert store.log.offsets.confirmed == confirmed


# --- who a directory is ---


def test_a_directory_keeps_its_identity_and_counts_for_nothing_until_it_has_joined():
    store = copied(master())
    number = store.log.membership.identity.number
    assert not store.log.membership.rejoining, "without members that means nothing"
    assert put(store) is None
    assert store.log.membership.rejoining
    joined(store)
    store.restart()
    assert not store.log.membership.rejoining
    assert store.log.membership.identity.number == number
    another = Store(seed=3)
    another.start()
    assert another.log.membership.identity.number != number


def test_a_member_that_was_admitted_again_is_new():
    store = member()
    less = THREE.without("b")
    again = less.admitting(less.find("b"), 1)
    assert put(store, again) is None
    assert store.log.membership.rejoining
    joined(store)
    assert not store.log.membership.rejoining


def test_the_directory_of_another_member_is_new():
    store = member("b")
    assert put(store, own="c") is None
    assert store.log.membership.rejoining


def test_a_restored_directory_is_a_slave_that_has_promised_nothing():
    store = Store()
    store.start()
    store.put(b"before the backup")
    assert put(store, own="a") is None
    joined(store)
    assert promise(store, 10, "c") is None
    number, end = store.log.membership.identity.number, store.end()
    with pytest.raises(StoreRefusedError, match="stop the broker"):
        mark_restored(store.disk.files(name="operator"), random.Random(1))
    store.kill()
    files = store.disk.files(name="operator")
    identity = mark_restored(files, random.Random(1))
    files.kill()
    for _ in range(2):
        store.start()
        assert store.log.role is Role.SLAVE
        assert (store.log.state.assigned.term, store.log.state.assigned.candidate) == (0, "")
        assert "was restored from a backup" in store.log.state.assigned.reason
        assert store.log.membership.rejoining
        assert store.log.membership.identity.number == identity.number != number
        assert store.end() == end
        store.kill()


def test_a_restored_master_shows_nothing_that_was_not_confirmed():
    store = Store(role="SYNC_MASTER")
    store.start()
    assert put(store, own="a") is None
    joined(store)
    store.log.put([message()], False, lambda results: None)
    store.settle()
    assert store.log.offsets.confirmed == 0 < store.end()
    store.kill()
    files = store.disk.files(name="operator")
    mark_restored(files, random.Random(1))
    files.kill()
    for _ in range(2):
        store.start()
        assert store.log.role is Role.SLAVE
        assert store.log.offsets.confirmed == 0 < store.end()
        store.kill()


def test_a_member_that_is_being_removed_is_not_counted_or_promised_anything():
    store = member("b")
    joined(store)
    assert put(store, THREE.leaving("b")) is None
    assert store.log.membership.rejoining
    joined(store)
    assert store.log.membership.rejoining
    assert isinstance(promise(store, 4, "b"), InvalidRequestError)


@pytest.mark.parametrize("path", [IDENTITY_PATH, MEMBERS_PATH, ROLE_PATH])
def test_a_directory_that_cannot_read_what_it_promised_counts_for_nothing(path):
    store = member()
    assert promise(store, 8, "a") is None
    store.kill()
    store.start()
    assert not store.log.membership.rejoining
    store.kill()
    store.edit(path, 2, b"\xff\xff")
    for _ in range(2):
        store.start()
        assert put(store) is None
        assert store.log.membership.rejoining
        store.kill()


@pytest.mark.parametrize("path", [IDENTITY_PATH, MEMBERS_PATH, ROLE_PATH])
def test_what_a_cluster_relies_on_is_durable_before_it_is_answered(path):
    store = copied(master())
    wanted = {
        MEMBERS_PATH: lambda: put(store),
        IDENTITY_PATH: lambda: ask(store.log.membership.set_joined, True, store=store),
        ROLE_PATH: lambda: promise(store, 8, "a"),
    }
    if path != MEMBERS_PATH:
        assert put(store) is None
    store.disk.fail("flush", f"{path}.tmp")
    assert isinstance(wanted[path](), NotWritableError)
    store.kill()
    store.disk.clear_faults()
    store.start()
    membership = store.log.membership
    if path == MEMBERS_PATH:
        assert membership.members is None
    else:
        assert membership.rejoining and store.log.state.assigned.candidate == ""


# --- what comes while something else is being written ---


def test_a_member_that_is_removed_while_it_is_promoted_takes_no_messages():
    store = member()
    assert promise(store, 1, "b") is None
    answers: list[Any] = []
    store.log.set_role(RoleChange(Role.ASYNC_MASTER, 1), answers.append)
    store.log.membership.put(THREE.without("b"), "b", answers.append)
    store.settle()
    assert answers == [None, None]
    for restart in (store.settle, store.restart):
        restart()
        assert (store.log.role, store.log.state.held) == (Role.ASYNC_MASTER, REMOVED)
        assert store.put(b"x").status is SendStatus.SERVICE_NOT_AVAILABLE


def test_a_removed_master_may_not_continue():
    store = member()
    assert promise(store, 1, "b") is None
    assert change(store, RoleChange(Role.ASYNC_MASTER, 1)) is None
    assert put(store, THREE.without("b")) is None
    assert ask(store.log.hold_writes, "", False, store=store) is None
    assert store.put(b"x").status is SendStatus.SERVICE_NOT_AVAILABLE


def test_an_older_list_does_not_replace_a_later_one_that_is_being_written():
    store = member()
    later = THREE.without("a").without("c")
    answers: list[Any] = []
    store.log.membership.put(later, "b", answers.append)
    store.log.membership.put(THREE.without("a"), "b", answers.append)
    store.settle()
    refusal, done = sorted(answers, key=lambda one: one is None)
    assert isinstance(refusal, NotWritableError) and done is None
    for restart in (store.settle, store.restart):
        restart()
        assert store.log.membership.members == later


def test_members_that_could_not_be_written_are_not_waited_for():
    store = member()
    store.disk.fail("flush", f"{MEMBERS_PATH}.tmp")
    assert isinstance(put(store, THREE.without("a").without("c")), NotWritableError)
    assert put(store, THREE.without("a")) is None


def test_nothing_is_promised_to_a_member_whose_removal_is_being_written():
    store = member()
    answers: list[Any] = []
    store.log.membership.put(THREE.without("a"), "b", answers.append)
    store.log.set_role(RoleChange(Role.SLAVE, 8, "a:1", "", candidate="a"), answers.append)
    store.settle()
    refusal, done = answers
    assert isinstance(refusal, InvalidRequestError) and done is None
    assert store.log.state.assigned.candidate == ""
