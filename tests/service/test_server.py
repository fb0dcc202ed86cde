"""The server harness: health, reflection, generic handlers, signals, exit codes."""

import asyncio
import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from types import SimpleNamespace

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from stratamq.api.v1.commitlog_pb2 import AppendDataRequest
from stratamq.errors import ConfigurationError
from stratamq.rpc import discovery
from stratamq.service import health as health_module
from stratamq.service.server import EXIT_PORT_TAKEN, Server

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
SERVICE = "test.Echo"


async def echo(request: bytes, context) -> bytes:
    return b"servicer:" + request


def handler(behaviour) -> grpc.GenericRpcHandler:
    method = grpc.unary_unary_rpc_method_handler(behaviour)
    return grpc.method_handlers_generic_handler(SERVICE, {"echo": method})


ECHO = SimpleNamespace(
    name="echo",
    client_streaming=False,
    server_streaming=False,
    input_type=AppendDataRequest.DESCRIPTOR,  # framed by hand: handlers get bytes
)


def built(**options) -> Server:
    server = Server("test", stop_grace_ms=100, **options)
    server.add_servicer(
        SimpleNamespace(full_name=SERVICE, methods=[ECHO]), SimpleNamespace(echo=echo)
    )
    return server


async def health(channel: grpc.aio.Channel, service: str) -> int:
    stub = health_pb2_grpc.HealthStub(channel)
    return (await stub.Check(health_pb2.HealthCheckRequest(service=service))).status


NAMES = ("", SERVICE, "readiness", "liveness")


async def test_health_follows_readiness_and_liveness_does_not():
    server = built()
    await server.start("127.0.0.1:0", ready=False)
    async with grpc.aio.insecure_channel(server.address) as channel:
        states = [[await health(channel, name) for name in NAMES]]
        server.set_ready(True)
        states.append([await health(channel, name) for name in NAMES])
        with pytest.raises(grpc.RpcError) as raised:
            await health(channel, "absent")
        await server.stop()
    assert raised.value.code() is grpc.StatusCode.NOT_FOUND
    assert states == [[NOT_SERVING] * 3 + [SERVING], [SERVING] * 4]


async def test_watchers_see_each_change_and_their_calls_end_with_the_service():
    server = built()
    await server.start("127.0.0.1:0", ready=False)
    async with grpc.aio.insecure_channel(server.address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        watches = [stub.Watch(health_pb2.HealthCheckRequest(service="")) for _ in range(3)]
        watches[0].cancel()  # one that leaves does not silence the others
        seen = [[(await watch.read()).status] for watch in watches[1:]]
        server.set_ready(True)
        for watch, states in zip(watches[1:], seen, strict=True):
            states.append((await watch.read()).status)
        server._stop_grace_ms = 60_000  # which a watch must not use up
        await asyncio.wait_for(server.stop(), 60)
        for watch, states in zip(watches[1:], seen, strict=True):
            states.append((await watch.read()).status)
            assert await watch.read() is grpc.aio.EOF
            assert await watch.code() is grpc.StatusCode.OK
    assert seen == [[NOT_SERVING, SERVING, NOT_SERVING]] * 2


async def test_stop_reports_not_serving_before_it_drains_and_closes_after_the_calls():
    expected = ["call begins", f"drain, health {NOT_SERVING}", "call ends", "close"]
    events = []
    release = asyncio.Event()

    async def slow(request, context):
        events.append("call begins")
        await release.wait()
        events.append("call ends")
        return b""

    server = Server("test", stop_grace_ms=10_000)
    server.add_generic(handler(slow))
    await server.start("127.0.0.1:0")
    channel = grpc.aio.insecure_channel(server.address)
    call = asyncio.ensure_future(channel.unary_unary(f"/{SERVICE}/echo")(b""))
    while not events:
        await asyncio.sleep(0.001)

    async def drain():
        server.set_ready(True)  # a follower that catches up too late
        events.append(f"drain, health {await health(channel, '')}")
        release.set()

    async def close():
        events.append("close")

    await server.stop(drain, close)
    await call
    await channel.close()
    assert events == expected


async def test_a_generic_handler_wins_over_the_servicers_method():
    async def fast(request: bytes, context) -> bytes:
        return b"generic:" + request

    server = built()
    server.add_generic(handler(fast))
    await server.start("127.0.0.1:0")
    async with grpc.aio.insecure_channel(server.address) as channel:
        answer = await channel.unary_unary(f"/{SERVICE}/echo")(b"x")
    await server.stop()
    assert answer == b"generic:x"


async def test_reflection_lists_the_services():
    server = built()
    await server.start("127.0.0.1:0")
    async with grpc.aio.insecure_channel(server.address) as channel:
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        request = reflection_pb2.ServerReflectionRequest(list_services="")
        answers = [answer async for answer in stub.ServerReflectionInfo(iter([request]))]
    await server.stop()
    found = {service.name for service in answers[0].list_services_response.service}
    assert {SERVICE, "grpc.health.v1.Health"} <= found


async def test_a_stream_whose_caller_leaves_is_closed_at_once():
    closed = asyncio.Event()

    async def endless(request, context):
        try:
            while True:
                yield bytes(100_000)
        finally:
            closed.set()

    server = Server("test", stop_grace_ms=100)
    method = grpc.unary_stream_rpc_method_handler(endless)
    server.add_generic(grpc.method_handlers_generic_handler(SERVICE, {"endless": method}))
    await server.start("127.0.0.1:0")
    async with grpc.aio.insecure_channel(server.address) as channel:
        call = channel.unary_stream(f"/{SERVICE}/endless")(b"")
        await call.read()
        call.cancel()
        await asyncio.wait_for(closed.wait(), 60)
    await server.stop()


async def _echoed(size: int) -> int:
    """How large the answer to a request of that size is: 9 bytes more."""
    server = built()
    await server.start("127.0.0.1:0")
    options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    try:
        async with grpc.aio.insecure_channel(server.address, options=options) as channel:
            return len(await channel.unary_unary(f"/{SERVICE}/echo")(bytes(size)))
    finally:
        await server.stop()


async def test_a_message_of_eight_mebibytes_less_framing_passes():
    assert await _echoed((8 << 20) - 16) == (8 << 20) - 16 + len(b"servicer:")


async def test_an_answer_may_be_larger_than_the_largest_request():
    assert await _echoed(8 << 20) == (8 << 20) + len(b"servicer:")
    with pytest.raises(grpc.aio.AioRpcError, match="larger than max"):
        await _echoed((8 << 20) + 1)


async def test_a_second_server_on_the_same_port_fails_with_a_sentence():
    first, second = built(), built()
    await first.start("127.0.0.1:0")
    with pytest.raises(ConfigurationError, match=f"test cannot listen on {first.address}"):
        await second.start(first.address)
    await second.stop()
    await first.stop()


async def test_an_address_that_is_none_fails_with_a_sentence():
    with pytest.raises(ConfigurationError, match="'nonsense' is not an address"):
        await built().start("nonsense")


async def test_a_unix_socket_serves(tmp_path):
    server = built(root=tmp_path)
    address = await server.start(f"unix:{tmp_path}/echo.sock")
    async with grpc.aio.insecure_channel(address) as channel:
        answer = await channel.unary_unary(f"/{SERVICE}/echo")(b"x")
    announced = discovery.read(tmp_path, "test")
    await server.stop()
    assert (answer, announced.address == address) == (b"servicer:x", True)


async def test_every_step_of_a_stop_is_tried_and_the_error_reported(tmp_path):
    steps = []

    async def drain():
        steps.append("drain")
        raise RuntimeError("drain broke")

    async def close():
        steps.append("close")

    server = built(root=tmp_path)
    await server.start("127.0.0.1:0")
    with pytest.raises(RuntimeError, match="drain broke"):
        await server.stop(drain, close)
    found = steps, discovery.read(tmp_path, "test")
    assert found == (["drain", "close"], None)


def test_what_the_room_opened_is_closed_even_if_the_start_fails():
    # In a process of its own event loop: `serve` takes signals, which only a main thread may.
    code = (
        "import asyncio, sys; sys.path.insert(0, sys.argv[1]); import test_server as t\n"
        "async def go():\n"
        "    closed = []\n"
        "    async def close(): closed.append(1)\n"
        "    try: await t.built().serve('nonsense', close=close)\n"
        "    except t.ConfigurationError: print(closed)\n"
        "asyncio.run(go())"
    )
    here = str(Path(__file__).parent)
    done = subprocess.run([sys.executable, "-c", code, here], capture_output=True, timeout=60)
    assert done.stdout.strip() == b"[1]", done.stderr


# --- whole processes --------------------------------------------------------------------------


class Process:
    def __init__(self, root: Path, mode: str, address: str = "127.0.0.1:0") -> None:
        script = Path(__file__).with_name("service_process.py")
        self.popen = subprocess.Popen(
            [sys.executable, script, root, address, mode],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.errors: list[str] = []

    def wait_for_event(self, event: str) -> None:
        for line in self.popen.stderr:
            self.errors.append(line)
            if event in line:
                return
        raise AssertionError(f"{event!r} never came: {self.errors}")

    def finish(self) -> tuple[int, list[str], str]:
        output, errors = self.popen.communicate(timeout=60)
        return self.popen.returncode, output.split(), "".join(self.errors) + errors


@pytest.fixture
def process(tmp_path):
    started = []

    def start(mode: str, **options) -> Process:
        started.append(Process(tmp_path, mode, **options))
        return started[-1]

    yield start
    for each in started:
        each.popen.kill()
        each.popen.communicate()


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_the_service_in_order_with_exit_code_0(process, tmp_path, signum):
    service = process("normal")
    service.wait_for_event("service started")
    endpoint = discovery.read(tmp_path, "test")
    assert endpoint.pid == service.popen.pid
    with urllib.request.urlopen(f"http://{endpoint.metrics}/metrics") as response:
        assert b"service_ready 1.0" in response.read()
    with grpc.insecure_channel(endpoint.address) as channel:
        health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=60)
    os.kill(service.popen.pid, signum)
    code, steps, errors = service.finish()
    assert (code, steps) == (0, ["drain", "close"]), errors
    assert discovery.read(tmp_path, "test") is None


@pytest.mark.parametrize("mode", ["stuck", "blocked"])
@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_the_process_at_once(process, mode, signum):
    service = process(mode)
    service.wait_for_event("service started")
    os.kill(service.popen.pid, signal.SIGTERM)
    assert service.popen.stdout.readline() == "drain\n"
    os.kill(service.popen.pid, signum)
    code, steps, errors = service.finish()
    assert (code, steps) == (128 + signum, []), errors


@pytest.mark.parametrize("mode", ["task", "worker", "timer"])
def test_what_dies_while_the_service_runs_stops_it_in_order_with_the_reason(process, mode):
    code, steps, errors = process(mode).finish()
    assert (code, steps) == (1, ["drain", "close"])
    assert "RuntimeError('the tick broke')" in errors
    assert "service_process.py" in errors, "the traceback"


def test_collections_leave_out_what_the_start_made(process):
    service = process("counted")
    service.wait_for_event("service started")
    os.kill(service.popen.pid, signal.SIGTERM)
    code, steps, errors = service.finish()
    assert (code, steps[0], steps[2]) == (0, "drain", "close"), errors
    assert int(steps[1]) > 10_000


def test_a_librarys_callback_that_fails_stops_nothing(process):
    service = process("elsewhere")
    service.wait_for_event("service started")
    assert service.popen.stdout.readline() == "continues\n"
    os.kill(service.popen.pid, signal.SIGTERM)
    code, steps, errors = service.finish()
    assert (code, steps) == (0, ["drain", "close"])
    assert "JSONDecodeError" in errors, "it is logged"


def test_a_stop_that_fails_still_closes_and_exits_1(process):
    service = process("broken")
    service.wait_for_event("service started")
    os.kill(service.popen.pid, signal.SIGTERM)
    code, steps, errors = service.finish()
    assert (code, steps) == (1, ["drain", "close"])
    assert "drain broke" in errors


@pytest.mark.parametrize(
    ("mode", "code", "expected"),
    [
        ("misconfigured", 2, "configuration: one thing is wrong\nconfiguration: another too\n"),
        ("refused", 3, "store refused: a newer version wrote this store\n"),
        ("bug", 1, "ValueError: surprise\n"),
    ],
)
def test_a_start_that_fails_reports_why_and_who_must_act(process, mode, code, expected):
    exit_code, steps, errors = process(mode).finish()
    assert (exit_code, steps) == (code, [])
    assert errors.endswith(expected)
    assert ("Traceback" in errors) == (mode == "bug")


def test_a_second_service_on_a_taken_port_exits_with_the_reason(process, tmp_path):
    first = process("normal")
    first.wait_for_event("service started")
    address = discovery.read(tmp_path, "test").address
    code, steps, errors = process("normal", address=address).finish()
    assert (code, steps) == (EXIT_PORT_TAKEN, ["close"])
    assert f"configuration: test cannot listen on {address}" in errors
    assert discovery.read(tmp_path, "test").pid == first.popen.pid


def test_a_killed_service_leaves_a_stale_run_file_that_the_next_replaces(process, tmp_path):
    first = process("normal")
    first.wait_for_event("service started")
    first.popen.kill()
    first.finish()
    assert discovery.read(tmp_path, "test").pid == first.popen.pid
    second = process("normal")
    second.wait_for_event("service started")
    assert discovery.read(tmp_path, "test").pid == second.popen.pid


async def test_watches_of_the_health_are_bounded_since_they_need_no_identity(monkeypatch):
    monkeypatch.setattr(health_module, "MAX_WATCHES", 3)
    server = built()
    await server.start("127.0.0.1:0")
    async with grpc.aio.insecure_channel(server.address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        watches = [stub.Watch(health_pb2.HealthCheckRequest()) for _ in range(3)]
        for watch in watches:
            assert (await watch.read()).status == SERVING
        with pytest.raises(grpc.RpcError) as raised:
            await stub.Watch(health_pb2.HealthCheckRequest()).read()
        assert raised.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert await health(channel, "") == SERVING
        watches[0].cancel()
        while True:  # its end reaches the service in a moment
            again = stub.Watch(health_pb2.HealthCheckRequest())
            try:
                if (await again.read()).status == SERVING:
                    break
            except grpc.RpcError:
                continue
    await server.stop()
