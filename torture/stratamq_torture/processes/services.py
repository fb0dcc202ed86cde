"""The real services of one store directory, as processes that can be killed, paused and traced.

    with Services(root, logs, settings) as services:
        services.start()
        services.kill("commitlog")
        services.start(["commitlog"])

Nothing here waits for a fixed time: a start is over when the service's health is SERVING,
an end when the process is gone. What a process writes is kept in `logs`.
"""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, BinaryIO, Protocol

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from stratamq.files.clock import SystemClock
from stratamq.rpc import discovery
from stratamq.rpc.endpoints import CHANNEL_OPTIONS
from stratamq.rpc.rooms import COMMITLOG, DELIVERY, DISPATCHER, ESSENTIAL, HA, INDEX
from stratamq_torture.trial import TrialFailedError

DEADLINE_S = 60.0
"""For a start or an end: generous, because test machines are small and busy."""
LONGEST_S = 20 * DEADLINE_S
"""For one that gets next to no processor."""
LOOK_S = 0.005
SHOWN_CHARACTERS = 3_000
ANY_VOLUME = (
    "commitlog.disk_refuse_ratio=1.0",
    "janitor.disk_clean_ratio=1.0",
    "janitor.disk_force_ratio=1.0",
)
"""What other programs have filled of the volume decides nothing; a trial of full volumes gives the
defaults (`DEFAULT_RATIOS`) behind these."""
DEFAULT_RATIOS = (
    "commitlog.disk_refuse_ratio=0.9",
    "janitor.disk_clean_ratio=0.75",
    "janitor.disk_force_ratio=0.85",
)

OF_ALL = ("tls.", "access.")
"""Settings that every service has."""


class ServiceFailedError(TrialFailedError):
    """A service did not start or stop as it should; the sentence holds what it wrote."""


def until(happened: Callable[[], bool], limit_s: float, look_s: float = LOOK_S) -> bool:
    """Look at `happened` until it is true (True), or `limit_s` have passed (False)."""
    clock, wait = SystemClock(), threading.Event().wait
    end_ns = clock.monotonic_ns() + int(limit_s * 1e9)
    while not happened():
        if clock.monotonic_ns() >= end_ns:
            return False
        wait(look_s)
    return True


def waited_for_processor_s(pid: int) -> float:
    """For how long the main thread of a process could have run, and other threads did. 0.0 where
    the kernel does not say."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
    except (OSError, IndexError):
        return 0.0


class Patience:
    """A time limit that leaves out the time for which the process waits for a processor: a start
    takes a second of one, and at nice 15 beside other work it has less than that in a minute. It
    does not hang."""

    def __init__(self, pid: int, limit_s: float) -> None:
        self._pid, self._limit_s, self._clock = pid, limit_s, SystemClock()
        self._begin_ns = self._clock.monotonic_ns()
        self._before_s = waited_for_processor_s(pid)

    @property
    def left_s(self) -> float:
        took_s = (self._clock.monotonic_ns() - self._begin_ns) / 1e9
        waited_s = waited_for_processor_s(self._pid) - self._before_s
        return min(self._limit_s - (took_s - max(0.0, waited_s)), LONGEST_S - took_s)


class Process(Protocol):
    """The part of `subprocess.Popen` that is used here."""

    @property
    def pid(self) -> int: ...

    @property
    def stdin(self) -> IO[bytes] | None: ...

    def wait(self, timeout: float | None = None) -> int: ...

    def poll(self) -> int | None: ...

    def send_signal(self, number: int, /) -> None: ...

    def kill(self) -> None: ...


def _start_process(command: Sequence[str], output: BinaryIO) -> Process:
    """With a pipe from here as its standard input."""
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=output, stderr=output)


class Services:
    """`settings` are `service.setting=value`; `prefixes` stand before a room's command line, for
    example strace's."""

    start_process: Callable[[Sequence[str], BinaryIO], Process] = staticmethod(_start_process)
    """Tests give another, which starts at less cost."""

    def __init__(
        self,
        root: Path,
        logs: Path,
        settings: Iterable[str] = (),
        prefixes: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        self.root = root
        self.kills = 0
        """Processes that died by SIGKILL here."""
        self._logs = logs
        self._settings = [*ANY_VOLUME, *settings]
        self._prefixes = dict(prefixes or {})
        self._processes: dict[str, Process] = {}

    # --- start ---

    def start(self, rooms: Sequence[str] = ESSENTIAL, limit_s: float = DEADLINE_S) -> None:
        """Start `rooms` in this order and wait until all of them serve. ServiceFailedError."""
        for room in rooms:
            self.spawn(room)
        for room in rooms:
            self.wait_ready(room, limit_s)

    def spawn(self, room: str) -> None:
        """Start one process, without waiting for anything."""
        if room in self._processes:
            raise ServiceFailedError(f"{room} runs already")
        self._logs.mkdir(parents=True, exist_ok=True)
        command = [*self._prefixes.get(room, ())]
        # Asked to stop when its standard input ends: it must not outlive a trial that was killed.
        command += [sys.executable, "-m", "stratamq.service.supervised"]
        command += [f"stratamq_{room}", "--data", str(self.root)]
        for text in self._settings:
            if text.startswith((f"{room}.", *OF_ALL)):
                command += ["--set", text]
        with self._log_file(room).open("ab") as log:
            self._processes[room] = self.start_process(command, log)

    def announced(self, room: str) -> discovery.Endpoint | None:
        """The running process's announcement; None before it listens."""
        process = self._processes.get(room)
        endpoint = discovery.read(self.root, room)
        if process is None or endpoint is None or endpoint.pid != process.pid:
            return None
        return endpoint

    def wait_announced(self, room: str, limit_s: float = DEADLINE_S) -> discovery.Endpoint:
        """Until it listens; recovery comes after that. ServiceFailedError."""
        patience = Patience(self.pid(room), limit_s)

        def is_over() -> bool:
            return self.announced(room) is not None or self.ended(room) or patience.left_s <= 0

        until(is_over, LONGEST_S)
        endpoint = self.announced(room)
        if endpoint is None:
            waited_s = waited_for_processor_s(self.pid(room))
            code = self._processes[room].poll()
            raise self.failed(
                room,
                f"did not listen; it waited {waited_s:.0f} s for a processor, which its {limit_s} s"
                f" leave out; its exit code is {code}",
            )
        return endpoint

    def wait_ready(self, room: str, limit_s: float = DEADLINE_S) -> None:
        """Until its health is SERVING. ServiceFailedError."""
        endpoint = self.wait_announced(room, limit_s)
        patience = Patience(self.pid(room), limit_s)
        while not self._serves(room, endpoint, max(LOOK_S, patience.left_s)):
            if patience.left_s <= 0:
                raise self.failed(room, "was not ready in time")

    def _serves(self, room: str, endpoint: discovery.Endpoint, limit_s: float) -> bool:
        """Whether its health is SERVING within this time."""
        with grpc.insecure_channel(endpoint.address, options=CHANNEL_OPTIONS) as channel:
            watch = health_pb2_grpc.HealthStub(channel).Watch(
                health_pb2.HealthCheckRequest(), timeout=limit_s, wait_for_ready=True
            )
            try:
                for answer in watch:
                    if answer.status == health_pb2.HealthCheckResponse.SERVING:
                        return True
                raise self.failed(room, "ended its health stream before it served")
            except grpc.RpcError as error:
                if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                    return False
                raise self.failed(room, f"was not ready in time: {error.code().name}") from error
            finally:
                watch.cancel()

    # --- stop ---

    def stop(self) -> None:
        """Stop in order: the log first, which waits until its followers have its end."""
        for room in (COMMITLOG, DISPATCHER, INDEX, DELIVERY, HA):
            if room in self._processes:
                self.terminate(room)
                self.wait_stopped(room)

    def terminate(self, room: str) -> None:
        """SIGTERM, without waiting."""
        self._processes[room].send_signal(signal.SIGTERM)

    def wait_stopped(self, room: str) -> None:
        """Until it has ended with code 0. ServiceFailedError."""
        try:
            code = self._processes[room].wait(DEADLINE_S)
        except subprocess.TimeoutExpired:
            raise self.failed(room, f"did not stop within {DEADLINE_S} s") from None
        _close(self._processes.pop(room))
        if code != 0:
            raise self.failed(room, f"stopped with code {code}")

    def kill(self, *rooms: str) -> None:
        """SIGKILL all of them first, then wait for their ends. One that ended in order by itself,
        after SIGTERM, is no kill; one that ended otherwise is a ServiceFailedError."""
        for room in rooms:
            self._processes[room].kill()
        for room in rooms:
            process = self._processes.pop(room)
            code = process.wait(DEADLINE_S)
            _close(process)
            if code == -signal.SIGKILL:
                self.kills += 1
            elif code != 0:
                raise self.failed(room, f"ended with code {code} before it was killed")

    def kill_all(self) -> None:
        self.kill(*self._processes)

    def pause(self, room: str) -> None:
        """SIGSTOP: the process keeps its files, its locks and its connections."""
        self._processes[room].send_signal(signal.SIGSTOP)

    def resume(self, room: str) -> None:
        """SIGCONT."""
        self._processes[room].send_signal(signal.SIGCONT)

    def pause_all(self) -> None:
        for room in self._processes:
            self.pause(room)

    def resume_all(self) -> None:
        for room in self._processes:
            self.resume(room)

    # --- questions ---

    @property
    def running(self) -> tuple[str, ...]:
        """The rooms that were started and not stopped, whether or not they died by themselves."""
        return tuple(self._processes)

    def pid(self, room: str) -> int:
        return self._processes[room].pid

    def ended(self, room: str) -> bool:
        """It ended by itself: it was started, not stopped, and is gone."""
        return self._processes[room].poll() is not None

    def output(self, room: str) -> str:
        """Everything the room's processes wrote, from the first start on."""
        path = self._log_file(room)
        return path.read_text(errors="replace") if path.exists() else ""

    def failed(self, room: str, what: str) -> ServiceFailedError:
        shown = self.output(room)[-SHOWN_CHARACTERS:]
        return ServiceFailedError(f"{room} {what}; it wrote:\n{shown}")

    def _log_file(self, room: str) -> Path:
        return self._logs / f"{room}.log"

    # --- leave nothing behind ---

    def __enter__(self) -> "Services":
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes.values():
            process.kill()
        for process in self._processes.values():
            process.wait(DEADLINE_S)
            _close(process)
        self._processes.clear()


def _close(process: Process) -> None:
    """The pipe to a process that is gone."""
    if process.stdin is not None:
        process.stdin.close()


def directory_names(directory: Path) -> list[str]:
    """What is in a directory of the store now; nothing when it is not there."""
    try:
        return sorted(os.listdir(directory))
    except FileNotFoundError:
        return []
