"""The election store of these tests: a real one, or none."""

import shutil
from collections.abc import Iterator

import pytest
from stratamq_bench.failover import Etcd


@pytest.fixture
def etcd(tmp_path) -> Iterator[Etcd]:
    if shutil.which("etcd") is None:
        pytest.skip("etcd is not installed (Debian: etcd-server)")
    server = Etcd(tmp_path)
    yield server
    server.close()
