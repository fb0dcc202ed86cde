"""Whole brokers for tests: the real service processes over one store directory.

Ports are free ones that the services announce in `<root>/stratamq/run/`. Nothing sleeps: a start is
over when every service's health is SERVING, a stop when the processes have ended. What a process
wrote is kept in a file and shown when something fails.
"""

import os
import signal
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from stratamq_torture.processes.services import ANY_VOLUME

from stratamq.files.clock import SystemClock
from stratamq.rpc import discovery
from stratamq.rpc.methods import service_of
from tests.support.calls import Stub
from tests.support.fixtures import Geometry
from tests.support.forked import ROOMS as ROOMS_FAMILY
from tests.support.forked import Forked

COMMITLOG, DISPATCHER, INDEX = ROOMS = ("commitlog", "dispatcher", "index")
HA, DELIVERY, GATEWAY = "ha", "delivery", "gateway"
_CHANNEL_OPTIONS = (
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.max_receive_message_length", -1),
)
DEADLINE_S = 120.0
"""For a start or a stop of one process: generous, because test machines are small and busy."""
LONG_TIMEOUTS = ("commitlog.sync_flush_timeout_ms=60000", "commitlog.disk_stall_ms=60000")
"""A disk that other programs keep busy is slow, not stalled."""
_LOOK_S = 0.01
_SHOWN_CHARACTERS = 4_000


class BrokerFailedError(AssertionError):
    """A service did not start or stop as it should; the sentence holds what it wrote."""


OF_ALL = ("tls.", "access.", "limits.", "tracing.")
"""Settings that every service has."""


def geometry_settings(geometry: Geometry) -> list[str]:
    """The settings that correspond to `geometry.properties`."""
    return [
        f"commitlog.segment_bytes={geometry.log_bytes}",
        f"dispatcher.queue_file_bytes={geometry.queue_units * 20}",
        f"index.index_slots={geometry.slots}",
        f"index.index_items={geometry.items}",
    ]


class Broker:
    """The services of one store directory. `settings` are `service.setting=value`; those of
    `gateway-2` come behind those of all gateways."""

    def __init__(self, root: Path, logs: Path, settings: Iterable[str] = ()) -> None:
        self.root = root
        self._logs = logs
        self._settings = [*LONG_TIMEOUTS, *ANY_VOLUME, *settings]
        self._guarded = any(text.startswith(("tls.", "access.")) for text in self._settings)
        self._processes: dict[str, Forked] = {}
        self._channels: dict[str, grpc.Channel] = {}
        self._starts = 0
        self._clock = SystemClock()

    # --- start ---

    def start(self, rooms: Sequence[str] = ROOMS, deadline_s: float = DEADLINE_S) -> "Broker":
        """Start the services and wait until all of them serve."""
        for room in rooms:
            self.spawn(room)
        for room in rooms:
            self.wait_ready(room, deadline_s)
        return self

    def spawn(self, room: str) -> None:
        """Start one process, without waiting for anything. `gateway-2` is the room's second one."""
        assert room not in self._processes, f"{room} runs already"
        self._logs.mkdir(parents=True, exist_ok=True)
        arguments = ["--data", str(self.root)]
        module, _, number = room.partition("-")
        own = [one.replace(room, module, 1) for one in self._settings if one.startswith(f"{room}.")]
        numbered = [f"{module}.number={number}", *own] if number else []
        for text in [*self._settings, *numbered]:
            if text.startswith((f"{module}.", *OF_ALL)):
                arguments += ["--set", text]
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith("STRATAMQ_")
        }
        self._starts += 1
        with self._log_file(room).open("ab", 0) as log, open(os.devnull, "rb") as nothing:
            log.write(f"--- start {self._starts}\n".encode())
            streams = (nothing.fileno(), log.fileno(), log.fileno())
            self._processes[room] = Forked(
                ROOMS_FAMILY, f"stratamq_{module}", arguments, streams, environment
            )

    def wait_ready(self, room: str, deadline_s: float = DEADLINE_S) -> None:
        """Until the service has announced itself and its health is SERVING."""
        deadline = self._now() + deadline_s
        address = self._announced(room, deadline)
        channel = grpc.insecure_channel(address, options=_CHANNEL_OPTIONS)
        self._channels[room] = channel
        watch = health_pb2_grpc.HealthStub(channel).Watch(
            health_pb2.HealthCheckRequest(),
            timeout=max(0.1, deadline - self._now()),
            wait_for_ready=True,
        )
        try:
            for answer in watch:
                if answer.status == health_pb2.HealthCheckResponse.SERVING:
                    break
            else:
                raise self.failed(room, "ended its health stream before it served")
        except grpc.RpcError as error:
            raise self.failed(room, f"never got ready: {error}") from error
        finally:
            watch.cancel()

    def wait_announced(self, room: str, deadline_s: float = DEADLINE_S) -> None:
        """Until the service can be called, whether it serves or not."""
        address = self._announced(room, self._now() + deadline_s)
        self._channels[room] = grpc.insecure_channel(address, options=_CHANNEL_OPTIONS)

    def _announced(self, room: str, deadline: float) -> str:
        process = self._processes[room]
        while True:
            endpoint = discovery.read(self.root, room)
            if endpoint is not None and endpoint.pid == process.pid:
                return endpoint.nearest() if self._guarded else endpoint.address
            if self._now() > deadline:
                raise self.failed(room, "announced no address")
            try:
                code = process.wait(_LOOK_S)
            except subprocess.TimeoutExpired:
                continue
            raise self.failed(room, f"ended with code {code} instead of starting")

    # --- stop ---

    def stop(self, deadline_s: float = DEADLINE_S) -> None:
        """Stop cleanly: the log first, which waits until its followers have its end."""
        for room in (COMMITLOG, GATEWAY, DISPATCHER, INDEX, DELIVERY, HA):
            if room in self._processes:
                self.terminate(room, deadline_s)

    def terminate(self, room: str, deadline_s: float = DEADLINE_S) -> None:
        """SIGTERM; the process must end with code 0."""
        process = self._processes[room]
        process.send_signal(signal.SIGTERM)
        try:
            code = process.wait(deadline_s)
        except subprocess.TimeoutExpired:
            raise self.failed(room, f"did not stop within {deadline_s} s") from None
        self._forget(room)
        if code != 0:
            raise self.failed(room, f"stopped with code {code}")

    def kill(self, *rooms: str) -> None:
        """SIGKILL, and wait for the end."""
        for room in rooms:
            process = self._processes[room]
            process.kill()
            process.wait(DEADLINE_S)
            self._forget(room)

    def kill_all(self) -> None:
        """SIGKILL to everything that runs."""
        self.kill(*self._processes)

    def wait_end(self, room: str, deadline_s: float = DEADLINE_S) -> int:
        """The exit code of a process that ends by itself."""
        try:
            code = self._processes[room].wait(deadline_s)
        except subprocess.TimeoutExpired:
            raise self.failed(room, f"did not end within {deadline_s} s") from None
        self._forget(room)
        return code

    def _forget(self, room: str) -> None:
        del self._processes[room]
        channel = self._channels.pop(room, None)
        if channel is not None:
            channel.close()

    # --- questions ---

    @property
    def log(self) -> Any:
        """The commit log service's stub."""
        return self.stub(COMMITLOG)

    @property
    def dispatcher(self) -> Any:
        return self.stub(DISPATCHER)

    @property
    def index(self) -> Any:
        return self.stub(INDEX)

    def channel(self, room: str) -> grpc.Channel:
        return self._channels[room]

    def stub(self, room: str) -> Any:
        return Stub(service_of(room.partition("-")[0]), self._channels[room])

    def pid(self, room: str) -> int:
        return self._processes[room].pid

    def running(self, room: str) -> bool:
        return room in self._processes and self._processes[room].poll() is None

    def output(self, room: str) -> str:
        """Everything the room's processes wrote, from the first start on."""
        path = self._log_file(room)
        return path.read_text(errors="replace") if path.exists() else ""

    def failed(self, room: str, what: str) -> BrokerFailedError:
        shown = self.output(room)[-_SHOWN_CHARACTERS:]
        return BrokerFailedError(f"{room} {what}\n--- it wrote:\n{shown}")

    def _log_file(self, room: str) -> Path:
        return self._logs / f"{room}.log"

    def _now(self) -> float:
        return self._clock.monotonic_ns() / 1e9

    # --- leave nothing behind ---

    def __enter__(self) -> "Broker":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.kill_all()
        if error is not None and not isinstance(error, BrokerFailedError):
            for room in ROOMS:
                print(f"--- {room} wrote:\n{self.output(room)[-_SHOWN_CHARACTERS:]}")


def broker_fixture(
    *settings: str,
    rooms: Sequence[str] = ROOMS,
    scope: Literal["module", "function"] = "module",
    of_each_kind: bool = False,
) -> Any:
    """A fixture, a running broker: `broker = broker_fixture(*SETTINGS, rooms=[COMMITLOG])`.

    `of_each_kind`: each kind of client (the fixture `kind`) has a broker of its own.
    """

    def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
        directory = tmp_path_factory.mktemp("broker")
        with Broker(directory / "store", directory / "logs", settings) as broker:
            yield broker.start(rooms)

    def started_for(kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
        yield from started(tmp_path_factory)

    return pytest.fixture(scope=scope)(started_for if of_each_kind else started)
