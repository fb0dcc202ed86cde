"""gRPC's calls over ASGI, by gRPC's own client and by hand: what calls end with, and when."""

import asyncio
import socket
import struct
from contextlib import asynccontextmanager
from types import SimpleNamespace
from unittest.mock import Mock

import grpc
import pytest
from stratamq_gateway.messaging import asgi_calls
from stratamq_gateway.messaging.asgi import GrpcApp, GrpcMethod
from stratamq_gateway.messaging.asgi_calls import FRAMES_IN_A_TURN, Deadlines
from stratamq_gateway.messaging.http2_servers import GrpcServer, H2cornServer

from stratamq.api.rocketmq import messaging_pb2 as pb

pytestmark = pytest.mark.anyio

DEADLINE_S = 60
MAX_BYTES = 100_000
SEVERAL_WINDOWS = 64 << 20
SERVERS = {"h2corn": lambda *given: H2cornServer("text", True, *given), "grpcio": GrpcServer}


class Served:
    """Methods that tell what happens to them."""

    def __init__(self) -> None:
        self.begun, self.ended = asyncio.Event(), asyncio.Event()
        self.given = 0
        self.remaining_s: float | None = None
        self.methods = {
            "/t/Echo": GrpcMethod(self.echo),
            "/t/Held": GrpcMethod(self.held),
            "/t/Wrong": GrpcMethod(self.wrong),
            "/t/Aborted": GrpcMethod(self.aborted),
            "/t/Count": GrpcMethod(self.count, gives_stream=True),
            "/t/HeldStream": GrpcMethod(self.held_stream, gives_stream=True),
            "/t/Chat": GrpcMethod(self.chat, takes_stream=True, gives_stream=True),
        }

    async def echo(self, data, context):
        self.remaining_s = context.time_remaining()
        return pb.Resource(name=data.decode() + dict(context.invocation_metadata()).get("x", ""))

    async def held(self, data, context):
        self.begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.ended.set()

    async def wrong(self, data, context):
        raise ValueError("a fault of ours")

    async def aborted(self, data, context):
        await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "100 % of ünits\n")

    async def count(self, data, context):
        for number in range(int(data)):
            self.given = number
            yield pb.Resource(name=str(number), resource_namespace="x" * 10_000)

    async def held_stream(self, data, context):
        yield pb.Resource(name="first")
        await self.held(data, context)

    async def chat(self, requests, context):
        try:
            async for data in requests:
                yield pb.Resource(name=data.decode())
        finally:
            self.ended.set()


@pytest.fixture(params=SERVERS)
def server(request):
    return SERVERS[request.param]


@asynccontextmanager
async def served(server):
    here = Served()
    one, tasks = server(here.methods, MAX_BYTES), []
    address = one.listen("127.0.0.1:0", None)
    await one.start(lambda work: tasks.append(asyncio.ensure_future(work)))
    async with asyncio.timeout(DEADLINE_S), grpc.aio.insecure_channel(address) as channel:
        yield here, channel, one
        await one.close()
    await asyncio.gather(*tasks)


def call(channel, method, data=b"", **options):
    return channel.unary_unary(f"/t/{method}", None, pb.Resource.FromString)(data, **options)


async def code_of(calling) -> grpc.StatusCode:
    with pytest.raises(grpc.aio.AioRpcError) as failure:
        await calling
    return failure.value.code()


async def test_a_call_has_its_metadata_and_its_time(server):
    async with served(server) as (here, channel, _):
        answer = await call(channel, "Echo", b"hello", metadata=(("x", "you"),), timeout=50)
        assert answer.name == "helloyou"
        assert here.remaining_s is not None and 0 < here.remaining_s < 60
        await call(channel, "Echo")
        assert here.remaining_s is None


async def test_an_empty_request_and_a_large_one_are_whole(server):
    async with served(server) as (_, channel, _one):
        for size in (0, 1, MAX_BYTES):
            assert len((await call(channel, "Echo", b"x" * size)).name) == size


async def test_a_request_that_is_too_large_is_told_so(server):
    async with served(server) as (_, channel, _one):
        too_large = call(channel, "Echo", b"x" * (MAX_BYTES + 1))
        assert await code_of(too_large) is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert (await call(channel, "Echo", b"next")).name == "next"


async def test_a_status_has_its_message(server):
    async with served(server) as (_, channel, _one):
        with pytest.raises(grpc.aio.AioRpcError) as failure:
            await call(channel, "Aborted")
        assert failure.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert failure.value.details() == "100 % of ünits\n"


async def test_a_method_that_is_not_there_and_one_that_fails(server):
    async with served(server) as (_, channel, _one):
        assert await code_of(call(channel, "None")) is grpc.StatusCode.UNIMPLEMENTED
        assert await code_of(call(channel, "Wrong")) is grpc.StatusCode.UNKNOWN


@pytest.mark.parametrize("method", ["Held", "HeldStream"])
async def test_a_call_ends_with_its_time(server, method):
    async with served(server) as (here, channel, _):
        if method == "Held":
            held = call(channel, method, timeout=0.5)
        else:
            stream = channel.unary_stream(f"/t/{method}", None, pb.Resource.FromString)
            held = last_of(stream(b"", timeout=0.5))
        assert await code_of(held) is grpc.StatusCode.DEADLINE_EXCEEDED
        await here.ended.wait()


class Timers:
    """A loop's, by hand."""

    def __init__(self) -> None:
        self.due: list[tuple[float, object]] = []

    def call_at(self, when, callback, *arguments):
        timer = (when, lambda: callback(*arguments))
        self.due.append(timer)
        return SimpleNamespace(cancel=lambda: self.due.remove(timer))


def test_calls_whose_time_ends_at_one_moment_share_a_timer_which_goes_with_the_last():
    timers, deadlines = Timers(), Deadlines()
    calls = [Mock(), Mock(), Mock()]
    steps = [deadlines.add(timers, one, 5.0 + more / 1_000) for more, one in enumerate(calls)]
    ((when, end),) = timers.due
    assert 5.002 <= when <= 5.2
    assert not deadlines.discard(steps[0], calls[0]), "it has ended in time"
    end()
    assert [one.cancel.called for one in calls] == [False, True, True]
    assert deadlines.discard(steps[1], calls[1]), "it was ended"
    timers.due.clear()
    step = deadlines.add(timers, calls[0], 1e9)
    assert not deadlines.discard(step, calls[0])
    assert not timers.due


async def last_of(stream):
    async for one in stream:
        last = one
    return last


async def test_a_stream_that_its_client_leaves_ends(server):
    async with served(server) as (here, channel, _):
        stream = channel.unary_stream("/t/HeldStream", None, pb.Resource.FromString)(b"")
        assert (await stream.read()).name == "first"
        await here.begun.wait()
        stream.cancel()
        await here.ended.wait()


async def test_a_chat_is_answered_message_by_message_and_ends_when_its_client_leaves(server):
    async with served(server) as (here, channel, _):
        chat = channel.stream_stream("/t/Chat", None, pb.Resource.FromString)()
        for said in (b"one", b"two"):
            await chat.write(said)
            assert (await chat.read()).name == said.decode()
        chat.cancel()
        await here.ended.wait()


async def test_a_chat_ends_when_its_client_has_said_everything(server):
    async with served(server) as (_, channel, _one):
        chat = channel.stream_stream("/t/Chat", None, pb.Resource.FromString)()
        await chat.write(b"one")
        await chat.done_writing()
        assert [one.name async for one in chat] == ["one"]
        assert await chat.code() is grpc.StatusCode.OK


async def test_a_client_that_does_not_read_is_not_written_to(server):
    async with served(server) as (here, channel, _):
        count = SEVERAL_WINDOWS // 10_000
        stream = channel.unary_stream("/t/Count", None, pb.Resource.FromString)(b"%d" % count)
        await stream.read()
        before = -1
        while here.given != before:
            before = here.given
            await asyncio.sleep(0.2)
        assert here.given < count // 2
        while (one := await stream.read()) is not grpc.aio.EOF:
            last = one
        assert last.name == str(count - 1)


async def test_calls_in_flight_end_when_the_server_does(server):
    async with served(server) as (here, channel, one):
        held = asyncio.ensure_future(call(channel, "Held"))
        await here.begun.wait()
        await one.close()
        assert await code_of(held) is grpc.StatusCode.UNAVAILABLE
        assert here.ended.is_set()


async def test_many_small_requests_on_one_stream_let_others_in_between():
    app, turns = GrpcApp(Served().methods, MAX_BYTES), 0
    body = [{"type": "http.request", "body": frame(b"") * 10_000, "more_body": False}]

    async def receive():
        return body.pop()

    async def send(event):
        """Take it at once."""

    async def others():
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    beside = asyncio.ensure_future(others())
    headers = [(b"content-type", b"application/grpc"), (b"te", b"trailers")]
    await app(
        {"type": "http", "http_version": "2", "path": "/t/Chat", "headers": headers}, receive, send
    )
    beside.cancel()
    assert turns >= 10_000 // FRAMES_IN_A_TURN - 1


async def test_half_requests_together_have_a_limit(monkeypatch):
    monkeypatch.setattr(asgi_calls, "MAX_HELD_BYTES", 3 * MAX_BYTES)
    app, gone = GrpcApp(Served().methods, MAX_BYTES), asyncio.Event()
    half = frame(bytes(MAX_BYTES))[: MAX_BYTES // 2]

    async def call(sent: list[dict]) -> None:
        events = [{"type": "http.request", "body": half, "more_body": True}]

        async def receive():
            if events:
                return events.pop()
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(event):
            sent.append(event)

        headers = [(b"content-type", b"application/grpc"), (b"te", b"trailers")]
        await app(
            {"type": "http", "http_version": "2", "path": "/t/Echo", "headers": headers},
            receive,
            send,
        )

    for _ in range(2):  # what has ended gives its room back
        answers: list[list[dict]] = [[] for _ in range(7)]
        calls = [asyncio.ensure_future(call(sent)) for sent in answers]
        await calls[-1]
        assert dict(answers[-1][-1]["headers"])[b"grpc-status"] == b"8"
        assert not any(answers[:-1])
        gone.set()
        await asyncio.gather(*calls, return_exceptions=True)
        gone.clear()


async def test_h2corn_says_nothing_for_the_broker_nor_into_its_output(monkeypatch, tmp_path, capfd):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.setblocking(False)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        async with served(SERVERS["h2corn"]) as (_, channel, _one):
            assert (await call(channel, "Echo", b"x")).name == "x"
        with pytest.raises(BlockingIOError):
            manager.recv(100)
    assert capfd.readouterr() == ("", "")


# --- by hand ---


def frame(data: bytes, compressed: int = 0) -> bytes:
    return struct.pack(">BI", compressed, len(data)) + data


async def played(
    body: list[bytes],
    path: str = "/t/Echo",
    *,
    leaves_after: int | None = None,
    last_waits: bool = False,
    **headers: str,
):
    """The answer's body, and its status; none for a client that `leaves_after` so many events.
    With `last_waits` a client takes the trailers once they were given up."""
    events = [
        {"type": "http.request", "body": one, "more_body": more < len(body)}
        for more, one in enumerate(body, 1)
    ]
    sent = []

    async def receive():
        return events.pop(0) if events else {"type": "http.disconnect"}

    async def send(event):
        if len(sent) == leaves_after:
            raise BrokenPipeError
        sent.append(event)
        kinds = [one["type"] for one in sent]
        if last_waits and kinds.count("http.response.trailers") == 1:
            await asyncio.Event().wait()

    given = {"content-type": "application/grpc+proto", "te": "trailers", **headers}
    scope = {
        "type": "http",
        "http_version": "2",
        "path": path,
        "client": ("::1", 5),
        "headers": [(name.encode(), value.encode()) for name, value in given.items()],
    }
    await GrpcApp(Served().methods, MAX_BYTES)(scope, receive, send)
    if leaves_after is not None:
        return None
    if not sent or sent[0]["status"] != 200:
        return sent[0]["status"]
    whole = b"".join(one.get("body", b"") for one in sent)
    assert [one["type"] for one in sent].count("http.response.trailers") == 1
    return whole, int(dict(sent[-1]["headers"])[b"grpc-status"])


ECHOED = frame(pb.Resource(name="abc").SerializeToString())


async def test_a_frame_may_come_in_pieces_of_any_size():
    whole = frame(b"abc")
    for size in range(1, len(whole) + 1):
        pieces = [whole[at : at + size] for at in range(0, len(whole), size)]
        assert await played([*pieces, b""]) == (ECHOED, 0)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ([b""], grpc.StatusCode.INTERNAL),
        ([frame(b"abc")[:3]], grpc.StatusCode.INTERNAL),
        ([frame(b"abc")[:7]], grpc.StatusCode.INTERNAL),
        ([frame(b"a") + frame(b"b")], grpc.StatusCode.INTERNAL),
        ([frame(b"a"), frame(b"b")], grpc.StatusCode.INTERNAL),
        ([frame(b"a", compressed=1)], grpc.StatusCode.UNIMPLEMENTED),
        ([struct.pack(">BI", 0, 0xFFFFFFFF)], grpc.StatusCode.RESOURCE_EXHAUSTED),
    ],
)
async def test_a_body_that_is_no_request_has_its_status(body, status):
    assert await played(body) == (b"", status.value[0])


async def test_a_call_whose_client_does_not_leave_ends_with_its_time():
    """gRPC's own clients leave at that moment."""
    async with asyncio.timeout(DEADLINE_S / 6) as bound:
        found = await played([frame(b"")], "/t/Held", **{"grpc-timeout": "200m"})
    assert found == (b"", grpc.StatusCode.DEADLINE_EXCEEDED.value[0])
    assert not bound.expired()


@pytest.mark.parametrize("text", ["", "5", "S", "123456789S", "-1S", "1s", "١S"])
async def test_a_time_that_is_none_is_refused(text):
    found = await played([frame(b"abc")], **{"grpc-timeout": text})
    assert found == (b"", grpc.StatusCode.INTERNAL.value[0])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("content-type", "application/json"),
        ("content-type", "application/grpc-web"),
        ("content-type", ""),
        ("te", ""),
    ],
)
async def test_what_is_no_grpc_is_no_call(name, value):
    assert await played([frame(b"abc")], **{name: value}) == 415


@pytest.mark.parametrize("path", ["/t/Echo", "/t/Chat"])
async def test_the_call_of_a_client_that_leaves_within_its_request_is_cancelled(path):
    """The answer ends: h2corn prints a traceback of one that does not."""
    assert await played([], path) == (b"", grpc.StatusCode.CANCELLED.value[0])


async def test_a_stream_of_answers_ends_when_its_client_leaves():
    """A server need not cancel what serves it."""
    async with asyncio.timeout(DEADLINE_S / 6):
        _, status = await played([frame(b"")], "/t/HeldStream")
    assert status == grpc.StatusCode.CANCELLED.value[0]


@pytest.mark.parametrize("path", ["/t/Echo", "/t/Count", "/t/Aborted", "/t/Wrong", "/t/None"])
async def test_a_client_that_leaves_within_its_answer_is_no_fault(path, caplog):
    for leaves_after in range(3):
        await played([frame(b"2")], path, leaves_after=leaves_after)
    faults = [one for one in caplog.messages if "failed" in one]
    assert len(faults) == (3 if path == "/t/Wrong" else 0), "those of ours alone have a line"


@pytest.mark.parametrize("path", ["/t/Echo", "/t/Count"])
async def test_a_call_whose_time_ends_in_its_trailers_has_them_once(path):
    async with asyncio.timeout(DEADLINE_S):
        body, status = await played([frame(b"1")], path, last_waits=True, **{"grpc-timeout": "1m"})
    assert (bool(body), status) == (True, 0)
