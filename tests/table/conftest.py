"""A store that whole services filled, and what the client read of it."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from stratamq.client import Client, Message, Topic, connect
from stratamq.formats.compression import Compression
from stratamq.rpc import discovery
from tests.support.brokers import COMMITLOG, DISPATCHER, Broker, broker_fixture
from tests.support.compressing import compress_body
from tests.support.waiting import until_dispatched
from tests.table.reference import row_of

SEGMENT_BYTES = 1 << 16
SETTINGS = (
    f"commitlog.segment_bytes={SEGMENT_BYTES}",
    "commitlog.followers=dispatcher",
    "commitlog.flush_disk_type=ASYNC_FLUSH",
    "commitlog.snapshot_interval_ms=50",  # nothing is deleted that no snapshot covers
)
TOPICS = ("flights", "orders")
QUEUES = 2
ROUNDS = 400
ROUNDS_OF_A_BATCH = 4


@dataclass(frozen=True)
class Filled:
    root: Path
    rows: list[dict[str, Any]]
    """In the order of the log, as `tests.table.reference` gives them; bodies as stored."""

    @property
    def segments(self) -> list[Path]:
        return sorted((self.root / "commitlog").iterdir())

    def where(self, wanted: Any) -> list[dict[str, Any]]:
        return [row for row in self.rows if wanted(row)]


def messages(first: int, rounds: int) -> Iterator[Message]:
    """A few hundred bytes each, to both queues of both topics in turn."""
    for number in range(first, first + rounds):
        for topic in TOPICS:
            body, flags = f"{topic} {number} ".encode() * 20, 0
            if number % 50 == 0:
                body, flags = compress_body(body, Compression.ZLIB)
            yield Message(
                topic,
                body,
                tag="" if number % 7 == 0 else f"tag{number % 3}",
                keys=[f"key{number}", "all"][: number % 3],
                properties={"shade": "grün"} if number % 11 == 0 else {"number": str(number)},
                queue_id=number % QUEUES,
                sys_flag=flags,
            )


def send(client: Client, first: int, rounds: int) -> None:
    """In small batches, so that they have many store times."""
    with client.producer() as producer:
        for number in range(first, first + rounds, ROUNDS_OF_A_BATCH):
            count = min(ROUNDS_OF_A_BATCH, first + rounds - number)
            for message in messages(number, count):
                producer.send_message(message)
            producer.flush(60.0)


def rows_by_client(client: Client) -> list[dict[str, Any]]:
    """Every message, by the dispatcher's queues, sorted as the log is."""
    received = [message for topic in TOPICS for message in client.consume(topic)]
    received.sort(key=lambda message: message.physical_offset)
    return [row_of(message.decode()) for message in received]


def fill(broker: Broker) -> list[dict[str, Any]]:
    with connect(broker.root) as client:
        for topic in TOPICS:
            client.admin.put_topic(Topic(topic, QUEUES, QUEUES))
        send(client, 0, ROUNDS)
        until_dispatched(client)
        return rows_by_client(client)


def address_of(root: Path, *rooms: str) -> str:
    """As users name services one by one."""
    endpoints = {room: discovery.read(root, room) for room in rooms}
    return ",".join(f"{room}={one.address}" for room, one in endpoints.items() if one is not None)


@pytest.fixture(scope="module")
def filled(tmp_path_factory) -> Filled:
    """A store whose services have stopped."""
    directory = tmp_path_factory.mktemp("filled")
    with Broker(directory / "store", directory / "logs", SETTINGS) as broker:
        broker.start([COMMITLOG, DISPATCHER])
        rows = fill(broker)
        broker.stop()
    assert len(rows) == ROUNDS * len(TOPICS)
    return Filled(directory / "store", rows)


running = broker_fixture(*SETTINGS, rooms=[COMMITLOG, DISPATCHER], scope="function")
