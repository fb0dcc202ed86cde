"""produce, consume, query, topics, queues, groups and status against a real broker."""

import json
import re
import signal
import socket
import subprocess

import pytest

from stratamq.client import connect
from stratamq.rpc import discovery
from stratamq.rpc.discovery import Endpoint
from tests.cli.processes import COMMAND, DEADLINE_S, environment, lines
from tests.support.brokers import COMMITLOG, DISPATCHER, INDEX

# --- produce and consume ---


def test_lines_go_in_and_come_out(rows, caught_up):
    (summary,) = rows("produce", "lines", "--queue", "0", stdin=lines("one", "two", "", "vier ü"))
    assert (summary["sent"], summary["stored"], summary["failed"]) == (4, 4, 0)
    caught_up()
    messages = rows("consume", "lines")
    assert [message["body"] for message in messages] == ["one", "two", "", "vier ü"]
    assert [message["queueOffset"] for message in messages] == [0, 1, 2, 3]


def test_a_line_keeps_its_carriage_return_and_the_last_needs_no_line_end(rows, caught_up):
    rows("produce", "ends", "--queue", "0", stdin=b"one\r\ntwo")
    caught_up()
    assert [message["body"] for message in rows("consume", "ends")] == ["one\r", "two"]


def test_json_objects_carry_keys_tag_queue_and_properties(rows, caught_up):
    rows(
        "produce",
        "objects",
        "--format",
        "json",
        "--key",
        "all",
        "--tag",
        "usual",
        stdin=lines(
            json.dumps({"body": "text", "key": "k1", "queue": 0}),
            "",
            json.dumps({"body": {"a": [1]}, "keys": ["k2", "k3"], "tag": "own", "queue": 0}),
            json.dumps({"body": "p", "queue": 0, "properties": {"colour": "blue"}}),
        ),
    )
    caught_up()
    first, second, third = rows("consume", "objects")
    assert (first["body"], first["keys"], first["tag"]) == ("text", ["all", "k1"], "usual")
    assert (second["body"], second["bodyEncoding"]) == ('{"a": [1]}', "text")
    assert (second["keys"], second["tag"]) == (["all", "k2", "k3"], "own")
    assert third["properties"]["colour"] == "blue"


@pytest.mark.parametrize(
    "line",
    [
        "no json",
        "[]",
        '{"no": "body"}',
        '{"body": "x", "what": 1}',
        '{"body": "x", "key": "a", "keys": ["b"]}',
        '{"body": "x", "keys": 1}',
        '{"body": "x", "queue": "first"}',
        '{"body": "x", "queue": true}',
        '{"body": "x", "tag": 1}',
        '{"body": "x", "properties": {"a": 1}}',
        '{"body": "x", "key": "two words"}',
    ],
)
def test_a_line_that_is_no_message_is_named_and_what_came_before_is_stored(stratamq, line):
    good = json.dumps({"body": "good"})
    done = stratamq("produce", "named", "--format", "json", stdin=lines(good, good, line, good))
    assert done.code == 1
    assert "Traceback" not in done.err
    assert re.search(r"│ +2 │ +2 │", done.out)


def test_a_file_is_read_instead_of_standard_input(rows, caught_up, tmp_path):
    file = tmp_path / "input.txt"
    file.write_bytes(lines("a", "b"))
    rows("produce", "from-file", "--file", str(file), "--queue", "1")
    caught_up()
    assert [message["body"] for message in rows("consume", "from-file")] == ["a", "b"]


def test_many_lines_are_spread_over_the_queues(rows, caught_up):
    rows("produce", "many", stdin=lines(*["x" * 500] * 5000))
    caught_up()
    queues = rows("queues", "many")
    assert sum(queue["messages"] for queue in queues) == 5000
    assert len(queues) == 4


def test_consume_takes_what_is_asked_for(rows, caught_up):
    rows("produce", "asked", "--queue", "0", "--tag", "A", stdin=lines(*range(5)))
    rows("produce", "asked", "--queue", "1", "--tag", "B", stdin=lines(*range(5, 10)))
    caught_up()

    def bodies(*arguments: str) -> list[int]:
        return [message["body"] for message in rows("consume", "asked", *arguments)]

    def numbers(*arguments: str) -> list[int]:
        return [int(body) for body in bodies(*arguments)]

    assert sorted(numbers()) == list(range(10))
    assert sorted(numbers("--tag", "A", "--tag", "B")) == list(range(10))
    assert numbers("--tag", "B") == list(range(5, 10))
    assert numbers("--queue", "1", "--offset", "3") == [8, 9]
    assert numbers("--offset", "latest") == []
    assert len(numbers("--count", "3")) == 3
    assert numbers("--offset", "@2001-01-01T00:00", "--queue", "0") == list(range(5))
    assert numbers("--offset", "@2100-01-01") == []
    assert [m.get("body") for m in rows("consume", "asked", "--count", "1", "--body", "none")] == [
        None
    ]


def test_a_group_continues_where_it_was(rows, caught_up):
    rows("produce", "grouped", "--queue", "0", stdin=lines(*range(6)))
    caught_up()
    first = rows("consume", "grouped", "--group", "g", "--count", "4")
    assert [int(message["body"]) for message in first] == [0, 1, 2, 3]
    (group,) = rows("groups", "describe", "g")
    assert (group["offset"], group["maxOffset"], group["lag"]) == (4, 6, 2)
    assert isinstance(group["lagSeconds"], int)
    second = rows("consume", "grouped", "--group", "g")
    assert [int(message["body"]) for message in second] == [4, 5]
    (group,) = [one for one in rows("groups") if one["group"] == "g"]
    assert (group["offset"], group["lag"], group["lagSeconds"]) == (6, 0, 0)


def test_a_group_that_has_committed_nothing_is_an_error(stratamq):
    done = stratamq("groups", "describe", "unknown")
    assert (done.code, done.out) == (1, "")
    assert "there is no group unknown" in done.err


@pytest.fixture
def read_group(rows, caught_up):
    """A topic of six messages in queue 0, of which the group `reader` has read four."""

    def make(topic: str) -> None:
        rows("produce", topic, "--queue", "0", stdin=lines(*range(6)))
        caught_up()
        assert len(rows("consume", topic, "--group", "reader", "--count", "4")) == 4

    return make


@pytest.mark.parametrize(
    ("to", "offset"),
    [
        ("earliest", 0),
        ("latest", 6),
        ("2", 2),
        ("99", 6),
        ("-1", 5),
        ("-0", 6),
        ("-99", 0),
        ("@0", 0),
        ("@2100-01-01", 6),
    ],
)
def test_a_group_is_reset_to_a_place(rows, read_group, to, offset):
    topic = "reset_" + to.replace("@", "at")
    read_group(topic)
    (reset,) = rows("groups", "reset", "reader", "--topic", topic, "--to", to)
    assert (reset["before"], reset["offset"], reset["lag"]) == (4, offset, 6 - offset)
    left = rows("consume", topic, "--group", "reader")
    assert [int(message["body"]) for message in left] == list(range(offset, 6))


def test_a_dry_run_of_a_reset_changes_nothing(stratamq, rows, read_group):
    read_group("dry")
    done = stratamq("groups", "reset", "reader", "-t", "dry", "--to", "earliest", "--dry-run")
    assert (done.code, done.err) == (0, "nothing was changed (--dry-run)\n")
    assert [int(one["body"]) for one in rows("consume", "dry", "--group", "reader")] == [4, 5]


def test_a_reset_without_a_topic_is_of_all_that_the_group_reads(rows, caught_up):
    for topic in ("all1", "all2", "other"):
        rows("produce", topic, "--queue", "0", stdin=lines("a"))
    caught_up()
    for topic in ("all1", "all2"):
        rows("consume", topic, "--group", "of-all")
    reset = rows("groups", "reset", "of-all", "--to", "earliest")
    assert [(one["topic"], one["before"], one["offset"]) for one in reset] == [
        ("all1", 1, 0),
        ("all2", 1, 0),
    ]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("unread", "--to", "latest"), "has committed nothing: name a topic"),
        (("reader", "--to", "latest", "--topic", "none"), "there is no topic none"),
        (("reader", "--to", "soon"), "--to soon: earliest, latest, a number, -N or @TIME"),
    ],
)
def test_a_reset_that_cannot_be_is_refused_in_one_line(stratamq, arguments, sentence):
    done = stratamq("groups", "reset", *arguments)
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("error: ")
    assert sentence in done.err


def test_an_offset_for_a_group_that_has_been_here_is_refused_with_what_to_type(
    stratamq, rows, read_group
):
    read_group("been")
    done = stratamq("consume", "been", "--group", "reader", "--offset", "earliest")
    assert (done.code, done.out) == (1, "")
    assert "stratamq groups reset reader --topic been --to earliest" in done.err
    assert rows("consume", "been", "--group", "new", "--offset", "5")[0]["body"] == "5"


def test_following_ends_with_the_count(rows, caught_up):
    rows("produce", "endless", "--queue", "0", stdin=lines("a", "b"))
    messages = rows("consume", "endless", "--follow", "--count", "2")
    assert [message["body"] for message in messages] == ["a", "b"]


def test_ctrl_c_ends_following_in_order(rows, caught_up, broker):
    rows("produce", "interrupted", "--queue", "0", stdin=lines("a", "b"))
    caught_up()
    command = [*COMMAND, "consume", "interrupted", "--follow", "--group", "gi", "-o", "json"]
    process = subprocess.Popen(
        [*command, "--data", str(broker.root)], stdout=subprocess.PIPE, env=environment()
    )
    assert [json.loads(process.stdout.readline())["body"] for _ in range(2)] == ["a", "b"]
    process.send_signal(signal.SIGINT)
    assert process.stdout.read() == b""
    assert process.wait(DEADLINE_S) == 0
    (group,) = rows("groups", "describe", "gi")
    assert group["offset"] == 2


def test_a_reader_of_the_output_may_go_away(rows, caught_up, broker):
    rows("produce", "piped", stdin=lines(*["x" * 100] * 3000))
    caught_up()
    process = subprocess.Popen(
        [*COMMAND, "consume", "piped", "-o", "json", "--data", str(broker.root)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    )
    process.stdout.readline()
    process.stdout.close()
    assert process.wait(DEADLINE_S) == 141
    assert process.stderr.read() == b""


# --- queries ---


def test_queries_find_a_message_by_everything(rows, stratamq, caught_up):
    rows("produce", "found", "--key", "needle", "--queue", "2", stdin=lines("here"))
    caught_up()
    (by_key,) = rows("query", "key", "found", "needle")
    assert (by_key["body"], by_key["queueId"]) == ("here", 2)
    (by_unique_key,) = rows("query", "key", "found", by_key["uniqKey"], "--unique")
    (by_id,) = rows("query", "msgid", by_key["msgId"])
    (by_offset,) = rows("query", "offset", str(by_key["phyOffset"]))
    (by_time,) = rows("query", "time", "found", "--from", str(by_key["storeTimestamp"]))
    (since,) = rows("query", "key", "found", "needle", "--from", str(by_key["storeTimestamp"]))
    assert by_unique_key == by_id == by_offset == by_time == since == by_key
    shown = stratamq("query", "key", "found", "needle", "--detail").out
    assert by_key["msgId"] in shown
    assert "needle" in shown


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        (("key", "found", "straw"), "straw"),
        (("time", "found", "--to", "2001-01-01"), "found"),
        (("time", "nowhere"), "nowhere"),
        (("offset", "1"), "1"),
        (("offset", str(2**60)), "log holds"),
        (("msgid", "xyz"), "message id"),
        (("msgid", "0" * 32), ""),
        (("time", "found", "--from", "yesterday"), "yesterday"),
    ],
)
def test_what_is_not_found_is_one_line_and_exit_code_1(stratamq, caught_up, query, reason):
    stratamq("produce", "found", "--key", "hay", stdin=lines("hay"))
    caught_up()
    done = stratamq("query", *query)
    assert done.code == 1
    assert done.err.startswith("error: ")
    assert done.err.count("\n") == 1
    assert reason in done.err


def test_more_matches_than_asked_for_are_mentioned(stratamq, rows, caught_up):
    rows("produce", "plenty", "--key", "same", stdin=lines(*range(5)))
    caught_up()
    assert len(rows("query", "key", "plenty", "same", "--count", "9")) == 5
    done = stratamq("query", "key", "plenty", "same", "--count", "2")
    assert "more than 2" in done.out


# --- listings ---


def test_topics_are_created_and_listed(rows):
    (made,) = rows("topics", "create", "made", "--queues", "2", "--permission", "4")
    assert (made["readQueues"], made["writeQueues"], made["permission"]) == (2, 2, 4)
    assert made in rows("topics", "list")


def test_a_topic_that_no_client_could_use_is_not_created(stratamq, rows):
    done = stratamq("topics", "create", "useless", "--permission", "0")
    assert (done.code, "--permission 0" in done.err) == (2, True)
    assert "useless" not in {row["topic"] for row in rows("topics", "list")}


def test_altering_a_topic_changes_only_what_is_named(rows):
    rows("topics", "create", "altered", "--queues", "8")
    (altered,) = rows("topics", "alter", "altered", "--permission", "4")
    assert (altered["readQueues"], altered["writeQueues"], altered["permission"]) == (8, 8, 4)
    (altered,) = rows("topics", "alter", "altered", "--write-queues", "2", "--ordered")
    assert (altered["readQueues"], altered["writeQueues"], altered["permission"]) == (8, 2, 4)
    assert altered["ordered"]
    (altered,) = rows("topics", "alter", "altered", "--not-ordered")
    assert not altered["ordered"]
    assert altered in rows("topics", "list")


def test_a_topic_has_the_type_that_it_is_given_and_takes_no_other_messages(stratamq, rows):
    (made,) = rows("topics", "create", "typed", "--queues", "1", "--type", "FIFO")
    assert made["type"] == "FIFO"
    done = stratamq("produce", "typed", stdin=lines("a"))
    assert done.code == 1
    assert "topic typed takes FIFO messages, and this is of the type NORMAL" in done.err
    (altered,) = rows("topics", "alter", "typed", "--permission", "6")
    assert altered == made
    (altered,) = rows("topics", "alter", "typed", "--type", "unspecified")
    assert altered == made | {"type": ""}
    assert rows("topics", "describe", "typed") == [altered]
    rows("produce", "typed", stdin=lines("a"))


def test_a_topic_that_exists_is_not_created_again(stratamq, rows):
    (made,) = rows("topics", "create", "twice", "--queues", "8")
    done = stratamq("topics", "create", "twice", "--permission", "4")
    assert (done.code, done.out) == (1, "")
    assert "there is a topic twice already (8 queues" in done.err
    assert rows("topics", "create", "twice", "--queues", "2", "--if-not-exists") == [made]
    assert made in rows("topics", "list")


def test_a_topic_is_described_with_its_queues(rows, caught_up):
    rows("topics", "create", "described", "--queues", "2")
    rows("produce", "described", "--queue", "1", stdin=lines("a", "b"))
    caught_up()
    topic, queue = rows("topics", "describe", "described")
    assert (topic["kind"], topic["readQueues"]) == ("topic", 2)
    assert (queue["kind"], queue["queueId"], queue["messages"]) == ("queue", 1, 2)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("topics", "alter", "missing", "--queues", "2"), "there is no topic 'missing'"),
        (("topics", "describe", "missing"), "there is no topic missing"),
        (("topics", "alter", "missing"), "nothing to change"),
        (("queues", "missing"), "there is no topic missing"),
    ],
)
def test_a_topic_that_is_not_there_is_an_error(stratamq, arguments, sentence):
    done = stratamq(*arguments)
    assert (done.code, done.out) == (1, "")
    assert sentence in done.err


def test_a_bad_topic_is_refused_in_one_line(stratamq):
    done = stratamq("topics", "create", "a b")
    assert done.code == 1
    assert done.err.startswith("error: ")


def test_tables_show_the_same_as_json(stratamq, rows, caught_up):
    rows("produce", "shown", "--queue", "0", stdin=lines("body"))
    caught_up()
    table = stratamq("queues", "shown").out
    assert "shown" in table
    assert "maxOffset" in table


# --- status ---


def test_a_healthy_broker_has_exit_code_0(stratamq, rows):
    found = rows("status")
    states = {row["service"]: row["state"] for row in found if row["kind"] == "service"}
    assert states == {COMMITLOG: "ready", DISPATCHER: "ready", INDEX: "ready"}
    (log,) = [row for row in found if row.get("service") == COMMITLOG and row["kind"] == "service"]
    assert log["applied"] == log["durable"]
    assert log["segmentBytes"] == 1 << 20
    shown = stratamq("status")
    assert shown.code == 0
    assert "dispatcher" in shown.out


def test_a_service_that_is_away_has_exit_code_1_and_is_named(stratamq, broker):
    broker.kill(INDEX)
    try:
        done = stratamq("status", "--output", "json")
        states = {
            row["service"]: row["state"]
            for row in map(json.loads, done.out.splitlines())
            if row["kind"] == "service"
        }
        assert done.code == 1
        assert states == {COMMITLOG: "ready", DISPATCHER: "ready", INDEX: "unreachable"}
        problems = [row["text"] for row in map(json.loads, done.out.splitlines()) if "text" in row]
        assert any("index is away" in text for text in problems)
    finally:
        broker.start([INDEX])


# --- finding the broker ---


def test_the_broker_is_found_by_the_environment(stratamq, broker, monkeypatch):
    monkeypatch.setenv("STRATAMQ_DATA", str(broker.root))
    assert stratamq("topics", "list", data=False).code == 0


def test_the_broker_is_found_by_addresses(stratamq, broker):
    with connect(broker.root) as client:
        services = client.services()
    for address in services.values():
        for command in ("topics", "list"), ("queues",), ("status",):
            assert stratamq(*command, "--address", address, data=False).code == 0
    named = f"{COMMITLOG}={services[COMMITLOG]}"
    done = stratamq("queues", "--address", named, data=False)
    assert done.code == 1
    assert "dispatcher" in done.err
    done = stratamq("status", "--address", named, "--output", "json", data=False)
    assert done.code == 0


@pytest.mark.parametrize(
    "command", [("status",), ("topics", "list"), ("consume", "t"), ("produce", "t")]
)
def test_without_a_broker_every_command_reports_that_in_one_line(
    stratamq, tmp_path, monkeypatch, command
):
    monkeypatch.chdir(tmp_path)
    done = stratamq(*command, data=False, stdin=lines("x"))
    assert done.code == 1
    assert "stratamq-data" in done.err
    assert done.err.count("\n") == 1
    for where in ("--data", "--address"):
        done = stratamq(*command, where, "nowhere", data=False, stdin=lines("x"))
        assert done.code == 1
        assert done.err.count("\n") == 1


def test_a_broker_that_was_killed_is_reported_in_words(stratamq, tmp_path):
    """Its services have not taken back where they were."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # and does not listen
        address = f"127.0.0.1:{bound.getsockname()[1]}"
        discovery.write(tmp_path, COMMITLOG, Endpoint(address, "", 1))
        for where in (("--data", str(tmp_path)), ("--address", address)):
            done = stratamq("topics", "list", *where, data=False)
            assert (done.code, done.out) == (1, "")
            assert done.err == (
                f"error: nothing listens at {address}: is the broker running, is it this port?\n"
            )


def test_clock_shows_under_which_time_messages_are_stored(stratamq):
    for arguments in ((), ("--confirm",)):
        done = stratamq("clock", *arguments)
        assert (done.code, done.out) == (0, "messages are stored under the wall clock's time\n")
