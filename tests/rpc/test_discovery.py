"""Run files, addresses and the metrics endpoint: how others find a process."""

import errno
import json
import os
import socket
import urllib.request

import pytest
from prometheus_client import CollectorRegistry, Counter

from stratamq.errors import ConfigurationError
from stratamq.rpc import discovery
from stratamq.rpc.address import is_host, join_address, reachable_address, split_address
from stratamq.rpc.discovery import Endpoint, boot_of_machine
from stratamq.service import metrics

HERE = Endpoint("127.0.0.1:10911", "127.0.0.1:9100", 42)


def test_what_is_written_is_read_back_and_nothing_else_is_left(tmp_path):
    path = discovery.write(tmp_path, "commitlog", HERE)
    assert path == tmp_path / "stratamq" / "run" / "commitlog.json"
    assert json.loads(path.read_text())["address"] == "127.0.0.1:10911"
    assert discovery.read(tmp_path, "commitlog") == HERE
    assert list(path.parent.iterdir()) == [path]


def test_a_successor_replaces_and_its_file_survives_the_predecessors_stop(tmp_path):
    successor = Endpoint("127.0.0.1:10912", "", 43)
    discovery.write(tmp_path, "commitlog", HERE)
    discovery.write(tmp_path, "commitlog", successor)
    discovery.remove(tmp_path, "commitlog", HERE.pid)
    assert discovery.read(tmp_path, "commitlog") == successor
    discovery.remove(tmp_path, "commitlog", successor.pid)
    discovery.remove(tmp_path, "commitlog", successor.pid)
    assert discovery.read(tmp_path, "commitlog") is None


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"7", b"\xff", b"{}", b'{"address": "a"}', b'{"address": "a", "pid": []}',
     b"[" * 100_000, b'{"address": "a:1", "pid": "x"}'],
    ids=range(10),
)  # fmt: skip
def test_a_file_that_is_not_a_run_file_counts_as_none(tmp_path, content):
    path = discovery.run_file(tmp_path, "index")
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    assert discovery.read(tmp_path, "index") is None
    discovery.remove(tmp_path, "index", 1)


def test_a_directory_in_its_place_counts_as_none(tmp_path):
    discovery.run_file(tmp_path, "index").mkdir(parents=True)
    assert discovery.read(tmp_path, "index") is None


@pytest.mark.parametrize(
    ("address", "host", "port"),
    [("127.0.0.1:0", "127.0.0.1", 0), ("[::1]:65535", "::1", 65535), ("a.b:1", "a.b", 1)],
)
def test_addresses_split_and_join(address, host, port):
    assert split_address(address) == (host, port)
    assert join_address(host, port) == address


@pytest.mark.parametrize("address", ["", "host", "host:", "host:x", "host:65536", "::1:5", "h:-1"])
def test_what_is_no_address_is_a_configuration_error(address):
    with pytest.raises(ConfigurationError, match="is not an address"):
        split_address(address)


def test_a_server_on_every_interface_is_reached_on_the_loopback():
    assert reachable_address("0.0.0.0:5") == "127.0.0.1:5"
    assert reachable_address("[::]:5") == "127.0.0.1:5"
    assert reachable_address("10.0.0.1:5") == "10.0.0.1:5"
    assert reachable_address("unix:/run/x") == "unix:/run/x"


def test_an_advertised_host_stands_for_the_one_listened_on():
    assert reachable_address("0.0.0.0:5", "index") == "index:5"
    assert reachable_address("10.0.0.1:5", "fd00::1") == "[fd00::1]:5"
    assert reachable_address("unix:/run/x", "index") == "unix:/run/x"


@pytest.mark.parametrize("text", ["", "index", "log-1.log.example", "10.0.0.1", "fd00::1"])
def test_a_host_is_a_name_or_an_address(text: str):
    assert is_host(text)


@pytest.mark.parametrize("text", ["index:5", "[fd00::1]", "a b", "http://index", "10.0.0.1:5"])
def test_a_host_has_no_port_and_no_brackets(text: str):
    assert not is_host(text)


def test_the_metrics_endpoint_serves_the_registry_on_a_free_port():
    registry = CollectorRegistry()
    Counter("appends", "Appends.", registry=registry).inc(3)
    endpoint = metrics.serve("127.0.0.1:0", registry)
    try:
        with urllib.request.urlopen(f"http://{endpoint.address}/metrics") as response:
            assert b"appends_total 3.0" in response.read()
        with pytest.raises(ConfigurationError, match=f"served on {endpoint.address}: Address"):
            metrics.serve(endpoint.address, registry)
    finally:
        endpoint.close()
    metrics.serve(endpoint.address, registry).close()  # the port is free again


def test_the_process_registry_holds_the_process_itself():
    names = {family.name for family in metrics.REGISTRY.collect()}
    assert "process_open_fds" in names


def test_a_fifo_in_its_place_blocks_no_reader(tmp_path):
    path = discovery.run_file(tmp_path, "index")
    path.parent.mkdir(parents=True)
    os.mkfifo(path)
    assert discovery.read(tmp_path, "index") is None


def test_a_file_that_cannot_be_written_leaves_the_old_one_and_nothing_else(tmp_path, monkeypatch):
    path = discovery.write(tmp_path, "index", HERE)
    monkeypatch.setattr(os, "replace", _no_space)
    with pytest.raises(OSError, match="No space"):
        discovery.write(tmp_path, "index", Endpoint("127.0.0.1:1", "", 43))
    assert discovery.read(tmp_path, "index") == HERE
    assert list(path.parent.iterdir()) == [path]


def _no_space(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("kind", ["its own", "a link's", "another user's", "another user's folder"])
def test_a_socket_is_used_that_the_announcing_user_has_made(tmp_path, kind):
    """A folder under the temporary one goes when that is cleared, and anybody may make it again."""
    if os.geteuid() != 0 and kind.startswith("another"):
        pytest.skip("needs root")
    folder = tmp_path / "sockets"
    folder.mkdir(mode=0o700)
    path = folder / "index.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        local = f"unix:{path}"
        if kind == "a link's":
            folder.rename(tmp_path / "elsewhere")
            folder.symlink_to(tmp_path / "elsewhere")
        elif kind == "another user's":
            os.chown(path, 12_345, 12_345)
            os.chown(folder, 12_345, 12_345)
        elif kind == "another user's folder":
            os.chown(folder, 12_345, 12_345)
        here = Endpoint("127.0.0.1:1", "", 42, local=local, boot=boot_of_machine())
        discovery.write(tmp_path, "index", here)
        found = discovery.read(tmp_path, "index")
        assert found.nearest() == (local if kind == "its own" else "127.0.0.1:1")
