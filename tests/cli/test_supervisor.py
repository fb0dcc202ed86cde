"""What the supervisor does with processes of every temper. The rooms here are small scripts: how
real services fare is `test_up`'s."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from stratamq.cli import supervisor as supervising
from stratamq.cli.log_lines import LogWatch, notable
from stratamq.cli.supervisor import RestartPolicy, Room, Supervisor, service_command
from stratamq.files.clock import SystemClock
from stratamq.service import logging as service_logging
from stratamq.service.server import EXIT_PORT_TAKEN

FAST = RestartPolicy(first_s=0.01, longest_s=0.05)
SLEEP = "import signal; signal.pause()"
ANNOUNCED = "print('started', flush=True)"


def python(name: str, *lines: str) -> Room:
    return Room(name, [sys.executable, "-c", "\n".join(lines)])


class Watched:
    """A supervisor, and what it printed."""

    def __init__(self, root: Path, *rooms: Room) -> None:
        self.printed: list[tuple[str, str]] = []
        self.changed = asyncio.Event()
        self.supervisor = Supervisor(root, rooms, SystemClock(), self._print, FAST)

    def _print(self, room: str, text: str) -> None:
        self.printed.append((room, text))
        self.changed.set()

    def pid(self, room: str) -> int | None:
        process = self.supervisor.running[room].process
        return None if process is None else process.pid

    def log(self, room: str) -> str:
        path = self.supervisor.running[room].log_path
        return path.read_text() if path.exists() else ""

    async def until(self, condition) -> None:
        async def wait() -> None:
            while not condition():
                await asyncio.sleep(0.01)

        await asyncio.wait_for(wait(), 60)


def run(scenario) -> None:
    asyncio.run(asyncio.wait_for(scenario(), 100))


# --- the rule ---


def test_waits_grow_and_begin_anew_after_a_steady_run():
    policy = RestartPolicy(first_s=1, longest_s=5, steady_s=30)
    delays = [policy.delay_s(1, 0, None, has_run=True)]
    for _ in range(4):
        delays.append(policy.delay_s(-9, 0.5, delays[-1], has_run=True))
    assert delays == [1, 2, 4, 5, 5]
    assert policy.delay_s(1, 31, 5, has_run=True) == 1


@pytest.mark.parametrize("code", [2, 3])
def test_an_exit_that_asks_for_an_operator_is_never_followed_by_a_start(code):
    assert RestartPolicy().delay_s(code, 1000, None, has_run=True) is None


@pytest.mark.parametrize("code", [0, 1, 130, -9, -11])
def test_every_other_end_is(code):
    assert RestartPolicy().delay_s(code, 1000, None, has_run=False) is not None


def test_a_port_that_is_taken_ends_a_first_start_and_is_waited_for_by_a_service_that_has_run():
    policy = RestartPolicy()
    assert policy.delay_s(EXIT_PORT_TAKEN, 1, None, has_run=False) is None
    assert policy.delay_s(EXIT_PORT_TAKEN, 1, 2, has_run=True) == 4


# --- processes ---


def test_a_room_that_dies_is_started_again(tmp_path):
    async def scenario():
        watched = Watched(tmp_path, python("a", ANNOUNCED, SLEEP), python("b", SLEEP))
        task = asyncio.ensure_future(watched.supervisor.run())
        await watched.until(lambda: watched.log("a").count("started") == 1 and watched.pid("b"))
        other = watched.pid("b")
        for count in (2, 3):
            os.kill(watched.pid("a"), signal.SIGKILL)
            await watched.until(lambda count=count: watched.log("a").count("started") == count)
        assert watched.pid("b") == other
        assert watched.supervisor.running["a"].restarts == 2
        assert any("SIGKILL" in text for _, text in watched.printed)
        watched.supervisor.request_stop()
        assert await task == 0

    run(scenario)


def test_services_that_are_waited_for_have_names(tmp_path):
    async def scenario():
        supervisor = Watched(tmp_path, python("a", SLEEP), python("b", SLEEP)).supervisor
        supervisor.running["a"].ready_services.add("a")
        assert supervisor.not_ready() == ["b"]
        supervisor.running["b"].ready_services.add("b")
        assert supervisor.not_ready() == []

    run(scenario)


def test_a_room_that_asks_for_an_operator_ends_everything_with_its_code(tmp_path):
    async def scenario():
        refused = python("a", "import sys", "print('store refused: in use'), sys.exit(3)")
        watched = Watched(tmp_path, refused, python("b", SLEEP))
        assert await watched.supervisor.run() == 3
        assert ("a", "stopped for good: store refused: in use") in watched.printed
        assert watched.pid("b") is None

    run(scenario)


def test_the_log_stops_before_the_others(tmp_path):
    slow = python(
        "commitlog",
        "import signal, sys, threading",
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))",
        ANNOUNCED,
        "signal.pause()",
    )

    async def scenario():
        watched = Watched(tmp_path, python("dispatcher", SLEEP), slow, python("index", SLEEP))
        task = asyncio.ensure_future(watched.supervisor.run())
        await watched.until(lambda: "started" in watched.log("commitlog"))
        await watched.until(lambda: watched.pid("dispatcher") and watched.pid("index"))
        watched.supervisor.request_stop()
        await task
        stops = [room for room, text in watched.printed if text == "stopping"]
        assert stops[0] == "commitlog"
        assert sorted(stops[1:]) == ["dispatcher", "index"]

    run(scenario)


def test_a_second_request_kills_what_does_not_stop(tmp_path):
    stubborn = python(
        "a", "import signal", "signal.signal(signal.SIGTERM, signal.SIG_IGN)", ANNOUNCED,
        "while True: signal.pause()",
    )  # fmt: skip

    async def scenario():
        watched = Watched(tmp_path, stubborn)
        task = asyncio.ensure_future(watched.supervisor.run())
        await watched.until(lambda: "started" in watched.log("a"))
        watched.supervisor.request_stop()
        await watched.until(lambda: ("a", "stopping") in watched.printed)
        watched.supervisor.request_stop()
        assert await task == 1

    run(scenario)


def test_a_room_that_does_not_stop_in_time_is_killed(tmp_path, monkeypatch):
    monkeypatch.setattr(supervising, "STOP_LIMIT_S", 0.05)
    stubborn = python(
        "a", "import signal", "signal.signal(signal.SIGTERM, signal.SIG_IGN)", ANNOUNCED,
        "while True: signal.pause()",
    )  # fmt: skip

    async def scenario():
        watched = Watched(tmp_path, stubborn)
        task = asyncio.ensure_future(watched.supervisor.run())
        await watched.until(lambda: "started" in watched.log("a"))
        watched.supervisor.request_stop()
        assert await task == 1
        assert any("killed" in text for _, text in watched.printed)

    run(scenario)


def test_a_log_that_has_grown_is_put_aside_at_a_start(tmp_path, monkeypatch):
    monkeypatch.setattr(service_logging, "LARGEST_LOG_BYTES", 10)
    path = tmp_path / "stratamq" / "log" / "a.log"
    path.parent.mkdir(parents=True)
    path.write_text("a line of an earlier run\n")

    async def scenario():
        watched = Watched(tmp_path, python("a", ANNOUNCED, SLEEP))
        task = asyncio.ensure_future(watched.supervisor.run())
        await watched.until(lambda: "started" in watched.log("a"))
        watched.supervisor.request_stop()
        await task

    run(scenario)
    assert path.read_text() == "started\n"
    assert path.with_suffix(".log.1").read_text() == "a line of an earlier run\n"


def test_a_service_does_not_outlive_its_supervisor(tmp_path):
    """The supervisor is killed while it has many threads; the service gets one signal to stop."""
    (tmp_path / "stratamq_service.py").write_text(
        "import signal, threading\n"
        "stop = threading.Event()\n"
        "signal.signal(signal.SIGTERM, lambda *_: (print('signalled', flush=True), stop.set()))\n"
        "print('started', flush=True)\n"
        "stop.wait()\n"
        "print('stopped', flush=True)\n"
    )
    parent = (
        "import subprocess, sys, threading\n"
        f"child = subprocess.Popen({service_command(['service'], [])!r}, cwd={str(tmp_path)!r},\n"
        "                         stdin=subprocess.PIPE)\n"
        "for _ in range(8): threading.Thread(target=threading.Event().wait, daemon=True).start()\n"
        "sys.stdin.read()\n"
    )

    async def scenario():
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            parent,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        assert await process.stdout.readline() == b"started\n"
        process.kill()
        await process.wait()
        assert await process.stdout.read() == b"signalled\nstopped\n"

    run(scenario)


# --- log lines ---


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("2026-01-31T10:00:00.000Z INFO    commitlog segment rolled start_offset=1", None),
        (
            "2026-01-31T10:00:00.000Z WARNING commitlog abort is kept missing_followers=x",
            ("WARNING", "abort is kept missing_followers=x"),
        ),
        (
            "2026-01-31T10:00:00.000Z INFO    commitlog recovery detail='3 frames cut'",
            ("INFO", "recovery detail='3 frames cut'"),
        ),
        (
            '{"time":"x","level":"ERROR","service":"index","logger":"l","event":"lost","at":3}',
            ("ERROR", "lost at=3"),
        ),
        ('{"level":"INFO","event":"service started"}', None),
        ("{no json", None),
        ("Traceback (most recent call last):", None),
        ("", None),
    ],
)
def test_only_what_is_out_of_the_ordinary_is_shown(line, shown):
    assert notable(line) == shown


def test_lines_are_shown_once_and_whole_whenever_they_are_looked_at(tmp_path):
    path = tmp_path / "a.log"
    path.write_text("2026-01-31T10:00:00.000Z ERROR   a before nothing\n")
    shown = []
    watch = LogWatch({"a": path}, lambda *line: shown.append(line))
    watch.look()
    with path.open("a") as file:
        file.write("2026-01-31T10:00:00.000Z ERROR   a first one\n2026-01-31T10:0")
        file.flush()
        watch.look()
        watch.look()
        file.write("0:00.000Z ERROR   a second one\n")
        file.flush()
        watch.look()
    path.rename(tmp_path / "a.log.1")
    path.write_text("2026-01-31T10:00:00.000Z ERROR   a third\n")
    watch.look()
    assert [text for _, _, text in shown] == ["first one", "second one", "third"]
