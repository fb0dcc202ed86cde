"""What `stratamq consume` takes and how it prints, against a real broker."""

import base64
import json
import re
import signal
import subprocess
import time
from datetime import UTC, datetime, timedelta

import pytest
from rich.cells import cell_len

from stratamq.client import connect
from tests.cli.processes import COMMAND, DEADLINE_S, environment, lines
from tests.support.brokers import DISPATCHER

EVERY_BYTE = bytes(range(256))


@pytest.fixture
def send(broker, caught_up):
    """Stores bodies in queue 0 of a topic, with the fields given."""

    def call(topic: str, *bodies: bytes, **fields: object) -> None:
        with connect(broker.root) as client, client.producer() as producer:
            for body in bodies:
                producer.send(topic, body, **({"queue_id": 0} | fields))
        caught_up()

    return call


@pytest.fixture
def bodies(stratamq):
    """The bodies that a command reads, as lines."""

    def call(*arguments: str) -> list[str]:
        done = stratamq("consume", *arguments, "--raw")
        assert done.code == 0, done.err
        return done.out.splitlines()

    return call


# --- formats ---


def test_a_format_has_the_tokens_of_kcat(stratamq, send):
    send("fmt", b"v\xff\n", tag="T", keys=["a", "b"], properties={"x": "1", "y": "2"}, queue_id=2)
    send("fmt", b"", queue_id=2)
    wanted = rb"%t %p %o %k %K %g %h [%s] [%v] %S%%\t\x41\\\n"
    done = stratamq("consume", "fmt", "--queue", "2", "-f", wanted.decode())
    assert done.raw == (
        b"fmt 2 0 a b 3 T x=1,y=2 [v\xff\n] [v\xff\n] 3%\tA\\\nfmt 2 1  -1   [] [] 0%\tA\\\n"
    )
    times = stratamq("consume", "fmt", "-f", "%T %R\\n", "-n", "1").raw.split(b" ", 1)
    assert abs(int(times[0]) / 1000 - time.time()) < 3600
    assert times[1] == b"\0\0\0\x03\n"


@pytest.mark.parametrize("text", ["%x", "100%", "\\q", "\\"])
def test_an_unknown_token_is_refused_with_the_list(stratamq, text):
    done = stratamq("consume", "fmt", "-f", text)
    assert (done.code, done.out) == (1, "")
    assert f"there is no {text.lstrip('10')}" in done.err
    assert "%k keys" in done.err


def test_raw_is_each_body_and_a_newline_and_a_format_adds_none(stratamq, send):
    send("raw", EVERY_BYTE, b"", b"end")
    assert stratamq("consume", "raw", "--raw").raw == EVERY_BYTE + b"\n\nend\n"
    assert stratamq("consume", "raw", "-f", "%s").raw == EVERY_BYTE + b"end"


@pytest.mark.parametrize(
    "arguments",
    [
        ("t", "--raw", "-f", "%s"),
        ("t", "--raw", "-o", "json"),
        ("t", "--follow", "--until", "7"),
        ("t", "--regex", "t"),
        ("--regex", "("),
        ("--regex", r"(a)\1"),
        (),
    ],
)
def test_options_that_exclude_each_other_are_wrong_usage(stratamq, arguments):
    done = stratamq("consume", *arguments)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("error: ")


def contents(stratamq, topic: str) -> list[tuple]:
    rows = [json.loads(line) for line in stratamq("consume", topic, "-o", "json").out.splitlines()]
    names = ("body", "bodyEncoding", "tag", "keys", "properties", "flag")
    return [tuple(row[name] for name in names) for row in rows]


def test_produce_takes_back_what_consume_prints_as_json(stratamq, broker, caught_up, rows):
    texts = [b"", b"plain", b'{"a":1,  "b":[]}', "ünï 日本 \U0001f600\0\x1b\r\n".encode()]
    binary = [EVERY_BYTE, *(bytes([value]) for value in range(256))]
    with connect(broker.root) as client, client.producer() as producer:
        for body in texts + binary:
            producer.send("there", body, queue_id=0)
        many = [f"k{number}" for number in range(200)]
        properties = {"a": "1", "größe": "x=y,z", "line": "a\nb"}
        producer.send(
            "there", b"x", tag="Tä", keys=many, properties=properties, flag=-7, queue_id=0
        )
    caught_up()
    printed = stratamq("consume", "there", "-o", "json").raw
    summary = rows("produce", "back", "--format", "json", "--queue", "0", stdin=printed)
    assert summary[0]["stored"] == 262
    caught_up()
    before, after = contents(stratamq, "there"), contents(stratamq, "back")
    assert len(before) == 262
    assert after == before
    assert before[4][:2] == (base64.b64encode(EVERY_BYTE).decode(), "base64")
    with connect(broker.root) as client:
        assert [one.body for one in client.consume("back")] == [*texts, *binary, b"x"]
    assert before[-1][2:] == ("Tä", many, properties, -7)


# --- where it begins and ends ---


@pytest.fixture
def ten(send):
    """A topic of messages 0 to 9 in queue 0 and 10 to 14 in queue 1."""

    def make(topic: str) -> None:
        send(topic, *(b"%d" % number for number in range(10)))
        send(topic, *(b"%d" % number for number in range(10, 15)), queue_id=1)

    return make


def test_the_last_of_each_queue_and_up_to_an_offset(bodies, ten):
    ten("ten")
    assert sorted(bodies("ten", "--offset", "-2"), key=int) == ["8", "9", "13", "14"]
    assert bodies("ten", "-q", "0", "--offset", "3", "--until", "6") == ["3", "4", "5"]
    assert bodies("ten", "-q", "0", "--offset", "-99", "--until", "-8") == ["0", "1"]
    assert len(bodies("ten", "--until", "now-end")) == 15


def test_moments_are_relative_or_local_without_a_zone(bodies, stratamq, ten):
    ten("moments")
    assert len(bodies("moments", "--offset", "@-1h")) == 15
    tomorrow = datetime.now(UTC).astimezone().replace(tzinfo=None) + timedelta(days=1)
    assert bodies("moments", "--offset", f"@{tomorrow.isoformat()}") == []
    yesterday = datetime.now(UTC).astimezone().replace(tzinfo=None) - timedelta(days=1)
    assert len(bodies("moments", "--offset", f"@{yesterday.isoformat()}")) == 15
    assert bodies("moments", "--until", "@-1h") == []
    assert len(bodies("moments", "--offset", "@-1h", "--until", f"@{tomorrow.isoformat()}")) == 15
    assert "none is before @-1h" in stratamq("consume", "moments", "--until", "@-1h").err


def test_tags_are_an_expression(bodies, send):
    for tag in ("a", "b", "c"):
        send("tagged", tag.encode(), tag=tag)
    assert bodies("tagged", "--tag", "a || c") == ["a", "c"]
    assert bodies("tagged", "--tag", "a||b", "-t", "c") == ["a", "b", "c"]
    assert bodies("tagged", "--tag", "*") == ["a", "b", "c"]


def test_several_topics_and_a_pattern_of_whole_names(bodies, stratamq, send):
    for topic in ("many-a", "many-b", "too-many-c"):
        send(topic, topic.encode())
    assert sorted(bodies("many-a", "too-many-c")) == ["many-a", "too-many-c"]
    assert sorted(bodies("--regex", "many-.*")) == ["many-a", "many-b"]
    done = stratamq("consume", "--regex", "none.*")
    assert (done.code, done.out) == (1, "")
    assert "no topic matches none.*" in done.err
    assert stratamq("consume", "many-a", "many-none").code == 1


@pytest.fixture
def following(broker):
    """`stratamq consume --follow …` as a process."""
    running = []

    def start(*arguments: str) -> subprocess.Popen[bytes]:
        command = [*COMMAND, "consume", *arguments, "--follow", "--data", str(broker.root)]
        running.append(
            subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()
            )
        )
        return running[-1]

    yield start
    for process in running:
        process.kill()
        process.communicate()


def interrupt(process: subprocess.Popen[bytes]) -> tuple[bytes, bytes]:
    """What is left of its output, after Ctrl-C."""
    process.send_signal(signal.SIGINT)
    left = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0, left[1]
    return left


def test_following_a_pattern_finds_topics_that_appear_later(following, send):
    send("later-a", b"old")
    process = following("--regex", "later-.*", "--raw", "--offset", "-1")
    assert process.stdout.readline() == b"old\n"
    send("later-b", b"new", b"newer")
    assert process.stdout.readline() == b"new\n"
    assert process.stdout.readline() == b"newer\n"
    assert interrupt(process) == (b"", b"")


def test_following_prints_one_heading_and_a_line_for_each_message(following, send):
    process = following("live")
    assert b"there is no topic live yet: waiting for it" in process.stderr.readline()
    send("live", b"one", b"two\nlines", tag="t")
    heading = process.stdout.readline().decode().split()
    first, second = process.stdout.readline().decode(), process.stdout.readline().decode()
    assert heading == ["queue", "offset", "time", "tag", "keys", "body"]
    assert [line.split()[0:2] for line in (first, second)] == [["0", "0"], ["0", "1"]]
    assert first.index("one") == second.index("two\\nlines")
    assert interrupt(process) == (b"", b"")


def test_a_following_reader_mentions_a_broker_that_went_away(following, send, broker):
    send("away", b"1")
    process = following("away", "--raw")
    assert process.stdout.readline() == b"1\n"
    broker.kill(DISPATCHER)
    try:
        assert b"reading was interrupted" in process.stderr.readline()
    finally:
        broker.start([DISPATCHER])
    send("away", b"2")
    assert process.stdout.readline() == b"2\n"
    assert process.stderr.readline() == b"reading again\n"
    assert interrupt(process) == (b"", b"")


# --- lines for people ---


@pytest.mark.parametrize("columns", [20, 40, 80, 200])
def test_no_line_is_wider_than_the_terminal(stratamq, monkeypatch, send, columns):
    topic = f"wide{columns}"
    send(topic, b"short", tag="t", keys=["k"])
    send(topic, ("日本語" * 100).encode(), tag="標識" * 20, keys=["鍵" * 40, "word" * 30])
    send(topic, *(("語" * number).encode() for number in (2, 10, 16, 60)))
    send(topic, EVERY_BYTE * 4, b'{"a": "' + b"x" * 500 + b'"}', b"\x1b[31mred\x1b[0m")
    monkeypatch.setenv("COLUMNS", str(columns))
    done = stratamq("consume", topic)
    printed = done.out.splitlines()
    assert len(printed) == 10
    assert max(map(cell_len, printed)) <= columns
    assert max(map(cell_len, printed)) >= columns - 1
    assert "\x1b" not in done.out
    assert "…" in printed[2]


def test_what_fits_is_not_cut(stratamq, monkeypatch, send):
    send("fits", b'{"order": 1, "sum": 12.5}', tag="paid", keys=["o-1"])
    monkeypatch.setenv("COLUMNS", "80")
    heading, line = stratamq("consume", "fits").out.splitlines()
    assert re.fullmatch(
        r' +0 +0  \d{4}-\d\d-\d\dT[0-9:.]{12}Z  paid  o-1   {"order": 1, "sum": 12.5}', line
    )
    assert heading.index("body") == line.index("{")


def test_lines_of_several_topics_name_theirs(stratamq, send):
    send("one", b"1")
    send("two", b"2")
    heading, *printed = stratamq("consume", "one", "two").out.splitlines()
    assert heading.split()[0] == "topic"
    assert sorted(line.split()[0] for line in printed) == ["one", "two"]


# --- nothing is silent ---


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (("nowhere",), 1, "there is no topic nowhere"),
        (
            ("silent", "--queue", "9"),
            1,
            "silent has 4 queues, numbered from 0: there is no queue 9",
        ),
        (("silent", "--tag", "none"), 0, "none has the tag none"),
        (("silent", "--offset", "7"), 0, "offset 7 is beyond the end of silent: queue 0 ends at 2"),
        (("silent", "--until", "7"), 0, "silent ends before --until 7: queue 0 ends at 2"),
        (("silent", "--offset", "latest"), 0, "no message of silent was read"),
        (
            ("silent", "--group", "g1"),
            0,
            "group g1 has no offsets for silent yet: starting at earliest",
        ),
        (("silent", "--offset", "soon"), 1, "--offset soon: earliest, latest, a number, -N"),
    ],
)
def test_what_is_not_there_is_mentioned(stratamq, send, arguments, code, sentence):
    send("silent", b"1", b"2") if stratamq("queues", "silent").code else None
    done = stratamq("consume", *arguments)
    assert done.code == code
    assert sentence in done.err


def test_a_pattern_hides_neither_an_offset_that_is_ignored_nor_what_is_not_there(
    stratamq, following, send
):
    send("seen-1", b"1")
    assert stratamq("consume", "--regex", "seen-.", "-g", "g3").code == 0
    done = stratamq("consume", "--regex", "seen-.", "-g", "g3", "--offset", "earliest")
    assert (done.code, done.out) == (1, "")
    assert "stratamq groups reset g3 --topic seen-1 --to earliest" in done.err
    done = stratamq("consume", "--regex", "seen-.", "--offset", "9")
    assert "offset 9 is beyond the end of seen-1: queue 0 ends at 1" in done.err
    process = following("--regex", "unseen-.*", "--raw")
    assert process.stderr.readline() == b"no topic matches unseen-.* yet: waiting\n"
    send("unseen-1", b"2")
    assert process.stdout.readline() == b"2\n"
    assert interrupt(process) == (b"", b"")


def test_a_group_with_nothing_new_is_mentioned(stratamq, send):
    send("read", b"1")
    assert stratamq("consume", "read", "--group", "g2").code == 0
    done = stratamq("consume", "read", "--group", "g2")
    assert (done.code, done.out) == (0, "")
    assert done.err == "no message of read was read: the group g2 is at the end\n"


def test_lines_of_a_large_topic_come_before_all_is_read(following, rows, caught_up):
    rows("produce", "large", "--queue", "0", stdin=lines(*["x" * 1000] * 20_000))
    process = following("large", "--raw")
    assert all(process.stdout.readline() == b"x" * 1000 + b"\n" for _ in range(20_000))
    assert interrupt(process) == (b"", b"")
