"""`stratamq logs`: the lines of all services in the order of their time, however they look."""

import itertools
import os
import subprocess

import pytest

from stratamq.cli.logs import READ_AT_ONCE, events_backwards
from tests.cli.processes import COMMAND, environment, stratamq

FIRST = "2026-01-31T10:00:00.100Z INFO    commitlog segment rolled start_offset=1"
SECOND = "2026-01-31T10:00:00.200Z WARNING dispatcher queue mended queue=t"
THIRD = (
    '{"time": "2026-01-31T10:00:00.300Z", "level": "ERROR", "service": "index", '
    '"logger": "x", "event": "bad file"}'
)
FOURTH = "2026-01-31T10:00:00.400Z CRITICAL commitlog service fails reason=x"
TRACEBACK = 'Traceback (most recent call last):\n  File "x.py", line 1\nValueError: x'
LAST = "2026-01-31T10:00:00.500Z INFO    commitlog service stopped"


@pytest.fixture
def store(tmp_path):
    directory = tmp_path / "stratamq/log"
    directory.mkdir(parents=True)
    (directory / "commitlog.log.1").write_text(f"{FIRST}\n")
    (directory / "commitlog.log").write_text(f"{FOURTH}\n{TRACEBACK}\n{LAST}\n")
    (directory / "dispatcher.log").write_text(f"{SECOND}\n")
    (directory / "index.log").write_text(f"{THIRD}\n")
    (directory / "up.log").write_text("10:00:00 commitlog ready\n")
    return tmp_path


def shown(store, *options: str) -> list[str]:
    done = stratamq("logs", *options, data=store)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode().splitlines()


@pytest.mark.parametrize(
    ("options", "lines"),
    [
        ([], [FIRST, SECOND, THIRD, FOURTH, *TRACEBACK.splitlines(), LAST]),
        (["-n", "2"], [FOURTH, *TRACEBACK.splitlines(), LAST]),
        (["--level", "warning"], [SECOND, THIRD, FOURTH, *TRACEBACK.splitlines()]),
        (["--level", "error", "-n", "1"], [FOURTH, *TRACEBACK.splitlines()]),
        (["dispatcher", "index"], [SECOND, THIRD]),
        (["--match", "ValueError"], [FOURTH, *TRACEBACK.splitlines()]),
        (["--since", "2026-01-31T10:00:00.400Z"], [FOURTH, *TRACEBACK.splitlines(), LAST]),
        (["--since", "2026-01-31T10:00:00.5001Z"], [LAST]),
        (["--since", "2027-01-31"], []),
    ],
)
def test_events_come_in_their_order_with_their_tracebacks(store, options, lines):
    assert shown(store, *options) == lines


REQUEST = "4bf92f3577b34da6a3ce929d0e0e4736"
OF_TEXT = f"2026-02-01T10:00:00.000Z ERROR   commitlog damaged bytes found request_id={REQUEST}"
OF_JSON = (
    '{"time": "2026-02-01T10:00:01.000Z", "level": "ERROR", "service": "tier", '
    f'"event": "bad file", "request_id": "{REQUEST}"}}'
)
NAMED = f"2026-02-01T10:00:02.000Z INFO    ha readiness changed reason={REQUEST}"


@pytest.mark.parametrize(
    ("request_id", "lines"),
    [
        (REQUEST, [OF_TEXT, OF_JSON]),
        (REQUEST[:8].upper(), [OF_TEXT, OF_JSON]),
        ("0" * 32, []),
    ],
)
def test_events_of_one_request_are_those_of_all_services(store, request_id, lines):
    for name, line in {"commitlog": OF_TEXT, "tier": OF_JSON, "ha": NAMED}.items():
        with (store / f"stratamq/log/{name}.log").open("a") as file:
            file.write(f"{line}\n")
    assert shown(store, "--request", request_id) == lines


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--request", "nothing"], "32 hexadecimal digits"),
        (["--request", "4bf92f3"], "at least the first 8"),
        (["tier"], "no logs of tier"),
        (["--level", "loud"], "one of DEBUG"),
        (["--since", "soon"], "not a time"),
    ],
)
def test_what_cannot_be_shown_is_reported(store, options, text):
    done = stratamq("logs", *options, data=store)
    assert done.returncode != 0
    assert text in done.stderr.decode()


def test_a_broker_without_logs_is_reported(tmp_path):
    assert "is not there" in stratamq("logs", data=tmp_path).stderr.decode()


def test_nothing_that_a_terminal_obeys_is_shown(store):
    """A traceback has the text that a peer has sent."""
    with (store / "stratamq/log/commitlog.log").open("a") as log:
        log.write(f"{LAST}\nValueError: \x1b]0;owned\x07\x9b31m\rhidden\n")
    done = stratamq("logs", data=store)
    assert b"ValueError: \\x1b]0;owned\\x07\\x9b31m\\rhidden" in done.stdout
    assert not set(done.stdout.decode()) & {"\x1b", "\x07", "\r", "\x9b"}


@pytest.mark.parametrize("size", [1, READ_AT_ONCE - 40, READ_AT_ONCE, 3 * READ_AT_ONCE])
def test_lines_are_whole_wherever_a_read_ends(tmp_path, size):
    path = tmp_path / "commitlog.log"
    texts = [f"{FIRST} {'ä' * size}{number}" for number in range(4)]
    path.write_text("".join(f"{text}\n" for text in texts))
    assert [event.text for event in events_backwards([path])] == texts[::-1]


def test_a_large_log_is_read_from_its_end(tmp_path):
    path = tmp_path / "commitlog.log"
    with path.open("wb") as file:
        file.truncate(1 << 40)  # all zero bytes: reading them would take hours
        file.seek(0, os.SEEK_END)
        file.write(f"\n{FIRST}\n{LAST}\n".encode())
    newest = itertools.islice(events_backwards([path]), 2)
    assert [event.text for event in newest] == [LAST, FIRST]


def test_following_shows_what_is_added_and_what_a_new_file_begins_with(store):
    log = store / "stratamq/log/commitlog.log"
    process = subprocess.Popen(
        [*COMMAND, "logs", "-f", "-n", "1", "--level", "info", "--data", str(store)],
        stdout=subprocess.PIPE,
        env=environment(),
        text=True,
    )
    try:
        assert process.stdout.readline() == f"{LAST}\n"
        with log.open("a") as file:
            file.write(f"{FOURTH}\n{TRACEBACK}\n")
        for line in (FOURTH, *TRACEBACK.splitlines()):
            assert process.stdout.readline() == f"{line}\n"
        log.rename(log.with_suffix(".log.1"))
        log.write_text(f"{FIRST}\n")
        assert process.stdout.readline() == f"{FIRST}\n"
    finally:
        process.kill()
        process.wait()
