"""The commit log service: the one process of a broker that writes messages."""

import os
import threading

from stratamq.files.clock import machine_boot
from stratamq.files.interruptible import InterruptibleFiles
from stratamq.service.process import Service
from stratamq.service.server import run_service
from stratamq_commitlog import metrics
from stratamq_commitlog.config import CommitLogConfig
from stratamq_commitlog.driver import Driver
from stratamq_commitlog.engine import CommitLog
from stratamq_commitlog.log_parts import ThisProcess, Workers
from stratamq_commitlog.messages import LogListener
from stratamq_commitlog.recovery.reserve import Reserve
from stratamq_commitlog.recovery.walker_pool import WalkerPool, processes_for
from stratamq_commitlog.running import RunningLog
from stratamq_commitlog.servicer import CommitLogServicer
from stratamq_commitlog.use_cases.append_spans import append_spans
from stratamq_commitlog.use_cases.served_log import ServedLog
from stratamq_commitlog.use_cases.together import use_cases_of
from stratamq_commitlog.write.append_times import AppendStages


async def main() -> None:
    service = Service(
        "commitlog", CommitLogConfig, __doc__, max_message_bytes=largest_message_bytes
    )
    config, clock, interrupted = service.config, service.clock, threading.Event()
    # Announcing this process needs a few blocks of the disk as well.
    Reserve(service.files, config.reserve_bytes).release_if_short()
    files = InterruptibleFiles(service.files, interrupted.is_set)
    workers = {name: service.worker(name) for name in ("flush", "allocate", "scrub", "read")}
    walkers = WalkerPool(config.root, processes_for(config.recovery_processes))
    stages = None if service.recorder is None else AppendStages(clock)
    driver = Driver()
    engine = CommitLog(
        files,
        config,
        clock=clock,
        random=service.random,
        workers=Workers(workers["flush"], workers["allocate"], workers["scrub"]),
        walkers=walkers,
        process=ThisProcess(os.getpid(), machine_boot(), service.incarnation(), stages),
        listener=LogListener(driver.wake, driver.resume, metrics.flush_took, metrics.append_took),
    )
    spans = append_spans(service.recorder, stages, engine)
    reads = workers["read"]
    use_cases = use_cases_of(ServedLog(engine), reads, lambda: running.reopen(), spans)
    servicer = CommitLogServicer(use_cases)
    service.offer(servicer)
    service.server.broker_name, service.server.broker_id = config.broker_name, config.broker_id

    def interrupt() -> None:
        interrupted.set()
        walkers.interrupt()

    running = RunningLog(
        engine, driver, use_cases, servicer, service.server, files, interrupt, workers, clock
    )
    await service.run(drain=running.drain, close=running.close)


def largest_message_bytes(config: CommitLogConfig) -> int:
    """A batch or a message, with its framing."""
    return max(8 << 20, 2 * config.max_batch_bytes, config.max_message_bytes + (1 << 20))


if __name__ == "__main__":
    run_service(main)
