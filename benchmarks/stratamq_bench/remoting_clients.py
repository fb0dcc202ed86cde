"""Clients of the remoting protocol without a Java process each: consumers with nothing to read.

Each function is a process of its own (`child.py`).
"""

import asyncio
import json
import sys
from collections.abc import Mapping

from stratamq_gateway.codes import PULLED, RequestCode
from stratamq_gateway.frames import FrameBuffer, compact, encode_request

from stratamq.rpc.address import split_address

HEARTBEAT_S, HELD_MS = 30.0, 15_000
GROUP_MEMBERS = 50
QUEUES = 4


class _Consumer(asyncio.Protocol):
    """One connection: heartbeats, and one pull after the other."""

    def __init__(self, number: int, topic: str, counts: dict[str, int]) -> None:
        self._number, self._topic = number, topic
        self._group = f"idle-{number // GROUP_MEMBERS}"
        self._counts = counts
        self._frames = FrameBuffer()
        self._opaque = 0
        self._pull, self._offset = -1, 0
        self.ready = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._counts["connections"] += 1
        self.beat()

    def connection_lost(self, error: Exception | None) -> None:
        self._counts["connections"] -= 1

    def beat(self) -> None:
        subscription = {
            "topic": self._topic, "subString": "*", "tagsSet": [], "codeSet": [], "subVersion": 1,
            "expressionType": "TAG", "classFilterMode": False,
        }  # fmt: skip
        consumer = {
            "groupName": self._group, "consumeType": "CONSUME_PASSIVELY", "unitMode": False,
            "messageModel": "CLUSTERING", "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
            "subscriptionDataSet": [subscription],
        }  # fmt: skip
        client = f"127.0.0.1@{self._number}"
        beat = {"clientID": client, "producerDataSet": [], "consumerDataSet": [consumer]}
        self._ask(RequestCode.HEART_BEAT, {}, compact(beat))

    def _ask(self, code: RequestCode, fields: Mapping[str, object], body: bytes = b"") -> int:
        self._opaque += 1
        self._transport.write(encode_request(code, self._opaque, fields, body, oneway=False))
        return self._opaque

    def pull(self) -> None:
        fields = {
            "consumerGroup": self._group, "topic": self._topic, "queueId": self._number % QUEUES,
            "queueOffset": self._offset, "maxMsgNums": 32, "sysFlag": 6,
            "commitOffset": 0, "suspendTimeoutMillis": HELD_MS, "subscription": "*",
            "subVersion": 1, "expressionType": "TAG",
        }  # fmt: skip
        self._pull = self._ask(RequestCode.PULL_MESSAGE, fields)

    def data_received(self, data: bytes) -> None:
        for command in self._frames.take(data):
            if not command.is_answer:
                continue  # told of another member
            if command.opaque == self._pull:
                self._counts["answered"] += 1
                if command.code not in PULLED.values():
                    self._counts["refused"] += 1
                    continue
                self._offset = int(command.fields.get("nextBeginOffset", self._offset))
                self.pull()
            else:
                self._counts["refused"] += command.code != 0
                if not self.ready.done():
                    self.ready.set_result(None)


async def hold(address: str, consumers: int, topic: str) -> dict[str, int]:
    """Say when all are there; until the end of a line on standard input."""
    loop = asyncio.get_running_loop()
    counts = {"connections": 0, "answered": 0, "refused": 0}
    clients = []
    for number in range(consumers):
        _, client = await loop.create_connection(
            lambda number=number: _Consumer(number, topic, counts), *split_address(address)
        )
        await client.ready
        clients.append(client)
        client.pull()
    print(json.dumps(counts), flush=True)
    ended = loop.run_in_executor(None, sys.stdin.readline)
    while not ended.done():
        for client in clients:  # one after the other, as clients do that began at any time
            await asyncio.wait([ended], timeout=HEARTBEAT_S / consumers)
            client.beat()
            if ended.done():
                break
    return counts
