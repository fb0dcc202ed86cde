"""Topics in the console: listed in pages, searched, described; created, altered, purged and deleted
as on the command line, after their counts were shown."""

import re

import pytest
from stratamq_console.topic_views import PAGE_TOPICS, gather_topic, gather_topics

from stratamq.client import MessageType, Topic
from stratamq.errors import NotFoundError
from tests.console.pages import browsing, text_of
from tests.support.waiting import until

HOSTILE = "a-Z_0%|%7C%25%2e"
"""Every kind of character that a topic's name may have."""
FIELDS = re.compile(r'name="(queue-\d+)" value="([^"]+)"')


def stored(client, topic: str, count: int) -> None:
    for number in range(count):
        client.send(topic, b"%d" % number, queue_id=0)
    until(
        lambda: client.queues(topic) and client.queues(topic)[0].max_offset == count, "dispatched"
    )


async def test_the_list_goes_on_page_by_page_and_finds_what_a_name_contains(broker, client):
    names = {f"many-{number:03}" for number in range(PAGE_TOPICS + 10)}
    for name in sorted(names):
        client.admin.create_topic(Topic(name))
    async with browsing(broker.root) as browser:
        first = await gather_topics(browser.own, "MANY-")
        rest = await gather_topics(browser.own, "MANY-", first.next_position)
        assert len(first.topics) == PAGE_TOPICS and not rest.next_position
        assert {one.name for one in (*first.topics, *rest.topics)} == names
        page = await browser.get("/topics?q=many-01")
        assert page.text.count('<th scope="row"') == 10
        assert "stratamq topics list --contains many-01" in text_of(page)
        assert "No topic contains" in text_of(await browser.get("/topics?q=nowhere"))
        assert (await browser.get("/topics?at=x")).status_code == 400


async def test_a_topic_is_described_with_its_queues_and_groups(broker, client):
    stored(client, "described", 5)
    client.commit_offsets("billing", {("described", 0): 2})
    async with browsing(broker.root) as browser:
        view = await gather_topic(browser.own, "described", client.log_state().store_time_ms)
        (queue,) = view.queues
        assert (view.messages, queue.minute) == (5, 5)
        assert queue.oldest_ms and queue.oldest_ms <= queue.queue.newest_store_timestamp_ms
        assert [(one.name, one.lag) for one in view.groups] == [("billing", 3)]
        text = text_of(await browser.get("/topics/described"))
        assert "billing" in text and "stratamq topics describe described" in text
        with pytest.raises(NotFoundError):
            await gather_topic(browser.own, "no-such", 0)
        assert (await browser.get("/topics/no-such")).status_code == 404


async def test_a_name_of_every_allowed_character_leads_to_its_topic(broker, client):
    async with browsing(broker.root) as browser:
        made = await browser.post("/topics", name=HOSTILE, queues="2", permission="6", type="")
        assert made.status_code == 303
        page = await browser.get(made.headers["location"])
        assert page.status_code == 200 and f"<h1>{HOSTILE}</h1>" in page.text
        assert "was created" in text_of(page)
        listed = await browser.get(f"/topics?q={HOSTILE[:8].replace('%', '%25')}")
        (link,) = re.findall(r'<a href="(/topics/[^"]+)">', listed.text)
        assert f"<h1>{HOSTILE}</h1>" in (await browser.get(link)).text


async def test_a_topic_is_created_and_altered(broker, client):
    async with browsing(broker.root) as browser:
        fields = {"name": "made", "queues": "3", "permission": "6", "type": "FIFO"}
        assert (await browser.post("/topics", **fields, ordered="yes")).status_code == 303
        (topic,) = client.topics("made")
        assert (topic.read_queue_count, topic.ordered) == (3, True)
        assert topic.message_type is MessageType.FIFO
        again = await browser.post("/topics", **fields)
        assert again.status_code == 400 and "made" in text_of(again)
        changed = {"read_queues": "5", "write_queues": "4", "permission": "4", "type": "MIXED"}
        assert (await browser.post("/topics/made/alter", **changed)).status_code == 303
        (topic,) = client.topics("made")
        assert (topic.read_queue_count, topic.write_queue_count, topic.permission) == (5, 4, 4)
        assert (topic.ordered, topic.message_type) == (False, MessageType.MIXED)
        for wrong in ({"queues": "-1"}, {"queues": "many"}, {"permission": "x"}, {"type": "EGG"}):
            bad = await browser.post("/topics", **(fields | {"name": "wrong"} | wrong))
            assert bad.status_code == 400, wrong


async def test_a_purge_takes_exactly_what_was_shown(broker, client):
    stored(client, "purged", 10)
    async with browsing(broker.root) as browser:
        shown = await browser.post("/topics/purged/purge", kind="keep", value="4")
        text = text_of(shown)
        assert shown.status_code == 200 and "6 messages can no longer be consumed" in text
        assert "stratamq topics purge purged --before -4" in text
        assert client.queues("purged")[0].min_offset == 0, "a dry run changes nothing"
        stored_more = client.send("purged", b"late", queue_id=0)
        plan = dict(FIELDS.findall(shown.text))
        assert plan == {"queue-0": "0-6"}
        done = await browser.post("/topics/purged/purge", confirmed="yes", **plan)
        assert done.status_code == 303
        until(lambda: client.queues("purged")[0].min_offset == 6, "the messages are hidden")
        assert stored_more.queue_offset == 10
        nothing = await browser.post("/topics/purged/purge", kind="offset", value="0")
        assert "nothing before that" in text_of(nothing)
        assert (await browser.post("/topics/purged/purge", kind="time")).status_code == 400
        assert (await browser.post("/topics/purged/purge", confirmed="yes")).status_code == 400


@pytest.mark.parametrize(
    ("time", "shown"),
    [
        ("2026-11-28T04:00", "@2026-11-28T04:00:00Z"),
        ("2026-11-28T04:00+02:00", "@2026-11-28T02:00:00Z"),
        ("0001-01-01T00:00+14:00", ""),
    ],
)
async def test_a_purge_counts_a_time_in_the_zone_that_was_typed(broker, client, time, shown):
    if not client.topics("zoned"):
        stored(client, "zoned", 1)
    async with browsing(broker.root) as browser:
        page = await browser.post("/topics/zoned/purge", kind="time", time=time)
        assert page.status_code == (200 if shown else 400)
        assert (f"--before {shown}" if shown else "the time is none") in text_of(page)


async def test_a_topic_is_deleted_after_its_counts_were_shown(broker, client):
    stored(client, "gone", 3)
    client.commit_offsets("reads-gone", {("gone", 0): 1})
    async with browsing(broker.root) as browser:
        shown = text_of(await browser.post("/topics/gone/delete"))
        assert "3 messages in 1 queues" in shown and "reads-gone" in shown
        assert client.topics("gone")
        done = await browser.post("/topics/gone/delete", confirmed="yes")
        assert done.headers["location"] == "/topics?done=deleted"
        assert not client.topics("gone")


async def test_every_change_is_a_line_of_the_consoles_log(broker, client, caplog):
    async with browsing(broker.root) as browser:
        with caplog.at_level("INFO", "stratamq_console.parts"):
            await browser.post("/topics", name="logged", queues="1", permission="6", type="")
        (line,) = [one for one in caplog.records if one.message == "action"]
        assert line.path == "/topics"


async def test_no_form_is_taken_without_its_token(broker, client):
    client.admin.create_topic(Topic("guarded"))
    async with browsing(broker.root) as browser:
        for action in ("alter", "purge", "delete"):
            path = f"/topics/guarded/{action}"
            refused = await browser.http.post(path, data={"confirmed": "yes"})
            assert refused.status_code == 403
        assert client.topics("guarded")
