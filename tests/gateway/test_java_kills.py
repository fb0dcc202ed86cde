"""RocketMQ's own Java clients, unchanged, while processes of the broker are killed, and while the
broker's directory goes from RocketMQ to us and back: the rows kill and takeover of
spec/remoting-acceptance.md.

STRATAMQ_TEST_KILLS=20 kills so many processes of each broker. Clients go on within 5 s, and within
three times as long on a machine with other work; STRATAMQ_TEST_BUSY=1 asks for the former."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import cycle, islice
from pathlib import Path

import pytest
from stratamq_bench.ports import free_port, free_ports
from stratamq_bench.remoting import JAVA as REAL

from stratamq.client import connect
from tests.gateway.test_java_clients import JAVA, ROOMS, VERSIONS, build, run
from tests.gateway.test_several_gateways import remoting_address
from tests.support.brokers import COMMITLOG, DELIVERY, DISPATCHER, GATEWAY, INDEX, Broker

pytestmark = [pytest.mark.java, pytest.mark.timeout(1_800)]

KILLS = int(os.environ.get("STRATAMQ_TEST_KILLS", "2"))
AGAIN_MS = 5_000 * int(os.environ.get("STRATAMQ_TEST_BUSY", "3"))
VICTIMS = (GATEWAY, COMMITLOG, DISPATCHER, DELIVERY, INDEX)


class Row:
    """A row that goes on while lines are said to it."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def hear(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def say(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def end(self) -> str:
        said, _ = self._process.communicate()
        return said


@contextmanager
def playing(version: str, address: str, row: str) -> Iterator[Row]:
    build(version)
    with subprocess.Popen(
        [JAVA / "run", address, row],
        env={**os.environ, "CLIENT": version},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield Row(process)
        finally:
            process.kill()


@pytest.mark.parametrize("version", VERSIONS)
def test_clients_go_on_when_any_process_is_killed_and_all_that_was_answered_comes(
    tmp_path, version
):
    address = f"127.0.0.1:{free_port()}"
    settings = (
        f"gateway.remoting_address={address}",
        f"commitlog.store_host={address}",
        f"commitlog.segment_bytes={16 << 20}",
    )
    with Broker(tmp_path / "store", tmp_path / "logs", settings) as broker:
        broker.start(ROOMS)
        with playing(version, address, "kill") as row:
            assert row.hear() == "going"
            for victim in islice(cycle(VICTIMS), KILLS):
                row.say("kill")
                broker.kill(victim)
                broker.start([victim])
                row.say("back")
                assert int(row.hear()) <= AGAIN_MS, victim
            assert row.end() == "kill\tok\n"


@pytest.mark.parametrize("version", VERSIONS)
def test_queues_in_order_stay_with_their_client_when_their_locks_are_lost(tmp_path, version):
    """Locks are gone with the delivery service. The client says which it has, and others wait."""
    address = f"127.0.0.1:{free_port()}"
    settings = (f"gateway.remoting_address={address}", f"commitlog.store_host={address}")
    with Broker(tmp_path / "store", tmp_path / "logs", settings) as broker:
        broker.start(ROOMS)
        with playing(version, address, "orderly-kill") as row:
            assert row.hear() == "going"
            broker.kill(GATEWAY, DELIVERY)
            broker.start([DELIVERY, GATEWAY])
            row.say("killed")
            assert row.end() == "orderly-kill\tok\n"


@pytest.mark.parametrize("version", VERSIONS)
def test_consumers_at_two_gateways_divide_the_queues_and_get_each_message_once(tmp_path, version):
    build(version)
    settings = ["gateway.remoting_address=127.0.0.1:0"]
    with Broker(tmp_path / "store", tmp_path / "logs", settings) as broker:
        broker.start((*ROOMS, "gateway-2"))
        first, second = (remoting_address(broker, one) for one in (GATEWAY, "gateway-2"))
        seen = run(version, first, "two-gateways", options=f"-Dsecond={second}")
        assert seen == "two-gateways\tok\n"


@pytest.mark.parametrize("version", VERSIONS)
def test_clients_that_know_two_gateways_go_on_when_either_is_killed(tmp_path, version):
    first, second = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    settings = (
        f"gateway.remoting_address={first}",
        f"gateway-2.remoting_address={second}",
        f"commitlog.store_host={first}",
    )
    with Broker(tmp_path / "store", tmp_path / "logs", settings) as broker:
        broker.start((*ROOMS, "gateway-2"))
        with playing(version, f"{first};{second}", "kill") as row:
            assert row.hear() == "going"
            for victim in islice(cycle(("gateway-2", GATEWAY)), KILLS):
                row.say("kill")
                broker.kill(victim)
                broker.start([victim])
                row.say("back")
                assert int(row.hear()) <= AGAIN_MS, victim
            assert row.end() == "kill\tok\n"


@contextmanager
def rocketmq(root: Path, ports: list[int]) -> Iterator[None]:
    """RocketMQ 5.3.3 with its name server, stopped in order."""
    root.mkdir(exist_ok=True)
    with subprocess.Popen(
        [REAL / "run", "strata.load.RealBroker", root, *map(str, ports)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            assert any("ready" in line for line in process.stdout)
            yield
            process.communicate("stop\n")
        finally:
            process.kill()


@pytest.mark.parametrize("version", VERSIONS)
def test_a_directory_of_rocketmq_is_served_on_at_its_address_and_goes_back(tmp_path, version):
    names, others = free_port(), free_ports(4)
    store, address = tmp_path / "store", f"127.0.0.1:{names}"
    ports = [names, others + 2, others + 3]
    settings = (
        f"gateway.remoting_address={address}",
        f"commitlog.store_host={address}",
        "commitlog.broker_name=real",
        "delivery.transaction_check_interval_ms=2000",
        "delivery.transaction_timeout_ms=2000",
    )
    with ExitStack() as stack:
        with rocketmq(store, ports):
            clients = stack.enter_context(playing(version, address, "takeover"))
            assert clients.hear() == "ready"
        with Broker(store, tmp_path / "logs", settings) as broker:
            broker.start(ROOMS)
            with connect(broker.root) as client:
                client.admin.enable_schedule()  # what another program left pending waits for that
            clients.say("moved")
            assert clients.hear() == "ready"
            broker.stop()
        with rocketmq(store, ports):
            clients.say("moved")
            assert clients.end() == "takeover\tok\n"
