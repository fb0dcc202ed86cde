"""The janitor service: looks at the log and the volume, and has deleted what may go."""

from stratamq.client import Client
from stratamq.files.clock import machine_boot
from stratamq.files.metadata import MetadataFile
from stratamq.formats.store_paths import JANITOR_STATE_PATH
from stratamq.service.process import Service
from stratamq.service.server import run_service
from stratamq_janitor.cleaner import Cleaner, RetentionSwitch
from stratamq_janitor.clock_watch import ClockWatch
from stratamq_janitor.config import JanitorConfig
from stratamq_janitor.looking import look_regularly
from stratamq_janitor.servicer import JanitorServicer

ANSWER_S = 10.0


async def main() -> None:
    service = Service("janitor", JanitorConfig, __doc__)
    config, files, clock = service.config, service.files, service.clock
    client = Client(service.endpoints, timeout_s=ANSWER_S)
    watch = ClockWatch(
        MetadataFile(files, JANITOR_STATE_PATH),
        machine_boot(),
        config.clock_tolerance_ms,
        config.clock_grace_ms,
        clock,
    )
    retention = RetentionSwitch(files, config.enabled)
    cleaner = Cleaner(files, client, client.admin, config, retention, watch)
    worker = service.worker("look")
    servicer = JanitorServicer(cleaner, worker)

    service.offer(servicer)
    service.spawn(look_regularly(servicer, cleaner, worker, config.interval_ms))
    try:
        await service.run(ready=True)
    finally:
        client.close()


if __name__ == "__main__":
    run_service(main)
