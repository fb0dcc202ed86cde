"""What each request passes: host names, sessions, tokens of forms, headers; what an error looks
like."""

import re

import pytest
from stratamq_console import parts
from stratamq_console.app import HERE
from stratamq_console.guards import POLICY
from stratamq_console.navigation import NAVIGATION
from stratamq_console.parts import LONGEST_ONCE, MAX_FORM_BYTES

from tests.console.pages import browsing, text_of


async def test_each_page_of_the_navigation_is_there_and_forbids_what_is_not_its_own(broker):
    async with browsing(broker.root) as browser:
        for item in NAVIGATION:
            page = await browser.get(item.path)
            assert page.status_code == 200, page.text
            assert page.headers["content-security-policy"] == POLICY
            assert page.headers["cache-control"] == "no-store"
            assert page.headers["x-content-type-options"] == "nosniff"
            assert 'aria-current="page"' in page.text
    assert "unsafe" not in POLICY


def test_no_template_has_a_script_a_style_or_something_of_another_host():
    """The policy would stop it in the browser; and the page would not work."""
    for path in sorted((HERE / "templates").glob("*.html")):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"<style|\sstyle=|\son\w+=|javascript:|https?://|\|\s*safe\b", text), (
            path
        )
        assert all(
            'src="{{ root }}/static/' in one for one in re.findall(r"<script[^>]*>", text)
        ), path


@pytest.mark.parametrize(
    "host", ["localhost:10980", "127.0.0.1:10980", "[::1]:10980", "console.lan"]
)
async def test_the_console_is_reached_by_its_own_names(broker, host):
    async with browsing(broker.root, host=host, hosts=("console.lan",)) as browser:
        assert (await browser.get("/")).status_code == 200


async def test_a_name_of_another_site_that_points_here_reads_nothing(broker):
    async with browsing(broker.root, host="evil.example:10980") as browser:
        page = await browser.get("/")
        assert page.status_code == 421
        assert "'evil.example'" in page.text and "console.hosts" in page.text


async def test_a_host_that_is_none_is_refused_as_another_name_is(broker):
    async with browsing(broker.root) as browser:
        assert (await browser.get("/", Host="[::1")).status_code == 421


async def test_a_form_without_the_token_of_its_session_changes_nothing(broker):
    """Every route that takes POST is asked."""
    async with browsing(broker.root) as browser:
        await browser.get("/")
        for form in ({}, {"csrf": "0" * 64}):
            page = await browser.http.post("/logout", data=form)
            assert page.status_code == 403
            assert "load its page again" in text_of(page)


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
async def test_a_page_of_another_site_or_port_sends_and_reads_nothing(broker, site):
    """Not even with the session's cookie and its token: cookies are for all ports of a host, and
    one that another port's page has set is known to it, with its token."""
    async with browsing(broker.root) as browser:
        await browser.get("/")
        form = {"csrf": browser.sessions.anonymous(browser.cookie).csrf}
        told = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
        page = await browser.http.post("/logout", data=form, headers=told)
        assert page.status_code == 403 and "another site" in page.text
        for mode, dest in (("navigate", "iframe"), ("no-cors", "image"), ("cors", "empty")):
            part = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": mode, "Sec-Fetch-Dest": dest}
            for path in ("/", "/live/events?topic=a", "/static/page.js"):
                assert (await browser.get(path, **part)).status_code == 403, (mode, path)
        assert (await browser.get("/", **told)).status_code == 200, "a link of another site"
        own = told | {"Sec-Fetch-Site": "same-origin"}
        assert (await browser.http.post("/logout", data=form, headers=own)).status_code == 303


async def test_two_consoles_of_a_host_have_cookies_of_their_own(broker):
    names = set()
    for host in ("127.0.0.1:10980", "127.0.0.1:8081", "127.0.0.1"):
        async with browsing(broker.root, host=host) as browser:
            await browser.get("/")
            names |= {browser.cookie_name} if browser.cookie else set()
    assert names == {"stratamq-console-10980", "stratamq-console-8081", "stratamq-console"}


async def test_a_sentence_that_names_what_was_typed_is_bounded(broker):
    async with browsing(broker.root) as browser:
        page = await browser.post("/topics", name="a", queues="9" * 100_000)
        assert page.status_code == 400 and len(page.text) < 10_000


async def test_a_user_does_not_fill_the_memory_with_forms(broker, client, monkeypatch):
    async with browsing(broker.root) as browser:
        await browser.get("/")
        page = await browser.post("/send", topic="a", once="x" * (LONGEST_ONCE + 1))
        assert page.status_code == 400 and "damaged" in text_of(page)
        monkeypatch.setattr(parts, "MAX_FORMS", 0)
        page = await browser.post("/send", topic="a")
        assert page.status_code == 503 and "wait for one of them" in text_of(page)


async def test_what_is_not_there_leads_back(broker):
    async with browsing(broker.root) as browser:
        page = await browser.get("/<script>alert(1)</script>")
        assert page.status_code == 404
        assert "<script>alert" not in page.text
        assert "/<script>alert(1)</script>" in text_of(page)
        assert (await browser.http.put("/")).status_code == 405


async def test_behind_a_proxy_all_links_begin_with_the_path(broker):
    async with browsing(broker.root, path="/console") as browser:
        page = await browser.get("/console/")
        assert page.status_code == 200
        links = re.findall(r'(?:href|src|action|hx-get)="(/[^"]*)"', page.text)
        assert links and all(one.startswith("/console/") for one in links)
        assert (await browser.get("/console")).headers["location"] == "/console/"
        for one in set(links):
            assert (await browser.get(one)).status_code == 200
        assert (await browser.get("/")).status_code == 200, "the console's own address works, too"
        assert (await browser.get("/consolette")).status_code == 404


async def test_an_error_of_the_console_shows_no_more_than_that(broker, monkeypatch):
    async with browsing(broker.root) as browser:
        monkeypatch.setattr(type(browser.own), "services", None)
        page = await browser.get("/")
        assert page.status_code == 500
        assert "its log has the reason" in text_of(page)
        assert "Traceback" not in page.text


async def test_of_a_form_no_more_is_read_than_one_can_have(broker):
    """Whatever its token is: it is in the form."""
    asked = 0

    async def chunks(count):
        nonlocal asked
        asked = 0
        yield b"csrf="
        for _ in range(count):
            asked += 1
            yield b"&a=" + b"x" * (1 << 20)

    form = {"Content-Type": "application/x-www-form-urlencoded"}
    async with browsing(broker.root) as browser:
        page = await browser.http.post("/send", content=chunks(64), headers=form)
        assert page.status_code == 403 and asked == 0, "it is of another site"
        await browser.get("/")
        page = await browser.http.post("/send", content=chunks(64), headers=form)
        assert page.status_code == 413 and asked <= MAX_FORM_BYTES >> 20
        assert f"at most {MAX_FORM_BYTES} bytes" in text_of(page)


async def test_a_form_has_no_files(broker):
    async with browsing(broker.root) as browser:
        await browser.get("/")
        page = await browser.http.post("/send", files={"body": b"x"})
        assert page.status_code == 400
