"""Standard streams that are closed or take nothing: a line where it is read, and an exit code."""

import subprocess

import pytest

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
