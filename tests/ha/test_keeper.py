"""What a master concludes from the history with which a slave opens."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from stratamq_ha.cluster import Cluster
from stratamq_ha.config import HaConfig
from stratamq_ha.keeper import RoleKeeper
from stratamq_ha.master import MasterListener
from stratamq_ha.own_log import OwnLogView
from stratamq_ha.peer_decisions import PeerAnswer
from stratamq_ha.slave import FIRST_DELAY_S, next_delay_s

from stratamq.files.clock import SystemClock
from stratamq.formats.generation_number import make_number
from stratamq.formats.log_state import Role
from stratamq.formats.members import Member
from stratamq.formats.replication_opening import SlaveOpening
from tests.ha.own_logs import (
    RecordedLog,
    log_state,
    master_and_slave,
    no_documents,
    nothing_heard,
    show,
)
from tests.ha.peer_statuses import among, answers, broker

OLD = (7, 0)
NEW = ((1 << 51) + 9, 1_000)
TERM_7, TERM_8 = (7 << 51) + 1, ((8 << 51) + 1, 1_000)
SEGMENT = 65_536


class Kept:
    """A keeper over a log that ends at 1 000, and over the view of it, which follows no stream."""

    def __init__(self) -> None:
        self.view, self.log = OwnLogView(SystemClock()), RecordedLog()
        config = HaConfig(root=Path("store"))
        listener = MasterListener(
            lambda theirs, source: self.keeper.status_for(theirs, source),
            lambda found, source: self.keeper.slave_refused(found, source),
            no_documents,
        )
        self.master, slave, self.listening = master_and_slave(config, self.log, self.view, listener)
        self.slave = slave
        parts = (config, self.log, self.view, self.master, slave)
        self.cluster = Cluster(*parts, nothing_heard(), instance=1, member="")
        self.keeper = RoleKeeper(config, self.cluster, self.log, self.view, slave, SystemClock())

    def has(self, term: int, *generations: tuple[int, int]) -> None:
        """What its log has now. The view has not heard of it."""
        self.log.now = log_state(Role.ASYNC_MASTER, generations, 1_000, SEGMENT, term=term)

    def shows(self, term: int, *generations: tuple[int, int]) -> None:
        """What its log has now, as the view hears of it."""
        self.has(term, *generations)
        show(self.view, self.log.now)

    def opens(self, end: int, *generations: tuple[int, int]) -> str:
        """A slave with so much, of the first generation; why it is refused."""
        opening = SlaveOpening(end, 0, SEGMENT, "broker-a", generations or (OLD,))
        return self.master.answer("127.0.0.1:1", opening).sentence

    def looks(self) -> str:
        """The keeper looks once; why no messages are taken then."""
        asyncio.run(self.keeper._look())
        return self.log.now.held_reason


@pytest.fixture
def master() -> Iterator[Kept]:
    master = Kept()
    master.shows(0, OLD)
    with master.listening:
        yield master


def test_a_slave_that_has_more_is_refused_and_the_master_takes_no_messages(master):
    assert master.opens(1_000) == master.looks() == ""
    assert "has this log's history up to 1500" in master.opens(1_500)
    assert master.looks() == master.opens(1_500)


@pytest.mark.parametrize("opens_before", [True, False])
def test_what_a_promotion_gave_up_is_not_held_against_it(master, opens_before):
    """Neither when it was found before, nor by a view from before; whether or not anybody got the
    answer that the promotion has happened."""
    if opens_before:
        assert master.opens(1_500)
    master.has(1, OLD, NEW)
    if not opens_before:
        assert master.opens(1_500)
    assert master.looks() == ""
    master.shows(1, OLD, NEW)
    assert master.opens(1_500) == master.looks() == ""


def test_a_log_that_was_put_back_meanwhile_serves_who_has_its_history(master):
    master.shows(1, OLD, NEW)
    master.looks()
    master.shows(0, OLD)
    assert master.opens(1_000) == ""
    assert master.opens(1_500)
    assert master.looks()


def test_a_master_steps_down_for_a_higher_term_but_not_once_it_was_promoted_beyond(master):
    followed = (TERM_7, 1_000)
    assert "the slave is at term 7" in master.opens(1_500, OLD, followed)
    master.has(8, OLD, TERM_8)
    master.looks()
    assert master.log.roles == []
    master.shows(0, OLD)
    assert master.opens(1_500, OLD, followed)
    master.looks()
    assert master.log.roles == [(Role.SLAVE, 7)]


@pytest.mark.parametrize(
    ("role", "term", "connected", "tries"),
    [
        ("sync", 3, False, True),
        ("slave", 3, False, False),
        ("sync", 2, False, False),
        ("sync", 3, True, False),
    ],
    ids=["promoted", "not yet", "of an older term", "followed already"],
)
def test_a_slave_tries_its_candidate_again_as_soon_as_that_one_reports_its_promotion(
    master, role, term, connected, tries
):
    """Until then it was refused there, and waited longer each time."""
    master.has(3, OLD)
    master.log.now = replace(master.log.now, role=Role.SLAVE)
    show(master.view, master.log.now)
    master.slave.state.connected = connected
    theirs = broker(f"{role} T{term} 0–1000", name="broker-a")
    master.keeper.status_for(theirs, "a:1")
    assert master.slave._again.is_set() is tries


@pytest.mark.parametrize("heard_of_newer", [False, True])
def test_a_directory_does_not_join_by_answers_of_the_list_before(
    master, monkeypatch, heard_of_newer
):
    """Two confirm the list that admits it; a third has a later one, from a master that the two do
    not know: the directory takes that over, and would count as of it."""
    old = among("xacm 1", version=3)
    assert old is not None
    later = old.without("x").admitting(Member(0, "x", "x:1"), 1)
    generation = (make_number(0, 1, 1), 0)
    master.log.now = log_state(
        Role.SLAVE, [generation], 1_000, SEGMENT, broker_name="b", members=old, member="x",
        master_replication_address="a:1", rejoining=True,
    )  # fmt: skip
    show(master.view, master.log.now)
    heard = answers("a:1 sync [0.1@0] 0–1000", "c:1 slave [0.1@0] 0–1000", members=old)
    if heard_of_newer:
        heard += answers("m:1 slave [0.1@0] 0–1000", members=later)

    async def ask(*_: object, **__: object) -> list[PeerAnswer]:
        return heard

    monkeypatch.setattr(master.cluster, "ask", ask)
    master.looks()
    assert master.log.now.members == (later if heard_of_newer else old)
    assert master.log.now.rejoining is heard_of_newer


def test_waits_for_a_master_grow_and_begin_anew_when_it_is_another_one():
    waits = [FIRST_DELAY_S]
    for woken in (False, False, True, False, False, False):
        waits.append(next_delay_s(waits[-1], 0.3, woken=woken))
    assert waits == [0.05, 0.1, 0.2, 0.05, 0.1, 0.2, 0.3]
