"""The index service: follows the commit log, keeps `index/`, answers by key."""

import asyncio
import logging as std_logging
import random
import sys
from functools import partial

import grpc

from stratamq.api.v1 import index_pb2_grpc
from stratamq.files.clock import SystemClock
from stratamq.files.generations import is_listed
from stratamq.files.real import RealFiles
from stratamq.follow.driver import run_follower
from stratamq.rpc.endpoints import Channels, Endpoints
from stratamq.rpc.methods import COMMITLOG
from stratamq.service import logging
from stratamq.service.arguments import parse_arguments
from stratamq.service.config import load
from stratamq.service.room_lock import take_room_lock
from stratamq.service.server import Server, run_service
from stratamq.service.worker import ThreadWorker
from stratamq_index.config import IndexConfig
from stratamq_index.engine import IndexEngine
from stratamq_index.metrics import Observer
from stratamq_index.scrubber import Scrubber
from stratamq_index.servicer import SERVICE_NAME, IndexServicer

log = std_logging.getLogger(__name__)

OBSERVE_INTERVAL_SECONDS = 1.0
REST_SECONDS = 0.5
"""Between two looks while everything is on the disk and nothing is scrubbed."""
SWITCH_INTERVAL_SECONDS = 0.001
"""How long a worker's Python code may hold up the event loop."""


async def main() -> None:
    arguments = parse_arguments("index", __doc__ or "")
    config = load(IndexConfig, "index", arguments.toml_path, overrides=arguments.overrides)
    logging.configure("index", config.log_format == "json", config.log_level)
    sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
    files = RealFiles(config.root)
    lock = take_room_lock(files, "index")
    loop = asyncio.get_running_loop()
    write_worker = ThreadWorker(loop, "index-write")
    query_worker = ThreadWorker(loop, "index-query")
    clock = SystemClock()
    engine = IndexEngine(files, config.engine_settings, write_worker, query_worker, clock)
    engine.load()
    scrubber = Scrubber(
        engine, files, clock, write_worker, query_worker, config.scrub_bytes_per_second
    )
    scrubber.load()

    addresses = {COMMITLOG: config.log_address} if config.log_address else {}
    channels = Channels(Endpoints(config.root, addresses), grpc.aio.insecure_channel)
    server = Server(
        "index",
        root=config.root,
        advertised_host=config.advertised_host,
        metrics_address=config.metrics_address,
        stop_grace_ms=config.stop_grace_ms,
    )
    server.add_servicer(
        index_pb2_grpc.add_IndexServiceServicer_to_server, IndexServicer(engine), SERVICE_NAME
    )
    following = asyncio.create_task(
        run_follower(
            channels, engine, random=random.SystemRandom(), is_ours=partial(is_listed, files)
        )
    )
    ticking = asyncio.create_task(_tick(engine, scrubber, server, config.tick_interval_ms / 1000))
    for task in (following, ticking):
        server.supervise(task)

    async def close() -> None:
        for task in (following, ticking):
            task.cancel()
        await asyncio.wait([following, ticking])
        scrubber.close()
        closed = asyncio.Event()
        engine.shutdown(closed.set)
        await closed.wait()
        await write_worker.close()
        await query_worker.close()
        for channel in channels.close():
            await channel.close()
        lock.close()

    await server.serve(config.address, close=close, ready=False)


async def _tick(engine: IndexEngine, scrubber: Scrubber, server: Server, interval_s: float) -> None:
    observer = Observer(engine, scrubber)
    loop, observed_at = asyncio.get_running_loop(), 0.0
    while True:
        engine.tick()
        scrubber.tick()
        if loop.time() >= observed_at + OBSERVE_INTERVAL_SECONDS:
            observed_at = loop.time()
            observer.observe()
        server.set_ready(engine.serving and not engine.stop_reason, engine.stop_reason)
        rests = engine.serving and engine.durable == engine.applied and scrubber.rests
        await asyncio.sleep(max(interval_s, REST_SECONDS) if rests else interval_s)


if __name__ == "__main__":
    run_service(main)
