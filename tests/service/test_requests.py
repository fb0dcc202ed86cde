"""One id for everything that a service writes and answers while it serves a call."""

import asyncio
import io
import json
import logging
import re

import grpc
import pytest

from stratamq.errors import NotFoundError
from stratamq.rpc.request_ids import ERROR_KEY, KEY, current, one_request
from stratamq.rpc.status import from_rpc_error
from stratamq.service.access import AccessControl, AuditLog, PermissionSource
from stratamq.service.logging import configure
from stratamq.service.server import Server
from stratamq.service.worker import ThreadWorker

GIVEN = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"
ID = GIVEN[3:35]
SERVICE = "stratamq.test.Sample"
log = logging.getLogger("stratamq.test")


class Sample:
    def __init__(self, worker: ThreadWorker) -> None:
        self.worker = worker

    async def note(self, request: bytes, context) -> bytes:
        log.info("noted", extra={"what": request.decode()})
        await self.worker.run(lambda: log.info("noted by the worker"))
        return current().id.encode()

    async def fail(self, request: bytes, context) -> bytes:
        if request == b"bug":
            raise ValueError("the password is swordfish")
        raise NotFoundError("there is none")

    async def stream(self, requests, context):
        async for request in requests:
            log.info("streamed", extra={"what": request.decode()})
            yield current().id.encode()


def log_handlers(_) -> grpc.GenericRpcHandler:
    handler = grpc.unary_unary_rpc_method_handler(lambda request, context: b"")
    name = "stratamq.api.v1.CommitLogService"
    return grpc.method_handlers_generic_handler(name, {"GetStatus": handler})


def sample_handlers(sample) -> grpc.GenericRpcHandler:
    handlers = {
        "note": grpc.unary_unary_rpc_method_handler(sample.note),
        "fail": grpc.unary_unary_rpc_method_handler(sample.fail),
        "stream": grpc.stream_stream_rpc_method_handler(sample.stream),
    }
    return grpc.method_handlers_generic_handler(SERVICE, handlers)


@pytest.fixture
def written():
    """What is logged, as JSON or as text."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    streams = []

    def start(as_json: bool) -> io.StringIO:
        streams.append(io.StringIO())
        configure("test", as_json, stream=streams[-1])
        return streams[-1]

    yield start
    logging.captureWarnings(False)
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture
def served(run):
    """Runs `scenario(channel)` against a service."""

    def serve(scenario, handlers=sample_handlers, **options):
        async def whole():
            worker = ThreadWorker(asyncio.get_running_loop(), "test")
            server = Server("test", stop_grace_ms=100, **options)
            server.add_generic(handlers(Sample(worker)))
            await server.start("127.0.0.1:0")
            try:
                async with grpc.aio.insecure_channel(server.address) as channel:
                    return await scenario(channel)
            finally:
                await server.stop()
                await worker.close()

        return run(whole())

    return serve


def method(channel, name: str):
    return channel.unary_unary(f"/{SERVICE}/{name}")


def ids_of(lines: str) -> list[str]:
    return re.findall(r"noted.*request_id=([0-9a-f]{32})\n", lines)


def test_each_line_of_a_call_has_its_id_also_those_of_its_worker(served, written):
    stream = written(False)

    async def scenario(channel):
        answer = await method(channel, "note")(b"x", metadata=((KEY, GIVEN),))
        assert answer == ID.encode()

    served(scenario)
    assert ids_of(stream.getvalue()) == [ID, ID]
    others = [line for line in stream.getvalue().splitlines() if " noted" not in line]
    assert others and not any("request_id" in line for line in others)


def test_json_lines_have_it_as_a_field(served, written):
    stream = written(True)

    async def scenario(channel):
        await method(channel, "note")(b"x", metadata=((KEY, GIVEN),))

    served(scenario)
    events = [json.loads(line) for line in stream.getvalue().splitlines()]
    noted = [event for event in events if event["event"].startswith("noted")]
    assert [event["request_id"] for event in noted] == [ID, ID]


def test_a_call_without_an_id_gets_one_of_its_own(served, written):
    stream = written(False)

    async def scenario(channel):
        return {await method(channel, "note")(b"x") for _ in range(2)}

    made = served(scenario)
    assert len(made) == 2
    assert set(ids_of(stream.getvalue())) == {one.decode() for one in made}


@pytest.mark.parametrize("foreign", ["not-an-id", "00-" + "e" * 5_000, "00-evil request_id=x-01"])
def test_a_foreign_text_is_never_logged(served, written, foreign):
    stream = written(False)

    async def scenario(channel):
        await method(channel, "note")(b"x", metadata=((KEY, foreign),))

    served(scenario)
    assert foreign[:20] not in stream.getvalue()
    assert len(ids_of(stream.getvalue())) == 2


def test_a_stream_has_one_id_for_its_life(served, written):
    stream = written(False)

    async def scenario(channel):
        call = channel.stream_stream(f"/{SERVICE}/stream")(iter([b"a", b"b"]))
        return [answer async for answer in call]

    first, second = served(scenario)
    assert first == second
    assert stream.getvalue().count(f"request_id={first.decode()}") == 2


def test_an_error_has_the_id_and_the_message_of_a_bug_contains_it(served, written):
    stream = written(False)

    async def scenario(channel):
        errors = []
        for request in (b"bug", b"none"):
            with pytest.raises(grpc.RpcError) as raised:
                await method(channel, "fail")(request)
            errors.append((from_rpc_error(raised.value), raised.value.trailing_metadata()))
        return errors

    (bug, metadata), (missing, _) = served(scenario)
    assert bug.request_id == dict(metadata)[ERROR_KEY]
    assert (
        bug.message
        == f"internal error of request {bug.request_id}: the log of the service has more"
    )
    [line] = [one for one in stream.getvalue().splitlines() if "unexpected error" in one]
    assert line.endswith(f"request_id={bug.request_id}")
    assert type(missing) is NotFoundError and len(missing.request_id) == 32
    assert missing.fields == {}


def test_a_caller_knows_the_id_of_a_call_that_was_not_answered(served):
    async def scenario(channel):
        with one_request() as request:
            with pytest.raises(grpc.RpcError) as raised:
                await method(channel, "absent")(b"", timeout=0)
            return request.id, from_rpc_error(raised.value).request_id

    sent, known = served(scenario)
    assert sent == known


def test_audit_lines_have_it(served, written, tmp_path):
    stream = written(False)
    file = tmp_path / "access.json"
    file.write_text('{"version": 1, "rules": []}')
    access = AccessControl(PermissionSource(file), (), AuditLog())

    async def scenario(channel):
        describe = channel.unary_unary("/stratamq.api.v1.CommitLogService/GetStatus")
        with pytest.raises(grpc.RpcError) as raised:
            await describe(b"", metadata=((KEY, GIVEN),))
        assert raised.value.code() is grpc.StatusCode.UNAUTHENTICATED

    served(scenario, handlers=log_handlers, access=access)
    [line] = [one for one in stream.getvalue().splitlines() if " refused " in one]
    assert f"request_id={ID}" in line
