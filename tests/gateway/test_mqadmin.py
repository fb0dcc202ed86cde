"""RocketMQ's mqadmin 5.3.3, unchanged, with a gateway as name server and broker: the rows of
spec/remoting-acceptance.md. It exits with 0 whatever happens: its output is judged."""

import pytest
from stratamq_bench.ports import free_port

from stratamq.client import connect
from tests.gateway.test_java_clients import ROOMS, build, play
from tests.support.brokers import GATEWAY, Broker

pytestmark = pytest.mark.java


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
        done = play("mqadmin", command, "-n", address, *options)
        return done.stdout + done.stderr

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
