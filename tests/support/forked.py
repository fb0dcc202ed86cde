"""Services and commands as processes that are forked with their modules imported: a start costs no
imports.

`python -m stratamq_<room>` takes 0.4 s of a processor before the service does anything, and
`python -m stratamq.cli` 0.5 s before the command does. The first `Forked` of a family in a test
process starts a server that imports the family's modules and then only forks. What was forked has
its own arguments, environment, directory and streams, runs its module as `__main__`, and ends as an
interpreter ends. What an interpreter reads once, when it starts, it has from the server: variables
PYTHON… and those of the locale change nothing.

The services that a forked `stratamq up` or `stratamq bench` starts are forked too, by a server of
its own that ends with it.
"""

import asyncio
import atexit
import ctypes
import gc
import io
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
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, BinaryIO

from prometheus_client.metrics import MetricWrapperBase

from stratamq.rpc.rooms import REGISTER
from stratamq.service.metrics import REGISTRY, Times

ROOT = Path(__file__).parents[2]
ROOMS, COMMANDS = "rooms", "commands"
PRELOADED = tuple(REGISTER)
STARTING_SERVICES = (["up"], ["bench"])
DAEMON = "--daemon"
_NETWORK_NAMESPACE = 0x40000000
"""CLONE_NEWNET of <sched.h>."""
Streams = tuple[int, int, int]
"""Descriptors: standard input, output and error."""


class _Server:
    """The other end of the socket: forks, and knows how the processes ended."""

    def __init__(self, questions: socket.socket, pid: int) -> None:
        self.pid = pid
        self._questions = questions
        self._answers = questions.makefile("r")
        self._turn = threading.Lock()

    def ask(self, streams: Sequence[int] = (), **question: object) -> int:
        text = json.dumps(question).encode() + b"\n"
        with self._turn:
            sent = socket.send_fds(self._questions, [text], streams)
            self._questions.sendall(text[sent:])
            return int(self._answers.readline())

    def close(self) -> None:
        """Processes that still run are left alone."""
        self._questions.shutdown(socket.SHUT_RDWR)


_servers: dict[str, _Server] = {}
_starting = threading.Lock()


def _server(family: str) -> _Server:
    with _starting:
        if family not in _servers:
            _servers[family] = _started(family)
        return _servers[family]


def _started(family: str) -> _Server:
    ours, its = socket.socketpair()
    with its:
        process = subprocess.Popen(
            [sys.executable, "-m", __name__, family, str(its.fileno())],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            pass_fds=[its.fileno()],
        )
    server = _Server(ours, process.pid)
    atexit.register(process.wait)
    atexit.register(server.close)
    return server


def spent_s() -> float:
    """Processor time of the servers, and of all that they forked and that has ended."""
    spent = 0
    for server in _servers.values():
        fields = Path(f"/proc/{server.pid}/stat").read_text().rpartition(")")[2].split()
        spent += sum(map(int, fields[11:15]))  # utime, stime, cutime, cstime
    return spent / os.sysconf("SC_CLK_TCK")


class Forked:
    """`python -m MODULE ARGUMENTS`, with the part of `subprocess.Popen` that tests use."""

    def __init__(
        self,
        family: str,
        module: str,
        arguments: Sequence[str],
        streams: Streams,
        environment: Mapping[str, str],
        own_session: bool = False,
        directory: str | None = None,
        network: str | None = None,
    ) -> None:
        """The streams are the caller's, to be closed once this has returned. `network`: the path of
        the network namespace that it and all that it starts are in."""
        self.returncode: int | None = None
        self._server = _server(family)
        self.pid = self._server.ask(
            streams,
            module=module,
            arguments=[*arguments],
            environment={**environment},
            directory=directory or os.getcwd(),
            own_session=own_session,
            network=network,
        )
        self._ended = os.pidfd_open(self.pid)
        weakref.finalize(self, os.close, self._ended)
        self._turn = threading.Lock()

    def fileno(self) -> int:
        """Readable once the process has ended."""
        return self._ended

    def wait(self, timeout: float | None = None) -> int:
        """The exit code, negative for a signal. subprocess.TimeoutExpired."""
        if not _readable(self._ended, timeout):
            raise subprocess.TimeoutExpired(str(self.pid), timeout or 0)
        with self._turn:
            if self.returncode is None:
                self.returncode = self._server.ask(ended=self.pid)
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


class ForkedService(Forked):
    """As `subprocess.Popen` of `python -m MODULE ARGUMENTS` whose standard input is a pipe from
    here; in a session of its own."""

    def __init__(self, command: Sequence[str], output: BinaryIO) -> None:
        interpreter, option, module, *arguments = command
        assert (interpreter, option) == (sys.executable, "-m")
        read, write = os.pipe()
        self.stdin = io.FileIO(write, "wb")
        with io.FileIO(read) as its_input:
            streams = (its_input.fileno(), output.fileno(), output.fileno())
            super().__init__(ROOMS, module, arguments, streams, os.environ, own_session=True)


def run_command(
    module: str,
    arguments: Sequence[str],
    stdin: bytes,
    environment: Mapping[str, str],
    timeout: float,
    network: str | None = None,
) -> subprocess.CompletedProcess[bytes]:
    """As `subprocess.run` with pipes: until it has ended and all that it wrote is read.
    subprocess.TimeoutExpired once it was killed."""
    with ExitStack() as open_files:
        ends = [
            (io.FileIO(read), io.FileIO(write, "wb"))
            for read, write in (os.pipe() for _ in range(3))
        ]
        for pair in ends:
            for end in pair:
                open_files.enter_context(end)
        (its_input, feed), (output, its_output), (errors, its_errors) = ends
        its = (its_input, its_output, its_errors)
        streams = (its_input.fileno(), its_output.fileno(), its_errors.fileno())
        process = Forked(COMMANDS, module, arguments, streams, environment, network=network)
        for end in its:
            end.close()
        with ThreadPoolExecutor(3) as reading:
            fed = reading.submit(_feed, feed, stdin)
            texts = [reading.submit(end.readall) for end in (output, errors)]
            try:
                code = process.wait(timeout)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
        fed.result()
        return subprocess.CompletedProcess([module, *arguments], code, *(t.result() for t in texts))


def _feed(end: io.FileIO, text: bytes) -> None:
    """A process that ends earlier does not want the rest."""
    with suppress(BrokenPipeError), end, io.BufferedWriter(end) as file:
        file.write(text)


def _readable(descriptor: int, timeout: float | None) -> bool:
    looking = select.poll()
    looking.register(descriptor, select.POLLIN)
    return bool(looking.poll(None if timeout is None else timeout * 1000))


# --- the server ---


def _serve(questions: socket.socket) -> dict[str, Any]:
    """Until the tests are over; in a process that was forked, returns what it is to become."""
    while (question := next_question(questions)) is not None:
        if "ended" in question:
            _, status = os.waitpid(question["ended"], 0)
            answer = os.waitstatus_to_exitcode(status)
        else:
            answer = os.fork()
            if answer == 0:
                questions.close()
                return question
            for stream in question["streams"]:
                os.close(stream)
        questions.sendall(b"%d\n" % answer)
    sys.exit()


def next_question(questions: socket.socket) -> dict[str, Any] | None:
    """The question, with its descriptors as `streams`; None: there are no more."""
    text, streams = b"", []
    while not text.endswith(b"\n"):
        some, received, _, _ = socket.recv_fds(questions, 1 << 16, 3)
        if not some:
            return None
        text += some
        streams += received
    return {**json.loads(text), "streams": streams}


def _become(family: str, question: dict[str, Any]) -> None:
    """Until the program has ended."""
    if question["network"] is not None:
        _enter_network(question["network"])
    if family == COMMANDS and question["arguments"][:1] in STARTING_SERVICES:
        # `up --daemon` ends while the services that it started, and their server, go on.
        service = _serve_beside(question["streams"], waited_for=DAEMON not in question["arguments"])
        if service is None:
            _fork_services()
        else:
            family, question = ROOMS, service
    if question["own_session"]:
        os.setsid()
    for number, stream in enumerate(question["streams"]):
        os.dup2(stream, number)
        os.close(stream)
    _open_streams()
    os.chdir(question["directory"])
    os.environ.clear()
    os.environ.update(question["environment"])
    # As an interpreter does when it starts.
    searched = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:0] = [path for path in searched if path and path not in sys.path]
    sys.argv[1:] = question["arguments"]
    if family == ROOMS:
        for room in PRELOADED:
            if f"stratamq_{room}" not in (question["module"], *question["arguments"]):
                _forget_metrics(f"stratamq_{room}.metrics")
    runpy.run_module(question["module"], run_name="__main__", alter_sys=True)


def _enter_network(path: str) -> None:
    """`os.setns` is of Python 3.12."""
    with open(path, "rb") as namespace:
        if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), _NETWORK_NAMESPACE):
            raise OSError(ctypes.get_errno(), "setns", path)


def _serve_beside(streams: Sequence[int], *, waited_for: bool) -> dict[str, Any] | None:
    """Begin a server of rooms beside this process, which is left without what is its own: the
    streams. None in this process; in each that the server forks, what it is to become.
    `waited_for`: this process ends the server, so that what it cost counts for this process."""
    ours, its = socket.socketpair()
    if server := os.fork():
        its.close()
        _servers[ROOMS] = _Server(ours, server)
        if waited_for:
            atexit.register(os.waitpid, server, 0)
            atexit.register(_servers[ROOMS].close)
        return None
    ours.close()
    for stream in streams:
        os.close(stream)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's is not for it
    service = _serve(its)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    return service


def _fork_services() -> None:
    asyncio.create_subprocess_exec = _Supervised.start
    import_module("stratamq_bench.broker").Broker.start_process = ForkedService


class _Supervised:
    """A service, with the part of `asyncio.subprocess.Process` that a supervisor uses."""

    def __init__(self, process: "ForkedService") -> None:
        self.pid = process.pid
        self._process = process
        loop = asyncio.get_running_loop()
        self._over: asyncio.Future[int] = loop.create_future()
        loop.add_reader(process.fileno(), self._ended, loop)

    @classmethod
    async def start(
        cls,
        *command: str,
        stdin: int,
        stdout: BinaryIO,
        stderr: BinaryIO,
        start_new_session: bool,
    ) -> "_Supervised":
        """As `asyncio.create_subprocess_exec`."""
        assert (stdin, stdout) == (asyncio.subprocess.PIPE, stderr) and start_new_session
        return cls(ForkedService(command, stdout))

    @property
    def returncode(self) -> int | None:
        return self._process.returncode

    async def wait(self) -> int:
        return await asyncio.shield(self._over)

    def send_signal(self, number: int) -> None:
        self._process.send_signal(number)

    def _ended(self, loop: asyncio.AbstractEventLoop) -> None:
        loop.remove_reader(self._process.fileno())
        self._process.stdin.close()
        self._over.set_result(self._process.wait())


def _open_streams() -> None:
    """Those of the server know whether its own were terminals."""
    encoding, errors = sys.stdin.encoding, sys.stdin.errors
    sys.stdin = sys.__stdin__ = _stream(0, "r", encoding, errors)
    sys.stdout = sys.__stdout__ = _stream(1, "w", encoding, errors)
    sys.stderr = sys.__stderr__ = _stream(2, "w", encoding, "backslashreplace", line_buffering=True)


def _stream(number: int, mode: str, *text: str, line_buffering: bool = False) -> io.TextIOWrapper:
    file = io.FileIO(number, mode, closefd=False)
    buffered = io.BufferedReader(file) if mode == "r" else io.BufferedWriter(file)
    return io.TextIOWrapper(buffered, *text, line_buffering=line_buffering)


def _forget_metrics(module: str) -> None:
    """What serves metrics serves those of every room that was imported: zeros of a service that it
    is not."""
    for value in vars(sys.modules[module]).values():
        if isinstance(value, MetricWrapperBase | Times):
            REGISTRY.unregister(value)


def _import_rooms() -> None:
    for room in PRELOADED:
        _import(f"stratamq_{room}.__main__")


def _import_commands() -> None:
    """And the services, which `stratamq up` starts."""
    _import_rooms()
    commands = import_module("stratamq.cli.__main__")
    for module in commands.COMMANDS.values():
        import_module(f"stratamq.cli.{module}")
    for entry in entry_points(group=commands.COMMANDS_GROUP):
        entry.load()
    _import("stratamq.cli.__main__")


def _import(main: str) -> None:
    """All that the program imports; itself it will be anew."""
    import_module(main)
    del sys.modules[main]


def _main() -> None:
    family, descriptor = sys.argv[1:]
    {ROOMS: _import_rooms, COMMANDS: _import_commands}[family]()
    del sys.argv[1:]
    # A collection would look at all of it, and copy the pages, in each process.
    gc.collect()
    gc.freeze()
    _become(family, _serve(socket.socket(fileno=int(descriptor))))


if __name__ == "__main__":
    _main()
