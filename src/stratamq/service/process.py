"""One process of a room, from its settings to its stop in order: what every `__main__` stands on.

    async def main() -> None:
        service = Service("index", IndexConfig, __doc__)     settings, logs, the room's lock
        writing = service.worker("write")
        engine = IndexEngine(service.files, service.config, writing, service.clock)
        service.offer(IndexServicer(engine))
        service.follow(engine)
        service.tick(step)
        service.on_close(engine.shutdown)
        await service.run()

    if __name__ == "__main__":
        run_service(main)

A stop goes downward: health NOT_SERVING, `drain`, the calls in flight (up to `stop_grace_ms`), the
tasks, what was given to `on_close` in that order, the workers, the channels, the room's lock.
"""

import asyncio
import random
import sys
from collections.abc import Callable, Coroutine
from dataclasses import fields
from functools import partial
from logging import getLogger
from typing import Any, Generic, TypeVar

import grpc

from stratamq.files.clock import SystemClock
from stratamq.follow.demand import Demand
from stratamq.follow.driver import FollowerEngine, LearnQueues, LogFollower
from stratamq.follow.own_appends import OwnAppends
from stratamq.follow.own_stream import OwnStream
from stratamq.formats.store_paths import LOGS_DIRECTORY
from stratamq.rpc.endpoints import Channels, Endpoints
from stratamq.rpc.methods import service_of
from stratamq.rpc.rooms import COMMITLOG
from stratamq.service import logging
from stratamq.service.access import SECTION as ACCESS
from stratamq.service.access import AccessConfig, access_control, listening, require_guarded
from stratamq.service.arguments import Arguments, is_given, parse_arguments
from stratamq.service.awaiting import finished
from stratamq.service.client_limits import SECTION as LIMITS
from stratamq.service.client_limits import LimitsConfig
from stratamq.service.config import (
    SECTIONS,
    FollowerConfig,
    ServiceConfig,
    load,
)
from stratamq.service.file_modes import use_file_modes
from stratamq.service.heap import keep_freed_memory
from stratamq.service.room_lock import take_room_lock
from stratamq.service.server import MAX_MESSAGE_BYTES, Server, Step
from stratamq.service.store_root import store_files
from stratamq.service.tls import SECTION as TLS
from stratamq.service.tls import TlsConfig, server_tls
from stratamq.service.tracing import SECTION as TRACING
from stratamq.service.tracing import TracingConfig, recorder_of
from stratamq.service.worker import ThreadWorker
from stratamq.store.generations import is_listed

log = getLogger(__name__)

SWITCH_INTERVAL_SECONDS = 0.001
"""How long a worker's Python code may hold up the event loop."""
OBSERVE_INTERVAL_S = 1.0

Config = TypeVar("Config", bound=ServiceConfig)
Shared = TypeVar("Shared")


class Service(Generic[Config]):
    """Made, filled and run on one event loop."""

    def __init__(
        self,
        room: str,
        settings: type[Config],
        doc: str | None,
        *,
        max_message_bytes: Callable[[Config], int] = lambda _: MAX_MESSAGE_BYTES,
        instance: Callable[[Config], str] = lambda _: "",
    ) -> None:
        """Reads the command line, whose --help shows `doc`; the log goes where the settings send
        it, and the room's lock on the store is taken. `instance`: what tells several processes of
        the room over one store apart; that of "" is the one that clients are told of.

        ConfigurationError for the settings; StoreRefusedError when another process has the lock,
        or for a directory without its log.
        """
        arguments = parse_arguments(room, doc or "")
        self.room = room
        self._arguments = arguments
        self.config = load(settings, room, arguments.toml_path, overrides=arguments.overrides)
        config = self.config
        process = f"{room}{instance(config)}"
        logs = config.root / LOGS_DIRECTORY
        logging.configure(process, config.log_format == "json", config.log_level, directory=logs)
        _tune_process()
        log.info("settings", extra=chosen(config, room))
        use_file_modes(arguments.toml_path, arguments.overrides, (*SECTIONS, room))
        self.clock = SystemClock()
        self.random = random.SystemRandom()
        self.files = store_files(config.root)
        self._lock = take_room_lock(self.files, process)
        self.tls = shared_settings(TlsConfig, TLS, arguments, room)
        self.endpoints = Endpoints(
            config.root, _named_log(config), credentials=self.tls.credentials()
        )
        self.channels = Channels(self.endpoints, grpc.aio)
        self.server_tls = server_tls(self.tls)
        access = shared_settings(AccessConfig, ACCESS, arguments, room)
        require_guarded(access, listening(config))
        self.asks_who_calls = access.file is not None
        self.recorder = recorder_of(shared_settings(TracingConfig, TRACING, arguments, room), room)
        """None: traces are off."""
        self.server = Server(
            process,
            root=config.root,
            advertised_host=config.advertised_host,
            metrics_address=config.metrics_address,
            tls=self.server_tls,
            access=access_control(access, self.tls.members),
            limits=shared_settings(LimitsConfig, LIMITS, arguments, room),
            recorder=self.recorder,
            max_message_bytes=max_message_bytes(config),
            stop_grace_ms=config.stop_grace_ms,
        )
        self.demand = Demand()
        """For what callers of this service wait; the log sends the rest every 50 ms."""
        self._workers: list[ThreadWorker] = []
        self._tasks: list[asyncio.Future[Any]] = []
        self._followers: list[LogFollower] = []
        self._closers: list[Step] = []

    def is_given(self, section: str, name: str) -> bool:
        """Whether any source has a setting of another service of this broker."""
        given = self._arguments
        return is_given(section, name, given.toml_path, overrides=given.overrides)

    def incarnation(self) -> int:
        """A number that no other start has."""
        return self.random.getrandbits(62) | 1

    def worker(self, name: str) -> ThreadWorker:
        """A thread of this process. Its last task has ended when the process lets go of the
        room's lock."""
        worker = ThreadWorker(asyncio.get_running_loop(), f"{self.room}-{name}")
        self._workers.append(worker)
        return worker

    def offer(self, servicer: Any) -> None:
        """Serve the proto of this service in the register (`guarded_handlers.handlers_of`)."""
        self.server.add_servicer(service_of(self.room), servicer)

    def follow(
        self,
        engine: FollowerEngine,
        *,
        replicable: bool = False,
        learn_queues: LearnQueues | None = None,
        demand: Demand | None = None,
    ) -> None:
        """Drive `engine` along this broker's log until the process stops (`follow.driver`).
        `demand`: another one than the service's."""
        follower = LogFollower(
            self.channels,
            engine,
            random=self.random,
            replicable=replicable,
            learn_queues=learn_queues,
            is_ours=partial(is_listed, self.files),
            demand=demand or self.demand,
        )
        self._followers.append(follower)
        self.spawn(follower.run())

    def append(self, appends: OwnAppends) -> Callable[[], None]:
        """Append what the author of `appends` decides, while this broker is the master
        (`follow.own_appends`). Returns what to call when its state moves: the fold's `moved`."""
        stream = OwnStream(self.channels, appends, self.clock, self.random, self.demand)
        self.spawn(stream.run())
        return stream.moved

    def spawn(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Run work without which the service does not work: an error in it ends the process. It is
        cancelled once no call is left."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.append(task)
        self.server.supervise(task)
        return task

    def tick(self, step: Callable[[], float], observe: Callable[[], None] = lambda: None) -> None:
        """Call `step` again and again, each time after as many seconds as it returned, and
        `observe` about once a second."""
        self.spawn(ticking(step, observe))

    def on_close(self, *closes: Callable[[Callable[[], None]], object]) -> None:
        """Call each `close(done)` when no call and no task is left. It has ended when it calls
        `done`."""
        self._closers += [partial(finished, close) for close in closes]

    async def run(
        self, *, drain: Step | None = None, close: Step | None = None, ready: bool = False
    ) -> None:
        """Serve until a signal or an error that is given to the server's `fail`. `close` goes
        before everything else that closes. `ready`: takes requests from the start, instead of
        when the server calls `set_ready`."""

        async def close_all() -> None:
            if close is not None:
                await close()
            await asyncio.gather(*(one.leave() for one in self._followers))
            for task in self._tasks:
                task.cancel()
            if self._tasks:
                await asyncio.wait(self._tasks)
            for step in self._closers:
                await step()
            for worker in self._workers:
                await worker.close()
            for channel in self.channels.close():
                await channel.close()
            if self.recorder is not None:
                await asyncio.to_thread(self.recorder.close)
            self._lock.close()

        await self.server.serve(self.config.address, drain=drain, close=close_all, ready=ready)


def _tune_process() -> None:
    sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
    keep_freed_memory()


async def ticking(step: Callable[[], float], observe: Callable[[], None]) -> None:
    """`step`, each time after as many seconds as it returned; `observe` about once a second."""
    loop = asyncio.get_running_loop()
    observed_at = loop.time() - OBSERVE_INTERVAL_S
    while True:
        pause_s = step()
        if loop.time() >= observed_at + OBSERVE_INTERVAL_S:
            observed_at = loop.time()
            observe()
        await asyncio.sleep(pause_s)


def _named_log(config: ServiceConfig) -> dict[str, str]:
    """The log service's address, where the settings name it."""
    named = isinstance(config, FollowerConfig) and config.log_address
    return {COMMITLOG: config.log_address} if named else {}


def chosen(config: ServiceConfig, room: str) -> dict[str, object]:
    """The settings that are not what they are without being set."""
    return {
        f"{room}.{field.name}": getattr(config, field.name)
        for field in fields(config)
        if getattr(config, field.name) != field.default
    }


def shared_settings(cls: type[Shared], section: str, given: Arguments, room: str) -> Shared:
    """Those that all services of a broker have in common. ConfigurationError."""
    known = (*SECTIONS, room)
    return load(cls, section, given.toml_path, overrides=given.overrides, known_sections=known)
