"""Storage, groups, dead letters and the cluster in a real Chromium: what people do there, names
that are markup, and how each page looks."""

from collections.abc import Iterator
from urllib.parse import quote

import pytest

from stratamq.client import connect
from tests.console.browser.looks import look_at
from tests.support.brokers import COMMITLOG, DELIVERY, DISPATCHER, HA, INDEX, Broker
from tests.support.waiting import until, until_dispatched, until_indexed

playwright = pytest.importorskip("playwright.sync_api")

CONSOLE = "console"
ROOMS = (COMMITLOG, DISPATCHER, INDEX, DELIVERY, HA, "janitor", CONSOLE)
SETTINGS = (
    "console.http_address=127.0.0.1:0",
    "ha.replication_address=127.0.0.1:0",
    "commitlog.segment_bytes=65536",
    "delivery.shared_attempts=1",
)
ODD_TOPIC, ODD_GROUP = "%odd|topic-_1", "'\"><script>document.title='run'</script>/.."
PATHS = (
    "/storage",
    "/groups",
    "/groups/billing",
    "/groups/workers/dead-letters",
    "/groups/workers/dead-letters/0",
    "/cluster",
)


@pytest.fixture(scope="module")
def broker(tmp_path_factory) -> Iterator[Broker]:
    place = tmp_path_factory.mktemp("chromium")
    with Broker(place / "store", place / "logs", SETTINGS) as broker:
        broker.start(ROOMS)
        with connect(broker.root, retry_timeout_s=60) as client:
            for number in range(30):
                client.send("orders", bytes(9_000), queue_id=number % 2)
                client.send(ODD_TOPIC, bytes(300), queue_id=0)
            client.commit_offsets("billing", {("orders", 0): 15, ("orders", 1): 15})
            client.commit_offsets(ODD_GROUP, {(ODD_TOPIC, 0): 1})
            client.send("work", b'{"order": 17}', queue_id=0, keys=["order-17"])
            with client.subscribe("work", "workers", invisible_s=1) as reader:
                next(reader).nack()
            until(lambda: client.admin.dead_letters("workers").letters, "there is a dead letter")
            until_dispatched(client)
            until_indexed(client)
        yield broker


@pytest.fixture(scope="module")
def console(broker) -> Broker:
    return broker


def test_the_topic_that_fills_the_disk_is_the_first_tile(page, url):
    page.goto(url + "/storage")
    tiles = page.locator("svg a")
    assert tiles.first.get_attribute("aria-label").startswith("orders: ")
    assert page.locator("svg .cell").count() == page.locator("#segments ~ .wide tbody tr").count()
    link = tiles.nth(1).get_attribute("href")
    assert link.endswith("/topics/%25odd%7Ctopic-_1")


def test_a_group_is_moved_back_an_hour(page, url, broker):
    page.goto(url + "/groups")
    page.click("text=billing")
    assert "Not read 0" in " ".join(page.inner_text(".figures").split())
    page.click("text=Show what would change")
    assert "30 messages would be read again" in page.inner_text("main")
    page.click("button:has-text('Move the group')")
    page.wait_for_url("**/groups/billing")
    with connect(broker.root, retry_timeout_s=60) as client:
        assert client.committed_offsets("billing") == {("orders", 0): 0, ("orders", 1): 0}


def test_a_dead_letter_is_read_and_sent_again_with_the_keyboard_alone(page, url, broker):
    page.goto(url + "/groups/workers/dead-letters")
    page.focus("tbody th a")
    page.keyboard.press("Enter")
    page.wait_for_url("**/dead-letters/0")
    assert '{"order": 17}' in page.inner_text("pre")
    page.focus("text=Send it again …")
    page.keyboard.press("Enter")
    page.get_by_text("Nothing was changed yet").wait_for()
    page.focus("text=Send them again")
    page.keyboard.press("Enter")
    assert "1 before, 0 now" in page.inner_text(".done")
    with connect(broker.root, retry_timeout_s=60) as client:
        assert client.admin.dead_letters("workers").letters[0].replays == 1


def test_names_that_are_markup_are_text(page, url):
    page.goto(url + "/groups")
    assert ODD_GROUP in page.inner_text("table")
    page.click(f"a:has-text({ODD_GROUP[:4]!r})")
    assert ODD_GROUP in page.inner_text("h1") and page.title() != "run"
    assert page.locator("main script").count() == 0


def test_an_open_group_page_goes_on_by_itself(page, url, broker):
    page.goto(url + "/groups/billing")
    with connect(broker.root, retry_timeout_s=60) as client:
        client.send("orders", b"one more", queue_id=0)
        lag = sum(one.lag for one in client.groups("billing"))
    playwright.expect(page.locator(".figures")).to_contain_text(f"{lag}", timeout=60_000)


@pytest.mark.parametrize("path", PATHS)
def test_every_page_is_readable_in_every_look(page, path):
    look_at(page, path, quote(path, safe=""))
