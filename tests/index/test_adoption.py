"""Index files without a watermark: kept where the log agrees, dropped where it does not."""

import pytest

from stratamq.files.simulated import SimulatedDisk
from stratamq.formats.index_layout import (
    INDEX_HEADER,
    INDEX_ITEM,
    INDEX_SLOT,
    IndexHeader,
    encode_index_header,
    index_file_bytes,
    index_tag_key,
    item_position,
    slot_position,
)
from stratamq.formats.javahash import index_key_hash
from tests.index.harness import (
    GENERATION,
    ITEMS,
    SLOTS,
    Follower,
    TestLog,
    contents,
    name_of,
    names,
)
from tests.support.disks import write_file


@pytest.fixture
def log() -> TestLog:
    log = TestLog(SimulatedDisk(1).files())
    log.fill(100)
    return log


def foreign(log: TestLog, upto: int | None = None) -> list[bytes]:
    """Index files as RocketMQ would have left them; the bytes."""
    follower = Follower(log).load()
    follower.connect()
    follower.settle()
    for event in log.events(0, GENERATION, count=1):
        if upto is None or event.end <= upto:
            list(follower.engine.fold.apply(event))
    follower.stop()
    for path in ("stratamq/index.json", "stratamq/index.json.previous"):
        if log.files.entry(path) is not None:
            log.files.unlink(path)
    return contents(log.files)


def test_files_that_hold_keep_their_bytes_and_are_gone_on_with(log):
    before = foreign(log)
    follower = Follower(log).start()
    assert follower.engine.report_lines == []
    assert contents(log.files)[:-1] == before[:-1]
    log.fill(30, seed=2)
    follower.apply()
    follower.sync()
    follower.assert_answers_like_the_log()
    follower.stop()
    assert contents(log.files) == log.index_files()


def test_an_index_that_is_behind_the_log_is_gone_on_with(log):
    before = foreign(log, upto=log.end // 2)
    follower = Follower(log).start()
    assert follower.engine.report_lines == []
    follower.stop()
    assert contents(log.files) == log.index_files()
    assert contents(log.files)[: len(before) - 1] == before[:-1]


@pytest.mark.parametrize("part", [0.05, 0.3, 0.6, 0.95])
def test_files_beyond_the_end_of_a_log_that_lost_its_tail_are_dropped(log, part):
    foreign(log)
    log.cut(log.messages[int(part * 100)].offset)
    follower = Follower(log).start()
    assert follower.engine.report_lines
    follower.assert_answers_like_the_log()
    follower.stop()
    assert contents(log.files) == log.index_files()


def test_with_an_empty_log_no_file_can_be_right(log):
    foreign(log)
    log.cut(0)
    follower = Follower(log).load()
    follower.connect()
    follower.settle()
    assert follower.engine.followed.serving
    assert names(log.files) == []
    log.fill(40, seed=3)
    follower.apply()
    follower.stop()
    assert contents(log.files) == log.index_files()


@pytest.mark.parametrize("segments", [1, 2, 3])
def test_what_the_log_no_longer_has_is_believed(log, segments):
    before = foreign(log)
    log.delete_below(segments * log.segment_bytes)
    follower = Follower(log).load()
    follower.connect()
    follower.apply()
    assert follower.engine.report_lines == []
    follower.assert_answers_like_the_log()
    follower.stop()
    kept = contents(log.files)
    assert kept == before[len(before) - len(kept) :]


def test_every_place_where_the_connection_may_break_ends_the_same(log):
    before = foreign(log)
    for steps in (2, 3, 5, 8, 13, 21, 34):
        for path in ("stratamq/index.json", "stratamq/index.json.previous"):
            if log.files.entry(path) is not None:
                log.files.unlink(path)
        follower = Follower(log).load()
        follower.connect()
        follower.settle()
        done = 0
        while not follower.engine.followed.serving:
            for event in log.events(follower.engine.followed.applied, GENERATION, count=7):
                broken = False
                for _ in follower.engine.fold.apply(event):
                    done += 1
                    if done % steps == 0:
                        broken = True
                        break
                if broken:
                    break
            follower.connect()
            follower.settle()
        follower.assert_answers_like_the_log()
        follower.stop()
        assert contents(log.files) == before, steps


@pytest.mark.parametrize("broken_at", [1, 3, 10, 20])
def test_a_log_of_another_history_that_answers_meanwhile_is_believed(log, broken_at):
    foreign(log)
    follower = Follower(log).load()
    follower.connect()
    follower.settle()
    steps = follower.engine.fold.apply(next(log.events(0, GENERATION, count=20)))
    for _ in range(broken_at):
        next(steps, None)
    steps.close()
    offset = log.messages[10].offset
    log.cut(offset)
    log.fill(50, seed=77)
    cut_to = min(follower.engine.followed.applied, offset)
    follower.connect(cut_to=cut_to, generation=GENERATION + 1)
    follower.apply()
    follower.assert_answers_like_the_log()
    follower.stop()
    assert contents(log.files) == log.index_files()


def test_an_empty_file_that_rocketmq_made_ahead_is_used(log):
    """RocketMQ makes a file for the next message, even for one without keys."""
    log = TestLog(log.files)
    log.cut(0)
    for _ in range(ITEMS - 1):
        log.append("k")
    log.append("")
    foreign(log)
    last = INDEX_HEADER.unpack(contents(log.files)[-1][: INDEX_HEADER.size])
    header = IndexHeader(last[1], last[1], last[3], last[3], 0, 0)
    raw = encode_index_header(header).ljust(index_file_bytes(SLOTS, ITEMS), b"\0")
    name = name_of(log.time_ms + 5)
    write_file(log.files, f"index/{name}", raw)
    follower = Follower(log).start()
    assert follower.engine.report_lines == []
    log.append("k", step_ms=5000)
    follower.apply()
    follower.stop()
    assert names(log.files)[-1] == name
    assert contents(log.files) == log.index_files()


def test_tag_keys_of_newer_rocketmqs_are_part_of_what_agrees(log):
    """5.4 and later put one more item behind the keys of a message with tags."""
    log = TestLog(log.files)
    log.cut(0)
    log.append("a", tags="TagA")
    log.append("b")
    log.append("c", tags="TagB")
    foreign(log)
    path = f"index/{names(log.files)[0]}"
    texts = ["orders#a", index_tag_key("orders", "TagA"), "orders#b", "orders#c"]
    texts.append(index_tag_key("orders", "TagB"))
    offsets = [log.messages[number].offset for number in (0, 0, 1, 2, 2)]
    rewrite(log, path, texts, offsets)
    before = contents(log.files)
    follower = Follower(log).start()
    follower.stop()
    assert follower.engine.report_lines == []
    assert contents(log.files) == before
    assert Follower(log).start().offsets("orders", "T#TagB") == offsets[-1:]
    # One tag key that is wrong, and the file is dropped.
    for path_of_ours in ("stratamq/index.json", "stratamq/index.json.previous"):
        log.files.unlink(path_of_ours)
    texts[-1] = index_tag_key("orders", "TagC")
    rewrite(log, path, texts, offsets)
    follower = Follower(log).start()
    follower.stop()
    assert follower.engine.report_lines
    assert contents(log.files) == log.index_files()


def rewrite(log: TestLog, path: str, texts: list[str], offsets: list[int]) -> None:
    """The file with these keys, all of one second."""
    first, last = log.messages[0].frame, log.messages[-1].frame
    raw = bytearray(index_file_bytes(SLOTS, ITEMS))
    table = [0] * SLOTS
    for number, (text, offset) in enumerate(zip(texts, offsets, strict=True), 1):
        key_hash = index_key_hash(text)
        slot = key_hash % SLOTS
        INDEX_ITEM.pack_into(raw, item_position(number, SLOTS), key_hash, offset, 0, table[slot])
        table[slot] = number
        INDEX_SLOT.pack_into(raw, slot_position(slot), number)
    header = IndexHeader(
        first.store_timestamp_ms,
        last.store_timestamp_ms,
        first.physical_offset,
        last.physical_offset,
        sum(1 for number in table if number),
        len(texts) + 1,
    )
    raw[: INDEX_HEADER.size] = encode_index_header(header)
    file = log.files.open(path, writable=True)
    file.write(0, raw)
    file.flush()
    file.close()
