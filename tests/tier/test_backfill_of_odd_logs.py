"""Backfills of logs with queues that began anew, odd names, hidden messages; of other brokers."""

import json
from pathlib import Path

import pytest

from stratamq.cli import __main__ as command_line
from stratamq.cli.tier_backfill import backfill
from stratamq.formats import frame as frames
from stratamq.formats.frame import decode
from stratamq.formats.tier_metadata import METADATA_NAME, parse_tier_metadata
from stratamq.tier.driver.memory import MemoryStorage
from stratamq.tier.driver.storage import Storage, run
from stratamq.tier.reading.manifests import open_queue
from stratamq.tier.reading.pull import pull
from stratamq.tier.reading.verify import queues_of
from stratamq.tier.writing.overlap import OtherMessagesError

Stored = tuple[str, int, int, bytes]
"""Topic, queue, queue offset, body."""


def store(directory: Path, messages: list[Stored]) -> Path:
    """As RocketMQ has it, in one segment."""
    log = bytearray()
    for number, (topic, queue_id, offset, body) in enumerate(messages):
        log += frames.encode(
            topic=topic.encode(),
            body=body,
            born_host=bytes(8),
            store_host=bytes(8),
            queue_id=queue_id,
            queue_offset=offset,
            physical_offset=len(log),
            store_timestamp_ms=1_700_000_000_000 + number,
        )
    (directory / "commitlog").mkdir(parents=True)
    (directory / "commitlog" / f"{0:020d}").write_bytes(log + bytes((1 << 20) - len(log)))
    return directory


def contents(storage: Storage) -> dict[tuple[str, int], dict[int, bytes]]:
    """Bodies by queue offset, by queue."""
    found = {}
    for place in run(queues_of("DefaultCluster", "broker-a"), storage):
        queue = run(open_queue(place), storage).queue
        bodies = found[place.topic, place.queue_id] = {}
        offset = queue.minimum
        while offset < queue.end:
            answer = run(pull(queue, offset, 100), storage)
            bodies |= {one.offset: bytes(decode(bytes(one.record)).body) for one in answer.messages}
            offset = answer.next
    return found


def copy(directory: Path, storage: Storage, *topics: str) -> int:
    return backfill(directory, storage, "DefaultCluster", "broker-a", list(topics))[0]


@pytest.mark.parametrize("positions", [True, False], ids=["positions", "parts"])
def test_of_a_topic_that_was_made_again_the_last_life_is_copied(tmp_path, positions):
    messages = [("a", 0, number, b"old%d" % number) for number in range(5)]
    messages += [("a", 0, number, b"new%d" % number) for number in range(3)]
    directory = store(tmp_path / "s", messages)
    storage = MemoryStorage(positions)
    assert copy(directory, storage) == 3
    assert contents(storage) == {("a", 0): {0: b"new0", 1: b"new1", 2: b"new2"}}
    assert copy(directory, storage) == 0


@pytest.mark.parametrize("more", [-2, 0, 3])
def test_another_brokers_log_is_refused(tmp_path, more):
    storage = MemoryStorage(True)
    copy(store(tmp_path / "a", [("t", 0, n, b"A%d" % n) for n in range(5)]), storage)
    before = contents(storage)
    other = store(tmp_path / "b", [("t", 0, n, b"B%d" % n) for n in range(5 + more)])
    with pytest.raises(OtherMessagesError, match="queue offset"):
        copy(other, storage)
    assert contents(storage) == before


def test_names_that_no_path_can_have_hold_up_no_other_topic(tmp_path, capsys):
    odd = ["..", "a/b", "x" * 120 + "\n", "stratamq-writer.json"]
    messages = [(name, 0, 0, b"x") for name in odd] + [("good", 0, 0, b"y")]
    storage = MemoryStorage(True)
    assert copy(store(tmp_path / "s", messages), storage) == 1
    assert contents(storage) == {("good", 0): {0: b"y"}}
    printed = capsys.readouterr().err
    assert all(repr(name) in printed for name in odd)


def test_purged_messages_and_deleted_topics_stay_out(tmp_path):
    messages = [(topic, 0, n, b"%d" % n) for topic in ("kept", "purged", "gone") for n in range(4)]
    directory = store(tmp_path / "s", messages)
    table = {
        "purged": {"topicName": "purged", "stratamqMinimumOffsets": {"0": 3}},
        "gone": {"topicName": "gone", "stratamqMinimumOffsets": {"0": 4}, "stratamqDeleted": True},
    }
    (directory / "config").mkdir()
    (directory / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": table}))
    storage = MemoryStorage(True)
    copy(directory, storage)
    assert {key: sorted(bodies) for key, bodies in contents(storage).items()} == {
        ("kept", 0): [0, 1, 2, 3],
        ("purged", 0): [3],
    }


def stratamq(*words: object) -> int:
    return command_line.run(["tier", *map(str, words)])


def test_an_export_keeps_what_other_backfills_exported(tmp_path):
    directory = store(tmp_path / "s", [("a", 0, 0, b"x"), ("b", 0, 0, b"y")])
    for topic in ("a", "b"):
        assert not stratamq(
            "backfill", directory, "--to", tmp_path / "t", "--topic", topic,
            "--export", tmp_path / "e",
        )  # fmt: skip
    metadata = parse_tier_metadata((tmp_path / "e" / "config" / METADATA_NAME).read_bytes())
    assert {name: record.topic_id for name, record in metadata.topics.items()} == {"a": 0, "b": 1}
    assert sorted(queue.topic for queue in metadata.queues) == ["a", "b"]
    assert stratamq("backfill", directory, "--to", tmp_path / "u", "--export", tmp_path / "e") == 0
    again = parse_tier_metadata((tmp_path / "e" / "config" / METADATA_NAME).read_bytes())
    assert again.topics.keys() == {"a", "b"}
    assert len(again.queues) == 2


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--topic", "nope"], "no message of nope"),
        (["--to", "{store}/commitlog"], "in the store itself"),
        (["--broker", "b/c"], "--broker"),
        (["--cluster", ".."], "--cluster"),
        (["--broker", ""], "--broker"),
    ],
)
def test_what_cannot_be_meant_is_refused_and_leaves_nothing_behind(
    tmp_path, capsys, options, words
):
    directory = store(tmp_path / "s", [("a", 0, 0, b"x")])
    before = sorted(tmp_path.rglob("*"))
    words_given = [option.format(store=directory) for option in options]
    assert stratamq("backfill", directory, "--to", tmp_path / "t", *words_given)
    assert words in capsys.readouterr().err
    if "--topic" not in options:
        assert sorted(tmp_path.rglob("*")) == before


def test_a_store_that_is_not_there_makes_no_tier(tmp_path, capsys):
    assert stratamq("backfill", tmp_path / "none", "--to", tmp_path / "t")
    assert "there is no" in capsys.readouterr().err
    assert not (tmp_path / "t").exists()
