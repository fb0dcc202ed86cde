"""How `stratamq produce` ends: what is stored, what is not, and where to continue."""

import json
import re
import signal
import subprocess
from collections import Counter

import pytest

from stratamq.client import connect
from stratamq.formats.javahash import queue_of_key
from tests.cli.processes import COMMAND, DEADLINE_S, environment, lines
from tests.support.brokers import COMMITLOG
from tests.support.waiting import until


@pytest.fixture
def stored(broker, caught_up):
    """The bodies of a topic, by queue."""

    def read(topic: str) -> dict[int, list[bytes]]:
        caught_up()
        found: dict[int, list[bytes]] = {}
        with connect(broker.root) as client:
            for message in client.consume(topic):
                found.setdefault(message.queue_id, []).append(message.body)
        return found

    return read


@pytest.fixture
def producing(broker):
    """`stratamq produce …` as a process that waits for its lines."""
    running = []

    def start(*arguments: str) -> subprocess.Popen[bytes]:
        command = [*COMMAND, "produce", *arguments, "--data", str(broker.root)]
        pipe = subprocess.PIPE
        running.append(
            subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, env=environment())
        )
        return running[-1]

    yield start
    for process in running:
        process.kill()
        process.communicate()


def test_a_malformed_line_ends_it_and_the_rest_is_sent_from_there(stratamq, stored):
    good = [json.dumps({"body": str(number), "queue": 0}) for number in range(6)]
    done = stratamq(
        "produce", "bad", "--format", "json", stdin=lines(*good[:3], "", "{", *good[3:])
    )
    assert (done.code, done.err.splitlines()) == (
        1,
        [
            "error: line 5: Expecting property name enclosed in double quotes: "
            "line 1 column 2 (char 1)",
            "lines 1 to 4 are stored; continue with --from-line 5",
        ],
    )
    mended = lines(*good[:3], "", json.dumps({"body": "mended", "queue": 0}), *good[3:])
    again = stratamq("produce", "bad", "--format", "json", "--from-line", "5", stdin=mended)
    assert (again.code, again.err) == (0, "")
    assert stored("bad") == {0: [b"0", b"1", b"2", b"mended", b"3", b"4", b"5"]}


def test_a_refused_message_ends_it(stratamq):
    done = stratamq("produce", "bad name!", stdin=lines("a", "b"))
    assert done.code == 1
    first, second = done.err.splitlines()
    assert first.startswith("error: line 1: topic name 'bad name!'")
    assert second == "nothing of this run is stored; continue with --from-line 1"


@pytest.mark.parametrize("size", [(4 << 20) + 1, (4 << 20) + 2, 6 << 20, 30 << 20])
def test_a_body_above_the_limit_is_refused_in_words_before_it_is_sent(stratamq, size):
    done = stratamq("produce", "sizes", "--queue", "0", stdin=lines("a", "x" * size, "c"))
    assert done.code == 1
    first, second = done.err.splitlines()
    assert first.startswith("error: line 2: ")
    assert f"{size:,} bytes" in first or f"{size + 1:,} bytes" in first
    assert "commitlog.max_message_bytes" in first
    assert second == "line 1 is stored; continue with --from-line 2"


def test_a_whole_file_is_one_message_byte_for_byte(stratamq, stored, tmp_path):
    file = tmp_path / "whole"
    content = b"one\r\ntwo\n\0" + bytes(range(256)) * 1000 + b"\n"
    file.write_bytes(content)
    assert stratamq("produce", "whole", "--whole", "--file", str(file), "-q", "0").code == 0
    assert stratamq("produce", "whole", "--whole", "-q", "0", stdin=b"").code == 0
    assert stored("whole") == {0: [content, b""]}
    file.write_bytes(b"x" * (5 << 20))
    done = stratamq("produce", "whole", "--whole", "--file", str(file))
    assert (done.code, done.err) == (
        1,
        "error: the body has 5,242,880 bytes, above the broker's limit of 4 MiB "
        "(commitlog.max_message_bytes)\n",
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ("--whole", "--from-line", "2"),
        ("--whole", "--format", "json"),
        ("--key-hash",),
        ("--ordering-key", "a", "--queue", "1"),
        ("--from-line", "0"),
    ],
)
def test_options_that_do_not_go_together_are_wrong_usage(stratamq, arguments):
    done = stratamq("produce", "t", *arguments, stdin=lines("a"))
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("error: ")


def test_a_line_to_begin_at_that_the_input_does_not_have_is_an_error(stratamq):
    done = stratamq("produce", "short", "--from-line", "4", stdin=lines("a", "b"))
    assert (done.code, done.err) == (1, "error: --from-line 4: the input has 2 lines\n")
    assert stratamq("produce", "short", "--from-line", "3", stdin=lines("a", "b")).code == 0


# --- keys choose queues ---


@pytest.mark.parametrize(
    ("key", "queues", "queue"),
    [
        ("", 4, 0),
        ("a", 4, 1),  # hashCode 97
        ("order-1", 8, 6),  # -1207111310
        ("größe", 8, 1),  # 98762257
        ("polygenelubricants", 3, 2),  # -2147483648
    ],
)
def test_a_key_has_the_queue_of_select_message_queue_by_hash(key, queues, queue):
    assert queue_of_key(key, queues) == queue


def test_messages_of_one_key_are_in_one_queue_in_order(stratamq, stored):
    stratamq("topics", "create", "hashed", "--queues", "4")
    keys = [f"k{number}" for number in range(20)]
    sent = [{"body": f"{key} {turn}", "key": key} for turn in range(5) for key in keys]
    documents = lines(*map(json.dumps, sent))
    assert (
        stratamq("produce", "hashed", "--format", "json", "--key-hash", stdin=documents).code == 0
    )
    found = stored("hashed")
    assert len(found) == 4
    for queue, bodies in found.items():
        assert {queue_of_key(body.decode().split()[0], 4) for body in bodies} == {queue}
        for key in {body.split()[0] for body in bodies}:
            turns = [body.split()[1] for body in bodies if body.split()[0] == key]
            assert turns == [b"0", b"1", b"2", b"3", b"4"]


def test_an_ordering_key_chooses_one_queue_for_all(stratamq, stored, rows, caught_up):
    stratamq("topics", "create", "ordered", "--queues", "8")
    done = stratamq("produce", "ordered", "--ordering-key", "order-1", stdin=lines("a", "b"))
    assert done.code == 0
    assert stored("ordered") == {6: [b"a", b"b"]}
    assert {row["keys"][0] for row in rows("consume", "ordered")} == {"order-1"}


def test_keys_choose_among_the_queues_of_a_topic_that_is_there(stratamq):
    done = stratamq("produce", "no-topic", "--ordering-key", "a", stdin=lines("a"))
    assert done.code == 1
    assert "stratamq topics create no-topic --queues N" in done.err


# --- ended from outside ---


def send_some(process, broker, topic: str, texts: list[str], behind: int) -> None:
    """Write lines, and wait until the topic has `behind` messages."""
    process.stdin.write(lines(*texts))
    process.stdin.flush()
    with connect(broker.root, retry_timeout_s=DEADLINE_S) as client:
        until(
            lambda: sum(one.max_offset for one in client.queues(topic)) >= behind,
            "the first lines are stored",
        )


def test_ctrl_c_ends_with_the_line_up_to_which_all_is_stored(producing, broker, stored):
    process = producing("interrupted", "-o", "json")
    send_some(process, broker, "interrupted", [str(number) for number in range(3000)], 3000)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 130
    assert err.decode() == "lines 1 to 3000 are stored; continue with --from-line 3001\n"
    assert (json.loads(out)["stored"], json.loads(out)["nextLine"]) == (3000, 3001)
    assert sum(map(len, stored("interrupted").values())) == 3000


def test_after_a_broker_that_died_it_continues_without_loss(producing, broker, stratamq, stored):
    texts = [f"line {number}" for number in range(1, 40_001)]
    process = producing("died", "--no-retry", "--queue", "0", "-o", "json")
    send_some(process, broker, "died", texts[:5000], 4000)
    broker.kill(COMMITLOG)
    try:
        out, err = process.communicate(lines(*texts[5000:]), timeout=DEADLINE_S)
    finally:
        broker.start([COMMITLOG])
    assert process.returncode == 1
    *reasons, summary = err.decode().splitlines()
    assert any(line.startswith("error: ") for line in reasons), err
    assert not any("retrying" in line for line in reasons), err
    found = re.search(r"lines 1 to (\d+) are stored; continue with --from-line (\d+)", summary)
    last, following = map(int, found.groups())
    assert following == last + 1 == json.loads(out)["nextLine"]
    assert 0 < last < 40_000  # what is stored when the log dies is not always answered
    again = stratamq(
        "produce", "died", "-q", "0", "--from-line", str(following), stdin=lines(*texts)
    )
    assert again.code == 0, again.err
    counts = Counter(stored("died")[0])
    assert set(counts) == {text.encode() for text in texts}
    twice = [body for body, count in counts.items() if count > 1]
    perhaps = re.search(r"up to ([\d,]+) messages are then stored twice", summary)
    assert len(twice) <= (int(perhaps.group(1).replace(",", "")) if perhaps else 0)


def test_by_default_what_a_broker_that_died_did_not_answer_is_sent_again(producing, broker, stored):
    texts = [f"line {number}" for number in range(1, 20_001)]
    process = producing("again", "--queue", "0")
    send_some(process, broker, "again", texts[:5000], 4000)
    broker.kill(COMMITLOG)
    try:
        process.stdin.write(lines(*texts[5000:10_000]))
        process.stdin.flush()
        assert b"sending was interrupted, retrying" in process.stderr.readline()
    finally:
        broker.start([COMMITLOG])
    out, err = process.communicate(lines(*texts[10_000:]), timeout=DEADLINE_S)
    assert (process.returncode, err) == (0, b"sending again\n"), out
    assert stored("again") == {0: [text.encode() for text in texts]}


def test_a_line_keeps_the_carriage_return_before_its_end(stratamq, broker, caught_up):
    assert stratamq("produce", "crlf", "--queue", "0", stdin=b"a\r\n\r\nb\r").code == 0
    caught_up()
    with connect(broker.root) as client:
        assert [one.body for one in client.consume("crlf")] == [b"a\r", b"\r", b"b\r"]


@pytest.mark.parametrize("body", ["NaN", "1e999", "[-Infinity]", '{"a": NaN}'])
def test_a_number_that_json_does_not_have_is_refused(stratamq, body):
    document = f'{{"body": {body}}}\n'.encode()
    done = stratamq("produce", "no-json", "--format", "json", stdin=document)
    assert done.code == 1
    assert "line 1: Out of range float values are not JSON compliant" in done.err
