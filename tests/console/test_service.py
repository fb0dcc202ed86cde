"""The console as a process: it serves its pages, says where, and stops in order."""

import httpx
import pytest
from stratamq_console.config import ConsoleConfig

from stratamq.client import connect
from stratamq.rpc import discovery
from stratamq.service import installed
from tests.support.brokers import COMMITLOG, DISPATCHER, INDEX, Broker
from tests.support.waiting import until

CONSOLE = "console"
ANSWER_S = 60


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    place = tmp_path_factory.mktemp("service")
    with Broker(place / "store", place / "logs", ["console.http_address=127.0.0.1:0"]) as broker:
        yield broker.start((COMMITLOG, DISPATCHER, INDEX, CONSOLE))


def test_a_browser_finds_the_pages_where_the_service_says(broker):
    with connect(broker.root, retry_timeout_s=60) as client:
        url = client.admin.console_state().url
    page = httpx.get(url, timeout=ANSWER_S)
    assert page.status_code == 200 and "commitlog" in page.text
    style = httpx.get(f"{url}/static/style.css", timeout=ANSWER_S)
    assert style.headers["content-type"].startswith("text/css")
    assert "server" not in page.headers


def test_its_requests_are_counted(broker):
    endpoint = discovery.read(broker.root, CONSOLE)
    with connect(broker.root, retry_timeout_s=60) as client:
        url = client.admin.console_state().url

    def counted() -> bool:
        httpx.get(f"{url}/no-such-page", timeout=ANSWER_S)
        shown = httpx.get(f"http://{endpoint.metrics}/metrics", timeout=ANSWER_S).text
        return 'console_requests_total{status="4xx"}' in shown

    until(counted, "a request that was not found is counted")


def test_it_stops_in_order_while_a_page_is_open(broker):
    with connect(broker.root, retry_timeout_s=60) as client:
        url = client.admin.console_state().url
    with httpx.Client(timeout=ANSWER_S) as open_page:
        assert open_page.get(url).status_code == 200
        broker.terminate(CONSOLE)
    broker.start((CONSOLE,))


def test_without_its_libraries_it_says_what_to_install(tmp_path, monkeypatch):
    found = installed.find_spec
    monkeypatch.setattr(installed, "find_spec", lambda one: None if one == "jinja2" else found(one))
    config = ConsoleConfig(root=tmp_path, http_address="127.0.0.1:0")
    assert list(config.faults()) == ["the pages need jinja2: pip install 'stratamq[console]'"]
