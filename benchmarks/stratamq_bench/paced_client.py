"""A client process that sends one message after another at a fixed rate, and times every answer.

    python -m stratamq_bench.paced_client --root DIR --rate 1000 --body 1024 --answers FILE

It prints `started` once answers come, sends until its standard input ends, and leaves a NumPy array
of two columns in FILE: when each message was due, and how long after that its answer came, in ns of
the machine's monotonic clock. Time is counted from the moment a message was due: a log that stalls
delays every message behind the one it stalls, and all of them count.
"""

import argparse
import asyncio
import sys
import time
from pathlib import Path

import numpy as np

from stratamq.client import Credentials, SendResult, SendStatus, TlsFiles, connect_async
from stratamq_bench.broker import START_TIMEOUT_S
from stratamq_bench.checks import Mismatch
from stratamq_bench.load import Load, Places

WARM_UP_MESSAGES = 200


async def run(options: argparse.Namespace) -> None:
    load, (topic, *_) = Load(options.body), Places().topic_names
    answered: list[int] = []
    due: list[int] = []

    def on_result(result: SendResult) -> None:
        if result.status is not SendStatus.PUT_OK:
            raise Mismatch(f"message {len(answered)} was answered {result.status}")
        answered.append(time.monotonic_ns())

    loop, over = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(sys.stdin, over.set)
    async with (
        connect_async(
            options.root, retry_timeout_s=START_TIMEOUT_S, credentials=_credentials(options)
        ) as client,
        client.producer(on_result=on_result, linger_ms=0, unique_keys=False) as producer,
    ):
        step_ns = int(1e9 / options.rate)
        started_ns = 0
        while not over.is_set():
            if len(due) == WARM_UP_MESSAGES:
                await producer.flush()
                print("started", flush=True)
            if len(due) in (0, WARM_UP_MESSAGES):
                started_ns = time.monotonic_ns() - len(due) * step_ns
            due.append(started_ns + len(due) * step_ns)
            if (early_ns := due[-1] - time.monotonic_ns()) > 0:
                await asyncio.sleep(early_ns / 1e9)
            await producer.send(topic, load.body(len(due)), queue_id=0)
        await producer.flush()
    if len(answered) != len(due):
        raise Mismatch(f"{len(due)} messages were sent, {len(answered)} answered")
    moments, ends = np.array(due[WARM_UP_MESSAGES:]), np.array(answered[WARM_UP_MESSAGES:])
    np.save(Path(options.answers), np.stack([moments, ends - moments], axis=1))


def _credentials(options: argparse.Namespace) -> Credentials | None:
    if options.ca is None:
        return None
    return Credentials(TlsFiles(options.ca), options.token_file.read_text())


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--root", required=True, help="the broker's store directory, or address")
    parser.add_argument("--ca", type=Path, help="the PEM file to trust")
    parser.add_argument("--token-file", type=Path)
    parser.add_argument("--rate", type=float, default=1000.0, help="messages per second")
    parser.add_argument("--body", type=int, default=1024, help="bytes")
    parser.add_argument("--answers", required=True, help="the .npy file to write")
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
