"""RocketMQ's mqadmin 5.3.3, unchanged, with a gateway as name server and broker: the rows of
spec/remoting-acceptance.md. It exits with 0 whatever happens: its output is judged."""

import os
import subprocess

import pytest
from stratamq_bench.ports import free_port

from stratamq.client import connect
from tests.gateway.test_java_clients import JAVA, ROOMS, VERSIONS, build, play
from tests.support.brokers import GATEWAY, Broker
from tests.support.waiting import until

pytestmark = [pytest.mark.java, pytest.mark.timeout(900)]


GIVEN_UP = ("RemotingTimeoutException", "RemotingTooMuchRequestException")
ATTEMPTS = 3
"""It gives up after 3 s, which is short on a machine with other work."""


@pytest.fixture(scope="module")
def address():
    return f"127.0.0.1:{free_port()}"


@pytest.fixture(scope="module")
def broker(tmp_path_factory, address):
    build("mqadmin")
    place = tmp_path_factory.mktemp("mqadmin")
    settings = (f"gateway.remoting_address={address}", f"commitlog.store_host={address}")
    with Broker(place / "store", place / "logs", settings) as broker:
        yield broker.start(ROOMS)
        assert "Traceback" not in broker.output(GATEWAY)


@pytest.fixture
def mqadmin(broker, address):
    def ask(text: str) -> str:
        """`text`: the command and its options."""
        command, *options = text.split()
        for _ in range(ATTEMPTS):
            done = play("mqadmin", command, "-n", address, *options)
            said = done.stdout + done.stderr
            if not any(one in said for one in GIVEN_UP):
                break
        return said

    return ask


@pytest.fixture
def direct(broker):
    with connect(broker.root) as direct:
        yield direct


def rows(output: str) -> list[list[str]]:
    """Of a table below its head."""
    lines = [line.split() for line in output.splitlines()]
    head = next(number for number, line in enumerate(lines) if line[:1] and line[0][0] == "#")
    return [line for line in lines[head + 1 :] if line]


# --- mqadmin-cluster ---


def test_the_cluster_has_a_row_for_the_broker(mqadmin, direct, address):
    name = direct.log_state().broker_name
    (row,) = rows(mqadmin("clusterList"))
    assert row[:5] == ["DefaultCluster", name, "0", address, "V5_3_3"] and row[-1] == "true"
    (row,) = rows(mqadmin("clusterList -m"))
    assert row[:2] == ["DefaultCluster", name] and len(row) == 6
    status = mqadmin(f"brokerStatus -b {address}")
    assert "brokerVersionDesc               : V5_3_3" in status
    lines = mqadmin(f"getBrokerConfig -b {address}").splitlines()
    assert ["brokerName", "=", name] in [line.split() for line in lines]


def test_a_broker_is_closed_and_opened_and_its_replication_is_shown(mqadmin, direct, address):
    name = direct.log_state().broker_name
    mqadmin("updateTopic -c DefaultCluster -t closing -r 1 -w 1")
    assert f"broker[{name}] in name server[{address}] OK, " in mqadmin(f"wipeWritePerm -b {name}")
    assert '"perm":4' in mqadmin("topicRoute -t closing")
    assert f"broker[{name}] in name server[{address}] OK, " in mqadmin(f"addWritePerm -b {name}")
    assert '"perm":6' in mqadmin("topicRoute -t closing")
    assert "#MasterCommitLogMaxOffset" in mqadmin(f"haStatus -b {address}").replace(" ", "")
    assert "listenPort" in mqadmin("getNamesrvConfig")
    assert "settings are read at the start" in mqadmin(f"updateBrokerConfig -b {address} -k a -v b")


def test_what_all_groups_and_producers_do_is_shown(mqadmin, direct, address):
    mqadmin("updateTopic -c DefaultCluster -t shown -r 1 -w 1")
    direct.commit_offsets("watched", {("shown", 0): 0})
    assert "watched" in mqadmin(f"brokerConsumeStats -b {address}")
    assert ["shown", "watched"] in [one[:2] for one in rows(mqadmin("statsAll -t shown"))]
    assert "CODE" not in mqadmin(f"producer -b {address}")


# --- mqadmin-topic ---


def test_topics_are_made_changed_and_deleted(mqadmin, direct, address):
    assert "success" in mqadmin("updateTopic -c DefaultCluster -t orders -r 4 -w 4 -o true")
    assert "success" in mqadmin(f"updateTopic -b {address} -t plain -a +message.type=FIFO")
    name = direct.log_state().broker_name
    assert f'"brokerName":"{name}"' in mqadmin("topicRoute -t orders")
    assert {"orders", "plain"} <= set(mqadmin("topicList").split())
    assert ["DefaultCluster", "orders"] in rows(mqadmin("topicList -c"))
    assert mqadmin("topicClusterList -t orders").split() == ["DefaultCluster"]
    assert f"orderConf=[{name}:4]" in mqadmin("updateOrderConf -t orders -m get")
    assert "success" in mqadmin("updateOrderConf -t orders -m delete")
    assert not direct.topics("orders")[0].ordered
    assert "SEND_OK" in mqadmin("sendMessage -t orders -p hello -k k1 -c tagA")
    stats = [one[:4] for one in rows(mqadmin("topicStatus -t orders"))[:4]]
    assert [one[:3] for one in stats] == [[name, str(queue), "0"] for queue in range(4)]
    assert sorted(one[3] for one in stats) == ["0", "0", "0", "1"]
    assert "from 6 to 4" in mqadmin("updateTopicPerm -c DefaultCluster -t plain -p 4")
    assert "No route info of this topic: plain" in mqadmin("sendMessage -t plain -p hello")
    assert "success" in mqadmin("deleteTopic -c DefaultCluster -t plain")
    assert "CODE: 17" in mqadmin("topicRoute -t plain")


# --- mqadmin-message ---


def test_messages_are_found_by_everything_that_names_them(mqadmin, direct):
    mqadmin("updateTopic -c DefaultCluster -t kept -r 1 -w 1")
    for number in range(3):
        assert "SEND_OK" in mqadmin(f"sendMessage -t kept -p body{number} -k key{number} -c tag")
    first, second, _ = direct.consume("kept")
    key, identity = second.properties["UNIQ_KEY"], second.message_id
    assert f"{second.physical_offset}" in mqadmin(f"queryMsgByUniqueKey -t kept -i {key}")
    assert rows(mqadmin("queryMsgByKey -t kept -k key1")) == [[key, "0", "1"]]
    name = direct.log_state().broker_name
    assert identity in mqadmin(f"queryMsgByOffset -t kept -b {name} -i 0 -o 1")
    assert identity in mqadmin(f"queryMsgById -t kept -i {identity}")
    for command in ("printMsg -t kept", "consumeMessage -t kept"):
        shown = mqadmin(command)
        assert [f"BODY: body{number}" in shown for number in range(3)] == [True] * 3
    entries = mqadmin("queryCq -t kept -q 0 -i 0 -c 3")
    assert f"physicOffset={first.physical_offset}, physicSize={first.size}" in entries
    assert "max: 3, min: 0" in entries


# --- mqadmin-group ---


def test_groups_are_made_shown_and_deleted(mqadmin, direct):
    mqadmin("updateTopic -c DefaultCluster -t read -r 1 -w 1")
    assert "success" in mqadmin("updateSubGroup -c DefaultCluster -g made -r 3")
    assert [one.retries for one in direct.group_settings("made")] == [3]
    assert "retryMaxTimes                           =  3" in mqadmin("getConsumerConfig -g made")
    direct.commit_offsets("made", {("read", 0): 0})
    assert "CODE: 206" in mqadmin("consumerConnection -g made")
    assert "CODE: 1 " in mqadmin("producerConnection -g made -t read")
    assert "success" in mqadmin("deleteSubGroup -c DefaultCluster -g made -r true")
    assert mqadmin("getConsumerConfig -g made").split() == []
    assert direct.committed_offsets("made") == {}


# --- mqadmin-offsets ---


def test_offsets_are_reset_skipped_and_cloned(mqadmin, direct):
    mqadmin("updateTopic -c DefaultCluster -t offsets -r 1 -w 1")
    direct.send("offsets", b"body")  # a tool on a slow machine gives up
    until(lambda: direct.queues("offsets"), "it is dispatched")
    name, queue = direct.log_state().broker_name, ("offsets", 0)

    def progress(group: str) -> list[str]:
        return rows(mqadmin(f"consumerProgress -g {group}"))[0][:6]

    assert [name, "0", "1"] in rows(mqadmin("skipAccumulatedMessage -g source -t offsets"))
    assert direct.committed_offsets("source") == {queue: 1}
    assert progress("source") == ["offsets", name, "0", "1", "1", "0"]
    assert [name, "0", "0"] in rows(mqadmin("resetOffsetByTime -g source -t offsets -s 0"))
    assert direct.committed_offsets("source") == {queue: 0}
    assert progress("source") == ["offsets", name, "0", "1", "0", "1"]
    assert "success" in mqadmin("cloneGroupOffset -s source -d target -t offsets")
    assert direct.committed_offsets("target") == {queue: 0}


def test_a_live_consumer_is_shown_asked_and_told(mqadmin, direct, address, tmp_path):
    build(VERSIONS[-1])
    mqadmin("updateTopic -c DefaultCluster -t heard -r 1 -w 1")
    mqadmin("sendMessage -t heard -p body")
    (message,) = direct.consume("heard")
    heard = tmp_path / "heard"

    def hears(times: int) -> None:
        until(lambda: heard.read_text().split("\n") == ["body"] * times + [""], f"{times} times")

    with heard.open("wb") as output:
        given = {**os.environ, "CLIENT": VERSIONS[-1]}
        listening = subprocess.Popen(
            [JAVA / "run", address, "listen"], env=given, stdin=subprocess.PIPE, stdout=output
        )
    with listening:
        try:
            hears(1)
            shown = mqadmin("consumerConnection -g listeners").split()
            client_id = shown[shown.index("#Version") + 1]
            assert "@" in client_id
            assert client_id in mqadmin("consumerStatus -g listeners")
            options = f"-i {message.message_id} -g listeners -d {client_id}"
            assert "CR_SUCCESS" in mqadmin(f"queryMsgById -t heard {options}")
            hears(2)
            mqadmin("resetOffsetByTime -g listeners -t heard -s 0")
            hears(3)
        finally:
            listening.stdin.close()
    assert listening.returncode == 0
