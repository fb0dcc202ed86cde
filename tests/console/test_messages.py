"""The pages of messages: lists, one message, downloads, sending, sending again, where it is."""

import json
import re
from datetime import timedelta

import pytest
from stratamq_console.pages.messages import MAX_DOWNLOADS, PIECE_BYTES, Downloads
from stratamq_console.showing import moment

from stratamq.client import connect
from stratamq.errors import BusyError
from stratamq.formats.properties import TIMER_OUT_MS
from stratamq.formats.topics import TIMER_TOPIC
from tests.cli.processes import stratamq
from tests.console.pages import browsing, text_of
from tests.support.waiting import until_dispatched, until_indexed

SCRIPT = b"<script>alert(1)</script><img src=x onerror=alert(2)>"
NAME = "%DLQ%a-B_9|x"
ONCE = re.compile(r'name="once" value="([0-9a-f]+)"')


@pytest.fixture(scope="module")
def orders(broker):
    with connect(broker.root, retry_timeout_s=60) as client:
        result = client.send(
            "orders", b'{"id": 1}', tag="paid", keys=["order-1"], properties={"region": "north"},
            queue_id=0,
        )  # fmt: skip
        client.send("orders", SCRIPT, tag="<i>", keys=["'\"><script>"], queue_id=0)
        client.send("orders", bytes(4 << 20), queue_id=1)
        client.send(NAME, b"odd")
        client.commit_offsets("billing", {("orders", 0): 0})
        until_dispatched(client)
        until_indexed(client)
    return result


async def test_a_list_shows_the_newest_first_and_what_it_looked_at(broker, orders):
    async with browsing(broker.root) as browser:
        page = await browser.get("/messages?topic=orders")
        text = text_of(page)
        assert page.status_code == 200 and len(page.content) < 300_000
        assert "Looked at the newest 3 messages of 2 queues." in text
        assert page.text.index("/messages/orders/1/0") < page.text.index("/messages/orders/0/0")
        assert "stratamq consume orders --offset -50" in text


async def test_nothing_that_a_message_holds_becomes_markup(broker, orders):
    async with browsing(broker.root) as browser:
        for path in (
            "/messages?topic=orders",
            "/messages/orders/0/1",
            "/where?topic=orders&queue=0&offset=1",
        ):
            page = await browser.get(path)
            assert page.status_code == 200
            assert "<script>alert" not in page.text and "<img src=x" not in page.text
            assert "&lt;script&gt;" in page.text


async def test_a_message_is_shown_as_json_text_properties_and_bytes(broker, orders):
    async with browsing(broker.root) as browser:
        text = text_of(await browser.get("/messages/orders/0/0"))
        assert "region north" in text and "id : 1" in text and "QUEUEOFFSET" in text
        zeros = await browser.get("/messages/orders/1/0")
        assert zeros.status_code == 200 and len(zeros.content) < 300_000
        assert "more bytes are not shown" in text_of(zeros)


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/messages/orders/0/99", 404),
        ("/messages/orders/x/1", 400),
        ("/messages/unknown/0/0", 404),
        ("/messages?topic=unknown", 404),
        ("/messages?topic=orders&place=x", 400),
        ("/messages?topic=orders&offset=5", 400),
        ("/messages?topic=orders&from=yesterday", 400),
        ("/messages?topic=orders&json=a..b", 400),
        ("/messages?topic=unknown&key=order-1", 404),
        ("/messages?key=order-1", 400),
        ("/where?topic=orders", 400),
        ("/where?id=nonsense", 400),
        ("/where?topic=orders&key=unknown", 404),
        ("/live?topic=unknown", 404),
    ],
)
async def test_what_is_not_there_and_what_makes_no_sense_is_said(broker, orders, path, status):
    async with browsing(broker.root) as browser:
        assert (await browser.get(path)).status_code == status


async def test_every_page_is_there_for_a_name_with_every_character(broker, orders):
    async with browsing(broker.root) as browser:
        page = await browser.get("/messages?topic=%25DLQ%25a-B_9%7Cx")
        link = next(one for one in page.text.split('"') if one.startswith("/messages/%25DLQ"))
        assert text_of(await browser.get(link)).count(NAME)


async def test_a_download_is_what_produce_takes_back(broker, orders, tmp_path):
    async with browsing(broker.root) as browser:
        await browser.get("/messages")
        given = {"topic": "orders", "at": ["0.0", "0.1"]}
        page = await browser.post("/messages/selected", **given)
        assert (await browser.post("/messages/selected", topic="orders")).status_code == 400
        gone = await browser.post("/messages/selected", topic="orders", at="0.99")
        assert gone.status_code == 404
    assert "attachment" in page.headers["content-disposition"]
    rows = [json.loads(line) for line in page.text.splitlines()]
    assert [row["queueOffset"] for row in rows] == [0, 1]
    file = tmp_path / "selected.jsonl"
    file.write_text(page.text)
    arguments = ("produce", "copies", "--format", "json", "--file", str(file))
    assert stratamq(*arguments, data=broker.root).returncode == 0
    with connect(broker.root, retry_timeout_s=60) as client:
        until_dispatched(client)
        copies = list(client.consume("copies"))
    assert {one.body for one in copies} == {b'{"id": 1}', SCRIPT}
    assert {one.tag for one in copies} == {"paid", "<i>"}


async def test_of_downloads_a_user_has_so_many_and_each_comes_in_pieces(broker, client):
    """One that is read slowly holds no more than a piece, beside its message."""
    large = client.send("large", b"x" * 1_000_000, queue_id=0)
    until_dispatched(client)
    message = client.message_at(large.physical_offset)
    downloads, pieces = Downloads(), []

    async def one():
        yield message

    async def send(event):
        pieces.append(event.get("body", b""))

    begun = [downloads.lines("alice", one(), "a") for _ in range(MAX_DOWNLOADS)]
    with pytest.raises(BusyError, match="wait for one"):
        downloads.lines("alice", one(), "a")
    downloads.lines("bob", one(), "b")
    await begun[0]({"type": "http", "asgi": {"spec_version": "2.4"}}, None, send)
    assert max(map(len, pieces)) <= PIECE_BYTES
    assert json.loads(b"".join(pieces))["queueOffset"] == 0
    downloads.lines("alice", one(), "a")


async def test_a_message_is_sent_by_hand(broker, client, orders):
    async with browsing(broker.root) as browser:
        await browser.get("/send")
        page = await browser.post(
            "/send", topic="typed", body="a\r\nb", encoding="text", keys="k1 k2", tag="t",
            properties="region=south", queue="2",
        )  # fmt: skip
        assert "queue 2, offset 0" in text_of(page)
        (message,) = client.consume("typed")
        assert (message.body, message.keys, message.tag) == (b"a\nb", ["k1", "k2"], "t")
        assert message.properties["region"] == "south"
        refused = await browser.post("/send", topic="typed", body="zz", encoding="hex")
        assert refused.status_code == 400 and "not valid hex" in text_of(refused)
        assert 'name="topic" value="typed"' in refused.text, "what was typed stays"


async def test_a_selection_is_sent_again_after_a_dry_run(broker, client, orders):
    async with browsing(broker.root) as browser:
        await browser.get("/messages")
        given = {"topic": "orders", "target": "again", "at": ["0.0", "0.1"]}
        plan = await browser.post("/resend/plan", **given)
        assert "Send 2 messages again?" in text_of(plan)
        assert "There is no topic again" in text_of(plan)
        assert client.topics("again") == []
        done = await browser.post("/resend", **given)
        assert done.headers["location"] == "/messages?topic=again&sent=2"
        until_dispatched(client)
        copies = {one.body: one for one in client.consume("again")}
        assert set(copies) == {b'{"id": 1}', SCRIPT}
        assert copies[b'{"id": 1}'].keys == ["order-1"]
        assert copies[b'{"id": 1}'].properties["region"] == "north"
        assert "2 messages were sent" in text_of(await browser.get(done.headers["location"]))


async def test_a_form_that_comes_twice_sends_once_and_says_so(broker, client, orders):
    """As with a double click, or a page that is loaded again."""
    async with browsing(broker.root) as browser:
        once = ONCE.search((await browser.get("/send")).text)[1]
        for path, topic, fields in (
            ("/send", "twice", {"topic": "twice", "body": "x"}),
            ("/resend", "twice-again", {"topic": "orders", "target": "twice-again", "at": "0.0"}),
        ):
            given = {**fields, "once": path[1:] + once, "encoding": "text"}
            assert (await browser.post(path, **given)).status_code < 400
            again = await browser.post(path, **given)
            assert again.status_code == 400 and "was sent before" in text_of(again)
            assert (await browser.post(path, **{**given, "once": f"{path}2"})).status_code < 400
            until_dispatched(client)
            assert len(list(client.consume(topic))) == 2


async def test_a_delayed_message_is_found_by_its_key(broker, client, orders):
    client.send("orders", b"later", keys=["order-later"], delay=timedelta(hours=1))
    until_dispatched(client)
    until_indexed(client)
    async with browsing(broker.root) as browser:
        page = text_of(await browser.get("/where?topic=orders&key=order-later"))
        assert "Stored, waiting for its delivery to orders on " in page
        assert (await browser.get("/where?topic=others&key=order-later")).status_code == 404
        (waiting,) = (await browser.own.query_key(TIMER_TOPIC, "order-later")).messages
        place = f"/messages/{TIMER_TOPIC}/{waiting.queue_id}/{waiting.queue_offset}"
        shown = await browser.get(place)
        assert "<title>orders, waits for its delivery – StrataMQ</title>" in shown.text
        assert "orders, waits for its delivery" in text_of(shown)
        assert moment(int(waiting.properties[TIMER_OUT_MS])) in shown.text
        listed = text_of(await browser.get("/messages?topic=orders&key=order-later"))
        assert "One that waits for its delivery is not in the topic yet" in listed
    found = stratamq("where", "key", "orders", "order-later", data=broker.root)
    assert found.stdout.startswith(b"stored, waiting for its delivery to orders on ")


async def test_a_change_needs_the_token_of_its_session(broker, orders):
    async with browsing(broker.root) as browser:
        for path in ("/send", "/resend", "/resend/plan"):
            fields = {"topic": "forged", "target": "forged", "at": "0.0", "body": "x"}
            assert (await browser.http.post(path, data=fields)).status_code == 403
        assert await browser.own.topics("forged") == []


async def test_where_is_it_begins_with_a_verdict(broker, orders):
    async with browsing(broker.root) as browser:
        for query in (
            "topic=orders&key=order-1",
            "topic=orders&queue=0&offset=0",
            f"id={orders.message_id}",
            f"at={orders.physical_offset}",
        ):
            text = text_of(await browser.get(f"/where?{query}"))
            assert "Stored, readable, billing has not read it, kept: its segment" in text
            assert "stratamq where" in text and "PROPERTIESLENGTH" in text
        assert "whole life" in text_of(await browser.get("/where"))


async def test_a_purged_message_is_placed_but_not_shown(broker, client):
    client.send("purged", b"secret words", queue_id=0)
    client.send("purged", b"kept", queue_id=0)
    until_dispatched(client)
    client.admin.purge_topic("purged", client.admin.plan_purge("purged", 1))
    async with browsing(broker.root) as browser:
        while (await browser.get("/messages/purged/0/0")).status_code != 404:
            pass
        page = await browser.get("/where?topic=purged&queue=0&offset=0")
        assert "Hidden from consumers" in text_of(page) or "hidden from consumers" in text_of(page)
        assert "secret words" not in page.text
