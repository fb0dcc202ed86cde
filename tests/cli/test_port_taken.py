"""A service whose port is taken while it is being started again, by a connection that some other
process has opened: it waits for the port, and nothing else stops."""

import asyncio
import os
import signal
import socket
import sys
from pathlib import Path

import pytest

from stratamq.cli.supervisor import RestartPolicy, Room, Supervisor, service_command
from stratamq.files.clock import SystemClock
from stratamq.service.server import EXIT_PORT_TAKEN

GATED = "import os, sys; open(sys.argv[1]).close(); os.execv(sys.argv[2], sys.argv[2:])"
"""A start waits until the test opens the gate."""


class Janitor:
    """A supervised janitor, whose every start waits at the gate."""

    def __init__(self, tmp_path: Path, setting: str, port: int) -> None:
        self._gate = tmp_path / "gate"
        os.mkfifo(self._gate)
        settings = {"root": tmp_path / "store", "address": "127.0.0.1:0", "metrics_address": ""}
        settings[setting] = f"127.0.0.1:{port}"
        arguments = [f"--set=janitor.{name}={value}" for name, value in settings.items()]
        command = service_command(["janitor"], arguments)
        room = Room("janitor", [sys.executable, "-c", GATED, str(self._gate), *command])
        self.printed: list[str] = []
        self.supervisor = Supervisor(
            tmp_path / "store",
            [room],
            SystemClock(),
            lambda room, text: self.printed.append(text),
            RestartPolicy(first_s=0.01, longest_s=0.05),
        )

    @property
    def pid(self) -> int | None:
        endpoint = self.supervisor.running["janitor"].endpoints.get("janitor")
        return None if endpoint is None else endpoint.pid

    async def start(self) -> None:
        await asyncio.to_thread(lambda: self._gate.open("w").close())

    async def until(self, condition) -> None:
        async with asyncio.timeout(60):
            while not condition():
                await asyncio.sleep(0.01)


class Connection:
    """One that goes out from a port, and ends without keeping it."""

    def __init__(self, port: int) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._there = socket.create_connection(
            self._listener.getsockname(), source_address=("127.0.0.1", port)
        )
        self._here, _ = self._listener.accept()

    @property
    def port(self) -> int:
        return self._there.getsockname()[1]

    def close(self) -> None:
        self._here.close()
        assert self._there.recv(1) == b""
        self._there.close()
        self._listener.close()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return found.getsockname()[1]


@pytest.mark.parametrize("setting", ["address", "metrics_address"])
async def test_a_service_that_has_run_waits_for_its_port(tmp_path, setting):
    port = free_port()
    janitor = Janitor(tmp_path, setting, port)
    supervising = asyncio.ensure_future(janitor.supervisor.run())
    await janitor.start()
    await janitor.until(lambda: janitor.pid)
    first = janitor.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    await janitor.until(lambda: janitor.supervisor.running["janitor"].restarts)
    connection = Connection(port)
    for number in (1, 2):
        await janitor.start()
        await janitor.until(
            lambda wanted=number: (
                sum("waiting for its port" in text for text in janitor.printed) == wanted
            )
        )
    (line, _) = [text for text in janitor.printed if "waiting for its port" in text]
    assert f"127.0.0.1:{port}" in line and "started again in" in line
    connection.close()
    await janitor.start()
    await janitor.until(lambda: janitor.pid not in (None, first))
    janitor.supervisor.request_stop()
    assert await supervising == 0


async def test_a_first_start_is_refused(tmp_path):
    connection = Connection(0)
    janitor = Janitor(tmp_path, "address", connection.port)
    supervising = asyncio.ensure_future(janitor.supervisor.run())
    await janitor.start()
    assert await supervising == EXIT_PORT_TAKEN
    (line,) = [text for text in janitor.printed if "stopped for good" in text]
    assert f"janitor cannot listen on 127.0.0.1:{connection.port}: taken" in line
    connection.close()
