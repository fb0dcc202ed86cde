"""Directories that the real RocketMQ wrote: kept as they are where right, mended where not.

The service answers by the frames' own keys and times, each message once, as a linear scan does.
"""

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest
from stratamq_index.persistence import EngineSettings
from stratamq_index.query import KeyQuery

from stratamq.files.real import RealFiles
from stratamq.formats.dispatch import dispatch_columns
from stratamq.formats.file_names import offset_name
from stratamq.formats.frame import Frame, decode
from stratamq.formats.frame_check import FrameOutcome, check
from stratamq.formats.index_columns import index_keys
from stratamq.formats.index_file import IndexFileView
from stratamq.formats.index_layout import (
    INDEX_ITEM,
    INDEX_SLOT,
    decode_index_header,
    item_position,
    slot_position,
)
from stratamq.formats.properties import split_keys
from tests.index.harness import Follower, Message, TestLog, contents, names
from tests.support import fixtures
from tests.support.index_files import IndexFileBuilder
from tests.support.sampling import few

ROLLBACK = 12


@dataclass
class Store:
    """A fixture on a copy, and its log as recovery leaves it."""

    name: str
    root: Path
    log: TestLog
    settings: EngineSettings

    @property
    def files(self) -> RealFiles:
        assert isinstance(self.log.files, RealFiles)
        return self.log.files

    def start(self) -> Follower:
        return Follower(self.log, self.settings).start()


def open_store(name: str, tmp_path: Path) -> Store:
    root = fixtures.unpack(name, tmp_path)
    geometry = fixtures.geometry(root)
    log = TestLog(RealFiles(root), geometry.log_bytes)
    lines = [line for line in fixtures.expected(name, "frame") if line["ok"]]
    for start, data in fixtures.log_files(root):
        position = 0
        while position < len(data):
            outcome, size = check(data, position)
            if outcome not in (FrameOutcome.GOOD, FrameOutcome.BLANK):
                break
            frame = decode(data, position)
            if isinstance(frame, Frame):
                log.messages.append(Message(start + position, frame))
            position += size
            log.end = start + position
    # What RocketMQ keeps of its log is where its last good frame ends.
    last = max(lines, key=lambda line: line["phyOffset"])
    end = last["phyOffset"] + last["size"]
    log.messages = [message for message in log.messages if message.offset < end]
    if log.end > end:
        log.cut(end)
    return Store(
        name, root, log, EngineSettings(index_slots=geometry.slots, index_items=geometry.items)
    )


@pytest.fixture(params=fixtures.ALL_STORES)
def store(request, tmp_path) -> Store:
    return open_store(request.param, tmp_path)


@pytest.fixture(params=fixtures.CLEAN_STORES)
def clean(request, tmp_path) -> Store:
    return open_store(request.param, tmp_path)


@pytest.fixture(params=fixtures.CRASHED_STORES)
def crashed(request, tmp_path) -> Store:
    return open_store(request.param, tmp_path)


def snapshot(store: Store) -> dict[str, bytes]:
    return dict(zip(names(store.files), contents(store.files), strict=True))


def test_a_clean_directory_stays_as_it_is_byte_for_byte(clean):
    before = snapshot(clean)
    follower = clean.start()
    follower.stop()
    assert snapshot(clean) == before
    assert follower.engine.report_lines == []
    assert follower.engine.followed.durable == clean.log.end


def test_index_lines_of_a_clean_directory_are_rocketmqs(clean):
    clean.start().stop()
    headers = [decode_index_header(raw) for raw in contents(clean.files)]
    lines = list(fixtures.expected(clean.name, "index"))
    assert [
        (
            header.begin_timestamp_ms,
            header.end_timestamp_ms,
            header.begin_phy_offset,
            header.end_phy_offset,
            header.hash_slot_count,
            header.index_count,
        )
        for header in headers
        if header is not None
    ] == [
        (
            line["beginTimestamp"],
            line["endTimestamp"],
            line["beginPhyOffset"],
            line["endPhyOffset"],
            line["hashSlotCount"],
            line["indexCount"],
        )
        for line in lines
    ]


def test_every_key_is_answered_as_a_linear_scan_would(store):
    store.start().assert_answers_like_the_log()


@pytest.mark.parametrize("removed", few(["all", "oldest", "middle", "newest"], 2))
def test_removed_files_are_built_anew(clean, removed):
    paths = sorted((clean.root / "index").iterdir())
    if removed == "all":
        shutil.rmtree(clean.root / "index")
    else:
        paths[{"oldest": 0, "middle": len(paths) // 2, "newest": -1}[removed]].unlink()
    follower = clean.start()
    follower.assert_answers_like_the_log()
    follower.stop()
    again = Follower(clean.log, clean.settings).start()
    assert again.engine.followed.durable == clean.log.end
    assert again.engine.report_lines == []


def test_without_an_index_rocketmqs_files_come_out_again(tmp_path):
    for name in ("4.9.8-small-clean", "4.9.8-transactions-delay-batch"):
        store = open_store(name, tmp_path)
        before = list(snapshot(store).values())
        shutil.rmtree(store.root / "index")
        store.start().stop()
        assert contents(store.files) == before


def test_the_service_answers_the_fixtures_query_lines(store):
    """As a linear scan of the `frame` lines, by the frame's own key and store time."""
    follower = store.start()
    # 5.4.0 and later index tags; what we index anew has no such keys.
    with_tags = store.name in fixtures.CLEAN_STORES and store.name.startswith("5.")
    tags = {m.offset: m.frame.properties.get("TAGS") for m in store.log.messages}
    frames = [
        (line["phyOffset"], line["storeTimestamp"], line["topic"], words_of(line, tags, with_tags))
        for line in fixtures.expected(store.name, "frame")
        if line["phyOffset"] in tags and line["sysFlag"] & ROLLBACK != ROLLBACK
    ]
    lines = list(fixtures.expected(store.name, "query"))
    assert len(lines) > 700
    for line in lines:
        topic, key, begin_ms = line["topic"], line["key"], max(line["begin"], 0)
        if key.startswith("T#") and store.name == "5.5.1-crash":
            continue  # some of its files are RocketMQ's, some ours
        end_ms = None if line["end"] >= 2**62 else line["end"]
        expected = [
            offset
            for offset, time_ms, of_topic, words in frames
            if of_topic == topic and key in words and begin_ms <= time_ms <= (end_ms or 2**62)
        ]
        most = line["maxNum"]
        newest = follower.ask(KeyQuery(topic, key, False, most, begin_ms, end_ms))
        assert [offset for offset, _ in newest.frames] == expected[::-1][:most], line
        assert newest.truncated == (len(expected) > most)


def words_of(line, tags, with_tags) -> set[str]:
    words = {line["uniqKey"], *split_keys(line["keys"] or "")}
    if with_tags and tags[line["phyOffset"]]:
        words.add(f"T#{tags[line['phyOffset']]}")
    return words


def test_full_files_of_a_crashed_rocketmq_stay_as_they_are(crashed):
    before = snapshot(crashed)
    crashed.start().stop()
    after = snapshot(crashed)
    full = list(before)[:-1]
    assert {name: after[name] for name in full} == {name: before[name] for name in full}


DAMAGE = {
    "lost items": lambda raw: raw[:200] + bytes(100) + raw[300:],
    "lost slots": lambda raw: raw[:40] + bytes(64) + raw[104:],
    "old header": lambda raw: raw[:36] + (3).to_bytes(4, "big") + raw[40:],
    "no header": lambda raw: bytes(40) + raw[40:],
    "all zeros": lambda raw: bytes(len(raw)),
    "wrong time": lambda raw: raw[:15] + bytes([raw[15] ^ 1]) + raw[16:],
    "wrong offset": lambda raw: raw[:104] + raw[104:124] + raw[124:135] + b"\1" + raw[136:],
    "an item twice": lambda raw: twice(raw),
}


def twice(raw: bytes) -> bytes:
    """As RocketMQ leaves it when it dispatches the last message again."""
    builder = IndexFileBuilder(bytearray(raw), 16, 64)
    last = list(builder.reader)[-1]
    header = builder.reader.header
    number, slot = header.next_item, last.key_hash % 16
    INDEX_ITEM.pack_into(
        builder.buffer,
        item_position(number, 16),
        last.key_hash,
        last.physical_offset,
        last.time_diff_seconds,
        builder.reader.slot(slot),
    )
    INDEX_SLOT.pack_into(builder.buffer, slot_position(slot), number)
    builder.buffer[36:40] = (number + 1).to_bytes(4, "big")
    return bytes(builder.buffer)


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_last_file_that_disagrees_with_the_log_is_built_anew(damage, tmp_path):
    store = open_store("4.9.8-small-clean", tmp_path)
    before = snapshot(store)
    path = store.root / "index" / list(before)[-1]
    path.write_bytes(DAMAGE[damage](path.read_bytes()))
    assert path.read_bytes() != before[path.name]
    follower = store.start()
    follower.assert_answers_like_the_log()
    follower.stop()
    assert contents(store.files) == list(before.values())
    assert len(follower.engine.report_lines) == 1
    assert follower.engine.report_lines[0].startswith(f"index/{path.name}: ")


@pytest.mark.parametrize("damage", ["lost items", "lost slots", "no header", "all zeros"])
def test_an_older_file_that_was_not_synced_is_built_anew(damage, tmp_path):
    store = open_store("4.9.8-small-clean", tmp_path)
    before = snapshot(store)
    path = store.root / "index" / list(before)[4]
    path.write_bytes(DAMAGE[damage](path.read_bytes()))
    (store.root / "checkpoint").write_bytes(bytes(4096))
    store.start().stop()
    assert contents(store.files) == list(before.values())


def test_items_after_a_crash_each_agree_with_the_log_and_none_is_there_twice(crashed):
    theirs = len(names(crashed.files))
    crashed.start().stop()
    expected: list[tuple[int, int]] = []
    for event in crashed.log.events(0, 1, count=1000):
        start = event.start - event.start % crashed.log.segment_bytes
        file = crashed.files.open(f"commitlog/{offset_name(start)}")
        raw = file.read(event.start - start, event.end - event.start)
        keys = index_keys(dispatch_columns(raw, event.start, event.lengths))
        expected += zip(keys.physical_offset.tolist(), keys.key_hash.tolist(), strict=True)
    found: list[tuple[int, int]] = []
    for number, raw in enumerate(contents(crashed.files)):
        reader = IndexFileView(raw, crashed.settings.index_slots, crashed.settings.index_items)
        assert reader.has_geometry_of_its_items()
        tagged = crashed.name.startswith("5.") and number < theirs
        for item in reader:
            if not tagged or (item.physical_offset, item.key_hash) in set(expected):
                found.append((item.physical_offset, item.key_hash))
    assert found == expected


def test_writing_continues_behind_the_last_file_of_a_clean_directory(clean):
    before = snapshot(clean)
    follower = clean.start()
    clean.log.time_ms = clean.log.messages[-1].frame.store_timestamp_ms
    clean.log.fill(100, seed=4)
    follower.apply()
    follower.sync()
    follower.assert_answers_like_the_log()
    follower.stop()
    after = snapshot(clean)
    full = list(before)[:-1]
    assert {name: after[name] for name in full} == {name: before[name] for name in full}
    assert len(after) > len(before)
    Follower(clean.log, clean.settings).start().assert_answers_like_the_log()


def test_a_restart_after_adoption_reads_nothing_again(clean):
    clean.start().stop()
    follower = Follower(clean.log, clean.settings).load()
    assert follower.engine.fold.resume_point() == (7, clean.log.end)


def test_rocketmq_may_have_run_in_between(clean):
    """Ours closed, then the files became RocketMQ's: what is right of them is kept."""
    before = snapshot(clean)
    shutil.rmtree(clean.root / "index")
    clean.start().stop()
    shutil.rmtree(clean.root / "index")
    (clean.root / "index").mkdir()
    for name, raw in before.items():
        (clean.root / "index" / name).write_bytes(raw)
    follower = Follower(clean.log, clean.settings).load()
    assert follower.engine.fold.resume_point() == (0, 0)
    follower.connect()
    follower.apply()
    follower.sync()
    follower.assert_answers_like_the_log()
    follower.stop()
    assert snapshot(clean) == before
