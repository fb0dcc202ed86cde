"""Services as processes that are forked with their modules imported: a start costs no imports.

`python -m stratamq_<room>` takes 0.4 s of a processor before the service does anything. The first
`Forked` of a test process starts a server that imports the rooms and then only forks. What was
forked has its own arguments, environment, directory and output, runs its module as `__main__`, and
ends as an interpreter ends.
"""

import atexit
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from prometheus_client.metrics import MetricWrapperBase

from stratamq.service.metrics import REGISTRY, Times

ROOT = Path(__file__).parents[2]
PRELOADED = ("commitlog", "dispatcher", "index", "ha", "janitor", "tier", "agent")


class _Server:
    """The other end of the socket: forks, and knows how the processes ended."""

    def __init__(self) -> None:
        ours, its = socket.socketpair()
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, str(its.fileno())],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            pass_fds=[its.fileno()],
        )
        its.close()
        self._questions = ours
        self._answers = ours.makefile("r")
        self._turn = threading.Lock()
        atexit.register(self.close)

    def ask(self, **question: object) -> int:
        with self._turn:
            self._questions.sendall(json.dumps(question).encode() + b"\n")
            return int(self._answers.readline())

    def close(self) -> None:
        """Processes that still run are left alone."""
        self._questions.shutdown(socket.SHUT_RDWR)
        self._process.wait()


_server: _Server | None = None
_starting = threading.Lock()


def _ask(**question: object) -> int:
    global _server
    with _starting:
        if _server is None:
            _server = _Server()
    return _server.ask(**question)


class Forked:
    """`python -m MODULE ARGUMENTS`, with the part of `subprocess.Popen` that tests use."""

    def __init__(
        self, module: str, arguments: Sequence[str], output: Path, environment: Mapping[str, str]
    ) -> None:
        """What it writes is appended to `output`."""
        self.returncode: int | None = None
        self.pid = _ask(
            module=module,
            arguments=[*arguments],
            output=os.fspath(output),
            environment={**environment},
            directory=os.getcwd(),
        )
        self._ended = os.pidfd_open(self.pid)
        weakref.finalize(self, os.close, self._ended)
        self._turn = threading.Lock()

    def wait(self, timeout: float | None = None) -> int:
        """The exit code, negative for a signal. subprocess.TimeoutExpired."""
        if not _readable(self._ended, timeout):
            raise subprocess.TimeoutExpired(str(self.pid), timeout or 0)
        with self._turn:
            if self.returncode is None:
                self.returncode = _ask(ended=self.pid)
            return self.returncode

    def poll(self) -> int | None:
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def send_signal(self, number: int) -> None:
        """Nothing for a process that has been waited for: its number may be another's by now."""
        if self.poll() is None:
            signal.pidfd_send_signal(self._ended, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def _readable(descriptor: int, timeout: float | None) -> bool:
    looking = select.poll()
    looking.register(descriptor, select.POLLIN)
    return bool(looking.poll(None if timeout is None else timeout * 1000))


# --- the server ---


def _serve(questions: socket.socket) -> dict[str, Any]:
    """Until the tests are over; in a process that was forked, returns what it is to become."""
    with questions.makefile("r") as lines:
        for line in lines:
            question = json.loads(line)
            if "ended" in question:
                _, status = os.waitpid(question["ended"], 0)
                answer = os.waitstatus_to_exitcode(status)
            else:
                answer = os.fork()
                if answer == 0:
                    questions.close()
                    return dict(question)
            questions.sendall(b"%d\n" % answer)
    sys.exit()


def _become(question: dict[str, Any]) -> None:
    output = os.open(question["output"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    os.chdir(question["directory"])
    os.environ.clear()
    os.environ.update(question["environment"])
    # As an interpreter does when it starts.
    searched = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:0] = [path for path in searched if path and path not in sys.path]
    sys.argv[1:] = question["arguments"]
    for room in PRELOADED:
        if f"stratamq_{room}" != question["module"]:
            _forget_metrics(f"stratamq_{room}.metrics")
    runpy.run_module(question["module"], run_name="__main__", alter_sys=True)


def _forget_metrics(module: str) -> None:
    """What serves metrics serves those of every room that was imported: zeros of a service that it
    is not."""
    for value in vars(sys.modules[module]).values():
        if isinstance(value, MetricWrapperBase | Times):
            REGISTRY.unregister(value)


def _main() -> None:
    for room in PRELOADED:
        module = f"stratamq_{room}.__main__"
        import_module(module)
        del sys.modules[module]
    _become(_serve(socket.socket(fileno=int(sys.argv[1]))))


if __name__ == "__main__":
    _main()
