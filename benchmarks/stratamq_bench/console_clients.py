"""The client processes of `console.py`: one fills the store, another keeps pages open."""

import http.client
import sys
import threading
from pathlib import Path

from stratamq.client import connect_async
from stratamq_bench.broker import START_TIMEOUT_S
from stratamq_bench.console import LARGE_TOPICS, QUEUES, REFRESH_S, ask, topic_name

RUN_MESSAGES = 64


async def fill(root: str, topics: int, messages: int) -> None:
    """A third of the messages to all topics alike, the others to the largest ones. Each has a
    key."""
    each = max(1, messages // (3 * topics * QUEUES))
    sent = 0

    def rows(count: int, size: int) -> list[tuple[bytes, bytes]]:
        nonlocal sent
        first, sent = sent, sent + count
        return [(b"%0*d" % (size, one), b"KEYS\x01k%d" % one) for one in range(first, sent)]

    async with (
        connect_async(Path(root), retry_timeout_s=START_TIMEOUT_S) as client,
        client.producer() as producer,
    ):
        for topic in range(topics):
            for queue in range(QUEUES):
                some = rows(each, 40 + topic % 60)
                await producer.send_rows(topic_name(topic), some, queue_id=queue)
        turn = 0
        while sent < messages:
            topic, queue = turn % LARGE_TOPICS, turn // LARGE_TOPICS % QUEUES
            some = rows(min(RUN_MESSAGES, messages - sent), 80)
            await producer.send_rows(topic_name(topic), some, queue_id=queue)
            turn += 1
        await producer.flush()


def hold(address: str, pages: int, topic: str) -> None:
    """Half of the pages are live tails, the others overviews. Print a line, and keep them until it
    is killed."""
    for number in range(pages):
        work, path = (_tail, f"/live/events?topic={topic}") if number % 2 else (_refresh, "/")
        threading.Thread(target=work, args=(address, path), daemon=True).start()
    print("open", flush=True)
    sys.stdin.read()


def _tail(address: str, path: str) -> None:
    connection = http.client.HTTPConnection(address)
    connection.request("GET", path)
    response = connection.getresponse()
    while response.readline():
        pass


def _refresh(address: str, path: str) -> None:
    pause = threading.Event()
    while not pause.wait(REFRESH_S):
        ask(address, path)
