"""The dispatcher service: follows the commit log, keeps `consumequeue/`, serves consumers."""

import asyncio
import gc
import logging as std_logging
import os
import random
import sys
from functools import partial

import grpc

from stratamq.api.v1 import dispatcher_pb2_grpc
from stratamq.files.clock import SystemClock
from stratamq.files.generations import is_listed
from stratamq.files.real import RealFiles
from stratamq.follow.driver import run_follower, why_not_writable
from stratamq.rpc.endpoints import Channels, Endpoints
from stratamq.rpc.methods import COMMITLOG
from stratamq.service import logging
from stratamq.service.arguments import parse_arguments
from stratamq.service.config import load
from stratamq.service.room_lock import take_room_lock
from stratamq.service.server import Server, run_service
from stratamq.service.worker import ThreadWorker
from stratamq_dispatcher.cold_reads import ColdReads
from stratamq_dispatcher.config import DispatcherConfig
from stratamq_dispatcher.consumer_offsets import ConsumerOffsets
from stratamq_dispatcher.engine import DispatchEngine
from stratamq_dispatcher.metrics import Observer
from stratamq_dispatcher.offset_bounds import OffsetBounds
from stratamq_dispatcher.pulling import Puller
from stratamq_dispatcher.servicer import SERVICE_NAME, DispatcherServicer

log = std_logging.getLogger(__name__)

TICK_SECONDS, REST_SECONDS, OBSERVE_SECONDS = 0.05, 0.5, 1.0
SWITCH_INTERVAL_SECONDS = 0.001
"""How long a worker's Python code may hold up the event loop."""


async def main() -> None:
    arguments = parse_arguments("dispatcher", __doc__ or "")
    config = load(
        DispatcherConfig, "dispatcher", arguments.toml_path, overrides=arguments.overrides
    )
    logging.configure("dispatcher", config.log_format == "json", config.log_level)
    sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
    files, clock = RealFiles(config.root), SystemClock()
    lock = take_room_lock(files, "dispatcher")
    loop = asyncio.get_running_loop()
    writing = ThreadWorker(loop, "dispatcher-write")
    reading = ThreadWorker(loop, "dispatcher-read")
    incarnation = random.SystemRandom().getrandbits(62) | 1
    engine = DispatchEngine(files, config.engine_settings, writing, clock, incarnation)
    engine.load()
    offsets = ConsumerOffsets(
        files,
        writing,
        clock,
        config.offsets_persist_interval_ms,
        incarnation=incarnation,
        page_entries=config.page_entries,
    )
    offsets.load()
    # What they loaded stays: a collection need not look at a million queues each time.
    gc.freeze()
    for line in [*engine.recovery_report(), *offsets.report]:
        log.warning("found at start", extra={"finding": line})
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    puller = Puller(engine, config.pull_limits(memory_bytes), ColdReads(files), reading)
    addresses = {COMMITLOG: config.log_address} if config.log_address else {}
    channels = Channels(Endpoints(config.root, addresses), grpc.aio.insecure_channel)
    bounds = OffsetBounds(offsets, engine)
    servicer = DispatcherServicer(
        engine, puller, offsets, bounds, partial(why_not_writable, channels), config.page_entries
    )
    server = Server(
        "dispatcher",
        root=config.root,
        advertised_host=config.advertised_host,
        metrics_address=config.metrics_address,
        stop_grace_ms=config.stop_grace_ms,
    )
    server.add_servicer(
        dispatcher_pb2_grpc.add_DispatcherServiceServicer_to_server, servicer, SERVICE_NAME
    )
    server.add_generic(servicer.generic_handler())
    following = asyncio.create_task(
        run_follower(
            channels,
            engine,
            random=random.SystemRandom(),
            learn_queues=engine.learn_queues,
            is_ours=partial(is_listed, files),
        )
    )
    ticking = asyncio.create_task(_tick(engine, offsets, bounds, server))
    for task in (following, ticking):
        server.supervise(task)

    async def drain() -> None:
        puller.stop()

    async def close() -> None:
        for task in (following, ticking):
            task.cancel()
        await asyncio.wait([following, ticking])
        for owner in (offsets, engine):
            closed = asyncio.Event()
            owner.close(closed.set)
            await closed.wait()
        await writing.close()
        await reading.close()
        for channel in channels.close():
            await channel.close()
        lock.close()

    await server.serve(config.address, drain=drain, close=close, ready=False)


async def _tick(
    engine: DispatchEngine, offsets: ConsumerOffsets, bounds: OffsetBounds, server: Server
) -> None:
    observer, observed_at = Observer(engine), 0.0
    loop, known_history = asyncio.get_running_loop(), True
    while True:
        if known_history and engine.history_is_foreign:
            known_history = False
            offsets.load(foreign=True)
        engine.tick()
        bounds.tick()
        offsets.tick()
        if loop.time() >= observed_at + OBSERVE_SECONDS:
            observed_at = loop.time()
            observer.observe()
        server.set_ready(engine.serving and not engine.stopped_reason, engine.stopped_reason)
        await asyncio.sleep(REST_SECONDS if engine.at_rest else TICK_SECONDS)


if __name__ == "__main__":
    run_service(main)
