"""A real Chromium before the console of a broker. Where no Chromium is, these tests are skipped:
`scripts/install_test_tools.sh` installs Debian's."""

import os
import shutil

import pytest

from stratamq.client import connect
from tests.support.brokers import COMMITLOG, DELIVERY, DISPATCHER, HA, INDEX, Broker

CHROMIUM = shutil.which("chromium")
ROOMS = (COMMITLOG, DISPATCHER, INDEX, DELIVERY, HA, "janitor", "console")
SETTINGS = (
    "ha.replication_address=127.0.0.1:0",
    "console.http_address=127.0.0.1:0",
    "commitlog.segment_bytes=4194304",  # recovery after a kill reads one
    "index.index_slots=1000",
    "index.index_items=4000",
)
WIDTHS = {"wide": 1280, "phone": 390}
ANSWER_MS = 60_000


@pytest.fixture(scope="module")
def chromium():
    """Playwright's handle of the program. It ends with its module: until then its event loop runs
    in this thread, and no asynchronous test can."""
    if not CHROMIUM:
        pytest.skip("Chromium is not here: scripts/install_test_tools.sh installs it")
    sync_api = pytest.importorskip("playwright.sync_api")
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def console(chromium, tmp_path_factory):
    """A broker with a console."""
    place = tmp_path_factory.mktemp("browser")
    with Broker(place / "store", place / "logs", SETTINGS) as broker:
        yield broker.start(ROOMS)


@pytest.fixture
def client(console):
    with connect(console.root, retry_timeout_s=60) as client:
        yield client


@pytest.fixture(scope="module")
def url(console) -> str:
    with connect(console.root, retry_timeout_s=60) as client:
        return client.admin.console_state().url


@pytest.fixture
def page(chromium, url):
    """A page that shows nothing yet; `page.goto("/topics")` goes to the console. What the console's
    policy stops, and other errors of scripts and of the browser, fail the test."""
    faults: list[str] = []
    context = chromium.new_context(base_url=url)
    context.set_default_timeout(ANSWER_MS)
    opened = context.new_page()
    opened.on("pageerror", lambda error: faults.append(str(error)))
    opened.on("console", lambda said: said.type == "error" and faults.append(said.text))
    yield opened
    context.close()
    assert faults == []
