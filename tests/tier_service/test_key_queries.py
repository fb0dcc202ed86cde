"""Messages are found by their keys over log and tier as over one store."""

import pytest

from stratamq.client import Client, Message, connect
from stratamq.files.real import RealFiles
from stratamq.formats.tier_index_manifest import IndexManifest
from stratamq.tier.driver.posix import PosixStorage
from stratamq.tier.driver.storage import run
from stratamq.tier.reading.key_index import index_place, load_index
from tests.support.brokers import Broker
from tests.support.storages import no_pause
from tests.support.waiting import until, until_indexed
from tests.tier_service.test_uploading import Tier, settings

ROOMS = ("commitlog", "dispatcher", "index", "tier")
SEGMENT = 1 << 20
COUNT = 4_000
NAMES = ("DefaultCluster", "broker-a")


def given(tmp_path) -> tuple[str, ...]:
    more = ("commitlog.release_timeout_ms=0", "tier.index_slots=0", "index.tier_timeout_ms=30000")
    return settings(tmp_path, *more, "commitlog.followers=dispatcher,index")


def send(client: Client, first: int, count: int) -> None:
    """Every message has a key of its own, each tenth one that it shares."""
    with client.producer() as producer:
        for number in range(first, first + count):
            keys = [f"k{number}", *(["tenth"] if number % 10 == 0 else [])]
            body = b"%08d" % number + bytes(1_000)
            producer.send_message(Message("t", body, keys=keys, queue_id=number % 4))


def cold(client: Client, tier: Tier, count: int = COUNT) -> None:
    """All of it into the tier; here all segments but the last are deleted."""
    until(lambda: sum(end for _, end in tier.messages().values()) == count, "all is in the tier")
    end = client.log_state().appended_offset
    below = end - end % SEGMENT
    until(lambda: client.admin.delete_below(below)[0] == below, "segments go")
    assert min(one.physical_offset for one in client.query_key("t", "k3999").messages) > 0


def numbers(client: Client, key: str, most: int = 9_999, **options) -> list[int]:
    found = client.query_key("t", key, max_messages=most, **options)
    assert found.missing == ""
    return [int(one.body[:8]) for one in found.messages]


@pytest.fixture
def broker(tmp_path):
    with Broker(tmp_path / "store", tmp_path / "logs", given(tmp_path)) as broker:
        yield broker.start(ROOMS)


@pytest.fixture
def client(broker):
    with connect(broker.root, retry_timeout_s=60) as client:
        send(client, 0, COUNT)
        until_indexed(client)
        yield client


@pytest.fixture
def tier(tmp_path):
    return Tier(tmp_path)


def index_of(tmp_path) -> IndexManifest | None:
    return run(load_index(*NAMES), PosixStorage(RealFiles(tmp_path / "tier"), no_pause))


def test_a_key_finds_what_the_log_has_no_more_each_message_once(client, tier):
    before = client.query_key("t", "k17").messages[0]
    cold(client, tier)
    until(lambda: numbers(client, "k17"), "the message is found in the tier")
    found = client.query_key("t", "k17").messages[0]
    assert (found.body, found.keys, found.unique_key) == (
        before.body, before.keys, before.unique_key,
    )  # fmt: skip
    assert (found.queue_id, found.queue_offset) == (before.queue_id, before.queue_offset)
    until(lambda: len(numbers(client, "tenth")) == COUNT // 10, "all are found")
    assert sorted(numbers(client, "tenth")) == list(range(0, COUNT, 10))
    assert client.query_unique_key("t", before.unique_key).messages[0].body == before.body


def test_a_limit_gives_the_newest_or_the_oldest_over_both(client, tier):
    stored = {number: client.query_key("t", f"k{number}").messages[0] for number in (0, 3990)}
    cold(client, tier)
    until(lambda: len(numbers(client, "tenth")) == COUNT // 10, "all are found")
    newest = client.query_key("t", "tenth", max_messages=COUNT // 10 - 1)
    assert newest.truncated
    newest_times = [one.store_timestamp_ms for one in newest.messages]
    assert newest_times == sorted(newest_times, reverse=True)
    assert newest_times[0] == stored[3990].store_timestamp_ms
    oldest = client.query_key("t", "tenth", max_messages=3, oldest_first=True)
    times = [one.store_timestamp_ms for one in oldest.messages]
    assert oldest.truncated
    assert times == sorted(times)
    assert times[0] == stored[0].store_timestamp_ms
    every = client.query_key("t", "tenth", max_messages=COUNT, oldest_first=True)
    assert len({int(one.body[:8]) for one in every.messages}) == COUNT // 10
    assert not every.truncated
    time = stored[3990].store_timestamp_ms
    assert 3990 in numbers(client, "tenth", begin_ms=time, end_ms=time)


def test_what_is_deleted_or_hidden_is_not_found_in_the_tier(client, tier):
    cold(client, tier)
    until(lambda: numbers(client, "k17"), "the message is found in the tier")
    client.admin.delete_topic("t")
    until(lambda: numbers(client, "k17") == [], "the message is hidden")


def test_keys_in_memory_of_a_service_that_was_killed_are_found_again(broker, client, tier):
    cold(client, tier)
    until(lambda: numbers(client, "k17"), "the message is found in the tier")
    broker.kill("tier")
    broker.start(["tier"])

    def complete() -> bool:
        found = client.query_key("t", "tenth", max_messages=COUNT)
        return not found.missing and len(found.messages) == COUNT // 10

    until(complete, "all keys are indexed again")


def test_while_the_tier_is_down_a_query_gives_what_the_log_has_and_reports_that(
    tmp_path, client, broker, tier
):
    cold(client, tier)
    until(lambda: numbers(client, "k17"), "the message is found in the tier")
    broker.kill("tier")
    found = client.query_key("t", f"k{COUNT - 1}")
    assert [int(one.body[:8]) for one in found.messages] == [COUNT - 1]
    assert "tier" in found.missing
    broker.start(["tier"])
    until(lambda: not client.query_key("t", "k17").missing, "the tier answers again")


def test_files_of_keys_are_written_and_a_later_start_reads_none_of_the_messages_again(tmp_path):
    store, logs = tmp_path / "store", tmp_path / "logs"
    with Broker(store, logs, (*given(tmp_path), "tier.index_interval_ms=200")) as broker:
        broker.start(ROOMS)
        with connect(broker.root, retry_timeout_s=60) as client:
            send(client, 0, 400)

            def covered() -> bool:
                index = index_of(tmp_path)
                return index is not None and sum(index.covered.values()) == 400

            until(covered, "every key is in a file")
            index = index_of(tmp_path)
            assert index is not None
            # A key and a unique key each, and the shared one.
            assert sum(file.items for file in index.files) == 400 + 400 + 40
            broker.terminate("tier")
            broker.start(["tier"])
            until(lambda: len(numbers(client, "tenth")) == 40, "keys are found in files")
            again = index_of(tmp_path)
            assert again is not None
            assert sum(file.items for file in again.files) == 840
    assert index_place(*NAMES).manifest.endswith("rmq_sys_INDEX/0/stratamq-manifest.json")
