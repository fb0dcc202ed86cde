"""`topics delete`: what it names, that it asks, and what is left."""

import pytest

from tests.cli.processes import lines
from tests.support.waiting import until


@pytest.fixture
def put(rows, caught_up):
    def call(topic: str, *bodies: str, queue: int = 0) -> None:
        rows("produce", topic, "--queue", str(queue), stdin=lines(*bodies))
        caught_up()

    return call


def test_a_deletion_names_what_goes_and_needs_a_yes(put, rows, stratamq):
    put("gone", "a", "b", "c")
    put("gone", "d", queue=1)
    rows("groups", "reset", "g", "--topic", "gone", "--to", "earliest")
    done = stratamq("topics", "delete", "gone")
    assert done.code == 1
    for named in ("4 messages in 2 queues", "the groups g forget it", "--yes"):
        assert named in done.err
    assert [row["topic"] for row in rows("topics", "list") if row["topic"] == "gone"] == ["gone"]
    done = stratamq("topics", "delete", "gone", "--yes")
    assert done.code == 0
    assert "deleted gone: 4 messages in 2 queues" in done.err
    assert "gone" not in [row["topic"] for row in rows("topics", "list")]
    until(lambda: stratamq("consume", "gone").code == 1, "consumers learn it")
    assert "there is no topic gone" in stratamq("consume", "gone").err
    done = stratamq("produce", "gone", stdin=b"x\n")
    assert done.code == 1
    assert "stratamq topics create gone" in done.err
    assert stratamq("topics", "delete", "gone", "--yes").code == 1


def test_an_unknown_topic_is_named(stratamq):
    done = stratamq("topics", "delete", "no-such")
    assert done.code == 1
    assert "there is no topic no-such" in done.err
