"""A service whose run file cannot be written: on a full volume it runs and is found later; where
another file blocks the path, the service is refused."""

import asyncio
import errno
import os
from pathlib import Path

import pytest

from stratamq.errors import ConfigurationError, StoreRefusedError
from stratamq.rpc import discovery
from stratamq.rpc.address import split_address
from stratamq.service import server
from stratamq.service.server import Server


async def test_on_a_full_volume_a_service_runs_and_is_announced_when_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(server, "ANNOUNCE_INTERVAL_S", 0.01)
    full, write = True, discovery.write

    def write_if_there_is_room(*arguments: object) -> object:
        if full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(discovery, "write", write_if_there_is_room)
    service = Server("index", root=tmp_path)
    address = await service.start("127.0.0.1:0")
    assert discovery.read(tmp_path, "index") is None
    full = False
    async with asyncio.timeout(30):
        while discovery.read(tmp_path, "index") is None:
            await asyncio.sleep(0.01)
    endpoint = discovery.read(tmp_path, "index")
    assert endpoint is not None and endpoint.address == address
    await service.stop()
    assert discovery.read(tmp_path, "index") is None


async def test_one_that_was_never_announced_stops_all_the_same(tmp_path, monkeypatch):
    def write(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(discovery, "write", write)
    service = Server("index", root=tmp_path)
    await service.start("127.0.0.1:0")
    await service.stop()


async def test_what_is_in_the_way_is_named(tmp_path: Path):
    path = discovery.run_file(tmp_path, "index")
    path.mkdir(parents=True)
    service = Server("index", root=tmp_path)
    try:
        with pytest.raises(StoreRefusedError, match=r"index\.json cannot be written: Is a dir"):
            await service.start("127.0.0.1:0")
    finally:
        await service.stop()


async def test_other_containers_get_the_advertised_host(tmp_path: Path):
    service = Server("index", root=tmp_path, advertised_host="index", metrics_address="127.0.0.1:0")
    address = await service.start("127.0.0.1:0")
    endpoint = discovery.read(tmp_path, "index")
    assert endpoint is not None
    assert endpoint.address == f"index:{split_address(address)[1]}"
    assert endpoint.metrics == f"index:{split_address(service.metrics_address)[1]}"
    await service.stop()


def test_an_advertised_host_with_a_port_is_refused():
    with pytest.raises(ConfigurationError, match=r"index\.advertised_host: 'index:10914'"):
        Server("index", advertised_host="index:10914")
