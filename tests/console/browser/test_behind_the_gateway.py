"""The console behind the gateway's port, over TLS, in a real Chromium."""

import pytest

from stratamq.client import connect
from stratamq.rpc.permission_file import Permissions, dump, grant_of
from tests.console.browser.conftest import ANSWER_MS, ROOMS, SETTINGS
from tests.security.conftest import made
from tests.support.brokers import GATEWAY, Broker
from tests.support.waiting import until

PROTOCOL = "performance.getEntriesByType('navigation')[0].nextHopProtocol"
RULES = [("operate", "broker"), *((verb, "topic:*") for verb in ("manage", "consume", "produce"))]


@pytest.fixture(scope="module")
def guarded(chromium, tmp_path_factory):
    """A broker that asks who calls, and the token of `ops`."""
    place = tmp_path_factory.mktemp("behind")
    permissions = Permissions(rules=[grant_of("ops", *one) for one in RULES])
    token = permissions.add_token("ops", "2026-11-28")
    (place / "permissions.json").write_bytes(dump(permissions))
    settings = [
        *SETTINGS,
        *made(place / "pki").settings(f"access.file={place}/permissions.json"),
        "gateway.grpc_address=127.0.0.1:0",
    ]
    with Broker(place / "store", place / "logs", settings) as broker:
        yield broker.start((*ROOMS, GATEWAY)), token


def test_a_user_logs_in_makes_a_topic_and_sees_a_message_arrive(chromium, guarded):
    broker, token = guarded
    with connect(broker.root, retry_timeout_s=60) as client:
        address = client.admin.gateway_state().grpc_address
        context = chromium.new_context(base_url=f"https://{address}", ignore_https_errors=True)
        context.set_default_timeout(ANSWER_MS)
        page = context.new_page()
        faults: list[str] = []
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("console", lambda said: said.type == "error" and faults.append(said.text))
        page.goto("/console/topics")
        assert page.url.endswith("/console/login?to=%2Ftopics")
        assert page.evaluate(PROTOCOL) == "h2"
        page.get_by_label("Token").fill(token)
        page.get_by_role("button", name="Log in").click()
        page.wait_for_url("**/console/topics")
        page.get_by_label("Name", exact=True).fill("orders")
        page.get_by_role("button", name="Create").click()
        page.get_by_role("status").filter(has_text="was created").wait_for()
        assert [one.name for one in client.topics("orders")] == ["orders"]
        page.goto("/console/live?topic=orders")
        page.locator("#pause").wait_for()

        def has_come() -> bool:
            client.send("orders", b"a live message")
            return page.get_by_text("a live message").count() > 0

        until(has_come, "a message has come into the open page")
        (cookie,) = context.cookies()
        assert cookie["secure"] and cookie["httpOnly"] and cookie["path"] == "/console"
        context.close()
        assert faults == []
        assert "Traceback" not in broker.output(GATEWAY)
