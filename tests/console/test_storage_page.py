"""The storage page over a real broker."""

import re
import time

import pytest
from stratamq_console.pages.storage import gather_storage

from stratamq.client import connect
from stratamq.rpc.questions import LONGEST_ANSWER_S
from tests.console.conftest import ROOMS
from tests.console.pages import browsing, text_of
from tests.support.brokers import COMMITLOG, DELIVERY, INDEX, Broker
from tests.support.freezing import freeze, thaw
from tests.support.waiting import until, until_dispatched, until_indexed

SEGMENT = 65536


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    place = tmp_path_factory.mktemp("storage")
    settings = [f"commitlog.segment_bytes={SEGMENT}", "ha.replication_address=127.0.0.1:0"]
    with Broker(place / "store", place / "logs", settings) as broker:
        yield broker.start(ROOMS)


async def test_an_empty_broker_says_what_to_type(tmp_path):
    with Broker(tmp_path / "store", tmp_path / "logs") as empty:
        async with browsing(empty.start([COMMITLOG]).root) as browser:
            page = await browser.get("/storage")
        assert page.status_code == 200
        assert "stratamq produce orders" in text_of(page)


async def test_it_shows_the_largest_topics_and_pages_segments(broker):
    with connect(broker.root, retry_timeout_s=60) as client:
        with client.producer() as producer:
            for number in range(75):
                producer.send("large", bytes(50_000))
                producer.send(f"topic-{number % 30}", bytes(50 + number), keys=[f"k{number}"])
        until_dispatched(client)
        until_indexed(client)
        shares = client.admin.storage_map
        until(lambda: shares().topics.others.queues, "the estimate is one of now")
        state = client.log_state()
    async with browsing(broker.root) as browser:
        view = await gather_storage(browser.own)
        assert view.topics[0].topic == "large"
        assert len(view.topics) == 21
        assert sum(map(view.share_of, view.topics)) == pytest.approx(1)
        assert view.found.problems == ()
        page = await browser.get("/storage")
        assert len(page.content) < 300_000
        assert f"{view.found.topics.topics - 20} others" in text_of(page)
        starts = [one.segment.start_offset for one in view.segments]
        following = view.following
        assert following and f"segment={following}" in page.text
        while following:
            rest = await gather_storage(browser.own, following)
            starts += [one.segment.start_offset for one in rest.segments]
            following = rest.following
        assert starts == list(range(0, state.appended_offset, SEGMENT))
        assert (await browser.get("/storage?segment=x")).status_code == 400


async def test_under_a_prefix_tiles_lead_to_topics_under_it(broker):
    async with browsing(broker.root, path="/console") as browser:
        page = await browser.get("/console/storage")
        links = re.findall(r'<a href="([^"]*)"', page.text)
        assert links
        assert all(one.startswith("/console/") for one in links)


async def test_without_a_janitor_the_rest_of_the_map_is_shown(broker):
    with connect(broker.root, retry_timeout_s=60) as client:
        client.send("orders", b"1")
    broker.kill("janitor")
    try:
        async with browsing(broker.root) as browser:
            page = await browser.get("/storage")
            assert page.status_code == 200
            assert "the janitor:" in text_of(page)
            assert "Topics by bytes" in text_of(page)
    finally:
        broker.start(["janitor"])


async def test_services_that_stand_still_are_waited_for_at_once_and_named(broker):
    with connect(broker.root, retry_timeout_s=60) as client:
        client.send("orders", b"1")
        until(lambda: not client.admin.storage_map().problems, "all services answer")
    still = [broker.pid(room) for room in (INDEX, "janitor", DELIVERY)]
    async with browsing(broker.root) as browser:
        await browser.get("/storage")  # its client is connected
        try:
            for pid in still:
                freeze(pid)
            began = time.monotonic()
            page = await browser.get("/storage")
            assert time.monotonic() - began < 2 * LONGEST_ANSWER_S, "one after the other"
        finally:
            for pid in still:
                thaw(pid)
    assert page.status_code == 200
    said = text_of(page)
    assert "the janitor:" in said and "the index:" in said
    assert "Topics by bytes" in said, "what answers is shown"
