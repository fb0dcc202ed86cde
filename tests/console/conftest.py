"""One broker for the tests of a module."""

import pytest

from stratamq.client import connect
from tests.support.brokers import COMMITLOG, DELIVERY, DISPATCHER, HA, INDEX, Broker

ROOMS = (COMMITLOG, DISPATCHER, INDEX, DELIVERY, HA, "janitor")


@pytest.fixture(scope="module")
def anyio_backend():
    return "asyncio"


@pytest.fixture(scope="module", autouse=True)
async def one_loop(anyio_backend):
    """gRPC's poller, one for all of a process, has events for loops that are closed."""
    yield


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    place = tmp_path_factory.mktemp("console")
    settings = ["ha.replication_address=127.0.0.1:0"]  # tests run beside each other
    with Broker(place / "store", place / "logs", settings) as broker:
        yield broker.start(ROOMS)


@pytest.fixture
def client(broker):
    with connect(broker.root, retry_timeout_s=60) as client:
        yield client
