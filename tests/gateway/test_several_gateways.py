"""Two gateways over one store: consumers of a group at either are members of one group, and have
the locks of one table. So each message is consumed once, whatever gateway its consumer is at."""

from contextlib import contextmanager

import pytest

from stratamq.api.v1 import gateway_pb2
from stratamq.client import connect
from tests.gateway.remoting import Remoting, beat, pull, send
from tests.gateway.test_gateway import SETTINGS
from tests.gateway.test_locks import RUNNING_INFO, UNLOCK, asked_for, locked, running_info
from tests.support.brokers import COMMITLOG, DELIVERY, DISPATCHER, GATEWAY, Broker
from tests.support.waiting import until

SECOND = "gateway-2"
ROOMS = (COMMITLOG, DISPATCHER, DELIVERY, GATEWAY, SECOND)
CHANGED = 40


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with started(tmp_path_factory.mktemp("several")) as broker:
        yield broker


@contextmanager
def started(place, rooms=ROOMS):
    with Broker(place / "store", place / "logs", SETTINGS) as broker:
        yield broker.start(rooms)
        assert "Traceback" not in "".join(map(broker.output, rooms))


def remoting_address(broker, room):
    request = gateway_pb2.GetGatewayStatusRequest()
    return broker.stub(room).GetGatewayStatus(request).remoting_address


def at(broker, room):
    """A client at this gateway."""
    return Remoting(remoting_address(broker, room))


@contextmanager
def both(broker):
    with at(broker, GATEWAY) as first, at(broker, SECOND) as second:
        yield first, second


def members(client, group):
    reply = client.ask(38, consumerGroup=group)
    return set(reply.document["consumerIdList"]) if reply.code == 0 else set()


def until_members(client, group, *names):
    until(lambda: members(client, group) == set(names), f"the members of {group} are {names}")


def test_members_at_either_gateway_are_known_at_both_and_told_of_changes(broker):
    with both(broker) as (first, second):
        beat(first, "one", consumer="both")
        until_members(second, "both", "one")
        beat(second, "two", consumer="both")
        assert members(second, "both") == {"one", "two"}, "as soon as its heartbeat is answered"
        until_members(first, "both", "one", "two")
        with at(broker, SECOND) as third:
            beat(third, "three", consumer="both")
            until_members(first, "both", "one", "two", "three")
        until_members(first, "both", "one", "two")
        first.ask(38, consumerGroup="both")
        assert first.told == [CHANGED] * 4, "itself, the second, the third, its going"
        assert second.ask(35, clientID="two", consumerGroup="both").code == 0
        until_members(first, "both", "one")


def test_tools_see_the_members_of_all_gateways_at_each(broker):
    with both(broker) as (first, second):
        beat(first, "one", consumer="seen", topic="steps")
        until_members(second, "seen", "one")
        listed = second.ask(203, consumerGroup="seen").document
        (connection,) = listed["connectionSet"]
        host, port = first.socket.getsockname()
        assert connection == {
            "clientAddr": f"{host}:{port}", "clientId": "one", "language": "JAVA", "version": 395,
        }  # fmt: skip
        assert listed["consumeType"] == "CONSUME_PASSIVELY"
        assert listed["messageModel"] == "CLUSTERING"
        assert listed["consumeFromWhere"] == "CONSUME_FROM_LAST_OFFSET"
        assert list(listed["subscriptionTable"]) == ["steps"]
        assert "seen" in second.ask(300, topic="steps").document["groupList"]
        assert "seen" in second.ask(201).document["subscriptionGroupTable"]
        with connect(broker.root) as own:
            (known,) = own.group_members("seen")
        assert (known.client_id, known.address) == ("one", f"{host}:{port}")
        assert dict(known.topics) == {"steps": ()} and known.since_ms > 0
        asked = second.ask(307, consumerGroup="seen", clientId="one")
        assert asked.code != 0 and "another gateway" in asked.remark


def test_the_newest_subscription_of_a_group_counts_at_each_gateway(broker):
    with at(broker, GATEWAY) as first, at(broker, SECOND) as second:
        assert send(first, "chosen", b"x", a="1").code == 0
        beat(first, "one", consumer="choosing", topic="chosen", sql="a = 1")
        until_members(second, "choosing", "one")
        asked = {"consumerGroup": "choosing", "sysFlag": 0, "subscription": ""}
        until(lambda: pull(second, "chosen", 0, **asked).code == 0, "it is selected")


def test_members_of_a_gateway_that_is_killed_are_gone_and_the_others_are_told(tmp_path):
    with started(tmp_path) as broker, at(broker, GATEWAY) as first:
        beat(first, "one", consumer="left")
        with at(broker, SECOND) as second:
            beat(second, "two", consumer="left")
            until_members(first, "left", "one", "two")
            broker.kill(SECOND)
            until_members(first, "left", "one")
            first.ask(38, consumerGroup="left")
            assert first.told == [CHANGED] * 3, "itself, the second, its going"
        broker.start([SECOND])
        with at(broker, SECOND) as second:
            until_members(second, "left", "one")


def test_a_restart_of_the_delivery_service_changes_nobodys_queues(tmp_path):
    with started(tmp_path) as broker, both(broker) as (first, second):
        beat(first, "one", consumer="steady")
        until_members(second, "steady", "one")
        beat(second, "two", consumer="steady")
        until_members(first, "steady", "one", "two")
        for client in (first, second):
            client.ask(38, consumerGroup="steady")  # told of each other before it is answered
            client.told.clear()
        for stop in (broker.kill, broker.terminate):
            stop(DELIVERY)
            for client, name in zip((first, second), ("one", "two"), strict=True):
                beat(client, name, consumer="steady")
                assert members(client, "steady") == {"one", "two"}
            broker.start([DELIVERY])
            # Said behind those of before: both gateways have said all.
            beat(second, "two", consumer=f"after-{stop.__name__}")
            until_members(first, f"after-{stop.__name__}", "two")
            for client in (first, second):
                assert members(client, "steady") == {"one", "two"}
        assert first.told == []
        assert set(second.told) == {CHANGED}, "of the other groups alone"


def test_without_a_delivery_service_each_gateway_has_its_own_members_and_locks(tmp_path):
    rooms = (COMMITLOG, DISPATCHER, GATEWAY, SECOND)
    with started(tmp_path, rooms) as broker, both(broker) as (first, second):
        beat(first, "one", consumer="alone")
        beat(second, "two", consumer="alone")
        assert members(first, "alone") == {"one"}
        assert locked(first, "one", 0) == [0]
        broker.start([DELIVERY])
        until_members(first, "alone", "one", "two")
        until_members(second, "alone", "one", "two")


def test_a_queue_has_one_client_whatever_gateway_it_is_at(tmp_path):
    with started(tmp_path) as broker, both(broker) as (first, second):
        assert send(first, "steps", b"x").code == 0
        assert locked(first, "one", 0) == [0]
        assert locked(second, "two", 0, 1) == [1]
        assert first.ask(UNLOCK, asked_for("one", 0)).code == 0
        assert locked(second, "two", 0) == [0] and locked(first, "one", 0, 1) == []
        broker.kill(GATEWAY)
        broker.start([GATEWAY])
        with at(broker, GATEWAY) as again:
            assert locked(again, "one", 0) == [], "they outlive a gateway"


def test_a_lock_stays_with_its_client_while_the_delivery_service_restarts(tmp_path):
    with started(tmp_path) as broker, both(broker) as (first, second):
        assert send(first, "steps", b"x").code == 0
        assert locked(first, "one", 0) == [0]
        with connect(broker.root) as own:
            own.commit_offsets("g", {("steps", 0): 1})
        for client, has in ((first, True), (second, False)):
            client.answers[RUNNING_INFO] = running_info(0, locked=has)
        broker.kill(DELIVERY)
        assert locked(second, "two", 0) == []
        assert locked(first, "one", 0) == [0] and RUNNING_INFO not in first.told
        broker.start([DELIVERY])
        assert locked(second, "two", 0) == []
        assert locked(first, "one", 0) == [0] and RUNNING_INFO in first.told
        assert locked(second, "two", 0) == []
