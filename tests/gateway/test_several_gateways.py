"""Two gateways over one store: consumers of a group at either are members of one group, and have
the locks of one table. So each message is consumed once, whatever gateway its consumer is at."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from stratamq.api.v1 import gateway_pb2
from stratamq.client import connect
from stratamq.service.room_lock import room_lock_holder
from tests.gateway.remoting import Remoting, beat, pull, send
from tests.gateway.test_gateway import SETTINGS
from tests.gateway.test_locks import RUNNING_INFO, UNLOCK, asked_for, locked, running_info
from tests.support.brokers import COMMITLOG, DELIVERY, DISPATCHER, GATEWAY, Broker
from tests.support.freezing import freeze
from tests.support.waiting import until

SECOND = "gateway-2"
ROOMS = (COMMITLOG, DISPATCHER, DELIVERY, GATEWAY, SECOND)
CHANGED, RESET, CONSUME, TAKEN = 40, 220, 309, 326
NOT_ONLINE = 206


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


@contextmanager
def asking(client, code, body=b"", /, **fields):
    """The answer is there once the block has ended: what is asked of other clients meanwhile."""
    with ThreadPoolExecutor(1) as thread:
        yield thread.submit(client.ask, code, body, **fields)


def test_a_tool_asks_a_consumer_at_another_gateway(broker):
    with both(broker) as (first, second):
        beat(first, "one", consumer="asked", topic="once-more")
        until_members(second, "asked", "one")
        first.answers |= {RUNNING_INFO: b"{info}", CONSUME: b"{consumed}"}
        named = {"consumerGroup": "asked", "clientId": "one"}
        with asking(second, RUNNING_INFO, jstackEnable="true", **named) as answer:
            assert first.take_until(RUNNING_INFO).fields == {**named, "jstackEnable": "true"}
        assert (answer.result().code, answer.result().body) == (0, b"{info}")
        message_id = send(first, "once-more", b"again").fields["msgId"]
        until(lambda: pull(first, "once-more", 0).code == 0, "it is dispatched")
        with asking(second, CONSUME, msgId=message_id, **named) as answer:
            assert b"again" in first.take_until(CONSUME).body
        assert answer.result().body == b"{consumed}"
        assert first.ask(35, clientID="one", consumerGroup="asked").code == 0
        until_members(second, "asked")
        assert second.ask(RUNNING_INFO, **named).code == NOT_ONLINE
    for room in (GATEWAY, SECOND):
        assert room_lock_holder(broker.root, room) == broker.pid(room), "it still has its number"


def test_consumers_at_all_gateways_are_told_of_a_reset(broker):
    with both(broker) as (first, second), connect(broker.root) as own:
        assert send(first, "again", b"x").code == 0
        until(lambda: pull(first, "again", 0).code == 0, "it is dispatched")
        own.commit_offsets("resetting", {("again", 0): 1})
        for client, name in ((first, "one"), (second, "two")):
            beat(client, name, consumer="resetting", topic="again")
        asked = {"group": "resetting", "topic": "again", "timestamp": 0, "isForce": "true"}
        assert second.ask(222, **asked).code == 0
        assert RESET in second.told
        told = first.take_until(RESET)
        assert told.fields == {name: str(value) for name, value in asked.items()}
        assert told.body.startswith(b'{"offsetTable":{{"brokerName":') and b"}:0}" in told.body


def test_a_reply_reaches_a_client_that_waits_at_another_gateway(broker):
    reply = {"a": "p", "b": "DefaultCluster_REPLY_TOPIC", "c": "TBW102", "d": 4, "e": 0}
    reply |= {"f": 0, "g": 1, "h": 0, "j": 0}
    with both(broker) as (first, second):
        beat(first, "waiting", producer="requests")
        first.answers[TAKEN] = b""
        with asking(second, 325, b"reply", i="REPLY_TO_CLIENT\1waiting\2", **reply) as answer:
            pushed = first.take_until(TAKEN)
            assert pushed.body == b"reply" and "PUSH_REPLY_TIME" in pushed.fields["properties"]
        assert answer.result().code == 0
        gone = second.ask(325, b"reply", i="REPLY_TO_CLIENT\1nobody\2", **reply)
        assert gone.code != 0 and "nobody is not connected" in gone.remark


def test_a_gateway_that_is_dead_has_no_clients_and_one_that_hangs_may_have(tmp_path):
    with started(tmp_path) as broker, at(broker, GATEWAY) as first:
        assert send(first, "t", b"x").code == 0
        until(lambda: pull(first, "t", 0).code == 0, "it is dispatched")
        with connect(broker.root) as own:
            own.commit_offsets("g", {("t", 0): 1})
        asked = {"group": "g", "topic": "t", "timestamp": 0, "isForce": "true"}
        freeze(broker.pid(SECOND))
        late = first.ask(222, **asked)
        assert late.code != 0 and "has not told" in late.remark
        broker.kill(SECOND)
        assert first.ask(222, **asked).code == 0


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


def test_a_gateway_that_starts_answers_no_list_without_the_members_of_others(tmp_path):
    """Each of its clients would take queues that others have."""
    with started(tmp_path) as broker, at(broker, GATEWAY) as first:
        for number in range(500):
            beat(first, f"c{number}", consumer="many")
        broker.kill(SECOND)
        broker.start([SECOND])
        with at(broker, SECOND) as second:
            assert len(members(second, "many")) == 500


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
