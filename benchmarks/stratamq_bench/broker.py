"""Real services in processes of their own, over a fresh directory."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from stratamq.client import Client, connect
from stratamq.errors import StrataError
from stratamq.rpc.rooms import SERVICES

STOP_TIMEOUT_S = 60.0
START_TIMEOUT_S = 30.0
ANY_VOLUME = {"commitlog.disk_refuse_ratio": 1.0}
"""What other programs have filled of the volume decides nothing."""
FOLLOWERS = ("dispatcher", "index")


def until(done: Callable[[], bool], missing: str, timeout_s: float, look_s: float = 0.1) -> None:
    """StrataError, with what is `missing`, when it is not `done` in time.

    A call that fails counts as not done: a service starts, or there is no master yet.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        failure = None
        try:
            if done():
                return
        except StrataError as error:
            failure = error
        if time.monotonic() > deadline:
            raise StrataError(f"{missing} after {timeout_s:g} s") from failure
        time.sleep(look_s)


def _start_process(command: Sequence[str], output: BinaryIO) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)


class Broker:
    """The services named, running until `stop`; their logs lie beside the store."""

    start_process = staticmethod(_start_process)
    """Tests give another, which starts at less cost."""

    def __init__(
        self,
        directory: Path,
        rooms: Sequence[str],
        settings: Mapping[str, object],
        name: str = "store",
    ) -> None:
        """`settings` by `service.setting`; those of services that do not run are left out."""
        self.root = directory / name
        self.root.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._settings = {**ANY_VOLUME, **settings}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        try:
            for room in sorted(rooms, key=SERVICES.index):  # they stop in the same order
                self.start(room)
            with self.client() as client:
                answers = {
                    "commitlog": client.log_state,
                    "dispatcher": client.admin.dispatch_state,
                    "index": client.admin.index_state,
                    "ha": client.admin.replication_state,
                    "gateway": client.admin.gateway_state,
                }
                for room in rooms:
                    if room in answers:
                        answers[room]()
        except BaseException:
            self.stop()
            raise

    @property
    def pids(self) -> dict[str, int]:
        return {room: process.pid for room, process in self._processes.items()}

    def client(self) -> Client:
        return connect(self.root, retry_timeout_s=START_TIMEOUT_S)

    def start(self, room: str, settings: Mapping[str, object] | None = None) -> None:
        """`settings`: of this start alone."""
        command = [sys.executable, "-m", f"stratamq_{room}", "--data", str(self.root)]
        for name, value in {**self._settings, **(settings or {})}.items():
            if name.startswith((f"{room}.", "tls.", "access.")):
                command += ["--set", f"{name}={value}"]
        with self._log_of(room).open("wb") as log:
            self._processes[room] = self.start_process(command, log)

    def stop_room(self, room: str) -> None:
        """StrataError when it ended badly."""
        process = self._processes.pop(room)
        process.send_signal(signal.SIGTERM)
        try:
            code = process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
        if code:
            output = self._log_of(room).read_text(errors="replace")
            raise StrataError(f"the {room} service ended with {code}: {output[-2000:]}")

    def kill(self, room: str) -> None:
        """Kill a room, like a machine that fails."""
        process = self._processes.pop(room)
        process.kill()
        process.wait()

    def stop(self) -> None:
        """The log first: the others report its end to it. StrataError when one ended badly."""
        faults = []
        for room in list(self._processes):
            try:
                self.stop_room(room)
            except StrataError as fault:
                faults.append(str(fault))
        if faults:
            raise StrataError("; ".join(faults))

    def _log_of(self, room: str) -> Path:
        return self._directory / f"{self.root.name}-{room}.log"

    def __enter__(self) -> "Broker":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def replica_of(master: Broker, directory: Path, settings: Mapping[str, object]) -> Broker:
    """A log that follows `master`, with the same settings otherwise; without followers."""
    with master.client() as client:
        address = client.admin.replication_state().replication_address
    of_slave = {
        "commitlog.role": "SLAVE",
        "commitlog.broker_id": 1,
        "commitlog.followers": "",
        "ha.master": address,
    }
    return Broker(directory, ("commitlog", "ha"), {**settings, **of_slave}, "slave")
