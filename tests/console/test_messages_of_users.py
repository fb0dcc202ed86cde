"""Messages where authentication is on: a page does what its user's token permits, and no more."""

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
