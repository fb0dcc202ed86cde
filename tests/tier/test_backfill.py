"""A log's messages, copied into a tier: all of them, once, also after an interruption."""

import json

import pytest

from stratamq.cli import __main__ as command_line
from stratamq.cli.tier_backfill import backfill
from stratamq.tier.driver.memory import MemoryStorage
from stratamq.tier.driver.objects import open_objects
from stratamq.tier.driver.storage import Storage, run
from stratamq.tier.reading.manifests import open_queue
from stratamq.tier.reading.pull import pull
from stratamq.tier.reading.records import store_time_of
from stratamq.tier.reading.verify import queues_of, verify_queue
from stratamq.tier.writing.claim import FencedError, claim
from stratamq.tier.writing.intake import goes_into_tier
from tests.support import rocketmq_tier, s3_servers
from tests.support.fixtures import ALL_STORES, CLEAN_STORES, expected, unpack

CLUSTER, BROKER = "DefaultCluster", "broker-a"


@pytest.fixture(scope="module")
def moto():
    with s3_servers.moto_server() as server:
        yield server


def stratamq(*words: str) -> int:
    return command_line.run(["tier", *words])


def messages_of(storage: Storage) -> dict[tuple[str, int, int], tuple[int, int]]:
    """(topic, queue, queue offset) → (size, store time)."""
    found = {}
    for place in run(queues_of(CLUSTER, BROKER), storage):
        opened = run(open_queue(place), storage)
        offset = opened.queue.minimum
        while offset < opened.queue.end:
            answer = run(pull(opened.queue, offset, 100), storage)
            for message in answer.messages:
                key = (place.topic, place.queue_id, message.offset)
                found[key] = (len(message.record), store_time_of(message.record))
            offset = answer.next
    return found


def in_queues(name: str) -> dict[tuple[str, int, int], tuple[int, int]]:
    """What RocketMQ itself finds in the queues of a store."""
    return {
        (line["topic"], line["queueId"], line["at"]): (line["size"], line["storeTimestamp"])
        for line in expected(name, "message")
        if goes_into_tier(line["topic"])
    }


@pytest.mark.parametrize("name", ALL_STORES)
def test_the_tier_has_what_rocketmq_finds_in_the_queues_of_its_store(name, tmp_path, capsys):
    store, storage = unpack(name, tmp_path), MemoryStorage(positions=False)
    added, _ = backfill(store, storage, CLUSTER, BROKER, [])
    found = messages_of(storage)
    assert found == in_queues(name)
    assert added == len(found)
    for place in run(queues_of(CLUSTER, BROKER), storage):
        assert run(verify_queue(place), storage).faults == ()
    before = dict(storage.objects)
    assert backfill(store, storage, CLUSTER, BROKER, [])[0] == 0
    changed = {path for path in storage.objects if storage.objects[path] != before.get(path)}
    assert all(path.endswith("stratamq-writer.json") for path in changed)


def test_an_interrupted_backfill_is_begun_again_and_adds_what_is_missing(tmp_path, capsys):
    name = "5.5.1-small-clean"
    store, storage = unpack(name, tmp_path), _Breaking()
    attempts = 0
    while True:
        attempts += 1
        storage.left = 40 * attempts
        try:
            backfill(store, storage, CLUSTER, BROKER, [])
        except ConnectionError:
            continue
        break
    assert attempts > 2
    assert messages_of(storage.inner) == in_queues(name)


class _Breaking:
    """A storage whose connection ends after `left` calls."""

    positions = True

    def __init__(self) -> None:
        self.inner = MemoryStorage()
        self.left = 0

    def perform(self, call):
        self.left -= 1
        if self.left < 0:
            raise ConnectionError
        return self.inner.perform(call)

    def close(self) -> None:
        self.inner.close()


def test_topics_that_are_not_named_stay_out(tmp_path, capsys):
    name = "5.5.1-small-clean"
    storage = MemoryStorage()
    backfill(unpack(name, tmp_path), storage, CLUSTER, BROKER, ["orders"])
    assert messages_of(storage) == {
        key: value for key, value in in_queues(name).items() if key[0] == "orders"
    }


def test_a_tier_that_a_service_writes_is_left_to_it(tmp_path):
    storage = MemoryStorage()
    run(claim(CLUSTER, BROKER, 7), storage)
    with pytest.raises(FencedError):
        backfill(unpack("5.5.1-small-clean", tmp_path), storage, CLUSTER, BROKER, [])


def test_a_store_goes_into_a_bucket_and_is_verified_there(tmp_path, moto, capsys):
    storage = open_objects(moto.settings(f"s3://{moto.new_bucket()}/tiers"))
    backfill(unpack("4.9.8-small-clean", tmp_path), storage, CLUSTER, BROKER, [])
    assert messages_of(storage) == in_queues("4.9.8-small-clean")
    for place in run(queues_of(CLUSTER, BROKER), storage):
        assert run(verify_queue(place), storage).faults == ()


def test_the_commands_fill_verify_and_show_a_directory(tmp_path, capsys):
    store, tier = unpack("5.5.1-small-clean", tmp_path), tmp_path / "tier"
    words = ("backfill", str(store), "--to", str(tier), "--export", str(tmp_path / "local"))
    assert stratamq(*words) == 0
    assert "300 messages added, in 25 queues" in capsys.readouterr().err
    assert stratamq("verify", str(tier), "--output", "json") == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert sum(row["messages"] for row in rows) == len(in_queues("5.5.1-small-clean"))
    (damaged, *_) = (tier / "212d6b50_DefaultCluster/broker-a/orders/0/COMMIT_LOG").iterdir()
    content = bytearray(damaged.read_bytes())
    content[200] ^= 1
    damaged.write_bytes(content)
    assert stratamq("verify", str(tier)) == 1
    captured = capsys.readouterr()
    assert "restore the queues" in captured.err


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("backfill", "/nowhere", "--to", "TIER"), "there is no /nowhere"),
        (("backfill", "STORE", "--to", "ftp://x/y"), "not the URL"),
        (("backfill", "STORE", "--to", "s3://b/p", "--export", "TIER"), "--export"),
        (("verify", "TIER"), "there is no directory"),
    ],
)
def test_impossible_requests_are_refused_in_one_line(words, sentence, tmp_path, capsys):
    names = {"TIER": str(tmp_path / "tier"), "STORE": str(tmp_path)}
    assert stratamq(*(names.get(word, word) for word in words)) in (1, 2)
    captured = capsys.readouterr()
    assert sentence in captured.err
    assert len(captured.err.splitlines()) == 1


@pytest.mark.java
@pytest.mark.parametrize("name", CLEAN_STORES)
def test_rocketmq_reads_the_tier_that_was_filled_from_its_store(name, tmp_path, capsys):
    store, root = unpack(name, tmp_path), tmp_path / "filled"
    words = ("--to", str(root / "tier"), "--export", str(root / "local"))
    assert stratamq("backfill", str(store), *words) == 0
    scenario = {"cluster": CLUSTER, "broker": BROKER, "slots": 97, "items": 400}
    (root / "scenario.json").write_text(json.dumps(scenario))
    lines = rocketmq_tier.dump("5.3.3", root, tmp_path / "scratch")
    found = {
        (line["topic"], line["queueId"], line["queueOffset"]): (line["size"], line["storeTime"])
        for line in lines
        if line["kind"] == "message"
    }
    assert found == in_queues(name)
