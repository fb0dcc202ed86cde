"""Where `stratamq up` listens, and its message when it cannot."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from stratamq_bench.ports import free_ports

from stratamq.cli.listening import (
    DEFAULT_PORT,
    is_loopback,
    left_out,
    listening_settings,
    open_to_others,
    places,
    refuse_taken,
    store_host_settings,
)
from stratamq.cli.selection import selected_services
from stratamq.client import connect
from stratamq.errors import ConfigurationError
from stratamq.rpc import discovery
from stratamq.service.ports import listening_problem
from tests.cli.processes import DEADLINE_S, SMALL, Up, stratamq

INSTALLED = ["commitlog", "dispatcher", "index", "ha", "janitor", "delivery"]
ALL_PORTS = range(9)


@pytest.fixture
def listener() -> Iterator[int]:
    """A port of this machine at which another program listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


# --- which settings ---


def test_the_log_has_the_base_port_the_others_those_behind_it_and_slaves_the_last():
    assert listening_settings(None, None, INSTALLED) == [
        f"commitlog.address=127.0.0.1:{DEFAULT_PORT}",
        f"dispatcher.address=127.0.0.1:{DEFAULT_PORT + 1}",
        f"index.address=127.0.0.1:{DEFAULT_PORT + 2}",
        f"ha.address=127.0.0.1:{DEFAULT_PORT + 3}",
        f"ha.replication_address=127.0.0.1:{DEFAULT_PORT + 8}",
        f"janitor.address=127.0.0.1:{DEFAULT_PORT + 4}",
        f"delivery.address=127.0.0.1:{DEFAULT_PORT + 5}",
    ]
    assert listening_settings(4000, "0.0.0.0", ["index"]) == ["index.address=0.0.0.0:4002"]
    for host in ("::1", "[::1]"):
        assert listening_settings(0, host, ["index"]) == ["index.address=[::1]:0"]


def test_rocketmqs_clients_find_the_gateway_at_the_ports_that_they_know():
    room = ["gateway"]
    assert listening_settings(None, None, room) == [
        f"gateway.address=127.0.0.1:{DEFAULT_PORT + 6}",
        "gateway.remoting_address=127.0.0.1:9876",
        "gateway.grpc_address=127.0.0.1:8081",
    ]
    assert listening_settings(4000, "::1", room) == [
        "gateway.address=[::1]:4006",
        "gateway.remoting_address=[::1]:4010",
        "gateway.grpc_address=[::1]:4011",
    ]
    without = ["gateway.remoting_address="]
    assert listening_settings(0, None, room, None, without) == [
        "gateway.address=127.0.0.1:0",
        "gateway.grpc_address=127.0.0.1:0",
    ], "what is left out stays so"


def test_ids_of_messages_name_the_port_where_rocketmqs_clients_look_them_up():
    def store_host(*settings: str) -> list[str]:
        return store_host_settings(None, settings)

    assert store_host("gateway.remoting_address=127.0.0.1:9876") == [
        "commitlog.store_host=127.0.0.1:9876"
    ]
    for without in ("", "127.0.0.1:0", "0.0.0.0:9876", "localhost:9876"):
        assert store_host(f"gateway.remoting_address={without}") == []
    given = ("gateway.remoting_address=127.0.0.1:9876", "commitlog.store_host=10.0.0.1:1")
    assert store_host(*given) == []


@pytest.mark.parametrize("bind", ["10.0.0.1:80", "a b", "", "host:port"])
def test_a_host_to_listen_on_has_no_port(bind):
    with pytest.raises(ConfigurationError, match="--bind"):
        listening_settings(None, bind, INSTALLED)


def test_what_was_given_wins_over_the_defaults_and_gives_way_to_what_is_typed(
    tmp_path, monkeypatch
):
    config = tmp_path / "c.toml"
    config.write_text("[commitlog]\naddress = '127.0.0.1:1'\n")
    monkeypatch.setenv("STRATAMQ_DISPATCHER_ADDRESS", "127.0.0.1:2")
    overrides = ["index.address=127.0.0.1:3"]

    def ports(port: int | None) -> dict[str, int]:
        settings = listening_settings(port, None, INSTALLED, config, overrides)
        found = places(INSTALLED, config, [*settings, *overrides])
        return {place.who: place.port for place in found}

    given = ports(None)
    behind = [DEFAULT_PORT + offset for offset in (3, 4, 5)]
    assert [given[room] for room in INSTALLED] == [1, 2, 3, *behind]
    typed = ports(5000)
    assert [typed[room] for room in INSTALLED] == [5000, 5001, 3, 5003, 5004, 5005]


# --- what is refused ---


def refusal(settings: list[str], defaults: list[str]) -> list[str]:
    with pytest.raises(ConfigurationError) as refused:
        refuse_taken(places(INSTALLED, None, settings), defaults)
    return refused.value.faults


def test_every_fault_is_named_at_once(listener):
    base = free_ports(len(ALL_PORTS))
    defaults = listening_settings(base, None, INSTALLED)
    with ExitStack() as stack:
        for behind in (1, 8):
            stack.enter_context(socket.create_server(("127.0.0.1", base + behind)))
        settings = [
            *defaults,
            f"index.address=127.0.0.1:{listener}",
            f"janitor.address=127.0.0.1:{base}",
            "ha.metrics_address=192.0.2.1:9",
        ]
        faults = refusal(settings, defaults)
    problems = "\n".join(faults)
    assert faults[0].startswith("nothing was started: ")
    assert f"index.address: 127.0.0.1:{listener} cannot be used: taken" in problems
    assert f"janitor.address: port {base} is already commitlog's (commitlog.address)" in problems
    assert "ha.metrics_address: 192.0.2.1:9 cannot be used: this machine has no such" in problems
    assert f"taken at 127.0.0.1: {base + 1} (dispatcher), {base + 8} (the slaves' port)" in problems
    assert "--port 0" in problems
    assert len(faults) == 4


def test_the_port_that_is_suggested_is_free(listener):
    base = free_ports(len(ALL_PORTS))
    defaults = listening_settings(base, None, INSTALLED)
    with socket.create_server(("127.0.0.1", base)):
        (fault,) = refusal(defaults, defaults)
    suggested = int(fault.partition("--port ")[2].partition(",")[0])
    refuse_taken(places(INSTALLED, None, listening_settings(suggested, None, INSTALLED)), [])


def test_a_host_of_another_machine_is_refused_with_what_to_type():
    defaults = listening_settings(None, "192.0.2.1", INSTALLED)
    (fault,) = refusal(defaults, defaults)
    assert "192.0.2.1: this machine has no such address: " in fault
    assert "--bind HOST" in fault


def test_a_port_of_a_connection_that_has_ended_is_free():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)):
            server.accept()[0].close()  # its side of the connection stays in TIME_WAIT
    assert listening_problem("127.0.0.1", port) is None


@pytest.mark.parametrize(
    ("host", "loopback"),
    [("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("localhost", True),
     ("0.0.0.0", False), ("::", False), ("", False), ("192.0.2.1", False)],
)  # fmt: skip
def test_who_can_reach_a_host(host, loopback):
    assert is_loopback(host) is loopback


def test_only_a_host_that_others_reach_is_warned_of():
    def warning(bind: str | None, *settings: str) -> str | None:
        where = places(INSTALLED, None, listening_settings(0, bind, INSTALLED))
        return open_to_others(where, None, settings)

    assert warning(None) is None
    with pytest.raises(ConfigurationError, match="authentication is disabled"):
        warning("0.0.0.0")
    assert "authentication is disabled" in warning("0.0.0.0", "access.open_to_others=true")
    assert "without TLS" in warning("0.0.0.0", "access.file=permissions.json")
    files = ("tls.ca=ca.pem", "tls.certificate=broker.pem", "tls.key=broker.key")
    assert warning("0.0.0.0", "access.file=permissions.json", *files) is None


# --- a whole broker ---


def test_up_serves_rocketmqs_clients_and_a_taken_port_names_the_way_out(tmp_path, listener):
    on = ("--set", "gateway.remoting_address=127.0.0.1:0")
    with Up(tmp_path / "on", *SMALL, *on, "--set", "gateway.grpc_address=127.0.0.1:0") as up:
        up.wait_ready()
        with up.client() as client:
            state = client.admin.gateway_state()
        shown = up.printed()
        assert f"RocketMQ's clients, gRPC: {state.grpc_address}\n" in shown
        assert f"RocketMQ's clients, classic: {state.remoting_address}\n" in shown
        assert shown.index("RocketMQ's clients, gRPC") < shown.index("commitlog  │ ready")
        assert up.stop() == 0
    given = ("--set", f"gateway.grpc_address=127.0.0.1:{listener}")
    refused = stratamq("up", "--port", "0", *given, data=tmp_path / "refused")
    assert refused.returncode == 2
    assert f"gateway.grpc_address: 127.0.0.1:{listener} cannot be used".encode() in refused.stderr


@pytest.mark.parametrize("options", [("--no-gateway",), ("--no-remoting",)])
def test_what_is_left_out_is_not_started(tmp_path, options, monkeypatch):
    for name in ("REMOTING", "GRPC"):
        monkeypatch.setenv(f"STRATAMQ_GATEWAY_{name}_ADDRESS", "127.0.0.1:0")
    overrides = left_out(**{one.removeprefix("--no-"): True for one in options})
    rooms = selected_services(None, overrides)
    assert ("gateway" in rooms) is ("--no-gateway" not in options)
    names = [place.name for place in places(rooms, None, overrides)]
    assert "remoting_address" not in names


def test_the_way_out_of_a_taken_port_of_rocketmqs_names_the_option(listener):
    defaults = [
        "gateway.remoting_address=127.0.0.1:0",
        f"gateway.grpc_address=127.0.0.1:{listener}",
    ]
    with pytest.raises(ConfigurationError, match="--no-gateway"):
        refuse_taken(places(["gateway"], None, defaults), defaults)


def test_up_takes_its_ports_and_a_second_broker_reports_which_are_taken(tmp_path):
    base = free_ports(len(ALL_PORTS))
    with Up(tmp_path / "first", *SMALL, "--port", str(base), "--bind", "0.0.0.0",
            "--set", "access.open_to_others=true") as up:  # fmt: skip
        up.wait_ready()
        assert "authentication is disabled" in up.printed()
        for behind, room in enumerate(INSTALLED):
            endpoint = discovery.read(up.data, room)
            assert endpoint is not None and endpoint.address == f"127.0.0.1:{base + behind}"
        second = tmp_path / "second"
        with Up(second, *SMALL, "--port", str(base)) as other:
            assert other.process.wait(DEADLINE_S) == 2
            for behind, room in enumerate(INSTALLED):
                assert f"{base + behind} ({room})" in other.printed()
            assert f"{base + 8} (the slaves' port)" in other.printed()
            assert "--port" in other.printed() and "Traceback" not in other.printed()
            assert not second.exists(), "nothing was started, and nothing is left"
        with connect(f"127.0.0.1:{base}") as client:
            assert client.send("t", b"x", queue_id=0).stored
        assert up.stop() == 0
    with Up(tmp_path / "first", *SMALL, "--port", str(base)) as up:
        up.wait_ready()  # connections that have just ended do not keep the ports
        assert "password" not in up.printed()
        assert up.stop() == 0


def test_a_start_after_the_death_of_up_waits_for_its_ports(tmp_path):
    base = free_ports(len(ALL_PORTS))
    data: Path = tmp_path / "store"
    with Up(data, *SMALL, "--port", str(base)) as up:
        up.wait_ready()
        up.process.kill()
        up.process.wait(DEADLINE_S)
    with Up(data, *SMALL, "--port", str(base)) as up:
        up.wait_ready()
        assert up.stop() == 0
