"""The image's health check: one question to a real service, no import of gRPC."""

import asyncio
import importlib.util
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from stratamq.rpc.rooms import REGISTER
from stratamq.service.server import Server

SCRIPT = Path(__file__).resolve().parents[2] / "deploy" / "healthcheck.py"
VARIABLE = "STRATAMQ_INDEX_METRICS_ADDRESS"
ENVIRON = {f"STRATAMQ_{name.upper()}_METRICS_ADDRESS": "0.0.0.0:9411" for name in REGISTER}
ALWAYS = [name for name, service in REGISTER.items() if not service.needed_settings]
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
        (UP, ALWAYS),
        (UP + b"--set\0tier.target=s3://b\0", [*ALWAYS, "tier"]),
        (UP + b"--set\0agent.store=etcd://e:1\0", [*ALWAYS, "agent"]),
    ],
)
def test_the_containers_command_selects_the_services_that_are_asked(
    command: bytes, services: list[str]
):
    assert healthcheck.services_in(command, ENVIRON) == services


def test_a_whole_broker_has_the_services_to_which_the_environment_gives_their_setting():
    environ = ENVIRON | {
        "STRATAMQ_TIER_TARGET": "/tier",
        "STRATAMQ_AGENT_STORE": "etcd://etcd:2379",
    }
    assert healthcheck.services_in(UP, environ) == [*ALWAYS, "tier", "agent"]


def test_without_any_metrics_address_nothing_is_healthy():
    assert healthcheck.services_in(UP, {}) == []
    done = subprocess.run([sys.executable, SCRIPT], capture_output=True, text=True, env={})
    assert done.returncode == 1
    assert "_METRICS_ADDRESS" in done.stdout


def test_the_images_environment_and_the_settings_are_those_of_the_register():
    needed = {name: one.needed_settings for name, one in REGISTER.items() if one.needed_settings}
    assert needed == healthcheck.IF_SET
    given = SCRIPT.with_name("Dockerfile").read_text()
    assert all(f" {variable}=" in given for variable in ENVIRON)


def test_the_check_imports_nothing_of_the_project():
    """It runs with -I -S, every five seconds, in every container."""
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-X", "importtime", SCRIPT], capture_output=True, text=True
    )
    modules = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "socket" in modules
    assert not {"stratamq", "grpc", "http.client", "urllib.request"} & modules
