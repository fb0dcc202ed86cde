"""A cluster of three under open pages in a real Chromium: its master is lost, and handed over."""

import shutil
from collections.abc import Iterator

import pytest
from stratamq_bench.failover import Etcd

from stratamq.client import connect
from tests.agent.members import MEMBERS, ROOMS, Members, caught_up, store
from tests.console.browser.conftest import ANSWER_MS
from tests.console.browser.looks import look_at
from tests.console.browser.test_docs_pictures import take_picture
from tests.support.brokers import COMMITLOG
from tests.support.waiting import until

playwright = pytest.importorskip("playwright.sync_api")
CONSOLE = "console"


@pytest.fixture(scope="module")
def members(chromium, tmp_path_factory) -> Iterator[Members]:
    """A console for each member."""
    if shutil.which("etcd") is None:
        pytest.skip("etcd is not installed (Debian: etcd-server)")
    place = tmp_path_factory.mktemp("cluster")
    server = Etcd(place)
    started = Members(place, server, "SYNC_MASTER", ["console.http_address=127.0.0.1:0"])
    started.start()
    for broker in started.brokers.values():
        broker.start([CONSOLE])
    yield started
    started.close()
    server.close()


@pytest.fixture
def opened(chromium, members):
    """`opened("b", "/cluster")`: that page of a member's console."""
    contexts = []

    def open_page(member: str, path: str):
        with connect(members.brokers[member].root, retry_timeout_s=60) as client:
            context = chromium.new_context(base_url=client.admin.console_state().url)
        contexts.append(context)
        context.set_default_timeout(ANSWER_MS)
        page = context.new_page()
        page.goto(path)
        return page

    yield open_page
    for context in contexts:
        context.close()


def shows(page, text: str) -> None:
    playwright.expect(page.locator("main")).to_contain_text(text, timeout=ANSWER_MS)


def test_a_switchover_by_its_button_shows_what_it_needs_first(opened, members, tmp_path):
    page = opened("a", "/cluster")
    look_at(page, "/cluster", "members")
    page.select_option("#member", "b")
    page.click("text=Look at what it needs")
    shows(page, "It cannot be asked for before all of these hold.")
    refused = page.locator("tr", has=page.locator(".state.bad")).all_inner_texts()
    assert ["there is something to take over" in one for one in refused] == [True]
    with members.client() as client:
        store(client, b"first")
    caught_up(members, "a")
    page.reload()
    look = opened("a", "/cluster")
    take_picture(look, tmp_path, "cluster")
    assert "Nothing was changed yet" in page.inner_text("main")
    assert set(page.locator("td .state").all_inner_texts()) == {"yes"}
    page.click("text=Hand over")
    page.wait_for_url("**/cluster")
    until(lambda: members.leader() == "b", "b leads")
    playwright.expect(page.locator("tr", has_text="leads")).to_contain_text("b", timeout=ANSWER_MS)
    shows(page, "Follows the master at")


def test_a_lost_master_is_a_sentence_on_pages_that_go_on_with_the_next_one(opened, members):
    lost = until(members.leader, "a member leads")
    with members.client() as client:
        store(client, b"second")  # an empty log is taken over by no one
    caught_up(members, lost)
    other = next(name for name in MEMBERS if name != lost)
    cluster, overview = opened(other, "/cluster"), opened(other, "/")
    own = opened(lost, "/cluster")
    members.brokers[lost].kill(*ROOMS)
    said = playwright.expect(cluster.locator("#live > .problem").first)
    said.to_contain_text(f"The master {lost} is", timeout=ANSWER_MS)
    playwright.expect(overview.locator("#live > .problem").first).to_be_visible(timeout=ANSWER_MS)
    shows(own, "Not up to date since")
    assert COMMITLOG in own.inner_text("#old")
    leader = until(
        lambda: members.leader(other) not in ("", lost) and members.leader(other), "next"
    )
    led = playwright.expect(cluster.locator("tr", has_text=", leads"))
    led.to_contain_text(leader, timeout=ANSWER_MS)
    gone = playwright.expect(cluster.locator("#live > .problem", has_text="The master"))
    gone.to_have_count(0, timeout=ANSWER_MS)
    shows(overview, f"{leader} leads")
    members.brokers[lost].start(ROOMS)
    playwright.expect(own.locator("#old")).to_have_count(0, timeout=ANSWER_MS)
    shows(own, "Follows the master at")
