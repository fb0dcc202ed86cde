"""The pages through a front: who asks is whom the front names, and never this machine by itself."""

import re

import pytest
from stratamq_console.fronting import OTHERS_MACHINE

from stratamq.service.caller import NO_HOST, Caller
from stratamq.service.grpc_callers import DELEGATED, delegation_text
from tests.console.pages import browsing, text_of

NEAR, FAR = Caller("127.0.0.1", 5000), Caller("192.0.2.7", 5000)
FAR_WITH_TLS = FAR._replace(encrypted=True)
PORT = "127.0.0.1:8081"


def through(guarded, caller: Caller):
    return browsing(guarded.broker.root, guarded.file, PORT, caller)


@pytest.mark.parametrize("caller", [FAR, FAR_WITH_TLS, Caller(NO_HOST), Caller("fd00::1")])
async def test_a_stranger_is_not_of_this_machine_because_the_front_is(broker, caller):
    async with browsing(broker.root, host=PORT, caller=caller) as browser:
        for path in ("/console/", "/console/login", "/console/static/style.css", "/"):
            page = await browser.get(path)
            assert (page.status_code, page.text) == (403, OTHERS_MACHINE)
        assert (await browser.http.post("/console/topics")).status_code == 403


async def test_a_browser_of_this_machine_has_the_pages_under_their_prefix(broker):
    async with browsing(broker.root, host=PORT, caller=NEAR) as browser:
        page = await browser.get("/console/")
        assert page.status_code == 200 and "Path=/console" in page.headers["set-cookie"]
        links = re.findall(r'(?:href|src|action|hx-get)="(/[^"]*)"', page.text)
        assert links and all(one.startswith("/console/") for one in links)
        assert (await browser.get("/console")).headers["location"] == "/console/"


async def test_a_name_of_another_site_reads_nothing_through_a_front(broker):
    async with browsing(broker.root, host="evil.example:8081", caller=NEAR) as browser:
        assert (await browser.get("/console/")).status_code == 421


async def test_exactly_one_caller_is_needed(broker):
    """A request without one would have what this machine may do; of two, one is a client's."""
    near, far = (delegation_text(one).decode() for one in (NEAR, FAR))
    async with browsing(broker.root, host=PORT, caller=FAR) as browser:
        for given in ([], [near, far], [far, near], [""], ["no base64"], ["AAAA"]):
            headers = [(DELEGATED, one) for one in given]
            browser.http.headers.pop(DELEGATED, None)
            page = await browser.http.get("/console/", headers=headers)
            assert page.status_code == 403 and "must name its caller" in page.text, given


async def test_the_consoles_own_address_believes_no_header(broker):
    async with browsing(broker.root, host="evil.example") as browser:
        named = {DELEGATED: delegation_text(NEAR).decode()}
        assert (await browser.get("/", **named)).status_code == 421


async def test_a_token_logs_in_over_tls_and_its_cookie_is_for_tls_and_the_prefix_alone(guarded):
    async with through(guarded, FAR_WITH_TLS) as browser:
        page = await browser.get("/console/topics?a=b")
        assert page.headers["location"] == "/console/login?to=%2Ftopics%3Fa%3Db"
        await browser.get("/console/login")
        done = await browser.post("/console/login", token=guarded.tokens["ops"], to="/topics")
        assert (done.status_code, done.headers["location"]) == (303, "/console/topics")
        cookie = done.headers["set-cookie"]
        assert all(one in cookie for one in ("Secure", "HttpOnly", "Path=/console;"))
        assert "ops" in text_of(await browser.get("/console/topics"))
        assert (await browser.http.post("/console/logout", data={})).status_code == 403
        done = await browser.post("/console/logout")
        assert done.headers["location"] == "/console/login"


async def test_a_token_in_clear_from_another_machine_is_refused(guarded):
    async with through(guarded, FAR) as browser:
        page = await browser.get("/console/login")
        assert "use https" in text_of(page) and 'name="token"' not in page.text
        page = await browser.post("/console/login", token=guarded.tokens["ops"])
        assert page.status_code == 401 and "plaintext" in text_of(page)


async def test_a_certificate_logs_in_and_its_session_needs_it(guarded):
    alice = FAR_WITH_TLS._replace(name="alice")
    async with through(guarded, alice) as browser:
        page = await browser.get("/console/")
        assert page.status_code == 200 and "alice" in text_of(page)
        session = browser.cookie
        assert (await browser.get("/console/")).status_code == 200
        assert browser.cookie == session and len(browser.sessions) == 1
        for other in (FAR_WITH_TLS, FAR, FAR_WITH_TLS._replace(name="ops")):
            named = {DELEGATED: delegation_text(other).decode()}
            page = await browser.http.get("/console/", headers=named)
            assert "alice" not in text_of(page), other


@pytest.mark.parametrize("name", ["mallory", "stratamq-broker", "local"])
async def test_a_certificate_that_is_no_users_logs_nobody_in(guarded, name):
    async with through(guarded, FAR_WITH_TLS._replace(name=name)) as browser:
        page = await browser.get("/console/")
        assert page.status_code == 303 and "/console/login" in page.headers["location"]


async def test_the_cookie_of_the_longer_path_counts(guarded):
    """A browser sends that of the console's own port, too, behind this one's."""
    async with through(guarded, FAR_WITH_TLS) as browser:
        await browser.get("/console/login")
        await browser.post("/console/login", token=guarded.tokens["ops"])
        number = browser.cookie
        browser.http.cookies.clear()
        both = f"{browser.cookie_name}={number}; {browser.cookie_name}={'0' * 64}"
        assert (await browser.get("/console/", Cookie=both)).status_code == 200
