"""The overview: every service that runs, and what is wrong with it."""

from stratamq_console.pages.overview import NOT_RUNNING, QUESTIONS, READY, gather_overview

from stratamq.rpc.rooms import ESSENTIAL, SERVICES
from tests.console.conftest import ROOMS
from tests.console.pages import ANSWER_S, browsing, text_of
from tests.support.brokers import INDEX


def test_every_registered_service_is_asked():
    assert set(QUESTIONS) == set(SERVICES)


async def test_each_service_that_runs_is_shown_with_its_address(broker):
    async with browsing(broker.root) as browser:
        view = await gather_overview(browser.own, ANSWER_S)
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
            view = await gather_overview(browser.own, ANSWER_S)
            (index,) = [one for one in view.services if one.name == INDEX]
            assert index.state == NOT_RUNNING and index.problem
            page = await browser.get("/")
            assert NOT_RUNNING in text_of(page)
    finally:
        broker.start((INDEX,))


async def test_a_broker_that_is_gone_is_shown_so(tmp_path):
    async with browsing(tmp_path) as browser:
        view = await gather_overview(browser.own, ANSWER_S)
        assert {one.name: one.state for one in view.services} == dict.fromkeys(
            ESSENTIAL, NOT_RUNNING
        )
        assert (await browser.get("/")).status_code == 200
