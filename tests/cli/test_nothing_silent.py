"""Every command whose answer can be empty mentions it; no table is wider than its terminal."""

import json

import pytest
from rich.cells import cell_len

from stratamq.client import connect
from tests.cli.processes import lines


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        (("topics", "list"), "there is no topic"),
        (("queues",), "no queue holds a message"),
        (("groups",), "no group has committed an offset"),
        (("groups", "list"), "no group has committed an offset"),
    ],
)
def test_an_empty_listing_is_mentioned(stratamq, command, sentence):
    """These come first: the broker has nothing yet."""
    done = stratamq(*command)
    assert (done.code, done.out, done.err) == (0, "", f"{sentence}\n")


@pytest.fixture
def few(stratamq, rows, caught_up):
    stratamq("topics", "create", "empty", "--if-not-exists")
    rows("produce", "few", "--tag", "T", "--key", "K", "-q", "0", stdin=lines(*range(5)))
    caught_up()


@pytest.mark.parametrize(
    ("command", "code", "sentence"),
    [
        (("queues", "empty"), 0, "the topic empty holds no message"),
        (("topics", "describe", "empty"), 0, "the topic empty holds no message"),
        (("queues", "none"), 1, "there is no topic none"),
        (("topics", "describe", "none"), 1, "there is no topic none"),
        (("groups", "describe", "none"), 1, "there is no group none"),
        (("groups", "reset", "g", "--topic", "none", "--to", "0"), 1, "there is no topic none"),
        (("groups", "reset", "g", "--topic", "empty", "--to", "0"), 1, "empty holds no message"),
        (("query", "key", "none", "k"), 1, "there is no topic none"),
        (("query", "key", "few", "k"), 1, "no message of few has the key k"),
        (("query", "time", "none"), 1, "there is no topic none"),
        (("query", "time", "empty"), 1, "the topic empty holds no message"),
        (("query", "time", "few", "--to", "@0"), 1, "'@0' is not a time"),
        (("query", "time", "few", "--to", "0"), 1, "nothing of few was stored in that period"),
        (
            ("query", "time", "few", "--tag", "no"),
            1,
            "few with the tag no was stored in that period",
        ),
        (("query", "offset", "1000000"), 1, "the log holds"),
        (("query", "msgid", "0" * 32), 1, ""),
        (("consume", "empty"), 0, "no message of empty was read"),
    ],
)
def test_what_is_not_there_is_mentioned(stratamq, few, command, code, sentence):
    done = stratamq(*command)
    assert done.code == code
    assert sentence in done.err
    assert done.err.endswith("\n")


def test_a_query_by_time_mentions_that_there_are_more(stratamq, few):
    assert "there are more than 2: see --count" in stratamq("query", "time", "few", "-n", "2").out
    last = stratamq("query", "time", "few", "-n", "2", "-o", "json").out.splitlines()[-1]
    assert json.loads(last) == {"kind": "truncated", "count": 2}
    assert (
        len(stratamq("query", "time", "few", "-n", "99", "--tag", "T || x").out.splitlines()) >= 6
    )


@pytest.mark.parametrize("columns", [20, 40, 60, 80, 200])
@pytest.mark.parametrize(
    "command",
    [
        ("queues",),
        ("topics", "list"),
        ("topics", "describe", "few"),
        ("groups", "list"),
        ("query", "key", "few", "K"),
        ("query", "time", "few"),
        ("status",),
    ],
    ids="-".join,
)
def test_no_table_is_wider_than_the_terminal(stratamq, broker, few, monkeypatch, command, columns):
    with connect(broker.root) as client:
        client.commit_offsets("a-group-with-a-name", {("few", 0): 1})
    monkeypatch.setenv("COLUMNS", str(columns))
    done = stratamq(*command)
    assert done.code == 0
    table = [line for line in done.out.splitlines() if line[:1] in "┏┃┡│└"]
    if table:
        assert {cell_len(line) for line in table} <= set(range(columns + 1))
    else:
        assert columns < 80 or command[0] == "query"
