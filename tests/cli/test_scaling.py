"""`stratamq cluster add-shard` and `drain-shard`: brokers of another name come and go."""

import json
import signal
import subprocess
import sys
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from stratamq.client import Drain, Message, Topic, connect
from stratamq.errors import NotWritableError
from stratamq.rpc import discovery
from tests.cli.processes import environment, stratamq
from tests.ha.brokers_of_one_name import Brokers
from tests.support.brokers import COMMITLOG, DISPATCHER, Broker
from tests.support.shards import Shards
from tests.support.waiting import until, until_dispatched

DEADLINE_S = 100.0


@pytest.fixture
def shards(tmp_path):
    with Shards(tmp_path) as both:
        yield both


@pytest.fixture
def third(tmp_path):
    """A broker `c` that is part of nothing yet."""
    settings = ["commitlog.broker_name=c", "commitlog.followers=dispatcher"]
    with Broker(tmp_path / "c", tmp_path / "logs-of-c", settings) as broker:
        broker.start([COMMITLOG, DISPATCHER])
        yield broker


def where(broker: Broker) -> str:
    endpoint = discovery.read(broker.root, COMMITLOG)
    assert endpoint is not None
    return endpoint.address


def cluster(address: str, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    return stratamq("cluster", *arguments, "--address", address)


def drain(address: str, *arguments: str) -> tuple[int, list[dict], dict]:
    """The exit code, what is left, and the verdict."""
    done = cluster(address, "drain-shard", *arguments, "--grace", "0", "--output", "json")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert rows, done.stderr.decode()
    verdict = rows.pop()
    assert verdict["kind"] == "drain"
    return done.returncode, rows, verdict


# --- add-shard ---


def test_a_new_shard_has_every_topic_as_it_is_in_the_cluster_and_takes_messages(shards, third):
    with connect(shards.address) as client:
        client.admin.create_topic(Topic("orders", 3, 2))
        client.admin.create_topic(Topic("closed", 1, 1, permission=4, ordered=True))
    for _ in range(2):  # the second time there is nothing to do
        done = cluster(shards.address, "add-shard", where(third))
        assert done.returncode == 0, done.stderr.decode()
        assert b"c is part of the cluster: 2 topics, 3 shards" in done.stdout
    with connect(where(third)) as client:
        assert client.topics() == [
            Topic("closed", 1, 1, permission=4, ordered=True),
            Topic("orders", 3, 2),
        ]
        assert client.admin.drain() is Drain.OPEN
    with connect(f"{shards.address},{where(third)}", retry_timeout_s=DEADLINE_S) as client:
        sent = {client.send("orders", b"x").broker for _ in range(9)}
    assert sent == {"a", "b", "c"}


def test_a_shard_of_a_name_that_there_is_and_one_with_messages_are_refused(shards, third, tmp_path):
    with connect(shards.address) as client:
        client.admin.create_topic(Topic("orders"))
    settings = ["commitlog.broker_name=a", "commitlog.followers=dispatcher"]
    with Broker(tmp_path / "second", tmp_path / "logs-of-second", settings) as second:
        second.start([COMMITLOG, DISPATCHER])
        refused = cluster(shards.address, "add-shard", where(second))
        assert (refused.returncode, b"another commitlog.broker_name" in refused.stderr) == (1, True)
        with connect(where(second)) as client:
            assert client.topics() == []
    with connect(where(third)) as client:
        client.send("another", b"x")
    refused = cluster(shards.address, "add-shard", where(third))
    assert (refused.returncode, b"--with-messages" in refused.stderr) == (1, True)
    with connect(where(third)) as client:
        assert [one.name for one in client.topics()] == ["another"]
    added = cluster(shards.address, "add-shard", where(third), "--with-messages")
    assert added.returncode == 0, added.stderr.decode()
    with connect(where(third)) as client:
        assert [one.name for one in client.topics()] == ["another", "orders"]
    itself = cluster(where(third), "add-shard", where(third))
    assert (itself.returncode, b"name the shards that are there" in itself.stderr) == (1, True)


def killed(address: str, *arguments: str, after: bytes) -> None:
    """A command that is killed once that line is on its standard error."""
    process = subprocess.Popen(
        [sys.executable, "-m", "stratamq.cli", "cluster", *arguments, "--address", address],
        env=environment(),
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
    )
    assert process.stderr is not None
    try:
        for line in process.stderr:
            if after in line:
                break
        else:
            raise AssertionError("it ended before")
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stderr.close()


def test_an_addition_that_was_killed_takes_no_message_before_it_is_given_again(shards, third):
    count = 1_500
    with connect(where(shards["a"])) as client, ThreadPoolExecutor(8) as pool:
        wanted = [Topic(f"t{number:04}", 1, 1) for number in range(count)]
        list(pool.map(client.admin.create_topic, wanted))
    killed(shards.address, "add-shard", where(third), after=b"1000 of 1500 topics")
    with connect(where(third)) as client:
        assert 1_000 <= len(client.topics()) <= count
        if client.admin.drain() is Drain.DRAINED:
            with pytest.raises(NotWritableError, match="drained"):
                client.send("t0000", b"x")
    done = cluster(shards.address, "add-shard", where(third))
    assert done.returncode == 0, done.stderr.decode()
    with connect(where(third)) as client:
        assert client.topics() == wanted
        assert client.send("t0000", b"x").stored


# --- drain-shard ---


def test_a_drained_shard_is_consumed_empty_and_may_go(shards):
    with connect(shards.address, retry_timeout_s=DEADLINE_S) as client:
        client.admin.create_topic(Topic("orders", 2, 2))
        for number in range(20):
            client.send("orders", b"%d" % number)
        with connect(where(shards["a"])) as a:  # the group has read nothing of b
            reader = a.consume("orders", group="billing")
            assert len(list(reader)) == 10
            reader.commit()
        code, left, verdict = drain(shards.address, "b")
        assert (code, verdict["mayGo"]) == (1, False)
        assert left == [
            {"kind": "unread", "broker": "b", "group": "billing", "topic": "orders", "messages": 10}
        ]
        with pytest.raises(NotWritableError, match="drained"), connect(where(shards["b"])) as b:
            b.send("orders", b"x")
        client.admin.create_topic(Topic("later", 1, 1))
        assert [one.broker for one in client.topics("later")] == ["a"]
        with connect(shards.address, retry_timeout_s=DEADLINE_S) as fresh:
            assert {fresh.send("orders", b"y").broker for _ in range(6)} == {"a"}
            assert fresh.send("new", b"y").broker == "a"
            assert fresh.send("orders", b"y", ordering_key="k").broker == "a"
        reader = client.consume("orders", group="billing")
        assert len(list(reader)) == 17
        reader.commit()
        assert drain(shards.address, "b", "--wait")[::2] == (
            0,
            {"kind": "drain", "broker": "b", "mayGo": True, "reasons": [], "lost": []},
        )


def test_a_drain_holds_after_a_restart_and_is_undone_with_the_topics_made_meanwhile(shards):
    with connect(shards.address, retry_timeout_s=DEADLINE_S) as client:
        client.admin.create_topic(Topic("orders", 2, 2))
        client.admin.create_topic(Topic("closed", 1, 1, permission=4))
        assert drain(shards.address, "b")[0] == 0
        client.admin.create_topic(Topic("later", 1, 1))
    shards.kill("b")
    shards.start_again("b")
    with connect(where(shards["b"]), retry_timeout_s=DEADLINE_S) as b:
        with pytest.raises(NotWritableError, match="drained"):
            b.send("orders", b"x")
        shown = stratamq("status", data=shards["b"].root).stdout
        assert b"is being drained, takes no messages" in shown
        done = cluster(shards.address, "drain-shard", "b", "--undo")
        assert (done.returncode, b"takes messages again" in done.stderr) == (0, True)
        assert b.send("orders", b"x").stored
        assert b.topics("later") == [Topic("later", 1, 1)]
        with pytest.raises(NotWritableError, match="no write permission"):
            b.send("closed", b"x")


def test_the_last_shard_that_takes_a_topic_is_not_drained_unless_forced(shards):
    with connect(where(shards["b"])) as b:
        b.admin.create_topic(Topic("alone"))
    refused = cluster(shards.address, "drain-shard", "b", "--grace", "0")
    assert (refused.returncode, b"messages of alone" in refused.stderr) == (1, True)
    with connect(where(shards["b"])) as b:
        assert b.admin.drain() is Drain.OPEN
    assert cluster(shards.address, "drain-shard", "b", "--grace", "0", "--force").returncode == 0
    last = cluster(shards.address, "drain-shard", "a", "--grace", "0")
    assert (last.returncode, b"no other shard than a takes messages" in last.stderr) == (1, True)
    missing = cluster(shards.address, "drain-shard", "z")
    assert (missing.returncode, b"there are a, b" in missing.stderr) == (1, True)


def test_messages_that_no_group_reads_are_named_and_go_only_when_that_is_accepted(shards):
    with connect(shards.address, retry_timeout_s=DEADLINE_S) as client:
        client.admin.create_topic(Topic("orders", 1, 1))
        for _ in range(4):
            client.send("orders", b"x")
    code, left, verdict = drain(shards.address, "b")
    assert code == 1
    assert [(one["group"], one["messages"]) for one in left] == [("", 2)]
    assert verdict["lost"] == ["2 messages of orders, which no group reads"]
    code, _, verdict = drain(shards.address, "b", "--accept-loss")
    assert (code, verdict["mayGo"], len(verdict["lost"])) == (0, True, 1)


def test_a_drain_that_was_killed_while_producers_looked_continues(shards):
    with connect(shards.address) as client:
        client.admin.create_topic(Topic("orders", 1, 1))
    killed(shards.address, "drain-shard", "b", "--grace", "600", after=b"until producers have")
    with connect(where(shards["b"])) as b:
        assert b.admin.drain() is Drain.LEAVING
        assert [one.permission for one in b.topics()] == [4]
        assert b.send("orders", b"x").stored, "who has not looked yet"
    code, left, _ = drain(shards.address, "b")
    assert (code, [one["messages"] for one in left]) == (1, [1])


def test_a_shard_that_dies_while_it_is_drained_may_not_go_until_it_is_back(shards):
    with connect(shards.address, retry_timeout_s=DEADLINE_S) as client:
        client.admin.create_topic(Topic("orders", 1, 1))
        assert client.send("orders", b"x", ordering_key="k").stored
        assert drain(shards.address, "b")[1] is not None
        shards.kill("b")
        refused = cluster(shards.address, "drain-shard", "b", "--grace", "0")
        assert refused.returncode == 1
        shards.start_again("b")
        reader = client.consume("orders", group="g", retry_timeout_s=DEADLINE_S)
        assert len(list(reader)) == 1
        reader.commit()
    until(lambda: drain(shards.address, "b")[0] == 0, "it may go")


def test_a_drain_that_was_lost_with_its_master_is_set_again_while_it_is_waited_for(shards):
    """As by a slave that was promoted before it took the mark over."""
    with (
        connect(shards.address, retry_timeout_s=DEADLINE_S) as client,
        ThreadPoolExecutor(1) as pool,
    ):
        client.admin.create_topic(Topic("orders", 1, 1))
        for _ in range(4):
            client.send("orders", b"x")
        with connect(where(shards["b"]), retry_timeout_s=DEADLINE_S) as b:
            until_dispatched(b)
            b.commit_offsets("billing", {("orders", 0): 0})
            waiting = pool.submit(drain, shards.address, "b", "--wait")
            until(lambda: b.admin.drain() is Drain.DRAINED, "it is drained")
            b.admin.set_drain(Drain.OPEN)
            until(lambda: b.admin.drain() is Drain.DRAINED, "it is drained again")
            assert not waiting.done()
            b.commit_offsets("billing", {("orders", 0): 2})
            code, _, verdict = waiting.result(DEADLINE_S)
    assert (code, verdict["mayGo"]) == (0, True)


def test_a_shard_behind_the_clusters_own_addresses_is_added_and_dead_members_do_not_matter(
    shards, third
):
    with connect(shards.address) as client:
        client.admin.create_topic(Topic("orders", 1, 1))
    everywhere = f"{shards.address},{where(third)},127.0.0.1:1"
    done = cluster(everywhere, "add-shard", where(third))
    assert (done.returncode, b"1 topics, 3 shards" in done.stdout) == (0, True), done.stderr
    assert b"127.0.0.1:1" in done.stderr, "a broker may be left out"
    assert drain(everywhere, "c")[0] == 0


def send_while_open(client, done: threading.Event, stored: Counter[bytes]) -> None:
    """At most a thousand messages a second: how many there are decides nothing."""
    with client.producer() as producer:
        number = 0
        while not done.wait(0.02):
            bodies = [b"%d" % (number + more) for more in range(20)]
            for delivery in [producer.send("orders", body) for body in bodies]:
                assert delivery.result(DEADLINE_S).stored
            stored.update(bodies)
            number += len(bodies)


def read_all(client, done: threading.Event, stored: Counter[bytes], read: Counter[bytes]) -> None:
    options = {"follow": True, "refresh_s": 0.5, "commit_interval_s": 0.2}
    with client.consume("orders", group="billing", **options) as reader:
        while not (done.is_set() and read.total() >= stored.total()):
            message = reader.poll(1.0)
            if message is not None:
                read[message.body] += 1
        reader.commit()


def test_a_producer_and_a_group_continue_while_a_shard_comes_and_another_goes(shards, third):
    """Every message is stored and read once, with nothing but a look every 30 s."""
    everywhere = f"{shards.address},{where(third)}"
    stored: Counter[bytes] = Counter()
    read: Counter[bytes] = Counter()
    sent_all, read_up = threading.Event(), threading.Event()
    with connect(shards.address) as old:
        old.admin.create_topic(Topic("orders", 2, 2))
    with connect(everywhere, retry_timeout_s=DEADLINE_S) as client, ThreadPoolExecutor(2) as pool:
        sending = pool.submit(send_while_open, client, sent_all, stored)
        reading = pool.submit(read_all, client, read_up, stored, read)
        try:
            added = cluster(shards.address, "add-shard", where(third))
            drained = cluster(everywhere, "drain-shard", "b", "--wait")
        finally:
            sent_all.set()
        sending.result(DEADLINE_S)
        read_up.set()
        reading.result(DEADLINE_S)
        brokers = {one.broker for one in client.queues("orders")}
    assert added.returncode == 0, added.stderr.decode()
    assert drained.returncode == 0, drained.stderr.decode()
    assert read == stored
    assert set(stored.values()) == {1}
    assert brokers == {"a", "b", "c"}


def test_a_slave_that_is_promoted_while_its_shard_is_drained_takes_no_messages(shards, tmp_path):
    pair = Brokers(
        tmp_path / "pair", "m", "n", role="SYNC_MASTER", rooms=[DISPATCHER],
        settings=["commitlog.broker_name=pair"],
    )  # fmt: skip
    with pair:
        pair.start("m", "n")
        pair.serving("m")
        pair.counted("m")
        pair.follows("n", "m")
        logs = ",".join(where(pair[name]) for name in ("m", "n"))
        everywhere = f"{shards.address},{logs}"
        with connect(everywhere, retry_timeout_s=DEADLINE_S) as client:
            client.admin.create_topic(Topic("orders", 1, 1))
            assert client.send_all([Message("orders", b"x")] * 3)

        def drained_by_both() -> bool:
            _, _, verdict = drain(everywhere, "pair", "--accept-loss")
            return verdict["mayGo"]

        until(drained_by_both, "the slave has the mark")
        pair.demote("m")
        pair.promote("n")
        refusal = pytest.raises(NotWritableError, match="drained")
        with connect(logs, retry_timeout_s=DEADLINE_S) as chosen, refusal:
            chosen.send("orders", b"x")
        until(drained_by_both, "it may go under its new master, too")
