"""A whole service for tests that need a process: `python service_process.py ROOT ADDRESS MODE`.

Its steps are printed, so that a test sees their order. MODE `stuck` drains for ever, `blocked`
blocks the event loop while draining, `broken` fails while draining, `refused` and `misconfigured`
fail at start, `bug` raises, `counted` prints how many objects collections leave out. While it
serves, a task dies in `task`, a worker's answer in `worker`, a timer in `timer`; in `elsewhere` a
callback that is not ours fails, and all continues.
"""

import asyncio
import gc
import json
import sys
import threading
from pathlib import Path

from stratamq.errors import ConfigurationError, StoreRefusedError
from stratamq.service.logging import configure
from stratamq.service.server import Server, run_service
from stratamq.service.worker import ThreadWorker

ROOT, ADDRESS, MODE = Path(sys.argv[1]), sys.argv[2], sys.argv[3]


async def drain() -> None:
    print("drain", flush=True)
    if MODE == "counted":
        print(gc.get_freeze_count(), flush=True)
    if MODE == "stuck":
        await asyncio.Event().wait()
    if MODE == "blocked":
        threading.Event().wait()
    if MODE == "broken":
        raise RuntimeError("drain broke")


async def close() -> None:
    print("close", flush=True)


async def die() -> None:
    await asyncio.sleep(0)
    broken()


def broken() -> None:
    raise RuntimeError("the tick broke")


async def main() -> None:
    configure("test")
    if MODE == "misconfigured":
        raise ConfigurationError(["one thing is wrong", "another too"])
    if MODE == "refused":
        raise StoreRefusedError("a newer version wrote this store")
    if MODE == "bug":
        raise ValueError("surprise")
    server = Server("test", root=ROOT, metrics_address="127.0.0.1:0", stop_grace_ms=200)
    loop = asyncio.get_running_loop()
    if MODE == "task":
        server.supervise(loop.create_task(die()))
    if MODE == "worker":
        ThreadWorker(loop, "test").submit(lambda: 7, lambda result, error: broken())
    if MODE == "timer":
        loop.call_later(0.01, broken)
    if MODE == "elsewhere":
        loop.call_soon(json.loads, "no JSON")
        loop.call_soon(lambda: print("continues", flush=True))
    await server.serve(ADDRESS, drain=drain, close=close)


run_service(main)
