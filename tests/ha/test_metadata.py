"""What is in no message reaches the slave: topics, consumer offsets, next offsets of queues
whose messages the master has deleted. Real processes."""

import asyncio
import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from stratamq_ha.metadata import asking

from stratamq.api.v1 import commitlog_pb2 as log_pb
from stratamq.client import Topic, connect
from stratamq.errors import NotWritableError, StrataError, UnavailableError
from stratamq.formats.log_state import Role
from stratamq.formats.replication_fields import LENGTH
from stratamq.formats.replication_metadata import (
    METADATA_MARK,
    NO_MARK,
    MetadataKind,
    MetadataRequest,
    News,
    encode_ask,
)
from stratamq.rpc import discovery
from tests.ha.pairs import SEGMENT, Pair, ha_status, known_status, until
from tests.support.brokers import COMMITLOG, DISPATCHER, Broker
from tests.support.waiting import until_dispatched

QUICKLY = ["ha.metadata_interval_ms=50", "commitlog.page_entries=2", "dispatcher.page_entries=2"]
"""Tables of more than two entries go in pages everywhere."""


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    with Pair(tmp_path, rooms=[DISPATCHER], both=QUICKLY) as pair:
        pair.start_master()
        yield pair


def topics(broker: Broker) -> dict[str, Topic]:
    with connect(broker.root) as client:
        return {one.name: one for one in client.topics()}


def offsets(broker: Broker) -> dict[tuple[str, int], int]:
    with connect(broker.root) as client:
        try:
            return client.committed_offsets("billing")
        except StrataError:
            return {}  # a log or dispatcher that is on its way


def fill(broker: Broker, topic: str, queue_id: int, count: int) -> None:
    """Messages that a group can have read: the dispatcher has them."""
    with connect(broker.root) as client:
        for _ in range(count):
            last = client.send(topic, b"x", queue_id=queue_id).physical_offset
        until_dispatched(client, last + 1)


def table(broker: Broker) -> dict[tuple[str, int], int]:
    request, found = log_pb.GetQueueTableRequest(), {}
    while True:
        page = broker.log.GetQueueTable(request)
        found |= {(one.topic, one.queue_id): one.next_queue_offset for one in page.queues}
        if not page.next_position:
            return found
        request.position = page.next_position


def test_topics_and_consumer_offsets_reach_the_slave_and_so_do_changes(pair: Pair):
    pair.start_slave()
    fill(pair.master, "t1", 0, 5)
    with connect(pair.master.root) as client:
        client.admin.put_topic(Topic("idle", read_queue_count=7, write_queue_count=3, permission=4))
        client.commit_offsets("billing", {("t1", 0): 5, ("idle", 6): 0})
    until(lambda: topics(pair.slave).get("idle") == topics(pair.master)["idle"], "the topic")
    until(lambda: offsets(pair.slave) == {("t1", 0): 5, ("idle", 6): 0}, "the offsets")
    with connect(pair.master.root) as client:
        client.admin.put_topic(Topic("idle", read_queue_count=9, write_queue_count=9, permission=6))
        client.commit_offsets("billing", {("t1", 0): 3})
    until(lambda: topics(pair.slave)["idle"].write_queue_count == 9, "the changed topic")
    until(lambda: offsets(pair.slave)["t1", 0] == 3, "the changed offset")
    assert ha_status(pair.slave).following.metadata_problem == ""


def test_they_outlive_the_master(pair: Pair):
    pair.start_slave()
    fill(pair.master, "t1", 1, 8)
    with connect(pair.master.root) as client:
        client.admin.put_topic(Topic("idle", read_queue_count=7, write_queue_count=3, permission=6))
        client.commit_offsets("billing", {("t1", 1): 8})
    until(lambda: offsets(pair.slave) == {("t1", 1): 8} and "idle" in topics(pair.slave), "both")
    pair.caught_up()
    pair.master.stop()
    pair.slave.stop()
    pair.slave.start(pair.rooms)
    assert offsets(pair.slave) == {("t1", 1): 8}
    assert topics(pair.slave)["idle"].read_queue_count == 7
    with connect(pair.slave.root) as client:
        client.admin.promote(force=True)
        result = client.send("idle", b"x", queue_id=2)
        assert (result.queue_offset, result.stored) == (0, True)


def test_purged_messages_stay_hidden_on_a_slave_and_after_its_promotion(pair: Pair):
    fill(pair.master, "t1", 0, 5)
    with connect(pair.master.root) as client:
        client.admin.purge_topic("t1", client.admin.plan_purge("t1", 4))
    pair.start_slave()

    def begins_at() -> list[int]:
        with connect(pair.slave.root) as client:
            try:
                return [queue.min_offset for queue in client.queues("t1")]
            except StrataError:
                return []  # a log or dispatcher that is on its way

    until(lambda: begins_at() == [4], "the minimum offset on the slave")
    pair.master.stop()
    with connect(pair.slave.root) as client:
        client.admin.promote(force=True)
        assert client.send("t1", b"new", queue_id=0).queue_offset == 5
    with connect(pair.slave.root, retry_timeout_s=60) as client:
        assert [message.body for message in client.consume("t1")] == [b"x", b"new"]


def test_a_slave_takes_no_commits_and_names_its_master_until_it_is_promoted(pair: Pair):
    pair.start_slave()
    fill(pair.master, "t1", 0, 5)
    pair.caught_up()
    log_address = discovery.read(pair.master.root, COMMITLOG).address
    with connect(pair.slave.root) as client:
        # The slave's log learns of the address with its first metadata.
        until(lambda: log_address in client.log_state().not_writable_reason, "the address")
        with pytest.raises(NotWritableError, match=f"commit at its master; .* at {log_address}"):
            client.commit_offsets("billing", {("t1", 0): 1})
        with client.producer() as producer:
            refused = producer.send("t1", b"x", queue_id=0)
            for ask in (
                lambda: client.commit_offsets("billing", {("t1", 0): 1}),
                lambda: client.send("t1", b"x"),
                lambda: client.admin.put_topic(Topic("t9", 1, 1)),
                refused.result,
            ):
                with pytest.raises(NotWritableError) as refusal:
                    ask()
                assert (refusal.value.reason, refusal.value.master) == ("role", log_address)
        assert client.committed_offsets("billing") == {}
        pair.master.stop()
        client.admin.promote(force=True)
        until(lambda: client.log_state().role is not Role.SLAVE, "the promotion")

        def commits() -> bool:
            with contextlib.suppress(UnavailableError):
                client.commit_offsets("billing", {("t1", 0): 1})
                return True
            return False

        until(commits, "the dispatcher to hear of it")
        assert client.committed_offsets("billing") == {("t1", 0): 1}


def test_tables_of_many_pages_reach_the_slave_and_so_does_one_change(pair: Pair):
    with connect(pair.master.root) as client:
        for number in range(9):
            client.admin.put_topic(Topic(f"idle-{number}", 3, 3))
        wanted = {(f"idle-{number}", queue): number for number in range(9) for queue in range(3)}
        for (topic, queue_id), count in wanted.items():
            if count:
                fill(pair.master, topic, queue_id, count)
        client.commit_offsets("billing", wanted)
        for number in range(7):
            client.send("busy", b"x", queue_id=number % 4)
        pair.start_slave()
        until(lambda: offsets(pair.slave) == wanted, "the offsets")
        until(lambda: {f"idle-{number}" for number in range(9)} < set(topics(pair.slave)), "topics")
        until(lambda: table(pair.slave) == table(pair.master), "the queue table")
        client.admin.put_topic(Topic("idle-4", 5, 5))
        client.commit_offsets("billing", {("idle-7", 1): 3})
        until(lambda: topics(pair.slave)["idle-4"].read_queue_count == 5, "the changed topic")
        until(lambda: offsets(pair.slave) == wanted | {("idle-7", 1): 3}, "the changed offset")


def with_gone_messages(pair: Pair) -> tuple[int, dict[tuple[str, int], int]]:
    """A master that has deleted every message of one queue: its minimum and its queue table."""
    with connect(pair.master.root) as client:
        for _ in range(5):
            client.send("gone", b"x", queue_id=3)
    pair.send(300)
    # A snapshot at the end: what is below may go.
    pair.master.terminate(COMMITLOG)
    pair.master.start([COMMITLOG])
    pair.delete_below(2 * SEGMENT)
    return 2 * SEGMENT, table(pair.master)


def test_a_queue_whose_messages_are_gone_continues_at_its_offset_on_the_slave(pair: Pair):
    minimum, known = with_gone_messages(pair)
    assert known["gone", 3] == 5
    pair.start_slave()
    until(lambda: table(pair.slave) == known, "the slave to know every queue")
    with connect(pair.master.root) as client:
        assert client.send("gone", b"y", queue_id=3).queue_offset == 5
    pair.caught_up()
    assert table(pair.slave)["gone", 3] == 6
    with connect(pair.slave.root) as slave:
        until(lambda: [m.body for m in slave.consume("gone")] == [b"y"], "the slave's consumers")
    pair.assert_equal_from(minimum)


def test_what_a_slave_learned_of_such_a_queue_survives_its_restart_and_a_promotion(pair: Pair):
    _, known = with_gone_messages(pair)
    pair.start_slave()
    until(lambda: table(pair.slave) == known, "the slave to know every queue")
    pair.caught_up()
    pair.master.stop()
    pair.slave.stop()
    pair.slave.start(pair.rooms)
    assert table(pair.slave) == known
    with connect(pair.slave.root) as client:
        client.admin.promote(force=True)
        assert client.send("gone", b"y", queue_id=3).queue_offset == 5


def test_under_load_the_queue_table_is_taken_all_the_same(pair: Pair):
    """It is always behind the log's end: the slave keeps it until its own log has come so far."""
    _, known = with_gone_messages(pair)
    pair.start_slave()
    while ("gone", 3) not in table(pair.slave):
        pair.send(50)
    assert table(pair.slave)["gone", 3] == known["gone", 3]


def test_a_dispatcher_that_is_away_is_named_and_asked_again(pair: Pair):
    pair.start_slave()
    fill(pair.master, "t1", 0, 5)
    pair.master.terminate(DISPATCHER)
    until(
        lambda: "CONSUMER_OFFSETS" in ha_status(pair.slave).following.metadata_problem,
        "the slave reports what it does not get",
    )
    pair.master.start([DISPATCHER])
    with connect(pair.master.root) as client:
        client.commit_offsets("billing", {("t1", 0): 5})
    until(lambda: offsets(pair.slave) == {("t1", 0): 5}, "the offsets")
    until(lambda: not ha_status(pair.slave).following.metadata_problem, "no problem")


def fetched(broker: str, address: str) -> News:
    async def fetch() -> News:
        async with asking(address) as master:
            return await master.ask(MetadataRequest(broker, dict.fromkeys(MetadataKind, NO_MARK)))

    return asyncio.run(fetch())


def test_a_master_gives_documents_to_its_own_broker_only(pair: Pair):
    pair.send(5)
    address = pair.replication_address()
    until(lambda: set(fetched("broker-a", address).pages) == set(MetadataKind), "its owners answer")
    foreign = fetched("broker-b", address)
    assert (dict(foreign.pages), foreign.sentence) == ({}, "this is no master of broker-b")


def test_a_slave_gives_none(pair: Pair):
    pair.start_slave()
    pair.send(5)
    pair.caught_up()
    assert fetched("broker-a", pair.listening(pair.slave)).pages == {}


@pytest.mark.parametrize(
    "malformed",
    [
        LENGTH.pack(0xFFFF_FFFF),
        LENGTH.pack(0),
        LENGTH.pack(3) + b"\1\0\0",
        LENGTH.pack(3) + b"\2\xff\0",
        encode_ask(MetadataRequest("broker-a", {9: NO_MARK}))[:-1],
    ],
    ids=["endless", "empty", "another version", "cut short inside", "cut short"],
)
def test_a_connection_with_a_malformed_request_is_closed_and_no_other_is(
    pair: Pair, malformed: bytes
):
    address = pair.replication_address()
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=60) as asker:
        asker.sendall(METADATA_MARK + malformed)
        asker.shutdown(socket.SHUT_WR)
        answered = b"".join(iter(lambda: asker.recv(65536), b""))
    assert answered == METADATA_MARK
    until(lambda: set(fetched("broker-a", address).pages) == set(MetadataKind), "its owners answer")


def test_a_master_that_answers_nonsense_is_named_and_asked_again(tmp_path: Path):
    """The log is followed all the same: only the documents' connections are spoiled."""
    with Pair(tmp_path, rooms=[DISPATCHER], both=QUICKLY) as pair:
        pair.start_master()
        with Spoiler(pair.replication_address()) as spoiler:
            assert pair.wire is not None
            pair.wire.lead_to(spoiler.address)
            pair.start_slave()

            def reported() -> bool:
                # None again for a moment: the log takes over its master's generation.
                status = known_status(pair.slave)
                return status is not None and "makes no sense" in status.following.metadata_problem

            until(reported, "the slave reports the malformed answer")
            pair.send(5)
            pair.caught_up()
            spoiler.honest.set()
            until(lambda: not ha_status(pair.slave).following.metadata_problem, "no problem")
        until(lambda: "t1" in topics(pair.slave), "the topics")


class Spoiler:
    """In front of a replication port: requests for documents are answered with invalid bytes."""

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.honest = threading.Event()

    def __enter__(self) -> "Spoiler":
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(near,), daemon=True).start()

    def _serve(self, near: socket.socket) -> None:
        with near, contextlib.suppress(OSError):
            first = near.recv(4, socket.MSG_WAITALL)
            if first == METADATA_MARK and not self.honest.is_set():
                near.sendall(METADATA_MARK + LENGTH.pack(4) + b"\2abc")
                while near.recv(65536):
                    continue
                return
            with socket.create_connection(self._target) as far:
                far.sendall(first)
                back = threading.Thread(target=_pump, args=(far, near), daemon=True)
                back.start()
                _pump(near, far)
                back.join()


def _pump(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)
