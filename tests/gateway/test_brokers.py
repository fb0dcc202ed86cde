"""Gateways of several brokers: routes name all masters, and follow them."""

import asyncio
import os
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import grpc
import pytest
from stratamq_bench.ports import free_port
from stratamq_gateway.brokers import LOST_MS, BrokerName, Brokers
from stratamq_gateway.config import GatewayConfig
from stratamq_gateway.messaging.recalling import decode_handle

from stratamq.api.rocketmq import messaging_pb2 as pb
from stratamq.client import Topic, connect
from stratamq.errors import UnavailableError
from stratamq.files.simulated_time import SimulatedClock
from stratamq.formats.topic_types import MessageType
from tests.gateway.messaging import Client, code, later
from tests.gateway.remoting import Remoting, Reply, beat, pull, send
from tests.gateway.test_java_clients import JAVA, VERSIONS, build
from tests.ha import brokers_of_one_name
from tests.support.brokers import COMMITLOG, DELIVERY, DISPATCHER, GATEWAY, Broker
from tests.support.waiting import until

OK, SERVICE_NOT_AVAILABLE, TOPIC_NOT_EXIST = 0, 14, 17
ROOMS = [DISPATCHER, DELIVERY, GATEWAY]


def settings(*logs: str) -> list[str]:
    ports = ["gateway.remoting_address=127.0.0.1:0", "gateway.grpc_address=127.0.0.1:0"]
    return [*ports, f"gateway.brokers={','.join(logs)}"]


def gateway(broker: Broker) -> str:
    with connect(broker.root, retry_timeout_s=60) as client:
        return client.admin.gateway_state().remoting_address


def grpc_gateway(broker: Broker) -> str:
    with connect(broker.root, retry_timeout_s=60) as client:
        return client.admin.gateway_state().grpc_address


@contextmanager
def pair(directory: Path, *further: str) -> Iterator[brokers_of_one_name.Brokers]:
    """The master `a` and its slave `b`, each with a gateway that knows both. `further`: settings of
    both."""
    logs = {name: f"127.0.0.1:{free_port()}" for name in "ab"}
    given = [
        *settings(*(one.replace("127.0.0.1", "localhost") for one in logs.values())),
        "commitlog.followers=dispatcher,delivery",
        "commitlog.broker_name=shop",
        *further,
    ]
    own = {name: [f"commitlog.address={at}"] for name, at in logs.items()}
    with brokers_of_one_name.Brokers(directory, *"ab", rooms=ROOMS, settings=given, of=own) as two:
        two.start("a", "b")
        two.serving("a")
        two.follows("b", "a")
        yield two
        for name in "ab":
            assert "Traceback" not in two[name].output(GATEWAY)


def switch(two: brokers_of_one_name.Brokers) -> None:
    """`a` steps down for `b`."""
    two.demote("a", "b")
    two.promote("b")


def addresses(client: Remoting, topic: str) -> dict[str, dict[str, str]]:
    """Of each broker in the route."""
    route = client.ask(105, topic=topic)
    found = route.document["brokerDatas"] if route.code == OK else []
    return {one["brokerName"]: one["brokerAddrs"] for one in found}


def test_a_master_that_steps_down_leaves_the_route_for_its_successor(tmp_path):
    with pair(tmp_path) as two:
        a, b = gateway(two["a"]), gateway(two["b"])
        with Remoting(a) as first, Remoting(b) as second:
            assert send(first, "orders", b"1").code == OK
            for one in (first, second):
                until(lambda one=one: addresses(one, "orders") == {"shop": {"0": a, "1": b}}, "a")
            assert send(second, "orders", b"x").code == SERVICE_NOT_AVAILABLE
            beat(second, "c", consumer="billing")
            switch(two)
            for one in (first, second):
                until(lambda one=one: addresses(one, "orders") == {"shop": {"0": b, "1": a}}, "b")
            assert send(second, "orders", b"2").code == OK
            assert send(first, "orders", b"x").code == SERVICE_NOT_AVAILABLE
            without_subscription = {"sysFlag": 0, "subscription": ""}
            until(
                lambda: pull(second, "orders", 0, **without_subscription).code == OK,
                "it knew the consumer as a slave",
            )
            two.kill("a")
            until(lambda: addresses(second, "orders") == {"shop": {"0": b}}, "without the slave")


def grpc_route(address: str, topic: str) -> dict[str, tuple[str, int]]:
    """Where a route of the gRPC protocol says that each broker is, and how many queues it has;
    nothing while a receiver is assigned to other places."""
    name = pb.Resource(name=topic)
    used = pb.Endpoints(scheme=pb.DOMAIN_NAME, addresses=[pb.Address(host="door", port=1)])
    with grpc.insecure_channel(address) as channel:
        client = Client(channel)
        route = client.call("QueryRoute", pb.QueryRouteRequest(topic=name, endpoints=used))
        asked = pb.QueryAssignmentRequest(topic=name, group=pb.Resource(name="g"), endpoints=used)
        assigned = [one.message_queue for one in client.call("QueryAssignment", asked).assignments]
    found = Counter((one.broker.name, place(one.broker)) for one in route.message_queues)
    if sorted((one.broker.name, place(one.broker)) for one in assigned) != sorted(found):
        return {}
    return {name: (at, count) for (name, at), count in found.items()}


def place(broker: pb.Broker) -> str:
    (address,) = broker.endpoints.addresses
    return f"{address.host}:{address.port}"


def test_a_route_of_the_grpc_protocol_names_the_master_of_the_moment(tmp_path):
    with pair(tmp_path) as two:
        a, b = grpc_gateway(two["a"]), grpc_gateway(two["b"])
        with connect(two["a"].root) as client:
            client.admin.create_topic(Topic("routed", 2, 2))
            client.send("routed", b"x")
        for one in (a, b):
            until(lambda one=one: grpc_route(one, "routed") == {"shop": (a, 2)}, "a leads")
        with connect(two["b"].root) as client:
            until(lambda: client.log_state().appended_offset, "b has the message")
            queues = [Topic("routed", 2, 2)]
            until(lambda: client.topics("routed") == queues, "b has the topic's settings")
        switch(two)
        for one in (a, b):
            until(lambda one=one: grpc_route(one, "routed") == {"shop": (b, 2)}, "b leads")


@pytest.mark.parametrize("protocol", ["remoting", "grpc"])
def test_routes_of_several_brokers_need_an_address_that_clients_reach(protocol):
    every, brokers = {f"{protocol}_address": "0.0.0.0:9999"}, ("a:10911",)
    (fault,) = GatewayConfig(root="x", brokers=brokers, **every).faults()
    assert fault.startswith(f"{protocol}_advertised: routes of several brokers need it")
    told = {f"{protocol}_advertised": "here:9999"}
    assert not [*GatewayConfig(root="x", brokers=brokers, **every, **told).faults()]
    assert not [*GatewayConfig(root="x", **every).faults()]


class Member:
    """What a member answers, for `AsyncClient`; None: nothing."""

    def __init__(self, broker: str, is_master: bool, term: int) -> None:
        self.state = SimpleNamespace(broker_name=broker, is_master=is_master, term=term)
        self.at = f"gateway-{broker}-{term}:9876"
        self.admin = self

    async def log_state(self) -> SimpleNamespace:
        if self.state is None:
            raise UnavailableError("it is gone")
        return self.state

    async def gateway_state(self) -> SimpleNamespace:
        return SimpleNamespace(advertised_address=self.at, grpc_advertised_address="")


def test_of_two_masters_the_later_counts_and_one_that_is_silent_is_lost_after_a_while():
    async def play() -> None:
        clock = SimulatedClock()
        old, new = Member("shop", True, 1), Member("shop", True, 2)
        own = BrokerName("DefaultCluster", "shop", "here:9876")
        brokers = Brokers(own, {"old": old, "new": new}, clock)
        with pytest.raises(UnavailableError):
            brokers.now()
        await brokers.look()
        assert [one.addresses for one in brokers.now()] == [(new.at, old.at)]
        new.state = None
        clock.advance_ms(LOST_MS)
        old.state.term = 3
        await brokers.look()
        assert [one.addresses for one in brokers.now()] == [(old.at, new.at)], "it may be slow"
        clock.advance_ms(1)
        await brokers.look()
        assert [one.addresses for one in brokers.now()] == [(old.at,)]
        old.state.is_master = False
        await brokers.look()
        with pytest.raises(UnavailableError):
            brokers.now()

    asyncio.run(play())


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    """Brokers with different names, each with a gateway that knows both."""
    place = tmp_path_factory.mktemp("shards")
    logs = {name: f"127.0.0.1:{free_port()}" for name in ("east", "west")}
    found = {}
    for name, at in logs.items():
        own = [f"commitlog.address={at}", f"commitlog.broker_name={name}"]
        own += ["commitlog.followers=dispatcher,delivery", *settings(*logs.values())]
        found[name] = Broker(place / name, place / f"logs-{name}", own)
    try:
        for broker in found.values():
            broker.start([COMMITLOG, *ROOMS])
        yield found
    finally:
        for broker in found.values():
            broker.__exit__(None, None, None)
    assert all("Traceback" not in one.output(GATEWAY) for one in found.values())


def put(client: Remoting, topic: str, queues: int, order: str = "false") -> Reply:
    asked = {"defaultTopic": "TBW102", "readQueueNums": queues, "writeQueueNums": queues}
    asked |= {"perm": 6, "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": order}
    return client.ask(17, topic=topic, **asked)


def test_routes_and_lists_name_every_broker_that_has_the_topic(shards):
    at = {name: gateway(broker) for name, broker in shards.items()}
    with Remoting(at["east"]) as east, Remoting(at["west"]) as west:
        both = {name: {"0": one} for name, one in at.items()}
        for client in (east, west):
            until(lambda client=client: addresses(client, "TBW102") == both, "they know each other")
        assert put(east, "parted", 2, "true").code == put(west, "parted", 3).code == OK
        assert put(east, "local", 1).code == OK
        for client in (east, west):
            assert addresses(client, "parted") == both
            assert addresses(client, "local") == {"east": {"0": at["east"]}}
            assert addresses(client, "%RETRY%new") == both
            assert client.ask(105, topic="none").code == TOPIC_NOT_EXIST
            queues = client.ask(105, topic="parted").document["queueDatas"]
            assert [(one["brokerName"], one["writeQueueNums"]) for one in queues] == [
                ("east", 2),
                ("west", 3),
            ]
            assert {"parted", "local"} <= set(client.ask(206).document["topicList"])
            info = client.ask(106).body.decode()
            assert f'{{0:"{at["west"]}"}}' in info
            assert '"clusterAddrTable":{"DefaultCluster":["east","west"]}' in info
        key = {"namespace": "ORDER_TOPIC_CONFIG", "key": "parted"}
        assert west.ask(101, **key).fields == {"value": "east:2;west:3"}
        assert west.ask(100, **key, value="east:2;west:3").code == OK
        with connect(shards["west"].root) as direct:
            assert direct.topics("parted")[0].ordered, "the order is that of all brokers"
        assert east.ask(102, **key).code == OK
        with connect(shards["west"].root) as direct:
            assert not direct.topics("parted")[0].ordered


def test_a_route_of_the_grpc_protocol_names_every_broker_that_has_the_topic(shards):
    at = {name: grpc_gateway(broker) for name, broker in shards.items()}
    for queues, broker in enumerate(shards.values(), start=2):
        with connect(broker.root) as client:
            client.admin.create_topic(Topic("spread-out", queues, queues))
    with connect(shards["west"].root) as client:
        client.admin.create_topic(Topic("in-the-west", 1, 1))
    both = {"east": (at["east"], 2), "west": (at["west"], 3)}
    for address in at.values():
        until(lambda address=address: grpc_route(address, "spread-out") == both, "both are named")
        assert grpc_route(address, "in-the-west") == {"west": (at["west"], 1)}
        assert grpc_route(address, "nowhere") == {}


def recall(address: str, handle: str) -> pb.RecallMessageResponse:
    with grpc.insecure_channel(address) as channel:
        return Client(channel).recall(handle)


def delayed(address: str) -> str:
    """The handle of a message that is due in a minute."""
    with grpc.insecure_channel(address) as channel:
        return later(Client(channel), ahead_ms=60_000).recall_handle


def test_any_gateway_recalls_a_message_of_any_broker(shards):
    at = {name: grpc_gateway(broker) for name, broker in shards.items()}
    for broker in shards.values():
        with connect(broker.root) as client:
            client.admin.create_topic(Topic("later", 1, 1, message_type=MessageType.DELAY))
    both = {name: (one, 1) for name, one in at.items()}
    until(lambda: grpc_route(at["east"], "later") == both, "they know each other")
    handle = delayed(at["west"])
    assert code(recall(at["east"], handle)) == "OK"
    twice = recall(at["west"], handle)
    assert code(twice) == "NOT_FOUND" and "cancelled" in twice.status.message
    named = decode_handle(delayed(at["west"]))
    assert named.broker == "west"
    without = named._replace(broker="").encode()
    assert code(recall(at["west"], without)) == "OK", "a handle as older gateways gave it"
    elsewhere = recall(at["west"], named._replace(broker="north").encode())
    assert code(elsewhere) == "INTERNAL_SERVER_ERROR" and "north" in elsewhere.status.message


def test_the_gateway_of_a_slave_recalls_a_message_of_its_master(tmp_path):
    with pair(tmp_path) as two:
        a, b = grpc_gateway(two["a"]), grpc_gateway(two["b"])
        with connect(two["a"].root) as client:
            client.admin.create_topic(Topic("later", 1, 1, message_type=MessageType.DELAY))
        until(lambda: grpc_route(b, "later") == {"shop": (a, 1)}, "b knows its master")
        assert code(recall(b, delayed(a))) == "OK"


def test_a_broker_that_is_gone_leaves_the_route(shards):
    at = {name: gateway(broker) for name, broker in shards.items()}
    with Remoting(at["east"]) as east:
        both = {name: {"0": one} for name, one in at.items()}
        until(lambda: addresses(east, "TBW102") == both, "they know each other")
        shards["west"].kill_all()
        until(lambda: addresses(east, "TBW102") == {"east": {"0": at["east"]}}, "it is lost")


@pytest.mark.java
def test_clients_follow_the_master(tmp_path):
    build(VERSIONS[-1])
    with pair(tmp_path) as two:
        given = {**os.environ, "CLIENT": VERSIONS[-1]}
        both = f"{gateway(two['a'])};{gateway(two['b'])}"
        playing = subprocess.Popen(
            [JAVA / "run", both, "fail-over"], env=given, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        with playing, connect(two["b"].root) as direct:
            assert playing.stdout.readline() == "going\n"
            switch(two)
            at_promotion = direct.log_state().appended_offset
            until(
                lambda: direct.log_state().appended_offset > at_promotion + 2_000,
                "it sends to the new master",
            )
            said, _ = playing.communicate()
            assert said == "fail-over\tok\n"
