"""The pictures of docs/console.md, of a shop's broker: `make console-pictures` writes them."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from stratamq.client import connect
from tests.console.browser.conftest import ROOMS, SETTINGS, WIDTHS
from tests.support.brokers import Broker
from tests.support.waiting import until, until_dispatched, until_indexed

TARGET = os.environ.get("STRATAMQ_DOCS_PICTURES", "")
"""A directory: pictures are kept there."""
LARGEST_BYTES = 150_000
HEIGHT = 900
GOODS = ("lamp", "chair", "table", "shelf", "clock", "mirror")
PICTURES = (
    ("overview", "/", "light", "wide"),
    ("storage", "/storage", "light", "wide"),
    ("where", "/where?topic=orders&key=order-1017", "light", "wide"),
    ("group-dark", "/groups/billing", "dark", "wide"),
    ("messages-phone", "/messages?topic=orders", "light", "phone"),
)
"""Name, page, look, width."""


@pytest.fixture(scope="module")
def console(chromium, tmp_path_factory) -> Iterator[Broker]:
    place = tmp_path_factory.mktemp("pictures")
    settings = [one for one in SETTINGS if "segment_bytes" not in one]
    settings += ["commitlog.segment_bytes=262144", "commitlog.broker_name=shop"]
    with Broker(place / "store", place / "logs", settings) as broker:
        broker.start(ROOMS)
        with connect(broker.root, retry_timeout_s=60) as client:
            _sell(client)
        yield broker


@pytest.fixture
def busy(client, page) -> None:
    """Rates are there once metrics were read three times."""
    rate = page.locator(".figures div:has(dt:text-is('In'))")
    page.goto("/")
    for number in range(10_000):
        client.send("clicks", b"%d" % number, queue_id=number % 4)
        if number % 50 == 0 and number > 200 and "–" not in rate.inner_text():
            return
    raise AssertionError("no rate is shown")


def _sell(client) -> None:
    topics = {"orders": 900, "payments": 700, "shipments": 500, "clicks": 2_500, "returns": 60}
    with client.producer() as producer:
        for topic, count in topics.items():
            for number in range(1_000, 1_000 + count):
                good = GOODS[number % len(GOODS)]
                body = {"order": number, "item": good, "pieces": number % 3 + 1, "note": "x" * 200}
                producer.send(
                    topic,
                    json.dumps(body).encode(),
                    keys=[f"order-{number}"],
                    tag=good,
                    queue_id=number % 4,
                )
    until_dispatched(client)
    until_indexed(client)
    client.commit_offsets("billing", {("orders", queue): 180 + queue for queue in range(4)})
    client.commit_offsets("mail", {("orders", queue): 225 for queue in range(4)})
    client.commit_offsets("reports", {("clicks", queue): 300 for queue in range(4)})
    until(lambda: client.admin.storage_map().topics.topics == len(topics), "an estimate of all")


@pytest.mark.parametrize(("name", "path", "scheme", "width"), PICTURES)
@pytest.mark.usefixtures("busy")
def test_a_picture_of_the_page_is_small(page, tmp_path, name, path, scheme, width):
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": WIDTHS[width], "height": HEIGHT})
    page.goto(path)
    page.wait_for_load_state("load")
    assert page.locator("main h1").is_visible() and not page.locator("p.problem").count()
    take_picture(page, tmp_path, name)


def take_picture(page, place: Path, name: str) -> None:
    """Of what the window shows; kept only where the pictures are wanted."""
    target = Path(TARGET or place) / f"{name}.png"
    page.screenshot(path=target)
    assert 0 < target.stat().st_size < LARGEST_BYTES
