"""One broker for the tests of a module."""

import pytest

from stratamq.client import connect
from stratamq.rpc.permission_file import Permissions, dump, grant_of
from tests.console.pages import browsing
from tests.support.brokers import COMMITLOG, DELIVERY, DISPATCHER, HA, INDEX, Broker

RULES = (
    ("ops", "operate", "broker"),
    ("alice", "produce", "topic:orders*"),
    ("reader", "consume", "topic:orders*"),
    ("biller", "consume", "group:billing"),
)
ROOMS = (COMMITLOG, DISPATCHER, INDEX, DELIVERY, HA, "janitor")


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


class GuardedBroker:
    """A broker that asks who calls, and a token for each user of `RULES`."""

    def __init__(self, place) -> None:
        self.file = place / "permissions.json"
        permissions = Permissions(rules=[grant_of(*one) for one in RULES])
        self.tokens = {who: permissions.add_token(who, "2026-11-28") for who, *_ in RULES}
        self.file.write_bytes(dump(permissions))
        self.broker = Broker(place / "store", place / "logs", [f"access.file={self.file}"])

    @property
    def browsing(self):
        return browsing(self.broker.root, self.file)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    found = GuardedBroker(tmp_path_factory.mktemp("guarded"))
    with found.broker as broker:
        broker.start()
        yield found
