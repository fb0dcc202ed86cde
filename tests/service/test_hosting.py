"""Several services in one process: what each has for itself, and the end that they share."""

import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from stratamq.cli.supervisor import service_command
from stratamq.formats.store_paths import LOGS_DIRECTORY
from stratamq.rpc import discovery
from stratamq.rpc.rooms import INDEX, JANITOR, REGISTER, SERVICES, processes
from stratamq.service.room_lock import room_lock_holder
from stratamq.service.server import EXIT_BUG, EXIT_PORT_TAKEN
from tests.support.waiting import until

LIGHT = [name for name, service in REGISTER.items() if service.light]
END_S = 120
OUTPUT = "output"

MADE_SERVICES = """
import asyncio, sys
from functools import partial
from stratamq.service.logging import configure
from stratamq.service.server import Server, run_services

def broken():
    raise RuntimeError("the tick broke")

async def die():
    broken()

async def closed(name):
    print("closed", name, flush=True)

async def serve(name, mode):
    configure(name)
    if mode == "start":
        broken()
    server = Server(name, stop_grace_ms=100)
    if mode == "task":
        server.supervise(asyncio.create_task(die()))
    if mode == "timer":
        asyncio.get_running_loop().call_soon(broken)
    await server.serve("127.0.0.1:0", close=partial(closed, name))

modes = {"index": "", "janitor": sys.argv[1]}
run_services({name: partial(serve, name, mode) for name, mode in modes.items()})
"""


def test_the_light_services_of_a_broker_share_a_process_and_the_others_are_alone():
    assert processes(SERVICES) == [
        ("commitlog",),
        ("dispatcher",),
        ("index", "janitor", "delivery"),
        ("ha",),
        ("gateway",),
        ("tier",),
        ("agent",),
        ("console",),
    ]
    assert processes(["commitlog", "janitor"]) == [("commitlog",), ("janitor",)]


@pytest.fixture
def hosted(tmp_path):
    started = []

    def start(*settings: str) -> subprocess.Popen[bytes]:
        given = [f"{name}.address=127.0.0.1:0" for name in LIGHT] + [*settings]
        arguments = [word for one in given for word in ("--set", one)]
        command = service_command(LIGHT, ["--data", str(tmp_path), *arguments])
        with (tmp_path / OUTPUT).open("wb") as output:
            started.append(subprocess.Popen(command, stdin=subprocess.PIPE, stderr=output))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()  # the end of its standard input would stop it before


def announced(root: Path, process: subprocess.Popen[bytes]) -> dict[str, discovery.Endpoint]:
    def found() -> dict[str, discovery.Endpoint]:
        assert process.poll() is None
        read = {name: discovery.read(root, name) for name in LIGHT}
        return {name: one for name, one in read.items() if one is not None}

    until(lambda: len(found()) == len(LIGHT), "every service is announced")
    return found()


def is_healthy(endpoint: discovery.Endpoint) -> bool:
    with grpc.insecure_channel(endpoint.address) as channel:
        request = health_pb2.HealthCheckRequest()
        answer = health_pb2_grpc.HealthStub(channel).Check(request, wait_for_ready=True)
    return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)


def scraped(endpoint: discovery.Endpoint, query: str = "") -> str:
    with urllib.request.urlopen(f"http://{endpoint.metrics}/metrics{query}") as answer:
        return answer.read().decode()


def test_each_has_its_own_health_lock_log_file_and_metrics(tmp_path, hosted):
    process = hosted(*(f"{name}.metrics_address=127.0.0.1:0" for name in LIGHT))
    endpoints = announced(tmp_path, process)
    assert {one.pid for one in endpoints.values()} == {process.pid}
    assert {room_lock_holder(tmp_path, name) for name in LIGHT} == {process.pid}
    # Without a log the index has nothing to follow; the janitor answers from its start.
    assert is_healthy(endpoints[JANITOR])
    assert not is_healthy(endpoints[INDEX])
    for name, ready in ((INDEX, "0.0"), (JANITOR, "1.0")):
        shown = scraped(endpoints[name])
        assert f"\n{name}_" in shown
        for other in {*LIGHT} - {name}:
            assert f"\n{other}_" not in shown
            assert REGISTER[other].proto not in shown
        assert f"\nservice_ready {ready}\n" in shown
        only = scraped(endpoints[name], "?name[]=service_ready")
        assert only.splitlines()[2:] == [f"service_ready {ready}"], "what a health check asks"
    process.send_signal(signal.SIGTERM)
    assert process.wait(END_S) == 0
    errors = (tmp_path / OUTPUT).read_bytes()
    janitors = (tmp_path / LOGS_DIRECTORY / f"{JANITOR}.log").read_bytes()
    for name, lines in ((INDEX, errors), (JANITOR, janitors)):
        assert lines.count(b"service stopped") == 1
        assert {line.split()[2] for line in lines.splitlines()} == {name.encode()}
        assert not discovery.run_file(tmp_path, name).exists()


def test_one_whose_port_is_taken_ends_the_process_with_its_exit_code(tmp_path, hosted):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        process = hosted(f"{JANITOR}.address=127.0.0.1:{taken.getsockname()[1]}")
        assert process.wait(END_S) == EXIT_PORT_TAKEN
    *_, last = (tmp_path / OUTPUT).read_text().splitlines()
    assert last.startswith("configuration: janitor cannot listen"), "as `stratamq up` shows it"
    assert not discovery.run_file(tmp_path, INDEX).exists(), "it was stopped in order"


@pytest.mark.parametrize("mode", ["start", "task", "timer"])
def test_a_bug_in_one_stops_the_others_in_order_and_ends_the_process(mode):
    command = [sys.executable, "-c", MADE_SERVICES, mode]
    done = subprocess.run(command, capture_output=True, text=True, timeout=END_S)
    assert done.returncode == EXIT_BUG
    assert "RuntimeError: the tick broke" in done.stderr
    closed = {"closed index"} if mode == "start" else {"closed index", "closed janitor"}
    assert set(done.stdout.splitlines()) == closed
