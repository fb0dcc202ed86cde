"""A host name that stands for several brokers: members of a shard, and several shards."""

import http.server
import socket
import threading
from contextlib import ExitStack
from pathlib import Path

import pytest
from stratamq_bench.ports import free_port

from stratamq.cli.tls import Authority
from stratamq.client import Credentials, TlsFiles, Topic
from stratamq.client._async.brokers import LOOK_AGAIN_NS
from stratamq.errors import StrataError, UnavailableError
from stratamq.files.clock import SystemClock
from stratamq.service.tls import MEMBER
from tests.ha.brokers_of_one_name import Brokers
from tests.support.brokers import COMMITLOG, DISPATCHER, Broker
from tests.support.waiting import until

DEADLINE_S = 100.0
HOSTS = ("127.0.0.2", "127.0.0.3", "127.0.0.4")
HOST = "cluster.test"


class Name:
    """A resolver of a name whose addresses a test changes."""

    def __init__(self, *addresses: str) -> None:
        self.addresses = list(addresses)
        self.asked: list[str] = []

    def __call__(self, host: str, port: int) -> list[str]:
        self.asked.append(host)
        if not self.addresses:
            raise OSError("no such host")
        return list(self.addresses)


class LaterClock(SystemClock):
    """The machine's, and what a test adds."""

    added_ns = 0

    def monotonic_ns(self) -> int:
        return super().monotonic_ns() + self.added_ns


@pytest.fixture
def port() -> int:
    return free_port()


def shard(directory: Path, name: str, host: str, port: int, *settings: str) -> Broker:
    own = [
        f"commitlog.broker_name={name}", "commitlog.followers=dispatcher",
        f"commitlog.address={host}:{port}", f"dispatcher.address={host}:0", *settings,
    ]  # fmt: skip
    return Broker(directory / name, directory / f"logs-of-{name}", own)


@pytest.fixture
def shards(tmp_path, port):
    """`a`, `b` and `c`, which a test starts."""
    with ExitStack() as stack:
        found = [shard(tmp_path, *one, port) for one in zip("abc", HOSTS, strict=True)]
        yield [stack.enter_context(one) for one in found]


def test_a_name_of_several_shards_is_all_of_them(shards, port, opened):
    for one in shards[:2]:
        one.start([COMMITLOG, DISPATCHER])
    name = Name(*HOSTS[:2])
    with opened(f"{HOST}:{port}", retry_timeout_s=DEADLINE_S, resolve=name) as client:
        client.admin.create_topic(Topic("t", 1, 1))
        assert [one.broker for one in client.topics("t")] == ["a", "b"]
        with client.producer() as producer:
            sent = [producer.send("t", b"%d" % number) for number in range(10)]
            assert {one.result(DEADLINE_S).broker for one in sent} == {"a", "b"}
        assert len(list(client.consume("t"))) == 10
    assert name.asked == [HOST], "not for each broker, nor for each message"
    with opened(f"{HOST}:{port}", broker="b", retry_timeout_s=DEADLINE_S, resolve=name) as chosen:
        assert chosen.log_state().broker_name == "b"


def test_a_shard_that_comes_later_is_found_by_a_producer_and_a_reader_that_run(
    shards, port, opened
):
    shards[0].start([COMMITLOG, DISPATCHER])
    name, clock = Name(HOSTS[0], HOSTS[2]), LaterClock()
    with opened(f"{HOST}:{port}", retry_timeout_s=DEADLINE_S, resolve=name, clock=clock) as client:
        client.admin.create_topic(Topic("t", 1, 1))
        options = {"follow": True, "group": "g", "refresh_s": 0.3}
        with client.producer() as producer, client.consume("t", **options) as reader:
            assert producer.send("t", b"0").result(DEADLINE_S).broker == "a"
            assert next(reader).body == b"0"
            shards[1].start([COMMITLOG, DISPATCHER])
            with opened(f"{HOSTS[1]}:{port}", retry_timeout_s=DEADLINE_S) as new:
                new.admin.create_topic(Topic("t", 1, 1))
            name.addresses = list(HOSTS[:2])
            clock.added_ns += LOOK_AGAIN_NS + 1
            brokers: set[str] = set()
            missing: set[bytes] = set()
            numbers = iter(range(1, 1_000_000))

            def both() -> bool:
                body = b"%d" % next(numbers)
                missing.add(body)
                brokers.add(producer.send("t", body).result(DEADLINE_S).broker)
                return brokers == {"a", "b"}

            until(both, "the producer has found the shard")
            while missing:
                missing.discard(next(reader).body)


def test_members_of_a_shard_are_found_and_followed_behind_one_name(tmp_path, port, opened):
    of = {
        name: [f"commitlog.address={host}:{port}"] for name, host in zip("mn", HOSTS, strict=False)
    }
    pair = Brokers(
        tmp_path, "m", "n", role="SYNC_MASTER", rooms=[DISPATCHER],
        settings=["commitlog.broker_name=pair"], of=of,
    )  # fmt: skip
    name = Name(*HOSTS[1:])  # the slave, and one where nothing is: the master is found all the same
    with pair:
        pair.start("m", "n")
        pair.serving("m")
        pair.counted("m")
        pair.follows("n", "m")
        name.addresses = list(HOSTS)
        with opened(f"{HOST}:{port}", retry_timeout_s=DEADLINE_S, resolve=name) as client:
            client.admin.create_topic(Topic("t", 1, 1))
            with client.producer() as producer:
                assert producer.send("t", b"1").result(DEADLINE_S).stored
                pair.demote("m")
                pair.promote("n")
                assert producer.send("t", b"2").result(DEADLINE_S).stored
            assert client.send("t", b"3").stored
            assert client.services()[COMMITLOG] == f"{HOSTS[1]}:{port}"


def test_brokers_whose_addresses_all_change_are_found_by_the_name(tmp_path, shards, port, opened):
    """As pods that were started again have other addresses."""
    shards[0].start([COMMITLOG, DISPATCHER])
    name, clock = Name(HOSTS[0], HOSTS[2]), LaterClock()
    with opened(f"{HOST}:{port}", retry_timeout_s=DEADLINE_S, resolve=name, clock=clock) as client:
        assert client.send("t", b"1").broker == "a"
        shards[0].kill_all()
        clock.added_ns += LOOK_AGAIN_NS // 2  # the name may be resolved again
        settings = (f"commitlog.address={HOSTS[1]}:{port}", f"dispatcher.address={HOSTS[1]}:0")
        with shard(tmp_path, "a", HOSTS[0], port, *settings) as again:
            again.start([COMMITLOG, DISPATCHER])
            name.addresses = list(HOSTS[1:])
            assert client.send("t", b"2").broker == "a"
            assert [one.body for one in client.consume("t", queues=[0, 1, 2, 3])] != []


def test_a_broker_at_two_addresses_of_a_name_counts_once(tmp_path, port, opened):
    """As a host with an IPv4 and an IPv6 address."""
    with shard(tmp_path, "a", "0.0.0.0", port, "access.open_to_others=true") as one:
        one.start([COMMITLOG, DISPATCHER])
        name = Name(*HOSTS[:2])
        with opened(f"{HOST}:{port}", retry_timeout_s=DEADLINE_S, resolve=name) as client:
            client.admin.create_topic(Topic("t", 1, 1))
            assert [one.name for one in client.topics()] == ["t"]
            assert client.send("t", b"x").stored
            assert client.log_state().broker_name == "a"
            assert [one.body for one in client.consume("t")] == [b"x"]


def test_an_address_that_answers_nothing_is_passed_over_within_seconds(shards, port, opened):
    shards[0].start([COMMITLOG, DISPATCHER])
    with socket.socket() as silent:
        silent.bind((HOSTS[1], port))
        silent.listen(8)
        name = Name(*HOSTS)
        with opened(f"{HOST}:{port}", resolve=name) as client:  # nothing is tried again
            assert client.send("t", b"x").broker == "a"


@pytest.mark.parametrize("addresses", [[], ["0.0.0.0"]], ids=["nothing", "no address"])
def test_a_name_that_resolves_to_nothing_is_named_in_the_error(addresses, port, opened):
    with (
        opened(f"no-such-host.invalid:{port}", resolve=Name(*addresses)) as client,
        pytest.raises(UnavailableError, match=r"no-such-host\.invalid"),
    ):
        client.send("t", b"x")


def test_addresses_where_other_programs_listen_are_passed_over(shards, port, opened):
    """As a name that somebody else has taken, in part or as a whole."""
    shards[0].start([COMMITLOG, DISPATCHER])
    server = http.server.ThreadingHTTPServer((HOSTS[1], port), http.server.BaseHTTPRequestHandler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        with opened(f"{HOST}:{port}", resolve=Name(*HOSTS)) as client:
            assert client.send("t", b"x").broker == "a"
        with (
            opened(f"{HOST}:{port}", resolve=Name(*HOSTS[1:])) as client,
            pytest.raises(StrataError, match="no StrataMQ"),
        ):
            client.send("t", b"x")
    finally:
        server.shutdown()
        server.server_close()


def test_a_resolver_that_does_not_return_is_not_waited_for(shards, port, opened):
    shards[0].start([COMMITLOG, DISPATCHER])
    let_go = threading.Event()

    def resolve(host: str, port: int) -> list[str]:
        if host == HOST:
            let_go.wait(DEADLINE_S)
        return [HOSTS[0]]

    try:
        where = f"{HOST}:{port},{HOSTS[0]}:{port}"
        with opened(where, resolve=resolve) as client:
            assert client.send("t", b"x").broker == "a"
    finally:
        let_go.set()


def test_certificates_are_checked_against_the_name_that_was_typed(tmp_path, port, opened):
    authority = Authority(tmp_path / "pki")
    authority.make()
    authority.issue("broker", MEMBER, [HOST], 2)
    pki = tmp_path / "pki"
    tls = (f"tls.ca={pki}/ca.pem", f"tls.certificate={pki}/broker.pem", f"tls.key={pki}/broker.key")
    shown = {"credentials": Credentials(TlsFiles(pki / "ca.pem")), "resolve": Name(*HOSTS[:2])}
    with shard(tmp_path, "a", HOSTS[0], port, *tls) as one:
        one.start([COMMITLOG, DISPATCHER])
        with opened(f"{HOST}:{port}", retry_timeout_s=DEADLINE_S, **shown) as client:
            assert client.send("t", b"x").stored
            assert [one.body for one in client.consume("t")] == [b"x"]
        for other in (f"another.test:{port}", f"{HOSTS[0]}:{port}"):
            with (
                opened(other, **shown) as client,
                pytest.raises(UnavailableError, match=r"is for other hosts|certificate"),
            ):
                client.send("t", b"x")
