"""`stratamq up --daemon` and `stratamq down`; wrong settings before anything starts."""

import contextlib
import os
import re
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from stratamq.client import connect
from stratamq.formats.store_paths import UP_LOCK_PATH
from stratamq.service.room_lock import lock_holder
from tests.cli.processes import COMMAND, DEADLINE_S, SMALL, Up, environment, stratamq

UNIT = Path(__file__).resolve().parents[2] / "deploy" / "systemd" / "stratamq.service"


@pytest.fixture
def data(tmp_path):
    data = tmp_path / "store"
    yield data
    process = lock_holder(data / UP_LOCK_PATH)
    if process is not None:
        os.kill(process, signal.SIGKILL)


def start(data: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    return stratamq("up", "--daemon", "--port", "0", *SMALL, *arguments, data=data)


def test_a_broker_in_the_background_serves_when_the_command_returns_until_down(data):
    started = start(data)
    assert started.returncode == 0
    shown = started.stdout.decode()
    assert re.search(r"commitlog +│ ready", shown)
    assert f"stratamq down --data {data} stops everything" in shown
    with connect(data) as client:
        client.send("t", b"kept")
    stopped = stratamq("down", data=data)
    assert (stopped.returncode, stopped.stderr) == (0, b"")
    assert stopped.stdout.decode().splitlines()[-1] == "everything has stopped"
    assert not (data / "abort").exists()
    assert "everything has stopped" in (data / "stratamq" / "log" / "up.log").read_text()


def test_a_second_start_is_refused_by_name_and_harms_nothing(data):
    start(data)
    second = start(data)
    assert second.returncode == 3
    assert "already running" in second.stdout.decode()
    third = stratamq("up", "--port", "0", data=data)
    assert third.returncode == 3
    assert b"already running" in third.stderr
    with connect(data) as client:
        client.send("t", b"still taken")
    assert stratamq("down", data=data).returncode == 0


def test_a_start_after_a_kill_waits_for_what_is_left_and_has_every_message(data):
    start(data)
    with connect(data) as client:
        client.send("t", b"before")
    process = lock_holder(data / UP_LOCK_PATH)
    assert process
    ended = os.pidfd_open(process)
    with contextlib.closing(os.fdopen(ended, "rb", buffering=0)):
        os.kill(process, signal.SIGKILL)
        assert select.select([ended], [], [], DEADLINE_S)[0]
    assert start(data).returncode == 0
    with connect(data, retry_timeout_s=60) as client:
        assert [m.body for m in client.consume("t")] == [b"before"]
    assert stratamq("down", data=data).returncode == 0


def test_down_stops_a_broker_in_the_foreground_too(data):
    with Up(data, *SMALL) as up:
        up.wait_ready()
        assert stratamq("down", data=data).returncode == 0
        assert up.process.wait(DEADLINE_S) == 0


def test_down_without_a_broker_is_an_error(data):
    missing = stratamq("down", data=data)
    assert (missing.returncode, b"no store directory" in missing.stderr) == (1, True)
    data.mkdir()
    idle = stratamq("down", data=data)
    assert (idle.returncode, b"no `stratamq up` runs" in idle.stderr) == (1, True)


def test_a_start_in_the_background_that_fails_shows_why_and_its_exit_code(data):
    data.mkdir()
    (data / "commitlog").mkdir()
    (data / "commitlog" / "00000000000000000000").write_bytes(bytes(1000))
    (data / "commitlog" / "00000000000000000777").write_bytes(bytes(1000))
    failed = start(data)
    assert failed.returncode == 3
    assert "stopped for good: store refused" in failed.stdout.decode()


def in_background(data: Path, run: str) -> subprocess.CompletedProcess[bytes]:
    """`run`, an expression, as the broker that is started."""
    code = (
        "import os, sys, pathlib; from stratamq.cli.background import run_in_background\n"
        f"sys.exit(run_in_background(pathlib.Path(sys.argv[1]), lambda: {run}))"
    )
    return subprocess.run(
        [sys.executable, "-c", code, str(data)], capture_output=True, timeout=DEADLINE_S
    )


def test_a_broker_that_is_killed_before_it_is_ready_says_so(data):
    killed = in_background(data, "os.kill(os.getpid(), 9)")
    assert (killed.returncode, killed.stderr) == (1, b"")
    assert killed.stdout == b"error: the broker was ended by SIGKILL before it was ready\n"


@pytest.mark.parametrize(
    ("fails", "last"),
    [("open('/')", "error: /: Is a directory"), ("1 / 0", "ZeroDivisionError: division by zero")],
)
def test_what_ends_a_start_in_the_background_unforeseen_is_shown_and_kept(data, fails, last):
    failed = in_background(data, fails)
    assert (failed.returncode, failed.stderr) == (1, b"")
    assert failed.stdout.decode().splitlines()[-1:] == [last]
    assert (data / "stratamq" / "log" / "up.log").read_bytes() == failed.stdout


def test_wrong_settings_of_all_services_come_in_one_report_and_nothing_starts(data):
    wrong = stratamq(
        "up", "--port", "0", "--set", "commitlog.segment_byte=1", "--set", "index.index_slots=0",
        "--set", "dispatcher.log_level=loud", "--set", "jantor.enabled=true", "--set", "nonsense",
        data=data, STRATAMQ_HA_ADDRESS="nowhere",
    )  # fmt: skip
    assert wrong.returncode == 2
    lines = wrong.stderr.decode().splitlines()
    assert [line.startswith("error: ") for line in lines] == [True] * len(lines)
    for expected in (
        "did you mean segment_bytes?",
        "index.index_slots = '0'",
        "dispatcher.log_level = 'loud'",
        "did you mean janitor?",
        "--set nonsense: must have the form",
        "ha.address = 'nowhere' (STRATAMQ_HA_ADDRESS): must be host:port",
    ):
        assert sum(expected in line for line in lines) == 1, (expected, lines)
    assert not data.exists()


def test_a_store_that_is_no_directory_is_named(tmp_path):
    (tmp_path / "file").write_bytes(b"x")
    done = stratamq("up", "--port", "0", data=tmp_path / "file")
    assert (done.returncode, b"is no directory" in done.stderr) == (2, True)


def test_a_manager_is_notified_when_the_broker_is_ready_and_when_it_stops(data, tmp_path):
    """As systemd does with `Type=notify`."""
    with contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(DEADLINE_S)
        broker = subprocess.Popen(
            [*COMMAND, "up", "--data", str(data), "--port", "0", *SMALL],
            env=environment() | {"NOTIFY_SOCKET": str(tmp_path / "notify")},
            stdout=subprocess.DEVNULL,
        )
        assert manager.recv(100) == b"READY=1"
        broker.terminate()
        assert manager.recv(100) == b"STOPPING=1"
        assert broker.wait(DEADLINE_S) == 0


def test_the_unit_fits_the_command():
    unit = dict(
        line.split("=", 1) for line in UNIT.read_text().splitlines() if re.match(r"\w+=", line)
    )
    assert unit["Type"] == "notify"
    assert unit["KillMode"] == "mixed"
    assert unit["RestartPreventExitStatus"].split() == ["2", "3"]
    assert unit["ExecStart"].split()[:2] == ["/opt/stratamq/bin/stratamq", "up"]
    assert int(unit["TimeoutStopSec"]) > 2 * 60


@pytest.mark.parametrize("redirection", ["2>&-", "<&- >&- 2>&-", ">/dev/full"])
def test_a_broker_starts_in_the_background_whatever_its_streams_are(data, redirection):
    given = ["up", "--daemon", "--port", "0", *SMALL, "--data", str(data)]
    done = subprocess.run(
        ["sh", "-c", f'"$@" {redirection}', "sh", *COMMAND, *given],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env=environment(),
        timeout=DEADLINE_S,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    with connect(data) as client:
        assert client.send("t", b"kept").stored
    assert "stops everything" in (data / "stratamq" / "log" / "up.log").read_text()
    assert stratamq("down", data=data).returncode == 0
