"""The overview and topics in a real Chromium: how they look, live parts, and each action."""

import re

from stratamq.client import Topic
from tests.console.browser.looks import look_at
from tests.support.waiting import until

HOSTILE = "a-Z_0%|%7C%25%2e"


def test_the_overview_looks_right_and_shows_what_arrives_by_itself(page, client):
    for number in range(50):
        client.send("orders", b"%d" % number)
    look_at(page, "/", "overview")
    page.goto("/")
    with page.expect_response(lambda answer: answer.request.headers.get("hx-request") == "true"):
        pass
    assert page.locator("#live h2").first.is_visible()


def test_topics_look_right(page, client):
    client.send("orders", b"x")
    until(lambda: client.queues("orders"), "dispatched")
    client.commit_offsets("billing", {("orders", 0): 0})
    client.admin.create_topic(Topic(HOSTILE))
    client.admin.create_topic(Topic("a" * 127))
    look_at(page, "/topics", "topics")
    look_at(page, "/topics/orders", "topic")


def test_typing_searches_without_a_button(page, client):
    for name in ("apple", "pear", "pineapple"):
        client.admin.create_topic(Topic(name))
    page.goto("/topics")
    page.get_by_label("Names that contain").type("apple")
    page.get_by_role("rowheader", name="pear", exact=True).wait_for(state="detached")
    names = page.locator("#found tbody th").all_inner_texts()
    assert names == ["apple", "pineapple"]
    assert "q=apple" in page.url


def test_a_topic_is_created_changed_purged_and_deleted(page, client):
    page.goto("/topics")
    if not page.get_by_label("Name", exact=True).is_visible():
        page.get_by_text("Create a topic").click()
    page.get_by_label("Name", exact=True).fill(HOSTILE + "2")
    page.get_by_role("button", name="Create").click()
    page.get_by_role("status").filter(has_text="was created").wait_for()
    assert page.locator("h1").inner_text() == HOSTILE + "2"
    page.get_by_label("Read queues").fill("7")
    page.get_by_role("button", name="Change").click()
    page.get_by_role("status").filter(has_text="was changed").wait_for()
    assert client.topics(HOSTILE + "2")[0].read_queue_count == 7
    for number in range(5):
        client.send(HOSTILE + "2", b"%d" % number, queue_id=0)
    until(lambda: client.queues(HOSTILE + "2")[0].max_offset == 5, "dispatched")
    page.reload()
    page.get_by_label("N", exact=True).fill("2")
    page.get_by_role("button", name="Show what goes").first.click()
    page.get_by_text(re.compile("^3 messages can no longer be consumed")).wait_for()
    page.get_by_role("button", name="Purge 3 messages").click()
    page.get_by_role("status").filter(has_text="were purged").wait_for()
    page.get_by_role("button", name="Show what goes").last.click()
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("status").filter(has_text="was deleted").wait_for()
    assert not client.topics(HOSTILE + "2")


def test_without_scripts_everything_works_but_what_is_live(chromium, page, client):
    client.admin.create_topic(Topic("plain"))
    page.goto("/")
    context = chromium.new_context(java_script_enabled=False)
    plain = context.new_page()
    plain.goto(f"{page.url}topics")
    plain.get_by_label("Names that contain").fill("plain")
    plain.get_by_role("button", name="Search").click()
    assert plain.locator("#found tbody th").all_inner_texts() == ["plain"]
    context.close()
