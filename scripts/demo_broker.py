"""The demo's broker: `stratamq up` over a fresh directory, as a user would start it."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from stratamq.client import Client, connect
from stratamq.errors import UnavailableError
from stratamq.rpc import discovery

ROOMS = ("commitlog", "dispatcher", "index")
DEADLINE_S = 60.0
STOP_TIMEOUT_S = 60.0


class Broker:
    """Runs from its making to `stop`. What `stratamq up` says goes to `root/../up.log`. `settings`
    are `service.setting=value`; `environment` is what its services have beside this process's."""

    def __init__(
        self,
        root: Path,
        settings: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.root = root
        self.log = root.parent / "up.log"
        root.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "stratamq.cli", "up", "--port", "0"]
        command += ["--data", os.fspath(root)]
        for setting in settings:
            command += ["--set", setting]
        with self.log.open("wb") as log:
            # In a session of its own: Ctrl-C comes here first, and this stops it in order.
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=os.environ | dict(environment or {}),
                start_new_session=True,
            )

    def client(self) -> Client:
        """A client that waits for services that are starting, or starting again."""
        return connect(self.root, retry_timeout_s=DEADLINE_S)

    def pid(self, room: str) -> int:
        endpoint = discovery.read(self.root, room)
        if endpoint is None:
            raise UnavailableError(f"no {room} service has announced itself; see {self.log}")
        return endpoint.pid

    def kill(self, room: str) -> int:
        """SIGKILL: the process ends between two instructions. Its pid."""
        pid = self.pid(room)
        os.kill(pid, signal.SIGKILL)
        return pid

    def wait_for_successor(self, room: str, former: int) -> int:
        """The pid of the process that `stratamq up` has started in the place of `former`."""
        pause = threading.Event()
        while self._process.poll() is None:
            endpoint = discovery.read(self.root, room)
            if endpoint is not None and endpoint.pid != former:
                return endpoint.pid
            pause.wait(0.01)
        raise UnavailableError(f"`stratamq up` ended: {self.last_words()}")

    def last_words(self) -> str:
        return self.log.read_text(errors="replace")[-2000:]

    def stop(self) -> int:
        """Stop like Ctrl-C. Returns the exit code of `stratamq up`; 0: all services ended
        cleanly.
        """
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
            try:
                self._process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self._process.send_signal(signal.SIGINT)  # the second one kills the services
                self._process.wait(STOP_TIMEOUT_S)
        return self._process.returncode

    def __enter__(self) -> "Broker":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def run_with(
    environment: Mapping[str, str], command: Sequence[str]
) -> "subprocess.CompletedProcess[str]":
    """To its end, with this environment beside this process's."""
    return subprocess.run(
        command, env=os.environ | dict(environment), capture_output=True, text=True
    )
