"""What `stratamq consume --group` commits: what standard output has taken, and no more."""

import io
import os
import select
import signal
import subprocess
import sys
from collections import Counter

import pytest

from stratamq.cli.consume import _buffer_output
from stratamq.client import connect
from tests.cli.processes import COMMAND, DEADLINE_S, environment

COUNT = 350
FORMATS = (("--raw",), ("-o", "json"), ("-f", "%s\\n"), ())


@pytest.fixture
def stored(broker, caught_up):
    """Stores COUNT messages in each of some topics, over two queues."""

    def call(*topics: str) -> None:
        with connect(broker.root) as client, client.producer() as producer:
            for topic in topics:
                for number in range(COUNT):
                    producer.send(topic, body(topic, number), queue_id=number % 2)
        caught_up()

    return call


@pytest.fixture
def unread(broker):
    """The bodies that a group has not read of its topics."""

    def call(group: str, *topics: str) -> list[bytes]:
        with connect(broker.root) as client, client.consume(topics, group=group) as reader:
            return [message.body for message in reader]

    return call


def body(topic: str, number: int) -> bytes:
    return b"<%s-%04d>" % (topic.encode(), number)


def bodies(*topics: str) -> list[bytes]:
    return [body(topic, number) for topic in topics for number in range(COUNT)]


def consume(broker, *arguments: str, stdout, limit: int | None = None) -> tuple[int, bytes]:
    """Exit code and standard error; `limit`: the largest file it may write."""

    limited = [] if limit is None else ["prlimit", f"--fsize={limit}"]
    done = subprocess.run(
        [*limited, *COMMAND, "consume", *arguments, "--data", str(broker.root)],
        stdout=stdout,
        stderr=subprocess.PIPE,
        env=environment(),
        timeout=DEADLINE_S,
    )
    assert b"Traceback" not in done.stderr, done.stderr.decode()
    return done.returncode, done.stderr


@pytest.mark.parametrize("number", range(len(FORMATS)))
def test_what_a_full_device_did_not_take_is_read_again(broker, stored, unread, number):
    topic = f"full-{number}"
    stored(topic)
    with open("/dev/full", "wb") as full:
        code, said = consume(broker, topic, "-g", "g", *FORMATS[number], stdout=full)
    assert code == 1, said
    assert b"No space left on device" in said
    assert Counter(unread("g", topic)) == Counter(bodies(topic))


@pytest.mark.parametrize("number", range(len(FORMATS)))
def test_what_a_closed_pipe_did_not_take_is_read_again(broker, stored, unread, number):
    topic = f"pipe-{number}"
    stored(topic)
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "wb", closefd=True) as pipe:
        code, said = consume(broker, topic, "-g", "g", *FORMATS[number], stdout=pipe)
    assert code == 141, said
    assert Counter(unread("g", topic)) == Counter(bodies(topic))


@pytest.mark.parametrize("number", range(len(FORMATS)))
def test_what_was_written_before_an_error_is_committed(broker, stored, unread, tmp_path, number):
    topics = (f"part-{number}-a", f"part-{number}-b")
    stored(*topics)
    whole, part = tmp_path / "whole", tmp_path / "part"
    with whole.open("wb") as file:
        code, said = consume(broker, *topics, *FORMATS[number], stdout=file)
    assert code == 0, said
    with part.open("wb") as file:
        limit = whole.stat().st_size * 2 // 3
        code, said = consume(broker, *topics, "-g", "g", *FORMATS[number], stdout=file, limit=limit)
    assert code == 1, said
    printed = part.read_bytes()
    taken = {one for one in bodies(*topics) if one in printed}
    left = unread("g", *topics)
    assert taken | set(left) == set(bodies(*topics))
    assert len(left) == len(set(left))
    assert len(left) < 2 * COUNT - 200  # what was flushed before is not given again


@pytest.mark.parametrize("options", [(), ("-o", "json")])
def test_ctrl_c_commits_what_was_printed(broker, stored, unread, options):
    topic = f"interrupted-{len(options)}"
    stored(topic)
    process = subprocess.Popen(
        [*COMMAND, "consume", topic, "-g", "g", "-F", *options, "--data", str(broker.root)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
        bufsize=0,  # or `communicate` leaves out what a line was read with
    )
    try:
        printed = b"".join(process.stdout.readline() for _ in range(COUNT // 2))
        process.send_signal(signal.SIGINT)
        rest, said = process.communicate(timeout=DEADLINE_S)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 0, said
    taken = {one for one in bodies(topic) if one in printed + rest}
    left = unread("g", topic)
    assert taken | set(left) == set(bodies(topic))
    assert len(taken & set(left)) <= 1  # the line that was being printed


def test_everything_is_committed_when_all_of_it_was_printed(broker, stored, unread):
    stored("all")
    assert consume(broker, "all", "-g", "g", stdout=subprocess.DEVNULL)[0] == 0
    assert unread("g", "all") == []
    assert consume(broker, "all", "-g", "h", "-n", "7", stdout=subprocess.DEVNULL)[0] == 0
    assert len(unread("h", "all")) == COUNT - 7


@pytest.mark.parametrize("unbuffered", [True, False], ids=["PYTHONUNBUFFERED", "a terminal"])
def test_standard_output_gives_nothing_before_it_is_flushed(monkeypatch, unbuffered):
    """A Ctrl-C between a line and the note that it was printed would give the message twice."""
    reader, writer = os.pipe()
    try:
        raw = io.FileIO(writer, "w")
        binary = raw if unbuffered else io.BufferedWriter(raw)
        stream = io.TextIOWrapper(
            binary, "utf-8", "backslashreplace", line_buffering=not unbuffered,
            write_through=unbuffered,
        )  # fmt: skip
        monkeypatch.setattr(sys, "stdout", stream)
        _buffer_output()
        for put in (lambda: print("line"), lambda: sys.stdout.buffer.write(b"line\n")):
            put()
            assert not select.select([reader], [], [], 0)[0]
            sys.stdout.flush()
            assert os.read(reader, 100) == b"line\n"
        assert sys.stdout.errors == "backslashreplace"
        sys.stdout.close()
    finally:
        os.close(reader)
