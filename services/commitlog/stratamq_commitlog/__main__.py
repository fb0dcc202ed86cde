"""The commit log service: the one process of a broker that writes messages."""

import asyncio
import gc
import logging as std_logging
import os
import random
import sys
import threading
from functools import partial

from stratamq.api.v1 import commitlog_pb2_grpc
from stratamq.errors import UnavailableError
from stratamq.files.clock import SystemClock, machine_boot
from stratamq.files.interruptible import InterruptibleFiles
from stratamq.files.real import RealFiles
from stratamq.service import logging
from stratamq.service.arguments import parse_arguments
from stratamq.service.config import load
from stratamq.service.room_lock import take_room_lock
from stratamq.service.server import Server, run_service
from stratamq.service.worker import ThreadWorker
from stratamq_commitlog import metrics
from stratamq_commitlog.config import CommitLogConfig
from stratamq_commitlog.driver import Driver, quiet
from stratamq_commitlog.engine import CommitLog
from stratamq_commitlog.progress import Progress
from stratamq_commitlog.reserve import Reserve
from stratamq_commitlog.servicer import SERVICE_NAME, CommitLogServicer
from stratamq_commitlog.stall_watch import StallWatch
from stratamq_commitlog.walker_pool import WalkerPool, processes_for

log = std_logging.getLogger(__name__)

SWITCH_INTERVAL_SECONDS = 0.001
"""How long a worker's Python code may hold up the event loop."""


async def main() -> None:
    arguments = parse_arguments("commitlog", __doc__ or "")
    config = load(CommitLogConfig, "commitlog", arguments.toml_path, overrides=arguments.overrides)
    logging.configure("commitlog", config.log_format == "json", config.log_level)
    sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
    stopping = threading.Event()
    files = InterruptibleFiles(RealFiles(config.root), stopping.is_set)
    lock = take_room_lock(files, "commitlog")
    # Announcing this process needs a few blocks of the disk as well.
    Reserve(files, config.reserve_bytes).release_if_short()
    loop = asyncio.get_running_loop()
    flush_worker = ThreadWorker(loop, "commitlog-flush")
    allocate_worker = ThreadWorker(loop, "commitlog-allocate")
    scrub_worker = ThreadWorker(loop, "commitlog-scrub")
    read_worker = ThreadWorker(loop, "commitlog-read")
    clock = SystemClock()
    walkers = WalkerPool(config.root, processes_for(config.recovery_processes))
    engine = CommitLog(
        files,
        config,
        clock=clock,
        random=random.SystemRandom(),
        flush_worker=flush_worker,
        allocate_worker=allocate_worker,
        scrub_worker=scrub_worker,
        walkers=walkers,
        pid=os.getpid(),
        boot=machine_boot(),
        incarnation=random.SystemRandom().getrandbits(62) | 1,
    )
    servicer = CommitLogServicer(engine, read_worker)
    server = Server(
        "commitlog",
        root=config.root,
        advertised_host=config.advertised_host,
        metrics_address=config.metrics_address,
        stop_grace_ms=config.stop_grace_ms,
        max_message_bytes=max(
            8 << 20, 2 * config.max_batch_bytes, config.max_message_bytes + (1 << 20)
        ),
    )
    server.add_servicer(
        commitlog_pb2_grpc.add_CommitLogServiceServicer_to_server, servicer, SERVICE_NAME
    )
    server.add_generic(servicer.generic_handler())
    driver: Driver | None = None

    progress = Progress(clock)

    def recovered(done: int, total: int) -> None:
        progress.update(done, total)
        servicer.opening = progress.text
        metrics.RECOVERED.set(done)

    async def open_engine() -> None:
        try:
            await asyncio.to_thread(files.run, partial(engine.open, recovered))
        except UnavailableError:
            log.info("opening interrupted")
        else:
            drive()

    async def reopen() -> None:
        """Close and open: what a cut of the log has written down is done by the opening."""
        assert driver is not None
        servicer.opening = "its end is being cut off"
        server.set_ready(False, servicer.opening)
        servicer.end_follows()
        try:
            await driver.stop()
            await quiet(engine, flush_worker, allocate_worker, scrub_worker, read_worker)
            await asyncio.to_thread(engine.close)
            await asyncio.to_thread(files.run, partial(engine.open, recovered))
        except UnavailableError:
            log.info("opening interrupted")
            raise
        except BaseException as error:
            server.fail(error)
            raise
        drive()

    def drive() -> None:
        nonlocal driver
        observer = metrics.Observer(engine)
        lanes = {
            "flush": flush_worker,
            "allocate": allocate_worker,
            "scrub": scrub_worker,
            "read": read_worker,
        }
        stalls = StallWatch(engine, lanes, config.disk_stall_ms)

        def every_second() -> None:
            observer.observe()
            reason = "a flush failed" if engine.commit.failure is not None else stalls.look()
            server.set_ready(not reason, reason)

        # What the opening made stays: a collection need not look at a million queues each time.
        gc.freeze()
        driver = Driver(engine, every_second)
        server.supervise(driver.start())
        servicer.opening = ""
        server.set_ready(True)

    servicer.reopen = reopen

    def interrupt() -> None:
        """An opening that goes on ends at its next step; one that has ended does not notice."""
        stopping.set()
        walkers.interrupt()

    async def drain() -> None:
        interrupt()
        await servicer.cut_ended()
        if driver is not None:
            servicer.stop_appends()
            await driver.closed(config.follower_stop_timeout_ms)
            servicer.end_follows()

    async def close() -> None:
        interrupt()
        # Nobody lets go of a lock before the last thread that writes has ended.
        await asyncio.wait([opening])
        if driver is not None:
            await driver.stop()
        await flush_worker.close()
        await allocate_worker.close()
        await scrub_worker.close()
        await read_worker.close()
        engine.close()
        lock.close()

    opening = asyncio.create_task(open_engine())
    server.supervise(opening)
    await server.serve(config.address, drain=drain, close=close, ready=False)


if __name__ == "__main__":
    run_service(main)
