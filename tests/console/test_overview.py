"""The overview: every service that runs, and what is wrong with it."""

from dataclasses import replace

import pytest
from stratamq_console.pages.overview import (
    NOT_RUNNING,
    QUESTIONS,
    READY,
    OverviewView,
    gather_overview,
)

from stratamq.client import ReplicationState, SlaveProgress
from stratamq.formats.log_state import LogState, Role
from stratamq.formats.members import Member, Members
from stratamq.rpc.rooms import ESSENTIAL, SERVICES
from tests.console.conftest import ROOMS
from tests.console.pages import ANSWER_S, browsing, text_of
from tests.support.brokers import INDEX

NOW_MS = 1_800_000_000_000


def test_every_registered_service_is_asked():
    assert set(QUESTIONS) == set(SERVICES)


async def test_each_service_that_runs_is_shown_with_its_address(broker):
    async with browsing(broker.root) as browser:
        view = await gather_overview(browser.own, NOW_MS, ANSWER_S)
        assert [one.name for one in view.services] == sorted(ROOMS, key=SERVICES.index)
        states = {one.name: one.state for one in view.services}
        states.pop("janitor")  # its first look may have been before the log was open
        assert set(states.values()) == {READY}, view.problems
        page = await browser.get("/")
        for one in view.services:
            assert one.address in page.text
        assert "stratamq status" in text_of(page)


async def test_a_service_that_was_killed_is_a_problem_on_the_page(broker):
    broker.kill(INDEX)
    try:
        async with browsing(broker.root) as browser:
            view = await gather_overview(browser.own, NOW_MS, ANSWER_S)
            (index,) = [one for one in view.services if one.name == INDEX]
            assert index.state == NOT_RUNNING and index.problem
            page = await browser.get("/")
            assert NOT_RUNNING in text_of(page)
    finally:
        broker.start((INDEX,))


async def test_a_broker_that_is_gone_is_shown_so(tmp_path):
    async with browsing(tmp_path) as browser:
        view = await gather_overview(browser.own, NOW_MS, ANSWER_S)
        assert {one.name: one.state for one in view.services} == dict.fromkeys(
            ESSENTIAL, NOT_RUNNING
        )
        assert (await browser.get("/")).status_code == 200


async def test_it_says_what_is_stored_and_what_retention_takes_next(broker, client):
    client.send("orders", b"x")
    async with browsing(broker.root) as browser:
        view = await gather_overview(browser.own, NOW_MS, ANSWER_S)
        assert view.log is not None and view.log.role is not None
        assert view.retention is not None and view.next_deletion != "not known"
        assert view.slaves == 0
        text = text_of(await browser.get("/"))
        assert (
            view.log.role.name.lower().replace("_", " ") in text and view.retention.policy in text
        )


async def test_alerts_that_would_fire_and_groups_that_are_behind_are_shown(broker):
    async with browsing(broker.root) as browser:
        browser.history.add(
            {
                "commitlog_flush_failed": 1.0,
                "dispatcher_groups_behind": 1.0,
                'dispatcher_group_lag_messages{group="billing"}': 7.0,
            }
        )
        page = await browser.get("/")
        text = text_of(page)
        assert '<a href="/groups/billing">billing</a>' in page.text
        assert "StrataMQFlushFailed (critical)" in text
        assert "billing : 7 messages" in text


SLAVE = SlaveProgress("b:1", "b", True, 90, 0, 0, 0.0, "", "b", counts=True)


@pytest.mark.parametrize(
    ("slaves", "members", "expected"),
    [
        ((), None, (0, 0)),
        ((SLAVE,), None, (1, 1)),
        ((replace(SLAVE, lag_bytes=5),), None, (1, 0)),
        ((SLAVE,), 3, (2, 1)),
        ((), 3, (2, 0)),
    ],
)
def test_a_master_says_how_many_of_its_slaves_are_in_sync_and_a_single_broker_nothing(
    slaves, members, expected
):
    named = tuple(Member(number, name, "") for number, name in enumerate("abc"))
    log = LogState(members=None if members is None else Members(1, 1, named))
    state = ReplicationState(Role.ASYNC_MASTER, 1, 0, 100, "", slaves, None)
    view = OverviewView(0, log, (), None, None, state)
    assert (view.slaves, view.in_sync) == expected
    assert view.follows is None


async def test_a_single_broker_has_no_figure_of_slaves(broker):
    async with browsing(broker.root) as browser:
        assert "in sync" not in text_of(await browser.get("/"))
