"""The cluster page over two real shards: all members of both, and what did not answer."""

import json
import time

import pytest

from stratamq.client import connect
from stratamq.formats.topics import Drain
from tests.cli.processes import stratamq
from tests.console.pages import browsing, text_of
from tests.support.brokers import COMMITLOG
from tests.support.freezing import freeze, thaw
from tests.support.shards import Shards

LONGEST_S = 10.0
"""Two questions of 2 s each to a member that stands still, on a busy machine."""


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    with Shards(tmp_path_factory.mktemp("shards")) as both:
        with connect(both.address, retry_timeout_s=60) as client:
            client.send("orders", b"x")
            assert set(client.shards()) == {"a", "b"}
        yield both


async def page_of(shards: Shards, **settings: str) -> str:
    async with browsing(shards["a"].root, **settings) as browser:
        return text_of(await browser.get("/cluster"))


def said_by_the_command(shards: Shards) -> tuple[int, list[dict]]:
    done = stratamq("cluster", "shards", "--address", shards.address, "--output", "json")
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]


async def test_without_addresses_of_others_the_page_shows_its_own_shard(shards):
    said = await page_of(shards)
    assert "This console shows the shard a" in said
    assert "stratamq cluster shards --address" in said
    assert "b takes messages" not in said


async def test_both_shards_are_shown_as_the_command_shows_them(shards):
    said = await page_of(shards, cluster=shards.address)
    code, rows = said_by_the_command(shards)
    assert code == 0
    assert [(one["shard"], one["role"]) for one in rows] == [
        ("a", "ASYNC_MASTER"),
        ("b", "ASYNC_MASTER"),
    ]
    assert "a (this one) takes messages" in said
    other = rows[1]
    assert f"b takes messages {other['member']} async master" in said
    assert f"stratamq cluster status --address {other['address']} # b" in said
    assert f"stratamq cluster shards --address {shards.address}" in said


async def test_one_shard_alone_looks_as_without_addresses(shards):
    own = shards.address.partition(",")[0]
    assert await page_of(shards, cluster=own) == await page_of(shards)


async def test_a_drained_shard_is_no_fault(shards):
    with connect(shards.address.rpartition(",")[2], retry_timeout_s=60) as b:
        b.admin.set_drain(Drain.DRAINED)
        try:
            assert "b drained" in await page_of(shards, cluster=shards.address)
            code, rows = said_by_the_command(shards)
            assert (code, rows[1]["drain"]) == (0, "DRAINED")
        finally:
            b.admin.set_drain(Drain.OPEN)


async def test_a_member_that_stands_still_is_named_in_time_and_the_other_shard_is_there(shards):
    pid = shards["b"].pid(COMMITLOG)
    freeze(pid)
    try:
        began = time.monotonic()
        said = await page_of(shards, cluster=shards.address)
        assert time.monotonic() - began < LONGEST_S
        code, rows = said_by_the_command(shards)
    finally:
        thaw(pid)
    address = shards.address.rpartition(",")[2]
    assert "A member whose shard is not known" in said and address in said
    assert "a (this one) takes messages" in said
    assert code == 1
    assert [one["kind"] for one in rows] == ["member", "problem"]


async def test_who_may_not_observe_sees_nothing_of_other_shards(guarded, shards):
    said = {}
    for who in ("ops", "alice"):
        async with browsing(guarded.broker.root, guarded.file, cluster=shards.address) as browser:
            await browser.log_in(guarded.tokens[who])
            said[who] = text_of(await browser.get("/cluster"))
    assert "b takes messages" in said["ops"]
    assert shards.address not in said["alice"] and "b takes messages" not in said["alice"]
