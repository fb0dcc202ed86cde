"""What operators see of shared groups without asking for it: how much is ready, how old it is, and
that no other client commits their offsets."""

import urllib.request

from stratamq.api.v1 import dispatcher_pb2
from stratamq.client import connect
from stratamq.rpc import discovery
from tests.delivery.test_sharing import DELIVERY, ROOMS, fill
from tests.support.brokers import Broker
from tests.support.waiting import until


def shown(broker: Broker, name: str) -> dict[str, float]:
    """The series of a metric by group."""
    endpoint, head = discovery.read(broker.root, DELIVERY), f'{name}{{group="'
    with urllib.request.urlopen(f"http://{endpoint.metrics}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    found = [line.removeprefix(head).split('"} ') for line in lines if line.startswith(head)]
    return {group: float(value) for group, value in found}


def is_shared(broker: Broker) -> set[bool]:
    listed = broker.dispatcher.ListGroups(dispatcher_pb2.ListGroupsRequest(group="billing"))
    return {one.shared for one in listed.groups}


def test_what_is_ready_and_how_old_the_oldest_is_are_shown_by_group(tmp_path):
    with Broker(tmp_path / "store", tmp_path / "logs") as broker:
        broker.start(ROOMS)
        fill(broker, 0, 10)
        with connect(broker.root, retry_timeout_s=60) as client:
            with client.subscribe("orders", "billing", invisible_s=3_600) as reader:
                held = reader.receive(3)
                ready, oldest = "delivery_group_ready_messages", "delivery_group_oldest_seconds"
                until(lambda: shown(broker, ready) == {"billing": 10 - len(held)}, "7 are ready")
                until(lambda: shown(broker, oldest)["billing"] > 0, "the oldest one has an age")
                assert is_shared(broker) == {True}
                while more := reader.receive(10, wait_s=0):
                    held += more
                until(lambda: shown(broker, ready) == {"billing": 0}, "none is ready")
                assert shown(broker, oldest)["billing"] > 0, "none is acknowledged"
                reader.ack(held)
                until(lambda: shown(broker, oldest) == {"billing": 0}, "all are acknowledged")
            client.stop_sharing("billing")
            assert is_shared(broker) == {False}
            until(lambda: shown(broker, ready) == {}, "the group is not shared any more")
