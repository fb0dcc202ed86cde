"""Standard streams that are closed or take nothing: a line where it is read, and an exit code."""

import os
import subprocess
import sys

import pytest

from stratamq.cli.exit_codes import EXIT_BROKEN_PIPE, EXIT_USAGE
from stratamq.client import connect
from tests.cli.processes import COMMAND, DEADLINE_S, environment


@pytest.fixture(scope="module")
def topic(broker):
    with connect(broker.root, retry_timeout_s=60) as client:
        for number in range(3):
            client.send("streams", b"%d" % number, queue_id=0)
    return "streams"


def run(broker, command: str, redirection: str) -> tuple[int, str, str]:
    """Exit code and what came out, by a shell that closes streams."""
    shell = f'"$@" {redirection}'
    given = [*COMMAND, *command.split(), "--data", str(broker.root)]
    done = subprocess.run(
        ["sh", "-c", shell, "sh", *given],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=environment(),
        timeout=DEADLINE_S,
    )
    assert "Traceback" not in done.stderr, done.stderr
    assert "Exception ignored" not in done.stderr, done.stderr
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("command", "redirection", "sentence"),
    [
        ("produce streams", "<&-", "Bad file descriptor"),
        ("topics delete streams", "<&-", "error: "),
        ("consume streams", ">&-", "Bad file descriptor"),
        ("consume streams --raw", ">&-", "Bad file descriptor"),
        ("consume streams -o json", ">&-", "Bad file descriptor"),
        ("topics list", ">&-", "Bad file descriptor"),
        ("status", ">/dev/full", "No space left on device"),
        ("topics list -o json", ">/dev/full", "No space left on device"),
    ],
)
def test_a_stream_that_is_needed_and_closed_is_an_error(
    broker, topic, command, redirection, sentence
):
    code, out, said = run(broker, command, redirection)
    assert code == 1
    assert sentence in said
    assert not out or "<&-" in redirection


@pytest.mark.parametrize("redirection", ["2>&-", "<&- 2>&-", "<&-"])
def test_a_stream_that_is_not_needed_may_be_closed(broker, topic, redirection):
    assert run(broker, "consume streams --raw", redirection) == (0, "0\n1\n2\n", "")


@pytest.mark.parametrize("redirection", ["2>&-", "2>/dev/full"])
def test_without_standard_error_there_is_an_exit_code(broker, redirection):
    assert run(broker, "consume nowhere", redirection) == (1, "", "")


@pytest.mark.parametrize("stream", ["stdout", "both"])
def test_produce_says_what_is_stored_when_its_streams_break_meanwhile(broker, stream):
    """They are a pipe that its reader closes once messages are on their way."""
    topic = f"broken-{stream}"
    readers, writer = os.pipe()
    said: int | None = writer if stream == "both" else subprocess.PIPE
    with subprocess.Popen(
        [*COMMAND, "produce", topic, "--data", str(broker.root)],
        stdin=subprocess.PIPE,
        stdout=writer,
        stderr=said,
        env=environment(),
    ) as process:
        os.close(writer)
        process.stdin.write(b"one\ntwo\n")
        process.stdin.flush()
        os.close(readers)
        _, errors = process.communicate(b"three\n", timeout=DEADLINE_S)
    assert process.returncode == EXIT_BROKEN_PIPE
    if errors is not None:
        assert errors == b"3 of 3 messages are stored: standard output failed\n"
    with connect(broker.root) as client:
        assert client.send(topic, b"").queue_offset <= 3
        assert len(list(client.consume(topic))) == 4


COMMANDS = ["topics list", "status", "consume streams", "produce streams", "groups list"]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_user_without_a_home_needs_no_profile(broker, topic, command):
    done = homeless(*command.split(), "--data", str(broker.root))
    assert done.returncode == 0
    assert b"Traceback" not in done.stderr and b"error" not in done.stderr


def test_a_user_without_a_home_is_told_where_profiles_would_be():
    for command in (["profile", "list"], ["--profile", "p", "topics", "list"]):
        done = homeless(*command)
        assert done.returncode == EXIT_USAGE
        assert b"set HOME or XDG_CONFIG_HOME" in done.stderr
        assert b"Traceback" not in done.stderr


def homeless(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    """A command by an interpreter for which the user has neither HOME nor an entry in passwd."""
    variables = environment()
    del variables["XDG_CONFIG_HOME"]
    variables.pop("HOME", None)
    # Python looks the user up by number: this one is in no passwd, and still reads root's files.
    start = "import os; os.getuid = lambda: 54321; from stratamq.cli.__main__ import main; main()"
    return subprocess.run(
        [sys.executable, "-c", start, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env=variables,
        timeout=DEADLINE_S,
    )
