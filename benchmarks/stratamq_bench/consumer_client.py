"""The process of one consumer that reads everything while it is being written.

    python -m stratamq_bench.consumer_client --root DIR --topics 4 --queues 4

Prints `reading` when it reads. The offsets at which queues end (a JSON list in the order of
`Places.in_turn`) come on its standard input; when it has read up to all of them it prints one JSON
object. Every offset is checked, and samples of the bodies.
"""

import argparse
import asyncio
import json
import os
import sys
import time
from dataclasses import asdict, dataclass

from stratamq.client import AsyncClient, connect_async
from stratamq_bench.broker import START_TIMEOUT_S
from stratamq_bench.checks import Mismatch
from stratamq_bench.load import Load, Places
from stratamq_bench.usage import cpu_seconds

SAMPLE_EVERY = 1009
PIECE_BYTES = 256 << 10


@dataclass(frozen=True, slots=True)
class Consumed:
    messages: int
    ended: float
    """A moment of this machine's monotonic clock."""
    cpu_s: float


class Progress:
    """Where each queue stands, and whether that is where all end."""

    def __init__(self, places: Places) -> None:
        self.next: dict[tuple[str, int], int] = dict.fromkeys(places.in_turn, 0)
        self.messages = 0
        self.all_read = asyncio.Event()
        self._in_turn = places.in_turn
        self._ends: dict[tuple[str, int], int] | None = None

    def end_at(self, offsets: list[int]) -> None:
        self._ends = dict(zip(self._in_turn, offsets, strict=True))
        self.look()

    def look(self) -> None:
        """To be called when a queue has moved."""
        if self._ends is not None and self.next == self._ends:
            self.all_read.set()


async def read(client: AsyncClient, topic: str, load: Load, progress: Progress) -> None:
    """One topic, for ever. Mismatch."""
    following = progress.next
    for stored in await client.queues(topic):
        following[topic, stored.queue_id] = stored.min_offset
    async with client.consume(topic, follow=True, max_bytes=PIECE_BYTES) as messages:
        async for message in messages:
            queue, offset = (topic, message.queue_id), message.queue_offset
            if following[queue] != offset:
                raise Mismatch(f"{queue}: {offset} where {following[queue]} was due")
            following[queue] = offset + 1
            progress.messages += 1
            if progress.messages % SAMPLE_EVERY == 0:
                load.check(message)
            progress.look()


async def run(options: argparse.Namespace) -> Consumed:
    places, load = Places(options.topics, options.queues), Load(options.body)
    progress = Progress(places)
    loop = asyncio.get_running_loop()

    def heard() -> None:
        progress.end_at(json.loads(sys.stdin.readline()))
        loop.remove_reader(sys.stdin)

    loop.add_reader(sys.stdin, heard)
    async with connect_async(options.root, retry_timeout_s=START_TIMEOUT_S) as client:
        readers = [
            asyncio.ensure_future(read(client, topic, load, progress))
            for topic in places.topic_names
        ]
        print("reading", flush=True)
        whole = asyncio.ensure_future(progress.all_read.wait())
        done, _ = await asyncio.wait([*readers, whole], return_when=asyncio.FIRST_COMPLETED)
        ended = time.perf_counter()
        used = cpu_seconds(os.getpid())
        for task in done - {whole}:
            task.result()
        for task in readers:
            task.cancel()
        await asyncio.gather(*readers, return_exceptions=True)
    return Consumed(progress.messages, ended, used)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--root", required=True, help="the broker's store directory")
    parser.add_argument("--topics", type=int, default=4)
    parser.add_argument("--queues", type=int, default=4, help="of each topic")
    parser.add_argument("--body", type=int, default=1024, help="bytes")
    print(json.dumps(asdict(asyncio.run(run(parser.parse_args())))))


if __name__ == "__main__":
    main()
