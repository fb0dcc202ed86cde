"""Live tail: new messages as events, sampled where there are too many, and no group."""

import json

import pytest
from stratamq_console.matching import filter_of
from stratamq_console.tailing import MAX_TAILS, ROWS, LiveTails, TailSample

from stratamq.client import Topic, connect_async
from stratamq.errors import BusyError
from stratamq.files.clock import SystemClock
from tests.console.frames import received
from tests.console.pages import browsing, text_of


async def next_event(events) -> tuple[str, dict]:
    """The next event that is not a comment."""
    async for raw in events:
        lines = raw.decode().splitlines()
        if lines[0].startswith("event: "):
            return lines[0].removeprefix("event: "), json.loads(lines[1].removeprefix("data: "))
    raise AssertionError("the events ended")


async def test_new_messages_come_and_older_ones_do_not(broker):
    async with connect_async(broker.root, retry_timeout_s=60) as client:
        await client.send("tailed", b"before")
        tails = LiveTails(SystemClock())
        events = tails.events(client, "tailed", filter_of({"tag": "paid"}))
        assert (await next_event(events))[0] == "open"
        await client.send("tailed", b"other", tag="open")
        await client.send("tailed", b"after", tag="paid")
        name, document = await next_event(events)
        assert name == "messages" and [row["body"] for row in document["rows"]] == ["after"]
        assert tails.open == 1 and await client.groups() == []
        await events.aclose()
        assert tails.open == 0


async def test_of_many_messages_the_newest_are_shown_and_all_are_counted(broker):
    async with connect_async(broker.root, retry_timeout_s=60) as client:
        await client.send("flood", b"first")
        events = LiveTails(SystemClock()).events(client, "flood", filter_of({}))
        await next_event(events)
        async with client.producer() as producer:
            for number in range(5_000):
                await producer.send("flood", b"%d" % number)
        seen = shown = left_out = 0
        while seen < 5_000:
            _, document = await next_event(events)
            assert len(document["rows"]) <= ROWS and len(json.dumps(document)) < 16_000
            seen += document["seen"]
            shown += len(document["rows"])
            left_out += document["left_out"]
        assert (seen, shown + left_out) == (5_000, 5_000)
        await events.aclose()


async def test_messages_of_queues_that_are_new_come_too(broker):
    async with connect_async(broker.root, retry_timeout_s=60) as client:
        await client.admin.create_topic(Topic("widened", 1, 1))
        await client.send("widened", b"before", queue_id=0)
        events = LiveTails(SystemClock()).events(client, "widened", filter_of({}))
        await next_event(events)
        await client.admin.alter_topic("widened", read_queue_count=2, write_queue_count=2)
        await client.send("widened", b"after", queue_id=1)
        _, document = await next_event(events)
        assert [(row["queue"], row["body"]) for row in document["rows"]] == [(1, "after")]
        await events.aclose()


def test_a_sample_keeps_the_newest_rows_of_all_queues():
    sample, wanted = TailSample(), filter_of({"tag": "a"})
    for queue in (1, 0):  # one queue after another, as they are read
        for number in range(queue, 100, 2):
            tag = "a" if number % 4 < 2 else "b"
            sample.take(received(b"%d" % number, tag=tag, physical_offset=100 * number), wanted)
    given = sample.document()
    assert (given["seen"], given["matched"], given["left_out"]) == (100, 50, 50 - ROWS)
    bodies = [int(row["body"]) for row in given["rows"]]
    assert bodies == [number for number in range(100) if number % 4 < 2][-ROWS:]


def test_so_many_live_pages_and_no_more():
    tails = LiveTails(SystemClock())
    tails.open = MAX_TAILS
    with pytest.raises(BusyError):
        tails.admit()


async def test_live_pages_that_come_at_once_are_as_many(broker):
    """All are admitted before the first of them is open."""
    async with connect_async(broker.root, retry_timeout_s=60) as client:
        await client.send("crowded", b"x")
        tails = LiveTails(SystemClock())
        tails.open = MAX_TAILS - 1
        tails.admit()
        tails.admit()
        first, second = (tails.events(client, "crowded", filter_of({})) for _ in range(2))
        assert (await next_event(first))[0] == "open"
        name, document = await next_event(second)
        assert name == "failed" and "close one" in document["why"]
        await second.aclose()
        assert tails.open == MAX_TAILS
        await first.aclose()


async def test_the_page_needs_no_script_to_say_what_does_the_same(broker, client):
    client.send("shown", b"x")
    async with browsing(broker.root) as browser:
        text = text_of(await browser.get("/live?topic=shown&tag=paid"))
        assert "stratamq consume shown --offset latest --follow --tag 'paid'" in text
        assert "whole" not in text_of(await browser.get("/live"))
