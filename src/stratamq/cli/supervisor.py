"""Runs the services of one broker as processes, and watches them.

    start      all at once: they find each other through their run files, in any order
    watch      one that dies is started again, later each time; one that requires an operator
               (exit codes 2 and 3) ends everything, and so does one whose port is taken (4) at
               its first start; one that has listened before waits for its port
    stop       the log first: it announces its end, the others bring everything to disk, and
               report it; then the others

Services run in sessions of their own, so that a Ctrl-C of the terminal reaches the supervisor only;
their output goes to files, which outlive all of this.
"""

import asyncio
import contextlib
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from stratamq.files.port import Clock
from stratamq.formats.store_paths import LOGS_DIRECTORY
from stratamq.rpc import discovery
from stratamq.rpc.credentials import credentials_of
from stratamq.rpc.endpoints import CHANNEL_OPTIONS
from stratamq.service.logging import open_log
from stratamq.service.server import EXIT_CONFIGURATION, EXIT_PORT_TAKEN, EXIT_STORE_REFUSED
from stratamq.service.supervised import BESIDE, PACKAGE, STOP_LIMIT_S

LOG_ROOM = "commitlog"
_LOOK_S = 0.1


@dataclass(frozen=True, slots=True)
class Room:
    """A process to run: its service, the command line that starts it, and the further services
    that run in it."""

    name: str
    command: Sequence[str]
    beside: Sequence[str] = ()

    @property
    def services(self) -> tuple[str, ...]:
        return (self.name, *self.beside)


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """Whether and when a service that ended is started again. A pure rule."""

    first_s: float = 0.2
    longest_s: float = 10.0
    steady_s: float = 30.0
    """After running this long a service counts as healthy, and delays start again at `first_s`."""

    def delay_s(
        self, exit_code: int, lived_s: float, last_delay_s: float | None, *, has_run: bool
    ) -> float | None:
        """How long to wait; None: an operator must act, and a new start would end the same.

        `last_delay_s` is what was waited before this life of the service, None before its first.
        `has_run`: an earlier life has listened on the service's ports.
        """
        if exit_code in (EXIT_CONFIGURATION, EXIT_STORE_REFUSED):
            return None
        if exit_code == EXIT_PORT_TAKEN and not has_run:
            return None
        if last_delay_s is None or lived_s >= self.steady_s:
            return self.first_s
        return min(2 * last_delay_s, self.longest_s)


@dataclass(slots=True)
class RunningProcess:
    """One process as it is now."""

    room: Room
    log_path: Path
    process: asyncio.subprocess.Process | None = None
    endpoints: dict[str, discovery.Endpoint] = field(default_factory=dict)
    """By service, where it has announced itself."""
    ready_services: set[str] = field(default_factory=set)
    has_run: bool = False
    """All its services have announced where they listen, in some life."""
    restarts: int = 0
    exit_code: int | None = None
    started_ns: int = 0
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def ready(self) -> bool:
        return self.ready_services.issuperset(self.room.services)

    def state(self, service: str) -> str:
        if self.process is None:
            return "stopped" if self.exit_code == 0 else f"exited {self.exit_code}"
        return "ready" if service in self.ready_services else "starting"


class Supervisor:
    """`report(service, sentence)` receives every event that a person should see; what happens to a
    process is reported of each of its services."""

    def __init__(
        self,
        root: Path,
        rooms: Sequence[Room],
        clock: Clock,
        report: Callable[[str, str], None],
        policy: RestartPolicy | None = None,
    ) -> None:
        self.running = {
            room.name: RunningProcess(room, root / LOGS_DIRECTORY / f"{room.name}.log")
            for room in rooms
        }
        self._root = root
        self._clock = clock
        self._report_service = report
        self._policy = policy or RestartPolicy()
        self._stopping = asyncio.Event()
        self._killed = False
        self._failed_room: str | None = None

    async def run(self) -> int:
        """Until stopped or until an operator must act; the exit code."""
        watchers = [asyncio.ensure_future(self._keep(each)) for each in self.running.values()]
        try:
            await self._stopping.wait()
            await self._stop_all()
        finally:
            for watcher in watchers:
                watcher.cancel()
            await asyncio.gather(*watchers, return_exceptions=True)
            await self._end_everything()
        if self._failed_room is not None:
            return self.running[self._failed_room].exit_code or 1
        return 1 if self._killed else 0

    def request_stop(self) -> None:
        """The first time: stop in order. The second: kill."""
        if not self._stopping.is_set():
            self._stopping.set()
            return
        self._killed = True
        for each in self.running.values():
            _send(each, signal.SIGKILL)

    @property
    def stopping(self) -> bool:
        return self._stopping.is_set()

    async def wait_ready(self, timeout_s: float | None = None) -> bool:
        """All services answer that they serve. False when stopped, or not within the time."""

        async def all_ready() -> None:
            for each in self.running.values():
                while not each.ready:
                    each.changed.clear()
                    await each.changed.wait()

        waiting = asyncio.ensure_future(all_ready())
        stopping = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait(
                [waiting, stopping], timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED
            )
            return waiting.done()
        finally:
            waiting.cancel()
            stopping.cancel()

    def not_ready(self) -> list[str]:
        """The services that `wait_ready` waits for."""
        rooms = self.running.values()
        return [
            name for each in rooms for name in each.room.services if name not in each.ready_services
        ]

    # --- one room ---

    async def _keep(self, each: RunningProcess) -> None:
        """Start the room again and again, until the supervisor stops."""
        delay_s: float | None = None
        while not self._stopping.is_set():
            code = await self._run_once(each)
            if self._stopping.is_set():
                return
            lived_s = (self._clock.monotonic_ns() - each.started_ns) / 1e9
            delay_s = self._policy.delay_s(code, lived_s, delay_s, has_run=each.has_run)
            if delay_s is None:
                self._failed_room = each.room.name
                self._report(each, f"stopped for good: {last_line(each.log_path)}")
                self._stopping.set()
                return
            each.restarts += 1
            self._report(each, f"{_ended(each, code)}, started again in {delay_s:.1f} s")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), delay_s)

    async def _run_once(self, each: RunningProcess) -> int:
        """One life of the process; its exit code."""
        each.started_ns = self._clock.monotonic_ns()
        each.exit_code = None
        with open_log(each.log_path) as output:
            process = await asyncio.create_subprocess_exec(
                *each.room.command,
                stdin=asyncio.subprocess.PIPE,  # its end is the end of this process
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        each.process = process
        if self._stopping.is_set():
            _send(each, signal.SIGTERM)
        watchers = [
            asyncio.ensure_future(self._watch_health(each, service, process.pid))
            for service in each.room.services
        ]
        try:
            code = await process.wait()
        finally:
            for watcher in watchers:
                watcher.cancel()
            await asyncio.gather(*watchers, return_exceptions=True)
            if process.returncode is not None:
                each.process, each.exit_code = None, process.returncode
                each.endpoints.clear()
            for service in each.room.services:
                self._set_ready(each, service, False)
        return code

    async def _watch_health(self, each: RunningProcess, service: str, pid: int) -> None:
        """Find where the service listens, and ask it whether it serves."""
        credentials = credentials_of()
        while True:
            endpoint = discovery.read(self._root, service)
            if endpoint is None or endpoint.pid != pid:
                await asyncio.sleep(_LOOK_S)  # it has not published where it listens
                continue
            each.endpoints[service] = endpoint
            each.has_run |= len(each.endpoints) == len(each.room.services)
            channel = credentials.connect(grpc.aio, endpoint.nearest(), CHANNEL_OPTIONS)
            async with channel:
                stub = health_pb2_grpc.HealthStub(channel)
                try:
                    async for answer in stub.Watch(health_pb2.HealthCheckRequest()):
                        serving = answer.status == health_pb2.HealthCheckResponse.SERVING
                        self._set_ready(each, service, serving)
                except grpc.RpcError:
                    self._set_ready(each, service, False)
            await asyncio.sleep(_LOOK_S)

    def _set_ready(self, each: RunningProcess, service: str, ready: bool) -> None:
        if ready is (service in each.ready_services):
            return
        (each.ready_services.add if ready else each.ready_services.discard)(service)
        each.changed.set()
        if ready or not self._stopping.is_set():
            self._report_service(service, "ready" if ready else "not ready")

    def _report(self, each: RunningProcess, text: str) -> None:
        for service in each.room.services:
            self._report_service(service, text)

    # --- the end ---

    async def _stop_all(self) -> None:
        log_service = self.running.get(LOG_ROOM)
        if log_service is not None:
            await self._stop([log_service])
        await self._stop([each for each in self.running.values() if each.process is not None])

    async def _stop(self, rooms: list[RunningProcess]) -> None:
        stopping = [(each, each.process) for each in rooms if each.process is not None]
        if not stopping:
            return
        for each, _ in stopping:
            self._report(each, "stopping")
            _send(each, signal.SIGTERM)
        waits = [asyncio.ensure_future(process.wait()) for _, process in stopping]
        await asyncio.wait(waits, timeout=STOP_LIMIT_S)
        for each, process in stopping:
            if process.returncode is None:
                self._killed = True
                self._report(each, f"did not stop within {STOP_LIMIT_S:.0f} s: killed")
                _send(each, signal.SIGKILL)
        await asyncio.gather(*waits)
        for each, process in stopping:
            if process.returncode:
                self._report(each, f"ended with {describe_exit(process.returncode)}")

    async def _end_everything(self) -> None:
        """Whatever happened here, no process stays."""
        for each in self.running.values():
            if each.process is not None and each.process.returncode is None:
                _send(each, signal.SIGKILL)
                await each.process.wait()


def service_command(
    services: Sequence[str], arguments: Sequence[str], after: tuple[Path, str] | None = None
) -> list[str]:
    """One process of these services; it stops when its standard input ends, and the service of the
    room `after` (root, name) has."""
    order = ["--after", str(after[0]), after[1]] if after is not None else []
    modules = BESIDE.join(f"{PACKAGE}{service}" for service in services)
    return [sys.executable, "-m", "stratamq.service.supervised", *order, modules, *arguments]


def last_line(path: Path) -> str:
    """What a service printed before it ended."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - 4096))
        lines = file.read().decode("utf-8", "replace").splitlines()
    return next((line.strip() for line in reversed(lines) if line.strip()), "it printed nothing")


def describe_exit(code: int) -> str:
    if code < 0:
        return f"signal {signal.Signals(-code).name}"
    return f"exit code {code}"


def _ended(each: RunningProcess, code: int) -> str:
    if code == EXIT_PORT_TAKEN:
        return f"waiting for its port: {last_line(each.log_path)}"
    return "stopped by itself" if code == 0 else f"died ({describe_exit(code)})"


def _send(each: RunningProcess, number: signal.Signals) -> None:
    process = each.process
    if process is not None and process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(number)
