"""Messages where authentication is on: a page does what its user's token permits, and no more."""

import pytest
from stratamq_console.matching import filter_of
from stratamq_console.parts import LONGEST_LOGGED
from stratamq_console.tailing import MAX_OF_A_USER, LiveTails

from stratamq.client import connect
from stratamq.errors import BusyError
from stratamq.files.clock import SystemClock
from tests.console.pages import text_of


async def test_who_may_produce_sends_and_does_not_read(guarded):
    async with guarded.browsing as browser:
        await browser.log_in(guarded.tokens["alice"])
        await browser.get("/send")
        done = await browser.post("/send", topic="orders", body="by alice", encoding="text")
        assert done.status_code == 200 and "Stored in orders" in text_of(done)
        for path in ("/messages?topic=orders", "/messages/orders/0/0", "/where?topic=orders&key=k"):
            assert (await browser.get(path)).status_code == 403, path
        other = await browser.post("/send", topic="others", body="x", encoding="text")
        assert other.status_code == 400 and "permission" in text_of(other)


async def test_nothing_is_shown_before_a_login(guarded):
    async with guarded.browsing as browser:
        for path in ("/messages?topic=orders", "/live/events?topic=orders", "/where"):
            page = await browser.get(path)
            assert (page.status_code, page.headers["location"][:9]) == (303, "/login?to"), path
        assert (await browser.http.post("/send", data={"topic": "orders"})).status_code == 401


async def test_who_may_send_to_no_topic_has_no_button_for_it(guarded):
    async with guarded.browsing as browser:
        await browser.log_in(guarded.tokens["reader"])
        page = await browser.get("/send?topic=orders")
        assert "<button>Send</button>" not in page.text and "may send to no topic" in text_of(page)
        refused = await browser.post("/send", topic="orders", body="x", encoding="text")
        assert refused.status_code == 400 and "reader may not produce" in refused.text


async def test_groups_that_a_user_may_not_see_are_not_said_to_be_none(guarded):
    with connect(guarded.broker.root) as client:
        client.send("orders", b"x", queue_id=0)
        client.commit_offsets("billing", {("orders", 0): 1})
    async with guarded.browsing as browser:
        await browser.log_in(guarded.tokens["reader"])
        page = text_of(await browser.get("/where?topic=orders&queue=0&offset=0"))
        assert "Groups not known: reader may not observe broker" in page
        assert "o group reads" not in page and "billing" not in page


async def test_who_consumes_for_a_group_alone_sees_where_it_is(guarded):
    with connect(guarded.broker.root) as client:
        client.send("orders", b"x", queue_id=0)
        client.commit_offsets("billing", {("orders", 0): 1})
    async with guarded.browsing as browser:
        await browser.log_in(guarded.tokens["biller"])
        page = await browser.get("/groups/billing")
        assert page.status_code == 200, text_of(page)
        assert "Loses messages not known" in text_of(page)
        assert "Dead letters not known" in text_of(page)
        for path in ("/groups/others", "/groups", "/messages?topic=orders"):
            assert (await browser.get(path)).status_code == 403, path


async def test_one_user_does_not_have_all_live_pages(guarded):
    tails = LiveTails(SystemClock())
    async with guarded.browsing as browser:
        await browser.log_in(guarded.tokens["reader"])
        session = browser.sessions.find(browser.cookie)
        begun = [
            tails.events(session.client, "orders", filter_of({}), "reader")
            for _ in range(MAX_OF_A_USER)
        ]
        for one in begun:
            await anext(one)
        with pytest.raises(BusyError, match="reader has 16"):
            tails.admit("reader")
        tails.admit("alice")
        for one in begun:
            await one.aclose()
        tails.admit("reader")
        assert not tails.of_user


async def test_a_change_is_logged_with_what_was_asked_and_no_body(guarded, caplog):
    caplog.set_level("INFO")
    async with guarded.browsing as browser:
        await browser.log_in(guarded.tokens["ops"])
        await browser.post("/groups/billing/reset", place="offset", value="7", confirmed="yes")
        await browser.post(
            "/send", topic="orders", body="a secret", properties="k=v", tag="t" * 999
        )
    reset, sent = [one for one in caplog.records if one.message == "action"][-2:]
    assert (reset.who, reset.path, reset.asked) == (
        *("ops", "/groups/billing/reset"),
        "place=offset value=7 confirmed=yes",
    )
    assert sent.asked == f"topic=orders tag={'t' * LONGEST_LOGGED}"
    assert guarded.tokens["ops"] not in "".join(str(vars(one)) for one in caplog.records)
