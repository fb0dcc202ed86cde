"""Clients of a cluster: they find its master, leave one that is demoted or dead, and read from what
is left."""

import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from stratamq_torture.processes.wire import NOWHERE

from stratamq.client import Role, SendStatus, Topic
from stratamq.errors import NotWritableError, UnavailableError
from stratamq.files.clock import SystemClock, machine_boot
from stratamq.rpc import discovery
from stratamq.rpc.questions import LONGEST_ANSWER_S
from tests.ha.brokers_of_one_name import Brokers
from tests.ha.pairs import log_status
from tests.support.brokers import COMMITLOG, DISPATCHER, HA
from tests.support.freezing import freeze, thaw
from tests.support.waiting import until

DEADLINE_S = 100.0
NO_MASTER_S, FROZEN_S = 5.0, 3.0
"""So long a client waits in vain: longer than a broker of a busy machine is late."""
LEASE_NS = 3_000_000_000_000


def address(brokers: Brokers, name: str, room: str = COMMITLOG) -> str:
    endpoint = discovery.read(brokers[name].root, room)
    assert endpoint is not None
    return endpoint.address


def addresses(brokers: Brokers, *names: str) -> str:
    return ",".join(address(brokers, name) for name in names)


@pytest.fixture
def two(tmp_path) -> Iterator[Brokers]:
    """`a` is the master."""
    with Brokers(tmp_path, "a", "b", role="SYNC_MASTER", rooms=[DISPATCHER]) as brokers:
        brokers.start("a", "b")
        brokers.serving("a")
        brokers.counted("a")
        brokers.follows("b", "a")
        yield brokers


@pytest.fixture
def three(tmp_path) -> Iterator[Brokers]:
    """`a` is the master; one acknowledgement is enough."""
    names = ("a", "b", "c")
    with Brokers(tmp_path, *names, role="SYNC_MASTER", rooms=[DISPATCHER]) as brokers:
        brokers.start(*names)
        brokers.serving("a")
        brokers.counted("a", 2)
        for name in ("b", "c"):
            brokers.follows(name, "a")
        yield brokers


def read(reader, bodies: Iterable[bytes]) -> None:
    """Until the reader has given all of these."""
    missing = set(bodies)
    while missing:
        missing.discard(next(reader).body)


def ends(brokers: Brokers, name: str) -> int:
    return log_status(brokers[name]).appended_offset


def bodies(first: int, count: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


def test_a_demoted_master_is_left_by_everything_that_writes_and_reads(two, opened):
    with (
        ThreadPoolExecutor(1) as threads,
        opened(addresses(two, "b", "a"), retry_timeout_s=DEADLINE_S) as client,
        client.producer(batch_messages=3) as producer,
    ):
        before = [producer.send("t", body, queue_id=0) for body in bodies(0, 20)]
        assert all(one.result(DEADLINE_S).stored for one in before)
        assert client.services()[COMMITLOG] == address(two, "a")
        reader = client.consume(
            "t",
            follow=True,
            group="g",
            refresh_s=0.5,
            retry_timeout_s=DEADLINE_S,
            commit_interval_s=0.1,
        )
        with reader:
            read(reader, bodies(0, 20))
            two.demote("a")
            on_the_way = [producer.send("t", body, queue_id=0) for body in bodies(20, 20)]
            sent = threads.submit(client.send, "t", b"40", queue_id=0)
            two.promote("b")
            assert all(one.result(DEADLINE_S).stored for one in on_the_way)
            assert sent.result(DEADLINE_S).stored
            read(reader, bodies(20, 21))
            reader.commit()
        assert client.services()[COMMITLOG] == address(two, "b")
        offsets = [one.result().queue_offset for one in [*before, *on_the_way]]
        assert sorted([*offsets, sent.result().queue_offset]) == list(range(41)), "each once"
        assert client.committed_offsets("g") == {("t", 0): 41}
        assert client.admin.put_topic(Topic("u", 2, 2)).name == "u"


def test_a_dead_master_is_left_for_the_one_that_was_promoted(three, opened):
    with (
        opened(addresses(three, "a", "b", "c"), retry_timeout_s=DEADLINE_S) as client,
        client.producer(retry_delay_ms=50, batch_messages=3) as producer,
        client.consume("t", follow=True, refresh_s=0.5, retry_timeout_s=DEADLINE_S) as reader,
    ):
        assert client.send("t", b"0", queue_id=0).stored
        first = [producer.send("t", body, queue_id=0) for body in bodies(1, 20)]
        read(reader, bodies(0, 21))
        running = [producer.send("t", body, queue_id=0) for body in bodies(21, 20)]
        three.kill("a")
        running += [producer.send("t", body, queue_id=0) for body in bodies(41, 20)]
        for name in ("b", "c"):  # until then more may be on its way to its log
            until(
                lambda name=name: not three.status_of(name).following.connected,
                f"{name} has what came from its master",
            )
        # The one that has more: the other's promotion is refused.
        master, other = ("b", "c") if ends(three, "b") >= ends(three, "c") else ("c", "b")
        three.promote(master)
        three.follows(other, master)
        results = [one.result(DEADLINE_S) for one in [*first, *running]]
        assert all(one.stored for one in results)
        assert len({one.queue_offset for one in results}) == 60, "each once"
        # Its connection is refused, so that nothing was sent there.
        assert client.send("t", b"61", queue_id=0).stored
        client.commit_offsets("g", {("t", 0): 1})
        read(reader, bodies(21, 41))
        assert client.services()[COMMITLOG] == address(three, master)


def test_a_master_that_is_cut_off_from_all_but_its_clients_is_left(tmp_path, opened):
    """It stores what they send, and cannot hear that another one was promoted."""
    names = ("a", "b", "c")
    soon = ["commitlog.slave_timeout_ms=1000", "commitlog.sync_flush_timeout_ms=1000"]
    with Brokers(tmp_path, *names, role="SYNC_MASTER", settings=soon) as brokers:
        brokers.start(*names)
        brokers.serving("a")
        brokers.counted("a", 2)
        with opened(addresses(brokers, *names)) as client:
            client.send("t", b"shipped", queue_id=0)
            until(lambda: ends(brokers, "b") == ends(brokers, "a"), "b has it")
            freeze(brokers["a"].pid(HA))
            alone = client.send("t", b"alone", queue_id=0).status
            assert alone in (SendStatus.FLUSH_SLAVE_TIMEOUT, SendStatus.SLAVE_NOT_AVAILABLE)
            brokers.promote("b")
            until(lambda: client.send("t", b"x").status is SendStatus.PUT_OK, "b acknowledges")
            assert client.services()[COMMITLOG] == address(brokers, "b")
        thaw(brokers["a"].pid(HA))


def test_what_is_stored_can_be_read_while_there_is_no_master(two, opened):
    with opened(addresses(two, "a", "b"), retry_timeout_s=DEADLINE_S) as client:
        assert all(client.send("t", body, queue_id=0).stored for body in bodies(0, 10))
        two.shows("b", bodies(0, 10))
        with client.consume("t", follow=True, refresh_s=0.5, retry_timeout_s=DEADLINE_S) as reader:
            read(reader, bodies(0, 5))
            two.kill("a")
            read(reader, bodies(5, 5))
        assert {message.body for message in client.consume("t")} == set(bodies(0, 10))
        assert client.log_state().role is Role.SLAVE
    with opened(addresses(two, "b") + ",127.0.0.1:1", timeout_s=NO_MASTER_S) as client:
        with pytest.raises(NotWritableError):
            client.send("t", b"x", queue_id=0)
        with client.producer(delivery_timeout_s=1) as producer:
            refused = producer.send("t", b"x", queue_id=0)
            with pytest.raises(NotWritableError):
                refused.result(DEADLINE_S)


def test_the_address_of_a_slave_leads_to_its_master(two, opened):
    where = address(two, "a")
    with opened(two["b"].root) as named:  # a directory is this broker and no other
        until(lambda: where in named.log_state().not_writable_reason, "it knows its master")
        with pytest.raises(NotWritableError) as refused:
            named.send("t", b"x", queue_id=0)
        assert refused.value.master == refused.value.fields["master"] == where
        assert named.log_state().role is Role.SLAVE
    for ask in (
        lambda client: client.send("t", b"x", queue_id=0),
        lambda client: client.admin.put_topic(Topic("u", 1, 1)),
        lambda client: client.commit_offsets("g", {("t", 0): 0}),
    ):
        with opened(address(two, "b"), retry_timeout_s=DEADLINE_S) as client:
            assert client.log_state().role is Role.SLAVE, "reading is no reason to leave it"
            ask(client)
            assert client.log_state().role is Role.SYNC_MASTER
    with (
        opened(address(two, "b"), retry_timeout_s=DEADLINE_S) as client,
        client.producer() as producer,
    ):
        assert producer.send("t", b"y", queue_id=0).result(DEADLINE_S).stored


def test_what_was_perhaps_stored_is_not_sent_again(two, opened):
    """A frozen master may have it: only what was never sent, or was refused, goes elsewhere."""
    with opened(addresses(two, "a", "b"), timeout_s=FROZEN_S) as client:
        client.services()
        freeze(two["a"].pid(COMMITLOG))
        with pytest.raises(UnavailableError):
            client.send("t", b"x", queue_id=0)
        thaw(two["a"].pid(COMMITLOG))

        def is_back() -> bool:
            try:
                return client.send("t", b"end", queue_id=0).stored
            except UnavailableError:
                return False  # it is late on a busy machine

        until(is_back, "it is back")
        stored = [message.body for message in client.consume("t")]
        assert stored.count(b"x") <= 1


def test_a_frozen_member_holds_up_one_search_and_is_followed_when_it_is_back(three, opened):
    clock = SystemClock()

    def search_s() -> float:
        begin_ns = clock.monotonic_ns()
        assert client.services()[COMMITLOG] == address(three, "a")
        return (clock.monotonic_ns() - begin_ns) / 1e9

    with opened(addresses(three, "c", "b", "a"), retry_timeout_s=DEADLINE_S) as client:
        assert client.send("t", b"0", queue_id=0).stored
        freeze(three["c"].pid(COMMITLOG))
        assert min(search_s() for _ in range(5)) < LONGEST_ANSWER_S / 2
        thaw(three["c"].pid(COMMITLOG))
        three.demote("a")
        three.promote("c")
        assert client.send("t", b"1", queue_id=0).stored
        assert client.services()[COMMITLOG] == address(three, "c")


def test_a_stream_that_a_slave_opened_continues_with_the_master_it_becomes(two, opened):
    with opened(two["a"].root) as master:
        assert master.send("t", b"first", queue_id=0).stored
    two.shows("b", [b"first"])
    with opened(two["b"].root, retry_timeout_s=DEADLINE_S) as named, named.producer() as producer:
        with pytest.raises(NotWritableError):
            producer.send("t", b"to a slave", queue_id=0).result(DEADLINE_S)
        two.demote("a")
        two.promote("b")
        assert producer.send("t", b"to a master", queue_id=0).result(DEADLINE_S).stored


def test_a_master_without_a_lease_is_waited_for(tmp_path, opened):
    """It refuses while its agent grants it no time: meanwhile another member may be promoted."""
    with Brokers(tmp_path, "a", "b", settings=["commitlog.lease=true"]) as brokers:
        brokers.start("a", "b")
        until(lambda: log_status(brokers["a"]).not_writable_reason.startswith("no agent"), "a")
        reaching = addresses(brokers, "a", "b")
        with (
            opened(reaching, timeout_s=NO_MASTER_S) as client,
            client.producer(delivery_timeout_s=DEADLINE_S) as producer,
        ):
            streamed = producer.send("t", b"streamed", queue_id=0)
            began = time.monotonic()
            with pytest.raises(NotWritableError):
                client.send("t", b"single", queue_id=0)
            assert time.monotonic() - began >= NO_MASTER_S - 1
            assert not streamed.done
            until_ns = SystemClock().monotonic_ns() + LEASE_NS
            client.admin.grant_lease(0, machine_boot(), until_ns)
            assert streamed.result(DEADLINE_S).stored


def test_a_reader_skips_nothing_that_took_the_place_of_what_was_lost(tmp_path, opened):
    """Under ASYNC_MASTER: what it read last was on the dead master alone."""
    with Brokers(tmp_path, "a", "b", rooms=[DISPATCHER]) as brokers:
        brokers.start("a", "b")
        brokers.serving("a")
        brokers.follows("b", "a")
        with (
            opened(brokers["a"].root, retry_timeout_s=DEADLINE_S) as client,
            client.consume("t", follow=True) as reader,
        ):
            kept = bodies(0, 5)
            for body in kept:
                client.send("t", body, queue_id=0)
            read(reader, kept)
            brokers.shows("b", kept)
            brokers.wires["a"].lead_to(NOWHERE)
            brokers.wires["a"].cut()
            lost = bodies(5, 5)
            for body in lost:
                client.send("t", body, queue_id=0)
            read(reader, lost)
            brokers.kill("a")
            brokers.promote("b")
            after = bodies(10, 10)
            with opened(brokers["b"].root) as other:
                for body in after:
                    other.send("t", body, queue_id=0)
            brokers.start("a")
            brokers.shows("a", after)
            found = [next(reader).body]
            while found[-1] != after[-1]:
                found.append(next(reader).body)
            assert found == after
