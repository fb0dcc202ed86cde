"""Real services in processes of their own, over a fresh directory."""

import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from stratamq.client import Client, connect
from stratamq.errors import StrataError

STOP_TIMEOUT_S = 60.0
START_PATIENCE_S = 30.0
# The log first: it is also stopped first.
ROOM_MODULES = {
    "commitlog": "stratamq_commitlog",
    "dispatcher": "stratamq_dispatcher",
    "index": "stratamq_index",
}


class Broker:
    """The services named, running until `stop`; their logs lie beside the store."""

    def __init__(
        self, directory: Path, rooms: Sequence[str], settings: Mapping[str, object]
    ) -> None:
        """`settings` by `service.setting`; those of services that do not run are left out."""
        self.root = directory / "store"
        self.root.mkdir(parents=True)
        self._directory = directory
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        try:
            for room in sorted(rooms, key=list(ROOM_MODULES).index):
                self._start(room, settings)
            with self.client() as client:
                client.log_state()
                if "dispatcher" in rooms:
                    client.dispatch_state()
                if "index" in rooms:
                    client.index_state()
        except BaseException:
            self.stop()
            raise

    @property
    def pids(self) -> dict[str, int]:
        return {room: process.pid for room, process in self._processes.items()}

    def client(self) -> Client:
        return connect(self.root, patience_s=START_PATIENCE_S)

    def _start(self, room: str, settings: Mapping[str, object]) -> None:
        command = [sys.executable, "-m", ROOM_MODULES[room], "--data", str(self.root)]
        for name, value in settings.items():
            if name.startswith(f"{room}."):
                command += ["--set", f"{name}={value}"]
        with (self._directory / f"{room}.log").open("wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        self._processes[room] = process

    def stop(self) -> None:
        """The log first: the others report its end to it. StrataError when one ended badly."""
        faults = []
        for room, process in self._processes.items():
            process.send_signal(signal.SIGTERM)
            try:
                code = process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                code = process.wait()
            if code:
                log = (self._directory / f"{room}.log").read_text(errors="replace")
                faults.append(f"the {room} service ended with {code}: {log[-2000:]}")
        self._processes.clear()
        if faults:
            raise StrataError("; ".join(faults))

    def __enter__(self) -> "Broker":
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()
