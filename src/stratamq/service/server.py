"""The asyncio gRPC server that every room runs in: health, reflection, metrics, graceful stop.

One event loop per process: grpc.aio shares one poller between loops and fails when there are two.
"""

import asyncio
import errno
import gc
import logging
import os
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextvars import copy_context
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import grpc
from google.protobuf.descriptor import ServiceDescriptor
from grpc_reflection.v1alpha import reflection, reflection_pb2

from stratamq.errors import ConfigurationError, StoreRefusedError
from stratamq.rpc import discovery
from stratamq.rpc.address import (
    advertised_address,
    is_host,
    reachable_address,
)
from stratamq.rpc.methods import BROKER_SERVICE
from stratamq.service import metrics
from stratamq.service.access import AccessControl
from stratamq.service.client_limits import ClientLimits, LimitsConfig
from stratamq.service.describing import BrokerServicer
from stratamq.service.grpc_callers import (
    Callers,
    DelegatedCallers,
    DirectCallers,
    NoDelegatedCallers,
)
from stratamq.service.guarded_handlers import GuardedServer, UnknownMethods, handlers_of
from stratamq.service.health import SERVICE as HEALTH_SERVICE
from stratamq.service.health import Health
from stratamq.service.hosting import EXIT_SIGNAL_BASE, PROCESS, SERVICE, HostProcess
from stratamq.service.listening import (
    channel_options,
    front_options,
    listen,
    listen_locally,
    listen_without_grpc,
)
from stratamq.service.loops import ServiceLoop
from stratamq.service.ports import PortTakenError
from stratamq.service.recorder import Recorder
from stratamq.service.socket_listener import SocketListener
from stratamq.service.tls import ServerTls

log = logging.getLogger(__name__)

# Twice the largest batch (4 MiB), so that a message with its framing always fits.
MAX_MESSAGE_BYTES = 8 * 1024 * 1024
STOP_GRACE_MS = 5_000

REFLECTION_SERVICE = reflection_pb2.DESCRIPTOR.services_by_name["ServerReflection"]
NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
ANNOUNCE_INTERVAL_S = 1.0
COLLECT_AFTER = 10_000
"""So many new objects start the cyclic collector. After Python's own 700 it looked at the objects
of a few hundred open calls again and again."""

EXIT_BUG = 1
EXIT_CONFIGURATION = 2
EXIT_STORE_REFUSED = 3
EXIT_PORT_TAKEN = 4

READY = metrics.gauge(
    "service_ready",
    "1 while the service takes requests, otherwise 0.",
    asks="Does the service take requests?",
)

Step = Callable[[], Awaitable[None]]


class Server:
    """A room's gRPC server. Keep a reference: a collected server stops listening silently.

    `serve` does everything a process needs; tests use `start` and `stop`. All methods belong to
    the event loop.
    """

    def __init__(
        self,
        room: str,
        *,
        root: Path | None = None,
        advertised_host: str = "",
        metrics_address: str = "",
        tls: ServerTls | None = None,
        access: AccessControl | None = None,
        limits: LimitsConfig | None = None,
        recorder: Recorder | None = None,
        max_message_bytes: int = MAX_MESSAGE_BYTES,
        stop_grace_ms: int = STOP_GRACE_MS,
        options: Sequence[tuple[str, Any]] = (),
    ) -> None:
        """`root`: the store directory. The run file is written there (None: none is written), and
        its run files are what clients learn of the broker. `advertised_host`: in the run file, in
        place of the host that is listened on; ConfigurationError if it is more than a host.
        `metrics_address`: "" serves no metrics. Without `tls` connections are in clear, without
        `access` every caller may do everything, without `limits` nothing is limited, and without
        a `recorder` there are no spans. `options`: further gRPC channel arguments."""
        if not is_host(advertised_host):
            fault = f"{room}.advertised_host: {advertised_host!r} is not a name or an IP address"
            raise ConfigurationError([fault])
        self.address = self.metrics_address = ""  # set by `start`
        self.broker_name = ""
        """Only for the log service: announced with its address. So is the next one."""
        self.broker_id = 0
        self._room = room
        self._root = root
        self._advertised_host = advertised_host
        self._metrics_wanted = metrics_address
        self._tls = tls
        self.access = access
        self._recorder = recorder
        self._local = self._front = ""
        self._local_listener, self._front_listener = SocketListener(), SocketListener()
        self._stop_grace_ms = stop_grace_ms
        self.limits = None if limits is None else ClientLimits(limits)
        bounds = () if limits is None else limits.channel_options()
        self._options = (*channel_options(max_message_bytes), *bounds, *options)
        self._generic: list[grpc.GenericRpcHandler] = []
        self._servicers: list[tuple[ServiceDescriptor, Any]] = []
        self._servers: list[grpc.aio.Server] = []  # for direct callers, then for fronts
        self._metrics: metrics.MetricsEndpoint | None = None
        self._health = Health()
        self._ready = False
        self._stopped = False
        self._announcing: asyncio.Task[None] | None = None
        """Writes the run file as soon as a full volume has room for it."""
        self._stopping = asyncio.Event()
        self._process = PROCESS.get() or HostProcess()
        if root is not None:
            self.add_servicer(BROKER_SERVICE, BrokerServicer(root, room))
        self._failure: BaseException | None = None
        """Why the process ends, if it was not asked to."""

    def add_servicer(self, service: ServiceDescriptor, servicer: Any) -> None:
        """Offer a service of a proto (`guarded_handlers.handlers_of`)."""
        self._servicers.append((service, servicer))

    def add_generic(self, handler: grpc.GenericRpcHandler) -> None:
        """Offer methods with serialisers of one's own. They win over a servicer's methods of the
        same name, whatever the order of the calls."""
        self._generic.append(handler)

    async def start(self, address: str, *, ready: bool = True) -> str:
        """Listen on `host:port` (port 0 takes a free one) and return the address bound.

        With `ready=False` health reports NOT_SERVING until `set_ready(True)`. Raises
        ConfigurationError when `address` or the metrics address cannot be listened on, and
        StoreRefusedError when the run file cannot be written, unless the volume is full: then the
        service runs, and is found once there is room.
        """
        direct = self._build(
            DirectCallers(self.access, encrypted=self._tls is not None), self._options
        )
        self.address = listen(direct, address, self._room, self._tls)
        self._servers.append(direct)
        if self._root is not None:
            fronts = self._build(DelegatedCallers(self.access), front_options(self._options))
            self._local = listen_locally(direct, self._root, self._room)
            self._front = listen_locally(fronts, self._root, f"{self._room}{discovery.FRONT}")
            self._servers.append(fronts)
        if self._metrics_wanted:
            beside = {name for name in self._process.services if name != self._room}
            self._metrics = metrics.serve(
                self._metrics_wanted,
                metrics.OfService(beside, {"service_ready": lambda: self._ready})
                if beside
                else metrics.REGISTRY,
                tls=self._tls and self._tls.contexts(require_client_certificates=False),
                allows=self.access.observer if self.access is not None else None,
            )
            self.metrics_address = self._metrics.address
        self._health.set("liveness", True)
        self.set_ready(ready)
        for server in self._servers:
            await server.start()
        for listener, socket in (
            (self._local_listener, self._local),
            (self._front_listener, self._front),
        ):
            if socket:
                await listen_without_grpc(listener, socket)
        if self._root is not None:
            self._announce(self._root)
        log.info(
            "service started",
            extra={"address": self.address, "metrics": self.metrics_address, "pid": os.getpid()},
        )
        return self.address

    def set_ready(self, ready: bool, reason: str = "") -> None:
        """Set the health of "", of "readiness" and of each service; `reason` goes to the log.

        Has no effect once the service stops.
        """
        if self._stopped:
            return
        if ready is not self._ready:
            log.info("readiness changed", extra={"ready": ready, "reason": reason})
        self._ready = ready
        READY.set(ready)
        for name in ("", "readiness", *self._service_names()):
            self._health.set(name, ready)

    def request_stop(self) -> None:
        """Make `serve` stop the service, as a signal would."""
        self._stopping.set()

    def supervise(self, task: "asyncio.Future[Any]") -> None:
        """`fail` if this task, without which the service does not work, ends in an error."""

        def ended(task: "asyncio.Future[Any]") -> None:
            error = None if task.cancelled() else task.exception()
            if error is not None:
                self.fail(error)

        task.add_done_callback(ended)

    def fail(self, error: BaseException) -> None:
        """Stop in order because of `error`; `serve` then raises the first one. An error about the
        store or the settings is no bug, and is logged without a traceback."""
        if self._failure is None:
            self._failure = error
            if not isinstance(error, (ConfigurationError, StoreRefusedError)):
                log.critical("service fails", extra={"reason": repr(error)}, exc_info=error)
        self.request_stop()

    async def stop(self, drain: Step | None = None, close: Step | None = None) -> None:
        """Stop in order: health, `drain`, calls in flight (up to the grace), `close`, run file.

        All steps are tried; the first error is raised at the end.
        """
        self.set_ready(False, "stopping")
        self._stopped = True
        self._health.stop()
        errors: list[Exception] = []
        for step in (drain, self._stop_calls, close, self._withdraw):
            try:
                if step is not None:
                    await step()
            except Exception as error:  # noqa: BLE001 - raised below, after the other steps
                errors.append(error)
        if errors:
            raise errors[0] if len(errors) == 1 else ExceptionGroup("stop failed", errors)
        log.info("service stopped")

    async def serve(
        self,
        address: str,
        *,
        drain: Step | None = None,
        close: Step | None = None,
        ready: bool = True,
    ) -> None:
        """Start, run until SIGTERM, SIGINT or `request_stop`, stop in order.

        `drain` ends the room's streams and refuses new work while calls are still answered;
        `close` flushes and closes the engine once no call is left. `close` runs even if the start
        fails. A second signal ends the process at once, with 128 + its number.

        Raises what was given to `fail`. An error that leaves a callback of the event loop and went
        through our code is one: the asyncio default is to log it and go on without the callback.
        """
        with self._process.serving(self):
            try:
                await self.start(address, ready=ready)
                # Modules and what the start made stay: collections beside calls need not look at
                # them, which has cost a sixth of a small call.
                gc.freeze()
                gc.set_threshold(COLLECT_AFTER, 10, 10)
                await self._stopping.wait()
            finally:
                await self.stop(drain if self.address else None, close)
        if self._failure is not None:
            raise self._failure

    def _build(self, callers: Callers, options: Sequence[tuple[str, Any]]) -> grpc.aio.Server:
        server = grpc.aio.server(options=options)
        guarded = GuardedServer(server, callers, self.limits, self._recorder)
        if isinstance(callers, DirectCallers):
            server.add_generic_rpc_handlers((NoDelegatedCallers(callers),))
            self._local_listener.handler_of = guarded.handler_of
        else:
            self._front_listener.handler_of = guarded.handler_of
        guarded.add_generic_rpc_handlers(self._generic)
        names = (*self._service_names(), HEALTH_SERVICE.full_name, reflection.SERVICE_NAME)
        servicers = (
            *self._servicers,
            (HEALTH_SERVICE, self._health),
            (REFLECTION_SERVICE, reflection.aio.ReflectionServicer(names)),
        )
        guarded.add_generic_rpc_handlers([handlers_of(*one) for one in servicers])
        if self.access is not None:
            server.add_generic_rpc_handlers((UnknownMethods(callers),))
        return server

    def _service_names(self) -> list[str]:
        return [service.full_name for service, _ in self._servicers]

    async def _stop_calls(self) -> None:
        grace_s = self._stop_grace_ms / 1000
        stopping = [server.stop(grace_s) for server in self._servers]
        for listener in (self._local_listener, self._front_listener):
            stopping.append(listener.stop(grace_s))
        await asyncio.gather(*stopping)

    def _announce(self, root: Path) -> None:
        try:
            discovery.write(root, self._room, self._endpoint())
        except OSError as error:
            if error.errno not in NO_SPACE:
                path = discovery.run_file(root, self._room)
                raise StoreRefusedError(
                    f"{path} cannot be written: {error.strerror or error}. Move away what is there"
                ) from error
            log.warning("not announced yet", extra={"reason": error.strerror})
            self._announcing = asyncio.create_task(self._announce_later(root))

    async def _announce_later(self, root: Path) -> None:
        while True:
            await asyncio.sleep(ANNOUNCE_INTERVAL_S)
            try:
                discovery.write(root, self._room, self._endpoint())
            except OSError as error:
                log.debug("not announced yet", extra={"reason": error.strerror})
            else:
                log.info("announced")
                return

    async def _withdraw(self) -> None:
        if self._announcing is not None:
            self._announcing.cancel()
            await asyncio.wait([self._announcing])
        if self._metrics is not None:
            self._metrics.close()
        if self._root is not None:
            discovery.remove(self._root, self._room, os.getpid())

    def _endpoint(self) -> discovery.Endpoint:
        advertised = [
            address and reachable_address(address, self._advertised_host)
            for address in (self.address, self.metrics_address)
        ]
        return discovery.Endpoint(
            *advertised,
            os.getpid(),
            advertised_address(self.address, self._advertised_host),
            self.broker_name,
            self.broker_id,
            self._local,
            discovery.boot_of_machine() if self._local else "",
            self._front,
        )


Main = Callable[[], Coroutine[Any, Any, int | None]]


def run_services(mains: Mapping[str, Main]) -> NoReturn:
    """Run several services in this process, by name, until the first of them ends; exit as
    `run_service` does for that one."""
    run_service(partial(_until_one_ends, mains))


async def _until_one_ends(mains: Mapping[str, Main]) -> int:
    process = HostProcess(tuple(mains))
    PROCESS.set(process)
    tasks = []
    for name, main in mains.items():
        context = copy_context()
        context.run(SERVICE.set, name)
        tasks.append(asyncio.create_task(main(), name=name, context=context))
    ended, others = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    process.request_stop()
    await asyncio.wait(tasks)
    failed = [task for task in (*ended, *others) if task.exception() is not None]
    for task in failed[1:]:
        log.critical("%s failed as well", task.get_name(), exc_info=task.exception())
    return max(task.result() or 0 for task in failed or tasks)


def run_service(main: Main) -> NoReturn:
    """Run a service's `main` on a new event loop and exit.

    0: stopped cleanly. 1: a bug, traceback logged. 2: wrong settings, one line each. 3: the store
    was refused. 4: a port is taken, perhaps for a while. 130: interrupted before it served. 2 and 3
    need an operator: do not restart.
    """
    try:
        with asyncio.Runner(loop_factory=ServiceLoop) as runner:
            code = runner.run(main()) or 0
    except KeyboardInterrupt:
        code = EXIT_SIGNAL_BASE + signal.SIGINT
    except ConfigurationError as error:
        for fault in error.faults:
            print(f"configuration: {fault}", file=sys.stderr)
        code = EXIT_PORT_TAKEN if isinstance(error, PortTakenError) else EXIT_CONFIGURATION
    except StoreRefusedError as error:
        print(f"store refused: {error.message}", file=sys.stderr)
        code = EXIT_STORE_REFUSED
    except Exception:
        log.critical("service failed", exc_info=True)
        code = EXIT_BUG
    if _threads_left.is_set():
        logging.shutdown()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


_threads_left = threading.Event()


def leave_threads() -> None:
    """`run_service` ends the process although threads have not ended: what they do may be broken
    off anywhere, as by a crash, and would hold the process up."""
    _threads_left.set()
