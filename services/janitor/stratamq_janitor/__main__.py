"""The janitor service: looks at the log and the volume, and has deleted what may go."""

import asyncio
import logging as std_logging

from stratamq.api.v1 import janitor_pb2_grpc
from stratamq.client import Client
from stratamq.errors import StrataError
from stratamq.files.clock import SystemClock, machine_boot
from stratamq.files.metadata import MetadataFile
from stratamq.files.real import RealFiles
from stratamq.rpc.endpoints import Endpoints
from stratamq.rpc.methods import COMMITLOG
from stratamq.service import logging
from stratamq.service.arguments import parse_arguments
from stratamq.service.config import load
from stratamq.service.room_lock import take_room_lock
from stratamq.service.server import Server, run_service
from stratamq.service.worker import ThreadWorker
from stratamq_janitor import clock_watch, metrics
from stratamq_janitor.cleaner import Cleaner
from stratamq_janitor.clock_watch import ClockWatch
from stratamq_janitor.config import JanitorConfig
from stratamq_janitor.retention import Retention
from stratamq_janitor.servicer import SERVICE_NAME, JanitorServicer

log = std_logging.getLogger(__name__)

ANSWER_S = 10.0
RETRY_MS = 1_000
"""After a look that failed: the log may just be starting."""
STARTING_LOOKS = 10
"""So many may fail before the first that does not, and the log of this service says nothing."""


async def main() -> None:
    arguments = parse_arguments("janitor", __doc__ or "")
    config = load(JanitorConfig, "janitor", arguments.toml_path, overrides=arguments.overrides)
    logging.configure("janitor", config.log_format == "json", config.log_level)
    files = RealFiles(config.root)
    room_lock = take_room_lock(files, "janitor")
    addresses = {COMMITLOG: config.log_address} if config.log_address else {}
    client = Client(Endpoints(config.root, addresses), timeout_s=ANSWER_S)
    clock = SystemClock()
    watch = ClockWatch(
        MetadataFile(files, clock_watch.PATH),
        machine_boot(),
        config.clock_tolerance_ms,
        config.clock_grace_ms,
        clock,
    )
    cleaner = Cleaner(files, client, config, Retention(files, config.enabled), watch, clock)
    worker = ThreadWorker(asyncio.get_running_loop(), "janitor-look")
    servicer = JanitorServicer(cleaner, worker)
    server = Server(
        "janitor",
        root=config.root,
        advertised_host=config.advertised_host,
        metrics_address=config.metrics_address,
        stop_grace_ms=config.stop_grace_ms,
    )
    server.add_servicer(
        janitor_pb2_grpc.add_JanitorServiceServicer_to_server, servicer, SERVICE_NAME
    )
    looking = asyncio.create_task(_look_regularly(servicer, cleaner, worker, config.interval_ms))
    server.supervise(looking)

    async def close() -> None:
        looking.cancel()
        await asyncio.wait([looking])
        await worker.close()
        client.close()
        room_lock.close()

    await server.serve(config.address, close=close)


async def _look_regularly(
    servicer: JanitorServicer, cleaner: Cleaner, worker: ThreadWorker, interval_ms: int
) -> None:
    observer = metrics.Observer(cleaner)
    starting, warned = STARTING_LOOKS, ""
    while True:
        metrics.LOOKS.inc()
        delay_ms = interval_ms
        try:
            await worker.run(cleaner.run)
            servicer.failure = warned = ""
            starting = 0
        except (StrataError, OSError) as error:
            # The log protects itself; the next look finds it again.
            metrics.FAILED.inc()
            servicer.failure = str(error)
            if starting:
                starting -= 1
            elif warned != servicer.failure:
                log.warning("look failed", extra={"error": servicer.failure})
                warned = servicer.failure
            delay_ms = min(interval_ms, RETRY_MS)
        observer.observe()
        await asyncio.sleep(delay_ms / 1000)


if __name__ == "__main__":
    run_service(main)
