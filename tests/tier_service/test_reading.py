"""Consumers read what the log has no more, and notice nothing but time."""

import json
from contextlib import closing
from pathlib import Path

import grpc
import pytest

from stratamq.api.v1 import dispatcher_pb2, tier_pb2
from stratamq.client import Client, Message, connect
from stratamq.client.topic_purge import QueuePurge
from stratamq.client.values import Topic
from stratamq.errors import CorruptionError, NotFoundError, StrataError, UnavailableError
from stratamq.rpc.methods import service_of
from tests.support.brokers import Broker
from tests.support.calls import Stub
from tests.support.freezing import freeze, thaw
from tests.support.waiting import until
from tests.tier_service.test_uploading import Tier, send, settings

ROOMS = ("commitlog", "dispatcher", "tier")
SEGMENT = 1 << 20
COUNT = 4_000
EACH = COUNT // 4


def cold(client: Client, tier: Tier) -> int:
    """Everything into the tier; here all segments but the last are deleted: the log's minimum."""
    until(lambda: sum(end for _, end in tier.messages().values()) == COUNT, "all is in the tier")
    end = client.log_state().appended_offset
    below = end - end % SEGMENT
    until(lambda: client.admin.delete_below(below)[0] == below, "segments go")
    until(lambda: {one.min_offset for one in client.queues("t")} == {0}, "the tier is known")
    return below


@pytest.fixture
def broker(tmp_path):
    given = settings(tmp_path, "commitlog.release_timeout_ms=0")
    with Broker(tmp_path / "store", tmp_path / "logs", given) as broker:
        yield broker.start(ROOMS)


@pytest.fixture
def client(broker):
    with connect(broker.root, retry_timeout_s=60) as client:
        send(client, 0, COUNT, size=1000)
        yield client


@pytest.fixture
def tier(tmp_path):
    return Tier(tmp_path)


def test_a_queue_reads_as_one_over_tier_and_log(client, tier):
    stored = {(one.queue_id, one.queue_offset): one for one in client.consume("t")}
    cold(client, tier)
    read = list(client.consume("t"))
    assert sorted(int(one.body[:8]) for one in read) == list(range(COUNT))
    for queue_id in range(4):
        offsets = [one.queue_offset for one in read if one.queue_id == queue_id]
        assert offsets == list(range(EACH))
    for one in read:
        was = stored[one.queue_id, one.queue_offset]
        assert (one.body, one.keys, one.unique_key) == (was.body, was.keys, was.unique_key)
        assert one.store_timestamp_ms == was.store_timestamp_ms


def test_messages_are_pulled_from_the_tier_as_from_the_log(client, tier):
    cold(client, tier)
    pulled = client.pull("t", 1, 7, max_messages=3)
    assert [int(one.body[:8]) for one in pulled.messages] == [29, 33, 37]
    assert pulled.messages[0].keys == ["k29"]
    assert (pulled.next_offset, pulled.min_offset, pulled.max_offset) == (10, 0, EACH)
    assert client.pull("t", 1, 7, tags=["none"], max_messages=3).messages == []


def test_while_the_tier_is_away_no_message_is_passed_over_and_local_ones_are_read(
    broker, client, tier
):
    cold(client, tier)
    broker.kill("tier")
    with connect(broker.root, retry_timeout_s=0.5) as impatient:
        with pytest.raises(UnavailableError, match="tier"):
            impatient.pull("t", 0, 0)
        assert impatient.pull("t", 0, EACH - 1).messages
    broker.start(["tier"])
    assert sorted(int(one.body[:8]) for one in client.consume("t")) == list(range(COUNT))


def test_a_dispatcher_that_starts_while_the_tier_is_away_passes_no_message_over(
    broker, client, tier
):
    cold(client, tier)
    broker.kill("tier", "dispatcher")
    broker.start(["dispatcher"])
    with connect(broker.root, retry_timeout_s=0.5) as impatient:
        assert {one.min_offset for one in impatient.queues("t")} == {0}
        with pytest.raises(UnavailableError, match="tier"):
            impatient.pull("t", 0, 0)
        with pytest.raises(UnavailableError, match="tier"):
            impatient.offset_at_time("t", 0, 0)
        assert impatient.pull("t", 0, EACH - 1).messages
    broker.start(["tier"])
    assert client.offset_at_time("t", 0, 0) == 0
    assert sorted(int(one.body[:8]) for one in client.consume("t")) == list(range(COUNT))


def test_a_tier_service_that_has_not_met_the_log_is_reported_unavailable(broker, client, tier):
    cold(client, tier)
    broker.kill("tier", "commitlog")
    broker.spawn("tier")
    broker.wait_announced("tier")
    with connect(broker.root, retry_timeout_s=0.5) as impatient:
        for ask in (lambda: impatient.pull("t", 0, 0), lambda: impatient.offset_at_time("t", 0, 0)):
            with pytest.raises(UnavailableError, match="tier"):
                ask()


def test_a_directory_that_is_not_mounted_is_taken_neither_for_a_new_tier_nor_for_an_empty_one(
    broker, client, tier, tmp_path
):
    cold(client, tier)
    broker.kill("tier")
    (tmp_path / "tier").rename(tmp_path / "elsewhere")
    broker.spawn("tier")
    broker.wait_announced("tier")
    until(lambda: "is the directory mounted" in broker.output("tier"), "the service logs it")
    with (
        connect(broker.root, retry_timeout_s=0.5) as impatient,
        pytest.raises(UnavailableError, match="is the directory mounted"),
    ):
        impatient.pull("t", 0, 0)
    (tmp_path / "tier").rmdir()
    (tmp_path / "elsewhere").rename(tmp_path / "tier")
    assert sorted(int(one.body[:8]) for one in client.consume("t")) == list(range(COUNT))
    assert tier.faults() == []


def test_a_directory_that_is_unmounted_while_the_service_runs_gets_nothing_in_its_place(
    broker, client, tier, tmp_path
):
    cold(client, tier)
    (tmp_path / "tier").rename(tmp_path / "elsewhere")
    (tmp_path / "tier").mkdir()
    send(client, COUNT, 4)
    client.admin.create_topic(Topic("new"))
    client.send_message(Message("new", b"", queue_id=0))
    state = client.admin.tier_state
    until(lambda: "is it mounted" in state().not_writing_reason, "it is noticed")
    with (
        connect(broker.root, retry_timeout_s=0.5) as impatient,
        pytest.raises(UnavailableError),
    ):
        impatient.pull("t", 3, 300)
    assert list((tmp_path / "tier").iterdir()) == []
    (tmp_path / "tier").rmdir()
    (tmp_path / "elsewhere").rename(tmp_path / "tier")
    until(lambda: tier.messages().get(("new", 0)) == (0, 1), "it continues")
    until(lambda: sum(end for _, end in tier.messages().values()) == COUNT + 5, "all is there")
    assert len(list(client.consume("t"))) == COUNT + 4
    assert tier.faults() == []


def test_who_begins_below_what_was_purged_continues_in_the_tier(broker, client, tier):
    cold(client, tier)
    client.admin.purge_topic("t", [QueuePurge("t", 0, 0, 100, EACH)])
    until(lambda: client.queues("t")[0].min_offset == 100, "the purge is known")
    for offset in (-1, 0, 50):
        request = dispatcher_pb2.PullRequest(topic="t", queue_id=0, offset=offset)
        assert broker.dispatcher.Pull(request).next_offset == 100
    request = dispatcher_pb2.PullRequest(topic="t", queue_id=1, offset=-1)
    assert broker.dispatcher.Pull(request).next_offset == 0


def test_an_offset_is_found_by_time_in_the_tier(client, tier):
    stored = [one.store_timestamp_ms for one in client.consume("t", queues=[2])]
    cold(client, tier)
    for offset in (0, 1, 100, 500, EACH - 1):
        first = next(at for at, time in enumerate(stored) if time >= stored[offset])
        assert client.offset_at_time("t", 2, stored[offset]) == first
    assert client.offset_at_time("t", 2, stored[-1] + 1_000) == EACH


def test_what_was_deleted_with_its_topic_does_not_come_back_from_the_tier(client, tier):
    cold(client, tier)
    client.admin.delete_topic("t")

    def is_gone() -> bool:
        try:
            client.pull("t", 0, 0)
        except NotFoundError:
            return True
        return False

    until(is_gone, "the topic is gone")


def test_a_stream_gives_local_messages_while_the_tier_stands_still(broker, client, tier):
    cold(client, tier)
    freeze(broker.pid("tier"))
    try:
        reader = client.consume("t", offset="latest", follow=True)
        reader.seek(0, queues=[0])
        with closing(reader):
            send(client, COUNT + 1, 1, size=10)
            assert int(next(reader).body[:8]) == COUNT + 1
    finally:
        thaw(broker.pid("tier"))


def test_a_queue_without_messages_does_not_wait_for_the_tier(broker, client, tier):
    cold(client, tier)
    client.admin.create_topic(Topic("new"))
    freeze(broker.pid("tier"))
    try:
        with connect(broker.root, retry_timeout_s=0.5) as impatient:
            assert impatient.pull("new", 0, 0).messages == []
        request = dispatcher_pb2.PullStreamRequest(
            queues=[dispatcher_pb2.PullQueue(topic="new", queue_id=0, offset=0, end_offset=1)]
        )
        stream = broker.dispatcher.PullStream(request, timeout=60)
        client.send_message(Message("new", b"first", queue_id=0))
        assert next(stream).count == 1
    finally:
        thaw(broker.pid("tier"))


def test_another_brokers_tier_gives_none_of_its_messages(broker, client, tier, tmp_path):
    cold(client, tier)
    writer = (tmp_path / "tier").glob("*/*/stratamq-writer.json")
    before = [path.read_bytes() for path in writer]
    given = settings(tmp_path)
    with Broker(tmp_path / "second", tmp_path / "second-logs", given) as second:
        second.start(ROOMS)
        with connect(second.root, retry_timeout_s=60) as other:
            other.admin.create_topic(Topic("t"))
            until(
                lambda: "another broker's" in other.admin.tier_state().not_writing_reason,
                "the second one is refused",
            )
            assert other.pull("t", 0, 0).messages == []
        stub = Stub(service_of("tier"), second.channel("tier"))
        with pytest.raises(grpc.RpcError, match="another broker's"):
            stub.FetchMessages(tier_pb2.FetchMessagesRequest(topic="t", queue_id=0))
    after = [path.read_bytes() for path in (tmp_path / "tier").glob("*/*/stratamq-writer.json")]
    assert (len(before), after) == (1, before)


def _torn(path: Path) -> bytes:
    return path.read_bytes()[:-20]


def _anothers(path: Path) -> bytes:
    return (path.parents[1] / "3" / path.name).read_bytes()


def _of_huge_numbers(path: Path) -> bytes:
    return json.dumps(json.loads(path.read_bytes()) | {"minimum": 10**30}).encode()


@pytest.mark.parametrize("damaged", [_torn, _anothers, _of_huge_numbers])
def test_a_queue_whose_manifest_is_damaged_is_refused_and_holds_up_no_other(
    broker, client, tier, tmp_path, damaged
):
    cold(client, tier)
    broker.kill("tier")
    (path,) = (tmp_path / "tier").glob("**/t/2/*manifest*")
    whole = path.read_bytes()
    path.write_bytes(damaged(path))
    broker.start(("tier",))
    for queue_id in (0, 1, 3):
        until(
            lambda n=queue_id: len(list(client.consume("t", queues=[n]))) == EACH, "others are read"
        )
    with pytest.raises(CorruptionError, match=rf"/t/2/{path.name} \(queue 2 of t\): "):
        client.pull("t", 2, 0)
    assert {one.queue_id: one.min_offset for one in client.queues("t")}[2] == 0
    with pytest.raises(CorruptionError):
        list(client.consume("t", queues=[2]))
    state = until(
        lambda: (found := client.admin.tier_state()).failing_queues and found,
        "its writer has met the damage, too",
    )
    assert (state.failing_queues, state.last_failure[:4]) == (1, "t/2:")
    broker.kill("tier")
    path.write_bytes(whole)
    broker.start(("tier",))
    until(lambda: len(list(client.consume("t", queues=[2]))) == EACH, "it is read again")


def test_a_damaged_record_is_an_error_for_whoever_asks_for_it_alone(client, tier, tmp_path):
    cold(client, tier)
    number = 4 * 100 + 1
    damage(tmp_path / "tier", b"%08d" % number + bytes(1000))
    before = client.pull("t", 1, 90, max_messages=50)
    assert [one.queue_offset for one in before.messages] == list(range(90, 100))
    with pytest.raises(CorruptionError, match=r"queue offset 100 is damaged .*tier verify"):
        client.pull("t", 1, 100, max_messages=50)
    behind = client.pull("t", 1, 101, max_messages=50)
    assert [one.queue_offset for one in behind.messages] == list(range(101, 151))
    assert len(list(client.consume("t", queues=[0, 2, 3]))) == 3 * EACH
    assert any(str(number // 4) in fault for fault in tier.faults())


def test_messages_before_a_segment_that_is_gone_are_given(broker, client, tier, tmp_path):
    cold(client, tier)
    folders = tmp_path.glob("tier/**/t/1/COMMIT_LOG")
    paths = (path for folder in folders for path in folder.iterdir() if path.suffix != ".json")
    _, second, *_ = sorted(paths, key=lambda path: int(path.name[-20:]))
    broker.kill("tier")  # it has the file open
    second.unlink()
    broker.start(("tier",))
    given, offset = [], 0
    with pytest.raises(StrataError, match=second.name):
        while offset < EACH:
            pulled = client.pull("t", 1, offset, max_messages=4096, max_bytes=4 << 20)
            given += [one.queue_offset for one in pulled.messages]
            offset = pulled.next_offset
    assert given == list(range(len(given)))
    assert len(given) * 1_050 < int(second.name[-20:]) < (len(given) + 1) * 1_250


def damage(directory: Path, written: bytes) -> None:
    """One byte of what is written somewhere in the tier."""
    for path in directory.rglob("*"):
        if path.is_file() and (at := path.read_bytes().find(written)) >= 0:
            with path.open("r+b") as file:
                file.seek(at + len(written) // 2)
                file.write(b"x")
            return
    raise AssertionError("it is not in the tier")
