"""What tools ask and change, as they see it on the wire."""

import re

import pytest

from stratamq.client import MessageType, Topic, connect
from tests.gateway.remoting import Remoting, Reply, send
from tests.gateway.test_gateway import NO_PERMISSION, OK, ROOMS, SETTINGS, TOPIC_NOT_EXIST, address
from tests.support.brokers import Broker
from tests.support.waiting import until

INVALID_PARAMETER, NOT_FOUND = 29, 22
ORDER = {"namespace": "ORDER_TOPIC_CONFIG"}


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    place = tmp_path_factory.mktemp("admin")
    with Broker(place / "store", place / "logs", SETTINGS) as broker:
        yield broker.start(ROOMS)
        assert "Traceback" not in broker.output("gateway")


@pytest.fixture
def client(broker):
    with Remoting(address(broker)) as client:
        yield client


@pytest.fixture
def direct(broker):
    with connect(broker.root) as direct:
        yield direct


def put(client: Remoting, topic: str, **fields: object) -> Reply:
    asked = {"defaultTopic": "TBW102", "readQueueNums": 3, "writeQueueNums": 2, "perm": 6}
    asked |= {"topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false"}
    return client.ask(17, topic=topic, **(asked | fields))


# --- topics ---


def test_a_topic_is_in_the_route_with_the_answer(client, direct):
    assert put(client, "made", attributes="+message.type=FIFO").code == OK
    (queues,) = client.ask(105, topic="made").document["queueDatas"]
    assert (queues["readQueueNums"], queues["writeQueueNums"], queues["perm"]) == (3, 2, 6)
    assert direct.topics("made") == [Topic("made", 3, 2, 6, message_type=MessageType.FIFO)]


def test_a_change_without_attributes_leaves_the_type(client, direct):
    put(client, "kept", attributes="+message.type=FIFO")
    assert put(client, "kept", perm=4).code == OK
    assert direct.topics("kept")[0].message_type is MessageType.FIFO
    assert put(client, "kept", attributes="-message.type").code == OK
    assert direct.topics("kept")[0].message_type is MessageType.UNSPECIFIED


@pytest.mark.parametrize(
    "fields",
    [
        {"attributes": "+cleanup.policy=COMPACTION"},
        {"attributes": "+message.type=NONE"},
        {"topicFilterType": "MULTI_TAG"},
        {"perm": 99},
        {"readQueueNums": -1},
    ],
)
def test_a_topic_that_cannot_be_made_as_asked_is_refused(client, direct, fields):
    assert put(client, "refused", **fields).code == INVALID_PARAMETER
    assert "refused" not in [one.name for one in direct.topics()]


def test_a_topic_that_may_not_be_written_takes_no_message(client):
    put(client, "closed", perm=4)
    assert send(client, "closed", b"x").code == NO_PERMISSION


def test_a_deleted_topic_has_no_route_and_may_be_deleted_again(client):
    put(client, "gone")
    assert [client.ask(code, topic="gone").code for code in (215, 216, 215)] == [OK] * 3
    assert client.ask(105, topic="gone").code == TOPIC_NOT_EXIST
    assert client.ask(351, topic="gone").code == TOPIC_NOT_EXIST
    assert client.ask(202, topic="gone").code == TOPIC_NOT_EXIST


def test_a_retry_topic_that_was_deleted_is_made_again(client, direct):
    sent = send(client, "failing", b"x")
    place = int(sent.fields["msgId"][16:], 16)

    def back() -> Reply:
        return client.ask(36, offset=place, group="again", delayLevel=0, originTopic="failing")

    until(lambda: back().code == OK, "it is sent back")
    assert client.ask(215, topic="%RETRY%again").code == OK
    assert back().code == OK
    assert direct.topics("%RETRY%again")


def test_stats_of_a_topic_name_each_queue(client):
    put(client, "counted", readQueueNums=3, writeQueueNums=3)
    sent = send(client, "counted", b"x", queue_id=1)
    assert sent.code == OK

    def table() -> dict[int, tuple[int, int, bool]]:
        body = client.ask(202, topic="counted").body.decode()
        assert body.startswith('{"offsetTable":{{"brokerName":') and body.endswith("}")
        found = re.findall(
            r'\{"brokerName":"[^"]+","queueId":(\d),"topic":"counted"\}:'
            r'\{"lastUpdateTimestamp":(\d+),"maxOffset":(\d+),"minOffset":(\d+)\}',
            body,
        )
        return {int(q): (int(low), int(high), time != "0") for q, time, high, low in found}

    until(
        lambda: table() == {0: (0, 0, False), 1: (0, 1, True), 2: (0, 0, False)}, "it is dispatched"
    )


def test_topics_are_listed_with_their_settings(client):
    put(client, "listed", order="true")
    expected = {
        "attributes": {}, "order": True, "perm": 6, "readQueueNums": 3, "topicName": "listed",
        "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "writeQueueNums": 2,
    }  # fmt: skip
    assert client.ask(21).document["topicConfigTable"]["listed"] == expected
    assert client.ask(351, topic="listed").document == expected
    assert "listed" in client.ask(224, cluster="DefaultCluster").document["topicList"]
    assert client.ask(351, topic="%RETRY%none").document["readQueueNums"] == 1


def test_the_order_of_a_topic_is_what_a_name_server_says_of_it(client, direct):
    put(client, "ordered")
    name = direct.log_state().broker_name
    assert client.ask(101, key="ordered", **ORDER).code == NOT_FOUND
    assert client.ask(100, key="ordered", value="other:9", **ORDER).code == INVALID_PARAMETER
    assert client.ask(100, key="ordered", value=f"{name}:2;", **ORDER).code == OK
    assert client.ask(101, key="ordered", **ORDER).fields["value"] == f"{name}:2"
    assert client.ask(219, **ORDER).document["table"]["ordered"] == f"{name}:2"
    assert client.ask(102, key="ordered", **ORDER).code == OK
    assert not direct.topics("ordered")[0].ordered
    assert client.ask(102, key="never", **ORDER).code == OK
    assert client.ask(100, key="ordered", value="1", namespace="x").code == INVALID_PARAMETER


# --- the broker ---


def test_runtime_information_has_what_tools_read(client):
    before = int(client.ask(28).document["table"]["msgPutTotalTodayNow"])
    send(client, "told", b"x")
    until(
        lambda: int(client.ask(28).document["table"]["msgPutTotalTodayNow"]) == before + 1,
        "it is dispatched",
    )
    table = client.ask(28).document["table"]
    assert table["brokerVersionDesc"] == "V5_3_3" and table["brokerActive"] == "true"
    assert int(table["commitLogMaxOffset"]) > int(table["commitLogMinOffset"]) == 0
    assert int(table["earliestMessageTimeStamp"]) > 0
    assert len(table["getTransferredTps"].split()) == len(table["getTotalTps"].split()) == 3


def test_settings_of_the_broker_are_lines_of_properties(broker, client):
    lines = dict(line.split("=") for line in client.ask(26).body.decode().splitlines())
    host, port = address(broker).split(":")
    assert (lines["brokerIP1"], lines["listenPort"]) == (host, port)
    assert lines["brokerClusterName"] == "DefaultCluster"
