"""The protocol of `docs/a-new-protocol.md`, of a front beside a real broker."""

import asyncio
import contextlib
import json
import logging
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from stratamq.client import connect_async
from stratamq.errors import NotPermittedError, UnauthenticatedError
from stratamq.rpc.permission_file import Permissions, digest_of, dump, grant_of
from stratamq.rpc.permissions import RULES
from stratamq.service.access import AccessControl, AuditLog
from stratamq.service.caller import Caller
from stratamq.service.client_limits import ClientLimits, LimitsConfig
from stratamq.service.front import Front
from stratamq.service.permission_source import PermissionSource
from tests.support.brokers import COMMITLOG, DISPATCHER, Broker
from tests.support.calls import with_status

EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples"
sys.path.insert(0, str(EXAMPLES))

from stratamq_json_lines.lines import MAX_LINE_BYTES, TABLE, Listener  # noqa: E402

TOPICS = ("orders", "held", "followed", "kept")
ELSEWHERE = Caller("10.1.2.3", 5_000, encrypted=True)


class Served:
    """A broker that asks who calls, and a front of it with the example's protocol."""

    def __init__(self, broker: Broker, access: Path, tokens: dict[str, str]) -> None:
        self.broker, self.access, self.tokens = broker, access, tokens

    def user(self, name: str) -> Caller:
        return ELSEWHERE._replace(name=name, digest=digest_of(self.tokens[name]))

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator["Listening"]:
        front, limits = Front(self.broker.root), ClientLimits(LimitsConfig())
        control = AccessControl(PermissionSource(self.access), [], AuditLog())
        listener = Listener(front, control, limits)
        connections = set()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            connections.add(asyncio.current_task())
            await listener.serve(reader, writer)

        server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=MAX_LINE_BYTES)
        found = Listening(self, server.sockets[0].getsockname(), limits)
        try:
            yield found
        finally:
            for writer in found.writers:
                writer.close()
            server.close()
            await server.wait_closed()
            if connections:
                await asyncio.wait(connections)
            await front.close()


class Listening:
    def __init__(self, served: Served, address: tuple[str, int], limits: ClientLimits) -> None:
        self.served, self.limits = served, limits
        self.writers: list[asyncio.StreamWriter] = []
        self._address = address

    async def connect(self, user: str) -> "Connection":
        reader, writer = await asyncio.open_connection(*self._address)
        self.writers.append(writer)
        connection = Connection(reader, writer)
        connection.send(token=self.served.tokens.get(user, ""))
        return connection


class Connection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self.writer = reader, writer

    def send(self, **fields: object) -> None:
        self.writer.write(json.dumps(fields).encode() + b"\n")

    async def line(self) -> dict:
        return json.loads(await self._reader.readline())

    async def ask(self, **fields: object) -> dict:
        self.send(**fields)
        return await self.line()

    async def first_in(self, topic: str) -> int:
        """The queue of the topic's first message, once the dispatcher has it."""
        queue = (await self.ask(id=0, method="append", topic=topic, body="before"))["queue_id"]
        place = {"topic": topic, "queue_id": queue, "offset": 0, "wait_ms": 30_000}
        assert (await self.ask(id=0, method="pull", **place))["messages"]
        return queue


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    directory = tmp_path_factory.mktemp("broker")
    permissions = Permissions()
    tokens = {user: permissions.add_token(user, "") for user in ("alice", "bob")}
    permissions.rules = [
        grant_of("alice", verb, f"topic:{topic}")
        for topic in TOPICS
        for verb in ("produce", "consume")
    ]
    access = directory / "access.json"
    access.write_bytes(dump(permissions))
    settings = (f"access.file={access}", "commitlog.followers=")
    with Broker(directory / "store", directory / "logs", settings) as broker:
        yield Served(broker.start([COMMITLOG, DISPATCHER]), access, tokens)


async def test_each_method_names_the_use_case_whose_rule_it_has():
    assert {method.use_case for method in TABLE.values()} <= set(RULES)


async def test_what_is_appended_is_pulled_as_it_was_sent_by_its_caller(served):
    async with served.listening() as listening:
        alice = await listening.connect("alice")
        stored = await alice.ask(id=1, method="append", topic="orders", body="paid", tag="A")
        assert stored["id"] == 1 and stored["offset"] == 0
        queue = stored["queue_id"]
        found = await alice.ask(
            id="two", method="pull", topic="orders", queue_id=queue, offset=0, wait_ms=30_000
        )
        message = {"queue_id": queue, "offset": 0, "tag": "A", "body": "paid"}
        assert found == {"id": "two", "status": "FOUND", "next": 1, "messages": [message]}
        async with connect_async(served.broker.root) as client:
            [kept] = (await client.pull("orders", queue, 0)).messages
        assert kept.born_host.port == alice.writer.get_extra_info("sockname")[1]


async def test_a_pull_is_held_until_there_is_a_message_and_keeps_no_other_call(served):
    async with served.listening() as listening:
        alice = await listening.connect("alice")
        queue = await alice.first_in("held")
        held = {"topic": "held", "queue_id": queue, "offset": 1, "wait_ms": 30_000}
        alice.send(id=1, method="pull", **held)
        answers = {}
        while 1 not in answers:  # the topic's queues take turns
            one = await alice.ask(id=2, method="append", topic="held", body="after")
            answers[one["id"]] = one
            if one["id"] == 2 and one["queue_id"] == queue:
                one = await alice.line()
                answers[one["id"]] = one
        assert answers[1]["messages"][0]["body"] == "after" and 2 in answers


async def test_the_server_begins_a_line_for_each_message_that_comes(served):
    async with served.listening() as listening:
        reader, writer = [await listening.connect("alice") for _ in range(2)]
        await writer.ask(id=0, method="append", topic="followed", body="0")
        reader.send(id="all", method="subscribe", topic="followed")
        assert (await reader.line())["body"] == "0"
        for number in range(1, 4):
            await writer.ask(id=0, method="append", topic="followed", body=str(number))
            assert (await reader.line())["body"] == str(number)


async def test_calls_end_with_their_connection(served):
    async with served.listening() as listening:
        alice = await listening.connect("alice")
        held = {"queue_id": await alice.first_in("kept"), "offset": 1, "wait_ms": 30_000}
        alice.send(id=1, method="pull", topic="kept", **held)
        alice.send(id=2, method="subscribe", topic="kept")
        assert (await alice.line())["id"] == 2
        open_ones = listening.limits.of("user alice")
        assert (open_ones.calls, open_ones.streams) == (2, 1)
        alice.writer.close()
        while open_ones.calls:  # the module's time-out is the limit
            await asyncio.sleep(0)
        assert open_ones.streams == 0


@pytest.mark.parametrize(
    ("user", "error", "reason"),
    [
        ("bob", NotPermittedError, "may not produce topic:orders"),
        ("", UnauthenticatedError, "unknown token"),
    ],
)
async def test_refusals_are_those_of_every_protocol(served, caplog, user, error, reason):
    async with served.listening() as listening:
        caller = await listening.connect(user)
        with caplog.at_level(logging.INFO, logger="stratamq.audit"):
            answer = await caller.ask(id=1, method="append", topic="orders", body="x")
        assert answer["error"] == error.__name__ and len(answer["call"]) == 32
        [line] = [one for one in caplog.records if one.name == "stratamq.audit"]
        assert (line.who, line.method, line.reason) == (user, "append", reason)


async def test_what_is_no_request_is_answered_as_such(served):
    async with served.listening() as listening:
        alice = await listening.connect("alice")
        for fields in (
            {"method": "purge"},
            {"method": "append", "topic": "orders"},
            {"method": "append", "topic": "orders", "body": 1},
            {"method": "append", "topic": ["orders"], "body": "x"},
            {"method": "pull", "topic": "orders", "queue_id": 0, "offset": 0, "speed": 1},
        ):
            answer = await alice.ask(id=7, **fields)
            assert (answer["id"], answer["error"]) == (7, "InvalidRequestError")
        alice.writer.write(b"[1, 2\n")
        assert (await alice.line())["error"] == "InvalidRequestError"


# --- the front's library ---


async def test_the_owner_refuses_what_a_front_lets_pass(served):
    front = Front(served.broker.root)
    async with front.client(served.user("bob")) as bob, front.client(ELSEWHERE) as stranger:
        with pytest.raises(NotPermittedError):
            await with_status(lambda: bob.send("orders", b"x"))
        with pytest.raises(NotPermittedError):
            await bob.pull("orders", 0, 0)
        with pytest.raises(UnauthenticatedError):
            await stranger.pull("orders", 0, 0)
    await front.close()


async def test_callers_share_a_fronts_connections_and_not_their_streams(served):
    front = Front(served.broker.root)
    clients = [front.client(served.user("alice")._replace(port=port)) for port in (1, 2)]
    sent = [client.send("orders", b"x", queue_id=0) for client in clients for _ in range(50)]
    results = await asyncio.gather(*sent)
    assert len({one.queue_offset for one in results}) == 100
    begin = min(one.queue_offset for one in results)
    offset, messages, stored = begin, [], b""
    while len(messages) < 100:
        pulled = await clients[0].pull("orders", 0, offset, wait_ms=30_000)
        offset, stored = pulled.next_offset, stored + bytes(pulled.frames)
        messages += pulled.messages
    assert {one.born_host.port for one in messages} == {1, 2}
    assert stored == b"".join(bytes(one.frame) for one in messages)
    assert len(front._channels) == 2, "one to each service"
    await clients[0].close()
    assert (await clients[1].pull("orders", 0, begin)).messages
    await clients[1].close()
    await front.close()
