"""Every directory that the real RocketMQ wrote, through our queues: both report the same.

The one difference is a row of `docs/compatibility.md`: in `4.9.8-crash` eight delayed messages that
its recovery dispatched again carry the deliver time here, not the hash of their tag.
"""

import hashlib
import shutil
from pathlib import Path

import pytest
from stratamq_dispatcher.cold_reads import ColdReads, LogIdentity
from stratamq_dispatcher.frame_reads import store_timestamp
from stratamq_dispatcher.time_search import Boundary

from stratamq.files.real import RealFiles
from stratamq.formats.topics import SCHEDULE_TOPIC
from tests.dispatcher.fixture_store import (
    PLAIN_HASHES,
    FixtureStore,
    filtered_pages,
    linear_offset_at,
)
from tests.support import fixtures


@pytest.fixture(scope="module", params=fixtures.ALL_STORES)
def store(request, tmp_path_factory) -> FixtureStore:
    """As unpacked, all of the log followed."""
    root = fixtures.unpack(request.param, tmp_path_factory.mktemp("fixture"))
    store = FixtureStore(request.param, root)
    store.follow()
    return store


def queue_files(root: Path) -> dict[str, tuple[bytes, int]]:
    """Content and modification time of every queue file."""
    paths = (root / "consumequeue").rglob("0*")
    return {
        str(path.relative_to(root)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in paths
        if path.is_file()
    }


def check_queues(store: FixtureStore) -> None:
    described = {
        (line["topic"], line["queueId"]): (line["minOffset"], line["maxOffset"])
        for line in store.lines("queue")
    }
    open_files = store.engine.queues.open_files
    ours = {
        (queue.topic, queue.queue_id): (
            queue.minimum(open_files, store.engine.followed.minimum),
            queue.end,
        )
        for queue in store.engine.queues
        if queue.end
    }
    assert ours == described


def check_pulls(store: FixtureStore) -> None:
    for line in store.lines("pull"):
        answer = store.pull((line["topic"], line["queueId"]), line["offset"], line["maxNums"])
        assert {
            "status": answer.status.name,
            "nextBeginOffset": answer.next_offset,
            "minOffset": answer.minimum,
            "maxOffset": answer.maximum,
            "count": answer.count,
            "bytes": answer.size,
        }.items() <= line.items(), line


def check_messages(store: FixtureStore) -> None:
    for key, lines in store.messages().items():
        for line in lines:
            answer = store.pull(key, line["at"], 1)
            frame = b"".join(answer.pieces)
            assert hashlib.sha256(frame).hexdigest() == line["frameSha256"]
            unit = store.unit(key, line["at"])
            assert unit.physical_offset == line["cqPhyOffset"]
            assert unit.size == line["cqSize"]
            assert unit.tags_code == line["tagsCode"], line


def check_all(store: FixtureStore) -> None:
    assert store.engine.followed.serving
    assert store.engine.followed.durable == store.end
    check_queues(store)
    check_pulls(store)
    check_messages(store)


def test_queues_are_equal(store):
    check_queues(store)


def test_pulls_are_equal_also_beyond_the_ends(store):
    check_pulls(store)


def test_messages_and_their_units_are_equal(store):
    check_messages(store)


def test_only_the_eight_delayed_units_of_one_store_differ(store):
    store.deliver_times = 0
    store.messages()
    assert store.deliver_times == (8 if store.name == PLAIN_HASHES else 0)


def test_filtered_pulls_are_equal(store):
    messages = store.messages()
    units = store.geometry.queue_units
    asked = {}
    for line in store.lines("filtered"):
        key = (line["topic"], line["queueId"])
        if not any(message.get("deliverTimeHere") for message in messages[key]):
            # The model must give RocketMQ's answers before it may replace it.
            assert filtered_pages(messages[key], line["tagsCode"], units) == (
                line["pages"],
                line["phyOffsets"],
            )
            asked[*key, line["tagsCode"]] = None
    for key, lines in messages.items():
        asked |= {(*key, line["tagsCode"]): None for line in lines}
    for topic, queue_id, tags_code in asked:
        key, pages, found, offset = (topic, queue_id), [], [], 0
        while offset < len(messages[key]):
            answer = store.pull(key, offset, 8, tags_code)
            offset = answer.next_offset
            pages.append(f"{answer.status.name}@{offset}")
            frames = b"".join(answer.pieces)
            while frames:
                found.append(int.from_bytes(frames[28:36], "big"))
                frames = frames[int.from_bytes(frames[:4], "big") :]
        assert (pages, found) == filtered_pages(messages[key], tags_code, units)


def test_times_of_5_x_are_equal_to_the_lower_bound(store):
    if store.name.startswith("4."):
        pytest.skip("4.x chooses files by modification time")
    for line in store.lines("time"):
        key = (line["topic"], line["queueId"])
        assert store.offset_at(key, line["timestamp"], Boundary.LOWER) == line["offset"]


@pytest.mark.parametrize("boundary", list(Boundary))
def test_times_are_those_of_a_linear_scan(store, boundary):
    times = {
        key: [line["storeTimestamp"] for line in lines] for key, lines in store.messages().items()
    }
    for line in store.lines("time"):
        key = (line["topic"], line["queueId"])
        expected = linear_offset_at(times[key], line["timestamp"], boundary)
        assert store.offset_at(key, line["timestamp"], boundary) == expected


def test_what_was_right_on_disk_is_not_written_again(store, tmp_path):
    original = queue_files(fixtures.unpack(store.name, tmp_path))
    ours = queue_files(store.root)
    changed = {path for path in original if ours.get(path) != original[path]}
    if store.name in fixtures.CLEAN_STORES:
        assert ours == original
    else:
        # The queues of the crashed stores are those of an earlier time: only last files changed.
        last = {path.rpartition("/")[0]: path for path in sorted(original)}
        assert changed <= set(last.values())


def test_a_second_start_finds_everything_where_it_was(store):
    before = queue_files(store.root)
    store.engine.close(lambda: None)
    store.worker.run_until_idle()
    store.restart()
    assert store.engine.fold.resume_point() == (7, store.end)
    store.follow(cut_to=store.end)
    check_all(store)
    assert queue_files(store.root) == before


@pytest.mark.parametrize("name", fixtures.CLEAN_STORES)
class TestWithoutQueues:
    """Consume queues are rebuilt from the log, byte for byte."""

    def rebuild(self, name: str, tmp_path: Path, *gone: str) -> None:
        root = fixtures.unpack(name, tmp_path)
        original = {path: content for path, (content, _) in queue_files(root).items()}
        for path in gone:
            shutil.rmtree(root / path)
        store = FixtureStore(name, root)
        store.follow()
        check_all(store)
        assert {path: content for path, (content, _) in queue_files(root).items()} == original

    def test_all_queues_removed(self, name, tmp_path):
        self.rebuild(name, tmp_path, "consumequeue")

    def test_one_queue_removed(self, name, tmp_path):
        line = next(fixtures.expected(name, "queue"))
        self.rebuild(name, tmp_path, f"consumequeue/{line['topic']}/{line['queueId']}")

    def test_the_schedule_queues_removed(self, name, tmp_path):
        if not any(line["topic"] == SCHEDULE_TOPIC for line in fixtures.expected(name, "queue")):
            pytest.skip("nothing delayed in it")
        self.rebuild(name, tmp_path, f"consumequeue/{SCHEDULE_TOPIC}")

    def test_an_abort_file_changes_nothing(self, name, tmp_path):
        root = fixtures.unpack(name, tmp_path)
        (root / "abort").write_bytes(b"")
        store = FixtureStore(name, root)
        store.follow()
        check_all(store)


def test_every_message_that_is_there_and_no_other_has_an_age(store):
    """Delayed and transactional messages, of IPv6 hosts and of long topics."""
    cold = ColdReads(RealFiles(store.root))
    view = LogIdentity(store.geometry.log_bytes, 0, store.minimum)
    for queue in store.engine.queues:
        first = queue.minimum(store.engine.queues.open_files, store.minimum)
        asked = [(queue.snapshot_of(index), index) for index in range(queue.end + 2)]
        there = range(first, queue.end)
        assert cold.store_times(asked, view) == [
            store_timestamp(
                store.log, store.unit((queue.topic, queue.queue_id), index).physical_offset
            )
            if index in there
            else None
            for index in range(queue.end + 2)
        ]
    cold.close()
