"""The image's health check: one question to a real service, no import of gRPC."""

import asyncio
import importlib.util
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from stratamq.service.server import Server

SCRIPT = Path(__file__).resolve().parents[2] / "deploy" / "healthcheck.py"
VARIABLE = "STRATAMQ_INDEX_METRICS_ADDRESS"
UP = b"/usr/bin/python3\0/opt/stratamq/bin/stratamq\0up\0"


def loaded():
    spec = importlib.util.spec_from_file_location("healthcheck", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


healthcheck = loaded()


@asynccontextmanager
async def index(*, ready: bool) -> AsyncIterator[str]:
    server = Server("index", metrics_address="127.0.0.1:0", stop_grace_ms=0)
    await server.start("127.0.0.1:0", ready=ready)
    try:
        yield server.metrics_address
    finally:
        await server.stop()


def asked(*, ready: bool) -> str | None:
    async def scenario() -> str | None:
        async with index(ready=ready) as address:
            return await asyncio.to_thread(healthcheck.fault, "index", {VARIABLE: address})

    return asyncio.run(scenario())


def test_a_service_that_takes_requests_is_healthy():
    assert asked(ready=True) is None


def test_one_that_is_not_ready_is_not():
    assert asked(ready=False) == "index is not ready"


def test_one_that_is_gone_is_named():
    async def scenario() -> str:
        async with index(ready=True) as address:
            return address

    address = asyncio.run(scenario())
    assert "index does not answer" in healthcheck.fault("index", {VARIABLE: address})


def test_without_a_metrics_address_it_names_what_it_needs():
    assert VARIABLE in healthcheck.fault("index", {VARIABLE: ""})
    assert VARIABLE in healthcheck.fault("index", {})


@pytest.mark.parametrize(
    ("command", "services"),
    [
        (b"python3\0-m\0stratamq_index\0", ["index"]),
        (b"/sbin/docker-init\0--\0python3\0-m\0stratamq_commitlog\0", ["commitlog"]),
        (b"python3\0-m\0stratamq_agent\0", ["agent"]),
        (b"python3\0-m\0stratamq_tier\0", ["tier"]),
        (UP, list(healthcheck.ALWAYS)),
        (UP + b"--set\0tier.target=s3://b\0", [*healthcheck.ALWAYS, "tier"]),
        (UP + b"--set\0agent.store=etcd://e:1\0", [*healthcheck.ALWAYS, "agent"]),
    ],
)
def test_the_containers_command_selects_the_services_that_are_asked(
    command: bytes, services: list[str]
):
    assert healthcheck.services_in(command, {}) == services


def test_a_whole_broker_has_the_services_to_which_the_environment_gives_their_setting():
    environ = {"STRATAMQ_TIER_TARGET": "/tier", "STRATAMQ_AGENT_STORE": "etcd://etcd:2379"}
    assert healthcheck.services_in(UP, environ) == [*healthcheck.ALWAYS, "tier", "agent"]


def test_every_service_that_can_be_installed_is_known():
    rooms = {one.name for one in SCRIPT.parents[1].joinpath("services").iterdir()}
    assert set(healthcheck.SERVICES) == rooms


def test_the_check_imports_nothing_of_the_project():
    """It runs with -I -S, every five seconds, in every container."""
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-X", "importtime", SCRIPT], capture_output=True, text=True
    )
    modules = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "socket" in modules
    assert not {"stratamq", "grpc", "http.client", "urllib.request"} & modules
