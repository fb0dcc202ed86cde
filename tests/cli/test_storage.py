"""`stratamq storage` and the forecast of `groups describe`, against a broker with a janitor."""

import json

import pytest

from stratamq.client import connect
from tests.cli.processes import stratamq
from tests.support.brokers import ROOMS, broker_fixture
from tests.support.waiting import until_dispatched, until_indexed

SEGMENT = 65536
HOUR_S = 3_600
broker = broker_fixture(
    f"commitlog.segment_bytes={SEGMENT}",
    "janitor.delete_when=" + ",".join(map(str, range(24))),
    "janitor.retention_ms=7200000",
    rooms=[*ROOMS, "janitor"],
)


@pytest.fixture
def filled(broker):
    with connect(broker.root, retry_timeout_s=60) as client:
        if not client.topics("large"):
            for number in range(60):
                client.send("large", bytes(9_000), queue_id=0, keys=[f"k{number}"])
                client.send("small", b"1", queue_id=0)
            client.commit_offsets("billing", {("large", 0): 0, ("small", 0): 60})
        until_dispatched(client)
        until_indexed(client)
        yield client


def rows(*arguments: str, root) -> list[dict]:
    done = stratamq(*arguments, "--output", "json", data=root)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_it_shows_topics_segments_and_index_files(broker, filled):
    found = rows("storage", root=broker.root)
    state = filled.log_state()
    topics = [one for one in found if one["kind"] == "topic"]
    assert [one["topic"] for one in topics] == ["large", "small"]
    assert topics[0]["messages"] == 60
    estimated = sum(one["bytes"] for one in topics)
    assert estimated == pytest.approx(state.appended_offset, rel=0.15), "blanks are no topic's"
    segments = [one for one in found if one["kind"] == "segment"]
    assert len(segments) == state.segment_count > 5
    assert sum(one["usedBytes"] for one in segments) == state.appended_offset
    assert segments[0]["fate"] == "kept"
    assert "it expires after" in segments[0]["reason"]
    assert [one["items"] for one in found if one["kind"] == "index"] == [180], (
        "60 keys, and a unique one of each message"
    )
    kinds = {one["kind"] for one in found}
    assert {"log", "queues", "retention", "scrub"} <= kinds
    assert "problem" not in kinds
    table = stratamq("storage", "--topics", "1", data=broker.root).stdout.decode()
    assert "large" in table
    assert "(1 others)" in table


def test_groups_describe_says_when_retention_takes_what_is_unread(broker, filled):
    found = rows("groups", "describe", "billing", root=broker.root)
    loses = {one["topic"]: one["losesInSeconds"] for one in found if one["kind"] == "group"}
    assert loses["small"] is None
    assert HOUR_S < loses["large"] <= 2 * HOUR_S
