"""What tools ask and change, as they see it on the wire."""

import json
import re

import pytest

from stratamq.client import Client, MessageType, Topic, connect
from stratamq.formats.frame import decode
from tests.gateway.remoting import Remoting, Reply, frame, pull, request, send
from tests.gateway.test_gateway import NO_PERMISSION, OK, ROOMS, SETTINGS, TOPIC_NOT_EXIST, address
from tests.support.brokers import Broker
from tests.support.waiting import until, until_dispatched

INVALID_PARAMETER, NOT_FOUND = 29, 22
SYSTEM_ERROR, SERVICE_NOT_AVAILABLE, NOT_ONLINE = 1, 14, 206
ORDER = {"namespace": "ORDER_TOPIC_CONFIG"}


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    place = tmp_path_factory.mktemp("admin")
    with Broker(place / "store", place / "logs", SETTINGS) as broker:
        yield broker.start((*ROOMS, "janitor"))
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


# --- groups ---


CONSUMER = {
    "groupName": "readers", "consumeType": 1, "messageModel": "CLUSTERING",
    "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
    "subscriptionDataSet": [{"topic": "orders", "subString": "a || b", "subVersion": 7}],
}  # fmt: skip


def beat(client: Remoting, group: str, client_id: str) -> None:
    consumer = {**CONSUMER, "groupName": group}
    said = {
        "clientID": client_id,
        "producerDataSet": [{"groupName": f"{group}-producers"}],
        "consumerDataSet": [consumer],
    }
    assert client.ask(34, json.dumps(said).encode()).code == OK


def test_a_group_has_the_settings_that_a_tool_gives_it(client, direct):
    said = {"groupName": "made", "consumeEnable": False, "retryMaxTimes": 3}
    assert client.ask(200, json.dumps(said).encode()).code == OK
    (settings,) = direct.group_settings("made")
    assert (settings.retries, settings.consume_enabled, settings.ordered) == (3, False, False)
    assert settings in direct.group_settings()
    listed = client.ask(201).document["subscriptionGroupTable"]["made"]
    assert listed == client.ask(352, group="made").document
    assert (listed["retryMaxTimes"], listed["consumeEnable"]) == (3, False)
    direct.commit_offsets("made", {("orders", 0): 0})
    assert client.ask(207, groupName="made", cleanOffset="true").code == OK
    assert "made" not in client.ask(201).document["subscriptionGroupTable"]
    assert client.ask(207, groupName="made", cleanOffset="true").code == OK
    assert client.ask(352, group="made").document["retryMaxTimes"] == 16


def test_a_group_that_may_not_consume_is_refused_its_pulls_until_it_may(client, direct):
    def put(enabled: bool) -> None:
        said = {"groupName": "stopped", "consumeEnable": enabled}
        assert client.ask(200, json.dumps(said).encode()).code == OK

    direct.send("orders", b"one", queue_id=0).check()
    until_dispatched(direct)
    beat(client, "stopped", "one")
    assert pull(client, "orders", 0, consumerGroup="stopped").code == OK
    put(False)
    refused = pull(client, "orders", 0, consumerGroup="stopped")
    assert (refused.code, refused.remark) == (16, "subscription group no permission, stopped")
    assert pull(client, "orders", 0, consumerGroup="another").code == OK
    put(True)
    assert pull(client, "orders", 0, consumerGroup="stopped").code == OK
    put(False)
    assert client.ask(207, groupName="stopped", cleanOffset="false").code == OK
    assert pull(client, "orders", 0, consumerGroup="stopped").code == OK


def test_a_group_keeps_its_offsets_unless_they_are_to_go(client, direct):
    direct.commit_offsets("keeps", {("orders", 0): 0})
    assert client.ask(207, groupName="keeps", cleanOffset="false").code == OK
    assert direct.committed_offsets("keeps") == {("orders", 0): 0}
    assert client.ask(207, groupName="").code == INVALID_PARAMETER


@pytest.mark.parametrize("body", [b"", b"[]", b'{"groupName":"g","retryMaxTimes":"x"}'])
def test_a_group_that_cannot_be_read_is_refused(client, body):
    assert client.ask(200, body).code == INVALID_PARAMETER


def test_connected_clients_are_listed(client):
    beat(client, "seen", "one")
    said = client.ask(203, consumerGroup="seen").document
    (connection,) = said["connectionSet"]
    host, port = client.socket.getsockname()
    assert connection == {
        "clientAddr": f"{host}:{port}", "clientId": "one", "language": "JAVA", "version": 395,
    }  # fmt: skip
    assert said["consumeType"] == "CONSUME_PASSIVELY" and said["messageModel"] == "CLUSTERING"
    subscription = said["subscriptionTable"]["orders"]
    assert (subscription["tagsSet"], subscription["codeSet"]) == (["a", "b"], [97, 98])
    producers = client.ask(204, producerGroup="seen-producers").document["connectionSet"]
    assert producers == [connection]
    assert client.ask(203, consumerGroup="none").code == NOT_ONLINE
    assert client.ask(204, producerGroup="none").code == SYSTEM_ERROR


def test_a_consumer_is_asked_and_its_answer_is_given(broker, client):
    """The test is the tool and the consumer."""
    sent = send(client, "direct", b"again")
    beat(client, "asked", "one")
    with Remoting(address(broker)) as tool:
        for code, fields in ((307, {}), (309, {"msgId": sent.fields["msgId"]})):
            asked = {"consumerGroup": "asked", "clientId": "one", **fields}
            signed = {**asked, "AccessKey": "tool", "Signature": "of the tool"}
            tool.socket.sendall(request(code, signed, b"", 99))
            header, question = client.receive()
            while question.code != code:  # it was told of its own heartbeat
                header, question = client.receive()
            assert question.fields == asked
            if code == 309:
                assert decode(question.body).body == b"again"
            answer = {"code": 0, "flag": 1, "language": "JAVA", "opaque": header["opaque"]}
            client.socket.sendall(frame(json.dumps(answer).encode(), b'{"said":1}'))
            _, reply = tool.receive()
            assert (reply.code, reply.document) == (OK, {"said": 1})
        assert tool.ask(307, consumerGroup="asked", clientId="two").code == NOT_ONLINE


def test_a_consumer_that_goes_before_it_answers_is_not_available(broker, client):
    with Remoting(address(broker)) as consumer:
        beat(consumer, "going", "one")
        client.socket.sendall(request(307, {"consumerGroup": "going", "clientId": "one"}, b"", 99))
        question = consumer.receive()[1]
        while question.code != 307:
            question = consumer.receive()[1]
    assert client.receive()[1].code == SERVICE_NOT_AVAILABLE


# --- offsets ---


def filled(client: Remoting, direct: Client, topic: str) -> None:
    for number in range(4):
        assert send(client, topic, b"%d" % number).code == OK
    until(lambda: [one.max_offset for one in direct.queues(topic)] == [4], "it is dispatched")


def test_stats_of_a_group_show_what_it_has_read(client, direct):
    filled(client, direct, "behind")
    direct.commit_offsets("reading", {("behind", 0): 1})
    body = client.ask(208, consumerGroup="reading").body.decode()
    assert re.fullmatch(
        r'\{"offsetTable":\{\{"brokerName":"[^"]+","queueId":0,"topic":"behind"\}:'
        r'\{"brokerOffset":4,"consumerOffset":1,"lastTimestamp":\d+,"pullOffset":1\}\},'
        r'"consumeTps":0\}',
        body,
    ), body
    assert client.ask(208, consumerGroup="reading", topic="other").body.startswith(
        b'{"offsetTable":{},'
    )
    assert "reading" in client.ask(300, topic="behind").document["groupList"]


def reset(client: Remoting, **fields: object) -> Reply:
    return client.ask(222, **({"group": "back", "topic": "again", "timestamp": 0} | fields))


def test_offsets_are_set_back_with_and_without_force(client, direct):
    filled(client, direct, "again")
    queue = ("again", 0)
    direct.commit_offsets("back", {queue: 2})
    assert reset(client, timestamp=-1, isForce="false").body == b'{"offsetTable":{}}'
    assert direct.committed_offsets("back") == {queue: 2}, "it is not set forward without force"
    assert reset(client, timestamp=-1, isForce="true").body.endswith(b"}:4}}")
    assert direct.committed_offsets("back") == {queue: 4}
    assert reset(client, isForce="false").code == OK
    assert direct.committed_offsets("back") == {queue: 0}
    assert reset(client, queueId=0, offset=3).code == OK
    assert direct.committed_offsets("back") == {queue: 3}
    assert reset(client, group="").code == INVALID_PARAMETER
    assert reset(client, topic="none").code == TOPIC_NOT_EXIST


def test_connected_consumers_are_told_of_a_reset(broker, client, direct):
    filled(client, direct, "live")
    beat(client, "live-readers", "one")
    with Remoting(address(broker)) as tool:
        reset(tool, group="live-readers", topic="live", isForce="true")
    told = client.receive()[1]
    while told.code != 220:
        told = client.receive()[1]
    assert told.fields["topic"] == "live" and told.fields["group"] == "live-readers"
    assert told.body.startswith(b'{"offsetTable":{{"brokerName":') and told.body.endswith(b"}:0}}")


def test_entries_of_a_queue_are_listed(client, direct):
    filled(client, direct, "entries")
    said = client.ask(321, topic="entries", queueId=0, index=1, count=2).document
    assert (said["minQueueIndex"], said["maxQueueIndex"], len(said["queueData"])) == (0, 4, 2)
    assert said["queueData"][0]["physicSize"] == direct.pull("entries", 0, 1).messages[0].size
    assert client.ask(321, topic="entries", queueId=9, index=0, count=2).code == TOPIC_NOT_EXIST


# --- the broker's work ---


def test_a_closed_broker_is_shown_without_the_permission_to_write(client, direct):
    put(client, "open")
    name = direct.log_state().broker_name

    def permission() -> int:
        return client.ask(105, topic="open").document["queueDatas"][0]["perm"]

    closed = client.ask(205, brokerName=name)
    assert closed.code == OK and int(closed.fields["wipeTopicCount"]) == len(direct.topics())
    assert permission() == 4
    assert send(client, "open", b"of one who has not looked").code == OK
    assert client.ask(327, brokerName=name).code == OK
    assert permission() == 6
    assert client.ask(205, brokerName="another").code == TOPIC_NOT_EXIST


def test_a_group_goes_on_where_another_one_is(client, direct):
    put(client, "cloned")
    direct.commit_offsets("from", {("cloned", 0): 0})
    assert client.ask(314, srcGroup="from", destGroup="to", topic="cloned").code == OK
    assert direct.committed_offsets("to") == {("cloned", 0): 0}
    assert client.ask(314, srcGroup="from", destGroup="", topic="cloned").code == INVALID_PARAMETER


def test_the_broker_tells_how_far_all_groups_are(client, direct):
    put(client, "sorted", order="true")
    direct.commit_offsets("far", {("sorted", 0): 0})
    ordered = client.ask(317, isOrder="true").body.decode()
    assert '"consumeStatsList":[{"far":[{"offsetTable":{{"brokerName":' in ordered
    assert '"topic":"sorted"}:{"brokerOffset":0,"consumerOffset":0' in ordered
    assert '"far"' not in client.ask(317, isOrder="false").body.decode()


def test_statistics_are_zeros_and_unknown_ones_are_refused(client):
    found = client.ask(315, statsName="TOPIC_PUT_NUMS", statsKey="any").document
    assert found["statsDay"] == {"avgpt": 0.0, "sum": 0, "tps": 0.0}
    assert client.ask(315, statsName="none", statsKey="any").code == SYSTEM_ERROR


def test_replication_and_producers_are_shown(client, direct):
    assert client.ask(907).document["haConnectionInfo"] == []
    assert client.ask(907).document["masterCommitLogMaxOffset"] == (
        direct.log_state().appended_offset
    )
    said = {"clientID": "sender", "producerDataSet": [{"groupName": "sellers"}]}
    assert client.ask(34, json.dumps(said).encode()).code == OK
    (shown,) = client.ask(328).document["data"]["sellers"]
    assert (shown["clientId"], shown["language"]) == ("sender", "JAVA")


@pytest.mark.parametrize("code", [306, 316, 329])
def test_the_janitor_looks_when_a_tool_asks_it_to_clean(client, direct, code):
    before = direct.admin.janitor_state().last
    assert client.ask(code).code == OK
    last = direct.admin.janitor_state().last
    assert last is not None and (before is None or last.at_ms > before.at_ms)


def test_settings_are_shown_and_not_changed(client, broker):
    assert client.ask(319).body.decode() == f"listenPort={address(broker).rpartition(':')[2]}\n"
    assert [client.ask(code, b"a=b").code for code in (25, 318)] == [INVALID_PARAMETER] * 2
    mode = {"consumerGroup": "g", "topic": "t", "popShareQueueNum": 0}
    bodies = [json.dumps(mode | {"mode": one}).encode() for one in ("PULL", "POP")]
    assert [client.ask(401, one).code for one in bodies] == [OK, INVALID_PARAMETER]
