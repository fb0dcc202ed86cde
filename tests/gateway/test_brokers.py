"""Gateways of several brokers: routes name all masters, and follow them."""

import asyncio
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from stratamq_bench.ports import free_port
from stratamq_gateway.brokers import LOST_MS, BrokerName, Brokers

from stratamq.client import connect
from stratamq.errors import UnavailableError
from stratamq.files.simulated_time import SimulatedClock
from tests.gateway.remoting import Remoting, Reply, beat, pull, send
from tests.gateway.test_java_clients import JAVA, VERSIONS, build
from tests.ha import brokers_of_one_name
from tests.support.brokers import COMMITLOG, DELIVERY, DISPATCHER, GATEWAY, Broker
from tests.support.waiting import until

OK, SERVICE_NOT_AVAILABLE, TOPIC_NOT_EXIST = 0, 14, 17
ROOMS = [DISPATCHER, DELIVERY, GATEWAY]


def settings(*logs: str) -> list[str]:
    return ["gateway.remoting_address=127.0.0.1:0", f"gateway.brokers={','.join(logs)}"]


def gateway(broker: Broker) -> str:
    with connect(broker.root, retry_timeout_s=60) as client:
        return client.admin.gateway_state().remoting_address


@contextmanager
def pair(directory: Path) -> Iterator[brokers_of_one_name.Brokers]:
    """The master `a` and its slave `b`, each with a gateway that knows both."""
    logs = {name: f"127.0.0.1:{free_port()}" for name in "ab"}
    given = [
        *settings(*(one.replace("127.0.0.1", "localhost") for one in logs.values())),
        "commitlog.followers=dispatcher,delivery",
        "commitlog.broker_name=shop",
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
        return SimpleNamespace(advertised_address=self.at)


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
