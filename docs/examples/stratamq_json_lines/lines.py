"""Newline-delimited JSON as a protocol of a front: a codec, a table and a listener.

    {"token": "…"}                                                 whose the connection is
    {"id": 1, "method": "append", "topic": "orders", "body": "x"}
    {"id": 1, "queue_id": 0, "offset": 7}                          once it is stored

A `pull` with `wait_ms` is answered when there is a message; after `subscribe` the server begins a
line for each message that comes. Calls of one connection do not wait for each other.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any, NamedTuple

from stratamq.client import AsyncClient, Reading, ReceivedMessage
from stratamq.errors import InvalidRequestError, StrataError
from stratamq.rpc.permission_file import BEARER
from stratamq.rpc.permissions import RULES
from stratamq.rpc.request_ids import Request, within
from stratamq.service.access import AccessControl
from stratamq.service.caller import Caller, ip_host
from stratamq.service.client_limits import ClientLimits
from stratamq.service.entrance import Call, Entrance
from stratamq.service.front import Front

MAX_LINE_BYTES = 4 << 20
MAX_CALLS = 64  # open on one connection; behind them its next line is not read
# --- the codec: a request has the names that the rule of its use case asks for (`RULES`) ---


class Append(NamedTuple):
    topic: str
    body: str
    tag: str = ""

    @property
    def messages(self) -> tuple["Append"]:
        return (self,)


class Pull(NamedTuple):
    topic: str
    queue_id: int
    offset: int
    wait_ms: int = 0
    group: str = ""


class Subscribe(NamedTuple):
    topic: str
    group: str = ""

    @property
    def queues(self) -> tuple["Subscribe"]:
        return (self,)


def decode(line: bytes) -> dict[str, Any]:
    try:
        return dict(json.loads(line))
    except (TypeError, ValueError) as error:
        raise InvalidRequestError("a line is a JSON object") from error


def request_of(kind: type, fields: dict[str, Any]) -> Any:
    try:
        asked = kind(**fields)
    except TypeError as error:
        raise InvalidRequestError(f"{kind.__name__}: {error}") from error
    for name, expected in kind.__annotations__.items():
        if type(getattr(asked, name)) is not expected:
            raise InvalidRequestError(f"{kind.__name__}: {name} must be {expected.__name__}")
    return asked


def encode(answer: dict[str, Any]) -> bytes:
    return json.dumps(answer).encode() + b"\n"


def fields_of(message: ReceivedMessage) -> dict[str, Any]:
    return {
        "queue_id": message.queue_id,
        "offset": message.queue_offset,
        "tag": message.tag,
        "body": message.body.decode("utf-8", "replace"),
    }


# --- the table: each method's use case, whose rule it has, its codec, and what it does ---
Answers = AsyncGenerator[dict[str, Any], None]


async def append(client: AsyncClient, asked: Append) -> Answers:
    result = await client.send(asked.topic, asked.body.encode(), tag=asked.tag)
    yield {"queue_id": result.queue_id, "offset": result.queue_offset}


async def pull(client: AsyncClient, asked: Pull) -> Answers:
    pulled = await client.pull(
        asked.topic, asked.queue_id, asked.offset, wait_ms=asked.wait_ms, group=asked.group
    )
    messages = [fields_of(one) for one in pulled.messages]
    yield {"status": pulled.status.name, "next": pulled.next_offset, "messages": messages}


async def subscribe(client: AsyncClient, asked: Subscribe) -> Answers:
    """The server begins each line: the client asks for no single message."""
    reading = Reading(follow=True, group=asked.group or None)
    async with client.consume(asked.topic, reading) as reader:
        async for message in reader:
            yield fields_of(message)


class Method(NamedTuple):
    use_case: str
    request: type
    handler: Callable[[AsyncClient, Any], Answers]
    gives_stream: bool = False


TABLE = {
    "append": Method("Append", Append, append),
    "pull": Method("Pull", Pull, pull),
    "subscribe": Method("PullStream", Subscribe, subscribe, gives_stream=True),
}

# --- the listener ---


class Listener:
    """`serve` is for `asyncio.start_server(…, limit=MAX_LINE_BYTES)`."""

    def __init__(self, front: Front, access: AccessControl | None, limits: ClientLimits) -> None:
        self._front = front
        self._access = access
        self._entrances = {
            name: Entrance(access, limits, None, name, RULES[use_case], gives_stream=gives_stream)
            for name, (use_case, _, _, gives_stream) in TABLE.items()
        }

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.set_write_buffer_limits(0)  # `drain`: the client has taken everything
        host, port, *_ = writer.get_extra_info("peername")
        calls: set[asyncio.Task[None]] = set()
        try:
            caller = self._identify(Caller(ip_host(host), port), await reader.readline())
            async with self._front.client(caller) as client, asyncio.TaskGroup() as group:
                while line := await reader.readline():
                    call = group.create_task(self._call(caller, client, line, writer))
                    calls.add(call)
                    call.add_done_callback(calls.discard)
                    if len(calls) >= MAX_CALLS:
                        await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
                for call in calls:  # the connection has ended: so do a held pull, a subscription
                    call.cancel()
        except* (ConnectionError, InvalidRequestError, ValueError):
            pass  # it broke, or its first line is none of the protocol's, or a line is too long
        finally:
            writer.close()

    def _identify(self, origin: Caller, line: bytes) -> Caller:
        shown, access = f"{BEARER}{decode(line).get('token', '')}", self._access
        return origin if access is None else access.identify(origin, authorization=shown)

    async def _call(
        self, caller: Caller, client: AsyncClient, line: bytes, writer: asyncio.StreamWriter
    ) -> None:
        number = None
        with within(Request()) as request:
            try:
                fields = decode(line)
                number, name = fields.pop("id", None), str(fields.pop("method", ""))
                if name not in TABLE:
                    raise InvalidRequestError(f"there is no method {name!r}: {', '.join(TABLE)}")
                with self._entrances[name].enter(lambda: caller, request) as call:
                    asked = request_of(TABLE[name].request, fields)
                    await call.require(asked)
                    call.require_room()
                    async with aclosing(TABLE[name].handler(client, asked)) as answers:
                        async for answer in answers:
                            await call.recheck()
                            await _give(writer, call, encode({"id": number, **answer}))
            except StrataError as error:
                refusal = {"error": type(error).__name__, "reason": str(error), "call": request.id}
                writer.write(encode({"id": number, **refusal}))
                await writer.drain()


async def _give(writer: asyncio.StreamWriter, call: Call, line: bytes) -> None:
    """Until the client has taken it: what it leaves unread counts against its limits."""
    size, delay_s = call.hold(line), 0.0
    try:
        writer.write(line)
        await writer.drain()
    finally:
        delay_s = call.given(size)
    await asyncio.sleep(delay_s)
