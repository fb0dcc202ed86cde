"""Where authentication is on: who logs in sees and does what the token permits."""

import asyncio
import time
from urllib.parse import parse_qs, urlsplit

import pytest
from stratamq_console.sessions import LIMIT, ConsoleSession

from stratamq.client import AsyncClient
from stratamq.rpc.permission_file import Permissions, dump
from stratamq.service.caller import Caller
from tests.console.pages import text_of

DEADLINE_S = 60


async def test_without_a_login_every_page_leads_there(guarded):
    async with guarded.browsing as browser:
        page = await browser.get("/?a=b")
        assert page.status_code == 303
        assert page.headers["location"] == "/login?to=%2F%3Fa%3Db"
        part = await browser.get("/", **{"HX-Request": "true"})
        assert part.status_code == 401 and part.headers["hx-redirect"].startswith("/login")
        assert (await browser.http.post("/anything")).status_code == 401
        assert "Overview" not in (await browser.get("/login")).text


async def test_a_user_logs_in_with_a_token_and_out_again(guarded):
    async with guarded.browsing as browser:
        done = await browser.log_in(guarded.tokens["ops"])
        assert (done.status_code, done.headers["location"]) == (303, "/")
        cookie = done.headers["set-cookie"]
        assert "HttpOnly" in cookie and "SameSite=Strict" in cookie
        page = await browser.get("/")
        assert page.status_code == 200 and "ops" in text_of(page)
        assert guarded.tokens["ops"] not in page.text
        assert (await browser.post("/logout")).headers["location"] == "/login"
        assert (await browser.get("/")).status_code == 303, "the cookie is good no more"


@pytest.mark.parametrize("token", ["", "wrong"])
async def test_a_wrong_token_says_so_and_a_line_is_written(guarded, token, caplog):
    async with guarded.browsing as browser:
        page = await browser.log_in(token)
        assert page.status_code == 401
        assert 'role="alert"' in page.text
        assert (await browser.get("/")).status_code == 303
        assert [one.message for one in caplog.records if one.name == "stratamq.audit"] == [
            "refused"
        ]


async def test_what_a_user_may_not_see_is_told_as_the_service_tells_it(guarded):
    async with guarded.browsing as browser:
        await browser.log_in(guarded.tokens["alice"])
        page = await browser.get("/")
        assert page.status_code == 200
        assert "alice may not observe broker" in text_of(page)


async def test_the_services_metrics_are_for_those_who_may_observe(guarded):
    """The console reads them with a right of its own."""
    async with guarded.browsing as browser:
        browser.history.add(
            {"commitlog_flush_failed": 1.0, 'dispatcher_group_lag_messages{group="secret"}': 7.0}
        )
        await browser.log_in(guarded.tokens["ops"])
        page = await browser.get("/")
        assert "secret : 7 messages" in text_of(page) and "StrataMQFlushFailed" in page.text
        await browser.log_in(guarded.tokens["alice"])
        page = await browser.get("/")
        for hidden in ("secret", "StrataMQFlushFailed", "<svg", "Groups behind"):
            assert hidden not in page.text, hidden
        assert "users who may observe" in text_of(page)


async def test_a_token_that_is_taken_away_counts_no_more(guarded):
    async with guarded.browsing as browser:
        content = guarded.file.read_bytes()
        await browser.log_in(guarded.tokens["ops"])
        assert (await browser.get("/")).status_code == 200
        guarded.file.write_bytes(dump(Permissions()))
        try:
            deadline = time.monotonic() + DEADLINE_S
            while (await browser.get("/")).status_code != 303:
                assert time.monotonic() < deadline, "the token is taken still"
                await asyncio.sleep(0.05)
        finally:
            guarded.file.write_bytes(content)


async def test_a_login_leads_on_to_pages_of_the_console_alone(guarded):
    async with guarded.browsing as browser:
        for to in ("//evil.example/", "https://evil.example/", "/\\evil.example", "/a\r\nb"):
            await browser.get("/login")
            done = await browser.post("/login", token=guarded.tokens["ops"], to=to)
            assert done.headers["location"] == "/", to


async def test_a_session_ends_when_nobody_uses_it_or_others_need_its_place(guarded):
    async with guarded.browsing as browser:
        await browser.log_in(guarded.tokens["ops"])
        first = browser.cookie
        session = browser.sessions.find(first)
        assert isinstance(session, ConsoleSession) and isinstance(session.client, AsyncClient)
        session.used_ns -= 61 * 60 * 1_000_000_000
        assert browser.sessions.find(first) is None, "not used for an hour"
        assert session.caller is not None
        await browser.sessions.begin(session.caller, guarded.tokens["ops"])
        assert len(browser.sessions) == 1, "a login ends those that are idle"
        for _ in range(LIMIT):
            await browser.sessions.begin(session.caller, guarded.tokens["ops"])
        assert len(browser.sessions) == LIMIT


async def test_the_logins_of_one_user_end_no_session_of_another(guarded):
    async with guarded.browsing as browser:
        await browser.log_in(guarded.tokens["ops"])
        first, origin = browser.cookie, Caller("127.0.0.1", 5000)
        for _ in range(LIMIT + 10):
            await browser.sessions.begin(origin, guarded.tokens["alice"])
        assert browser.sessions.find(first) is not None
        assert len(browser.sessions) == LIMIT


async def test_a_login_leads_back_to_a_name_with_percent_signs(guarded):
    async with guarded.browsing as browser:
        page = await browser.get("/topics/%25RETRY%25billing?done=x")
        assert page.headers["location"] == "/login?to=%2Ftopics%2F%2525RETRY%2525billing%3Fdone%3Dx"
        await browser.get("/login")
        to = parse_qs(urlsplit(page.headers["location"]).query)["to"][0]
        done = await browser.post("/login", token=guarded.tokens["ops"], to=to)
        assert done.headers["location"] == "/topics/%25RETRY%25billing?done=x"
