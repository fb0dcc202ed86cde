"""Messages, live tail and Where is it in a real Chromium: what a body does to a page, what a page
does with 5 000 messages a second, and with a broker that dies under it."""

import json
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from stratamq.client import connect
from tests.console.browser.looks import look_at
from tests.support.brokers import COMMITLOG, DELIVERY, DISPATCHER, INDEX, Broker
from tests.support.waiting import until, until_dispatched, until_indexed

playwright = pytest.importorskip("playwright.sync_api")

CONSOLE = "console"
ROOMS = (COMMITLOG, DISPATCHER, INDEX, DELIVERY, "janitor", CONSOLE)
SCRIPT = b"<script>document.title='run'</script><img src=x onerror=\"document.title='run'\">"
PATHS = (
    "/messages",
    "/messages?topic=orders",
    "/messages/orders/0/0",
    "/messages/orders/0/2",
    "/where?topic=orders&key=order-1",
    "/live?topic=orders",
    "/send?topic=orders",
)
SECONDS, RATE = 6, 5_000


@pytest.fixture(scope="module")
def broker(tmp_path_factory) -> Iterator[Broker]:
    place = tmp_path_factory.mktemp("chromium")
    with Broker(place / "store", place / "logs", ["console.http_address=127.0.0.1:0"]) as broker:
        broker.start(ROOMS)
        with connect(broker.root, retry_timeout_s=60) as client:
            order = json.dumps({"order": {"id": 1, "state": "paid"}}).encode()
            client.send("orders", order, tag="paid", keys=["order-1"], queue_id=0)
            client.send("orders", SCRIPT, tag="<i>", keys=["'\"><script>"], queue_id=0)
            client.send("orders", bytes(4 << 20), queue_id=0)
            client.commit_offsets("billing", {("orders", 0): 0})
            until_dispatched(client)
            until_indexed(client)
        yield broker


@pytest.fixture(scope="module")
def console(broker) -> Broker:
    return broker


def shows(page: Any, selector: str, text: str) -> None:
    playwright.expect(page.locator(selector)).to_contain_text(text, timeout=60_000)


def test_a_body_that_is_a_script_is_text(page, url):
    for path in (
        "/messages?topic=orders",
        "/messages/orders/0/1",
        "/where?topic=orders&queue=0&offset=1",
    ):
        page.goto(url + path)
        assert "<script>" in page.inner_text("main") and page.title() != "run"
        assert page.locator("main script, main img").count() == 0


def test_four_mebibytes_of_zeros_are_a_small_page(page, url):
    page.goto(url + "/messages/orders/0/2")
    assert len(page.content()) < 300_000
    assert "4.0 MiB" in page.inner_text("main")


def test_a_search_by_key_leads_to_the_message_and_to_its_life(page, url):
    page.goto(url + "/messages")
    page.fill("#topic", "orders")
    page.fill("#key", "order-1")
    page.click("text=Search")
    page.click("tbody a")
    assert "state" in page.inner_text(".json")
    page.click("text=Where is it?")
    assert "billing has not read it" in page.inner_text(".verdict")


def test_a_message_is_sent_and_a_selection_again(page, url, broker):
    page.goto(url + "/send?topic=typed")
    page.fill("#body", "by hand")
    page.click("button:has-text('Send')")
    page.click(".done a >> nth=0")
    assert "by hand" in page.inner_text("pre.body")
    page.goto(url + "/messages?topic=typed")
    page.check("input[name=at]")
    page.fill("#target", "copies")
    page.click("text=Show what that would do")
    assert "Send 1 message again?" in page.inner_text("h1")
    page.click("text=Send them to copies")
    assert "1 messages were sent" in page.inner_text(".done")
    with connect(broker.root, retry_timeout_s=60) as client:
        assert [one.body for one in client.consume("copies")] == [b"by hand"]


def test_times_are_the_readers_own(chromium, url):
    context = chromium.new_context(timezone_id="Asia/Tokyo")
    page = context.new_page()
    page.goto(url + "/messages/orders/0/0")
    time = page.locator("main time").first
    assert time.get_attribute("title").endswith("UTC")
    assert time.inner_text() != time.get_attribute("title").removesuffix(" UTC")
    context.close()


def test_a_live_page_of_5000_messages_a_second_stays_small(page, url, broker):
    page.goto(url + "/live?topic=orders")
    shows(page, "#tail-state", "Live: new")
    with connect(broker.root, retry_timeout_s=60) as client, client.producer() as producer:
        for second in range(SECONDS):
            for number in range(RATE):
                producer.send("orders", b"%d" % (second * RATE + number), queue_id=number % 4)
            producer.flush()
            if second == 1:
                held = resident_bytes(broker)
    shows(page, "#tail-seen", "30,000")
    rows = page.locator("#tail tbody tr").count()
    left_out = int("".join(filter(str.isdigit, page.inner_text("#tail-left-out"))))
    assert 0 < rows <= 200 and left_out >= SECONDS * RATE - 20 * 60
    assert resident_bytes(broker) - held < 30 << 20
    page.click("#pause")
    assert "Paused" in page.inner_text("#tail-state")


def resident_bytes(broker) -> int:
    """Of the console's process."""
    pages = Path(f"/proc/{broker.pid(CONSOLE)}/statm").read_text().split()[1]
    return int(pages) * resource.getpagesize()


def test_a_live_page_survives_its_broker(chromium, url, broker):
    context = chromium.new_context()
    page = context.new_page()
    page.goto(url + "/live?topic=orders")
    shows(page, "#tail-state", "Live: new")
    broker.kill(DISPATCHER)
    shows(page, "#tail-state", "does not respond")
    broker.start((DISPATCHER,))
    with connect(broker.root, retry_timeout_s=60) as client:
        until(lambda: client.send("orders", b"after the fall", queue_id=0), "a message is stored")
    shows(page, "#tail", "after the fall")
    context.close()


@pytest.mark.parametrize("path", PATHS)
def test_every_page_is_readable_in_every_look(page, path):
    look_at(page, path, quote(path, safe=""))
