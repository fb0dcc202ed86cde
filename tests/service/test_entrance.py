"""A protocol that is not gRPC, a line of JSON for each call, has the callers, permissions, limits,
audit lines and request IDs of the others through the same `Entrance`."""

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator

import pytest
from google.protobuf import json_format

from stratamq.api.v1 import dispatcher_pb2 as pb
from stratamq.errors import StrataError
from stratamq.rpc.permission_file import BEARER, Permissions, dump, grant_of
from stratamq.rpc.permissions import RULES
from stratamq.rpc.request_ids import Request, within
from stratamq.service.access import AccessControl, AuditLog
from stratamq.service.caller import Caller
from stratamq.service.client_limits import ClientLimits, LimitsConfig
from stratamq.service.entrance import Call, Entrance
from stratamq.service.permission_source import PermissionSource


class JsonLines:
    """A listener whose method is `Pull`: it answers with the call that it sees, once it may."""

    def __init__(self, access: AccessControl, limits: ClientLimits) -> None:
        self.access = access
        self.entrance = Entrance(
            access, limits, None, "Pull", RULES["Pull"], takes_stream=False, gives_stream=False
        )
        self.arrived, self.go_on = asyncio.Event(), asyncio.Event()

    async def pull(self, asked: pb.PullRequest, call: Call) -> dict[str, object]:
        self.arrived.set()
        if asked.wait_ms:
            await self.go_on.wait()
        return {"user": call.caller.name, "host": call.caller.host, "id": call.request.id}

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        origin = Caller(*writer.get_extra_info("peername"))
        async with asyncio.TaskGroup() as calls:
            while line := await reader.readline():
                calls.create_task(self.answer(origin, json.loads(line), writer))
        writer.close()

    async def answer(
        self, origin: Caller, line: dict[str, object], writer: asyncio.StreamWriter
    ) -> None:
        def identify() -> Caller:
            return self.access.identify(origin, authorization=BEARER + str(line["token"]))

        async def read() -> bytes:
            return json.dumps(line["request"]).encode()

        try:
            with within(Request()) as request, self.entrance.enter(identify, request) as call:
                asked = json_format.Parse(await call.receive(read), pb.PullRequest())
                await call.require(asked)
                answer = await self.pull(asked, call)
        except StrataError as error:
            answer = {"error": type(error).__name__}
        writer.write(json.dumps(answer).encode() + b"\n")


class Client:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self.writer = reader, writer

    def ask(self, token: str, **request: object) -> None:
        line = {"token": token, "request": {"topic": "orders", **request}}
        self.writer.write(json.dumps(line).encode() + b"\n")

    async def answer(self) -> dict[str, str]:
        return json.loads(await self._reader.readline())


@contextlib.asynccontextmanager
async def served(tmp_path) -> AsyncIterator[tuple[JsonLines, Client, dict[str, str]]]:
    permissions = Permissions(rules=[grant_of("alice", "consume", "topic:orders")])
    tokens = {user: permissions.add_token(user, "") for user in ("alice", "bob")}
    file = tmp_path / "access.json"
    file.write_bytes(dump(permissions))
    access = AccessControl(PermissionSource(file), (), AuditLog())
    listener = JsonLines(access, ClientLimits(LimitsConfig(open_calls=1)))
    server = await asyncio.start_server(listener.serve, "127.0.0.1", 0)
    client = Client(*await asyncio.open_connection(*server.sockets[0].getsockname()))
    try:
        yield listener, client, tokens
    finally:
        listener.go_on.set()
        client.writer.close()
        server.close()
        await server.wait_closed()


async def test_a_handler_gets_the_caller_and_an_id_of_its_own(tmp_path):
    async with served(tmp_path) as (_, client, tokens):
        answers = []
        for _ in range(2):
            client.ask(tokens["alice"])
            answers.append(await client.answer())
        assert [(one["user"], one["host"]) for one in answers] == [("alice", "127.0.0.1")] * 2
        assert answers[0]["id"] != answers[1]["id"]


@pytest.mark.parametrize(
    ("user", "error", "reason"),
    [
        ("bob", "NotPermittedError", "may not consume topic:orders"),
        ("", "UnauthenticatedError", "unknown token"),
    ],
)
async def test_refusals_are_those_of_every_protocol(tmp_path, caplog, user, error, reason):
    async with served(tmp_path) as (listener, client, tokens):
        with caplog.at_level(logging.INFO, logger="stratamq.audit"):
            client.ask(tokens.get(user, ""))
            assert await client.answer() == {"error": error}
        [line] = [one for one in caplog.records if one.name == "stratamq.audit"]
        assert (line.who, line.method, line.reason) == (user, "Pull", reason)
        assert not listener.arrived.is_set()


async def test_limits_hold_and_what_a_call_has_taken_comes_back(tmp_path):
    async with served(tmp_path) as (listener, client, tokens):
        client.ask(tokens["alice"], wait_ms=1)
        await listener.arrived.wait()
        client.ask(tokens["alice"])
        assert await client.answer() == {"error": "BusyError"}
        listener.go_on.set()
        assert (await client.answer())["user"] == "alice"
        client.ask(tokens["alice"])
        assert (await client.answer())["user"] == "alice"
