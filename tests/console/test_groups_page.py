"""Groups and dead letters over a real broker: what is shown, and each change with its dry run."""

import re

import pytest
from stratamq_console.history import LAG_MESSAGES
from stratamq_console.pages.dead_letters import gather_letters
from stratamq_console.pages.groups import QUEUES_PER_PAGE, gather_groups, plan_reset, start_of

from stratamq.client import AtTime, connect
from stratamq.client.message_rows import application_properties
from stratamq.errors import InvalidRequestError
from tests.console.conftest import ROOMS
from tests.console.pages import browsing, text_of
from tests.support.brokers import Broker
from tests.support.waiting import until, until_dispatched

NOW_MS = 1_800_000_000_000
HOSTILE = "a<script>b"


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    place = tmp_path_factory.mktemp("groups")
    settings = ["delivery.shared_attempts=1", "ha.replication_address=127.0.0.1:0"]
    with Broker(place / "store", place / "logs", settings) as broker:
        yield broker.start(ROOMS)


@pytest.fixture
def client(broker):
    with connect(broker.root, retry_timeout_s=60) as client:
        if not client.topics("orders"):
            for number in range(30):
                client.send("orders", b"%d" % number, queue_id=number % 3)
        client.commit_offsets("billing", {("orders", queue): 4 for queue in range(3)})
        until_dispatched(client)
        yield client


async def test_a_broker_without_groups_says_what_to_type(broker):
    async with browsing(broker.root) as browser:
        assert "--group billing" in text_of(await browser.get("/groups"))


async def test_a_group_is_listed_and_described_with_its_lag(broker, client):
    async with browsing(broker.root) as browser:
        assert "billing orders 3 18" in text_of(await browser.get("/groups"))
        page = text_of(await browser.get("/groups/billing"))
        assert "Not read 18 messages in 3 queues" in page
        assert "Loses messages none in sight" in page, "the last segment always stays"
        assert "stratamq groups describe billing" in page
        assert (await browser.get("/groups?group=billing")).headers["location"] == "/groups/billing"
        assert (await browser.get("/groups/nobody")).status_code == 404


async def test_a_list_longer_than_a_page_gives_every_group_once(broker, client):
    count = QUEUES_PER_PAGE
    for number in range(count):
        client.commit_offsets(f"group-{number}", {("orders", 0): 1})
    async with browsing(broker.root) as browser:
        found, token, pages = [], "", 0
        while token or not pages:
            view = await gather_groups(browser.own, token)
            found += [(one.group, one.topic) for one in view.lines]
            token, pages = view.token, pages + 1
            assert sum(one.queues for one in view.lines) <= QUEUES_PER_PAGE
        assert pages > 1
        assert {group for group, _ in found} >= {f"group-{number}" for number in range(count)}
        page = await browser.get("/groups")
        assert "Next page" in page.text
        assert (await browser.get("/groups?from=nowhere")).status_code == 400
    for number in range(count):
        client.admin.delete_group(f"group-{number}")


async def test_a_group_is_moved_after_a_dry_run_alone(broker, client):
    async with browsing(broker.root) as browser:
        await browser.get("/groups")
        fields = {"place": "earliest", "value": "", "topic": ""}
        plan = await browser.post("/groups/billing/reset", **fields)
        assert "12 messages would be read again" in text_of(plan)
        assert client.committed_offsets("billing")[("orders", 0)] == 4
        done = await browser.post("/groups/billing/reset", **fields, confirmed="yes")
        assert done.status_code == 303
        assert set(client.committed_offsets("billing").values()) == {0}
        wrong = await browser.post("/groups/billing/reset", place="offset", value="x", topic="")
        assert wrong.status_code == 400


async def test_a_group_in_use_is_not_moved_without_the_tick(broker, client):
    reader = client.consume("orders", group="billing", follow=True)
    next(iter(reader))
    try:
        async with browsing(broker.root) as browser:
            await browser.get("/groups")
            fields = {"place": "latest", "value": "", "topic": "orders"}
            plan = await browser.post("/groups/billing/reset", **fields)
            assert "in use by" in text_of(plan)
            refused = await browser.post("/groups/billing/reset", **fields, confirmed="yes")
            assert refused.status_code == 400
            assert "in use by" in text_of(refused)
    finally:
        reader.close()
    until(lambda: not client.group_members("billing"), "the reader is gone")


async def test_offsets_are_deleted_after_a_confirmation_alone(broker, client):
    client.commit_offsets(HOSTILE, {("orders", 0): 1})
    async with browsing(broker.root) as browser:
        path = "/groups/a%3Cscript%3Eb/delete"
        await browser.get("/groups")
        asked = await browser.post(path)
        assert "in 3 queues" in text_of(asked)
        assert "<script>b" not in asked.text
        assert client.committed_offsets(HOSTILE)
        assert (await browser.post(path, confirmed="yes")).status_code == 303
        assert not client.committed_offsets(HOSTILE)


async def test_the_lag_over_time_is_drawn_where_metrics_name_the_group(broker, client):
    async with browsing(broker.root) as browser:
        for lag in (100.0, 50.0, float("nan"), 25.0):
            browser.history.add({f'{LAG_MESSAGES}{{group="billing"}}': lag})
        page = await browser.get("/groups/billing")
        assert "Messages not read, the last 4 minutes; now Messages not read: 25" in page.text


@pytest.mark.parametrize(
    ("place", "value", "start", "shown"),
    [
        ("earliest", "", "earliest", "earliest"),
        ("back", "10", -10, "-10"),
        ("back", "0", "latest", "latest"),
        ("offset", "7", 7, "7"),
        ("ago", "1", AtTime(NOW_MS - 3_600_000), f"@{NOW_MS - 3_600_000}"),
        ("ago", "0.5", AtTime(NOW_MS - 1_800_000), f"@{NOW_MS - 1_800_000}"),
        ("time", "2027-01-15T08:00", AtTime(NOW_MS), "@2027-01-15T08:00:00Z"),
        ("time", "2027-01-15T09:00+01:00", AtTime(NOW_MS), "@2027-01-15T08:00:00Z"),
    ],
)
def test_a_place_of_the_form_is_one_of_the_command(place, value, start, shown):
    assert start_of(place, value, NOW_MS) == (start, shown)


async def test_so_long_ago_is_when_it_was_shown(broker, client):
    """The plan is confirmed later."""
    async with browsing(broker.root) as browser:
        asked = {"place": "ago", "value": "1", "topic": ""}
        plan, _ = await plan_reset(browser.own, "billing", asked, NOW_MS + 123)
        confirmed, start = await plan_reset(browser.own, "billing", plan.fields, NOW_MS + 9_000)
        assert start == AtTime(NOW_MS + 123 - 3_600_000)
        assert confirmed.resets == plan.resets


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("ago", "x"),
        ("ago", "nan"),
        ("ago", "-1"),
        ("time", "noon"),
        ("time", "0001-01-01T00:00+14:00"),
        ("offset", "1e3"),
        ("", "1"),
    ],
)
def test_what_is_no_place_is_refused(place, value):
    with pytest.raises(InvalidRequestError):
        start_of(place, value, NOW_MS)


# --- dead letters ---


@pytest.fixture
def letters(client):
    """Two messages that the workers of `workers` failed at."""
    if not client.topics("work"):
        for number in (17, 18):
            body = b'{"order": %d}' % number
            client.send("work", body, queue_id=0, tag="paid", keys=[f"order-{number}"],
                        properties={"region": "north"})  # fmt: skip
        reader = client.subscribe("work", "workers", invisible_s=1)
        for _, message in zip(range(2), reader, strict=False):
            message.nack()
        reader.close()
    return until(
        lambda: (
            len(client.admin.dead_letters("workers").letters) == 2
            and client.admin.dead_letters("workers").letters
        ),
        "both are dead letters",
    )


async def test_a_dead_letter_is_shown_and_sent_again_with_counts_before_and_after(broker, letters):
    path = "/groups/workers/dead-letters"
    async with browsing(broker.root) as browser:
        page = text_of(await browser.get(path))
        assert "failed at too often: 2" in page
        assert "order-17" in page
        letter = await browser.get(f"{path}/{letters[0].queue_offset}")
        assert '{"order": 17}' in text_of(letter)
        asked = await browser.post(f"{path}/replay", place=letters[0].place)
        assert "1 dead letters would be handed out again" in text_of(asked)
        assert (await gather_letters(browser.own, "workers")).waiting == 2
        done = await browser.post(f"{path}/replay", place=letters[0].place, confirmed="yes")
        assert "2 before, 1 now" in text_of(done)
        rest = await browser.post(f"{path}/replay", all="yes", confirmed="yes")
        assert "1 before, 0 now" in text_of(rest)
        assert "Nothing to send" in text_of(await browser.post(f"{path}/replay", all="yes"))
        assert (await browser.post(f"{path}/replay")).status_code == 400
        assert (await browser.get(f"{path}/999")).status_code == 404


async def test_groups_with_dead_letters_are_listed(broker, letters):
    async with browsing(broker.root) as browser:
        page = await browser.get("/dead-letters")
        assert '<a href="/groups/workers/dead-letters">workers</a>' in page.text
        assert re.search(r"workers [1-9]", text_of(page))
        assert (await browser.get("/dead-letters?at=x")).status_code == 400
        own = await browser.get("/groups/workers/dead-letters")
        assert '<a href="/dead-letters" aria-current="page">' in own.text


async def test_a_changed_dead_letter_is_a_new_message_of_its_topic(broker, client, letters):
    before = sum(one.max_offset for one in client.queues("work"))
    path = f"/groups/workers/dead-letters/{letters[1].queue_offset}"
    async with browsing(broker.root) as browser:
        await browser.get(path)
        sent = await browser.post(f"{path}/send", body="mended\r\nby hand", tag="paid", keys="a b",
                                  once="1")  # fmt: skip
        assert "Stored" in text_of(sent)
        again = await browser.post(f"{path}/send", body="mended", once="1")
        assert again.status_code == 400 and "was sent before" in text_of(again)
    until_dispatched(client)
    assert sum(one.max_offset for one in client.queues("work")) == before + 1
    (message,) = until(lambda: client.query_key("work", "b").messages, "it is indexed")
    assert (bytes(message.body), message.tag, message.keys) == (
        b"mended\nby hand",
        "paid",
        ["a", "b"],
    )
    assert application_properties(message) == {"region": "north"}
