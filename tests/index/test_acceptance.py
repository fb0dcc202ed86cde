"""RocketMQ's own store tests, where they are about the index, and the cases they leave out.

Names in brackets are those of the Java tests. Where they are weak, the stronger form is asked.
"""

import numpy as np
from stratamq_index.persistence import EngineSettings
from stratamq_index.query import MAX_MESSAGES, KeyQuery

from stratamq.files.simulated import SimulatedDisk
from stratamq.follow.protocol import Event
from stratamq.formats.index_columns import IndexKeys, IndexState
from stratamq.formats.index_file import IndexFileView
from stratamq.formats.index_layout import index_key
from stratamq.formats.javahash import index_key_hash
from tests.index.harness import GENERATION, Follower, TestLog, names
from tests.support.index_files import MAX_QUERY_RESULTS, IndexFilesBuilder, query_index_files

SLOTS, ITEMS = 100, 400
NOW_MS = 1_500_000_000_000


def keys(texts: list[str], step_ms: int = 1) -> IndexKeys:
    count = len(texts)
    return IndexKeys(
        np.array([index_key_hash(text) for text in texts], np.int32),
        np.arange(count, dtype=np.int64) * 100,
        NOW_MS + step_ms * np.arange(count, dtype=np.int64),
    )


def test_399_keys_fit_and_the_400th_does_not():
    """[IndexFileTest.testPutKey]"""
    state = IndexState(SLOTS, ITEMS)
    assert len(state.put(keys([str(number) for number in range(400)]))) == 399
    assert state.is_full
    assert len(state.put(keys(["one more"]))) == 0


def test_a_full_file_answers_one_key_with_exactly_its_message():
    """[IndexFileTest.testSelectPhyOffset]"""
    builder = IndexFilesBuilder(SLOTS, ITEMS)
    builder.put(keys([str(number) for number in range(399)]))
    [raw] = builder.files()
    reader = IndexFileView(raw, SLOTS, ITEMS)
    for number in (0, 60, 398):
        assert reader.query(str(number), 64, 0, 2**62) == [number * 100]


def test_asking_for_2_147_483_647_messages_does_not_raise():
    """[IndexServiceTest.testQueryOffsetThrow] Clamped before anything is allocated."""
    builder = IndexFilesBuilder(SLOTS, ITEMS)
    builder.put(keys(["k"] * 100))
    readers = [IndexFileView(raw, SLOTS, ITEMS) for raw in builder.files()]
    assert len(query_index_files(readers, "k", 2**31 - 1, 0, 2**62)) == MAX_QUERY_RESULTS
    log = TestLog(SimulatedDisk(1).files(), segment_bytes=1 << 20)
    for _ in range(100):
        log.append("k")
    follower = Follower(log).start()
    answer = follower.ask(KeyQuery("orders", "k", max_messages=2**31 - 1))
    assert len(answer.frames) == 100
    assert MAX_MESSAGES == 10_000


def test_expired_index_files_are_a_seventh_of_the_expired_log_files():
    """[DefaultMessageStoreCleanFilesTest.testDeleteExpiredFilesByTimeUp] One message in each log
    file of 128 bytes, 7 items in each index file: of 10 and 5 log files gone, floor(n/7)."""
    log = TestLog(SimulatedDisk(1).files(), segment_bytes=128)
    for _ in range(55):
        log.append("hello", topic="test", body=b"x" * 15)
    assert [message.offset for message in log.messages] == list(range(0, 55 * 128, 128))
    follower = Follower(log, EngineSettings(8, 8)).start()
    assert len(names(log.files)) == 8
    gone = 0
    for deleted in (10, 5):
        gone += deleted
        log.delete_below(gone * 128)
        event = Event(GENERATION, log.end, log.end, log.end, log.end, log.minimum)
        list(follower.engine.fold.apply(event))
        follower.sync()
        assert len(names(log.files)) == 8 - gone // 7
    assert follower.offsets("test", "hello") == [m.offset for m in log.messages[15:]]


def test_a_chain_is_newest_first_and_colliding_keys_share_a_slot():
    state = IndexState(5, 10)
    items = state.put(keys(["t#Aa", "t#BB", "t#Aa"]))
    assert len(set(items.slot.tolist())) == 1
    assert items.previous.tolist() == [0, 1, 2]
    assert state.table[items.slot[0]] == 3
    assert state.hash_slot_count == 1


def test_times_of_items_are_whole_seconds():
    builder = IndexFilesBuilder(5, 10)
    builder.put(keys(["t#k"] * 4, step_ms=999))
    reader = IndexFileView(builder.files()[0], 5, 10)
    assert [item.time_diff_seconds for item in reader] == [0, 0, 1, 2]
    # 999 ms after the begin counts as the begin.
    assert reader.query("t#k", 64, NOW_MS, NOW_MS) == [100, 0]


def test_the_service_looks_at_the_frames_own_milliseconds():
    log = TestLog(SimulatedDisk(1).files())
    found = [log.append("k", step_ms=999) for _ in range(4)]
    follower = Follower(log).start()
    first_ms = log.messages[0].frame.store_timestamp_ms
    assert follower.offsets("orders", "k", begin_ms=first_ms, end_ms=first_ms) == found[:1]


def test_64_results_are_rocketmqs_limit_and_not_ours():
    log = TestLog(SimulatedDisk(1).files(), segment_bytes=1 << 20)
    found = [log.append("k") for _ in range(70)]
    follower = Follower(log).start()
    assert follower.offsets("orders", "k") == found


def test_a_roll_in_the_middle_of_one_messages_keys_loses_none_of_them():
    log = TestLog(SimulatedDisk(1).files())
    log.append(" ".join(f"a{number}" for number in range(5)))
    split = log.append(" ".join(f"b{number}" for number in range(5)), "U")
    follower = Follower(log, EngineSettings(5, 8)).start()
    assert len(names(log.files)) == 2
    records = follower.engine.records
    assert records[0].header.end_phy_offset == records[1].header.begin_phy_offset == split
    for word in ("U", "b0", "b1", "b2", "b4"):
        assert follower.offsets("orders", word) == [split]


def test_the_key_text_is_topic_hash_key():
    assert index_key_hash(index_key("TopicTest", "order-1")) == 1_829_193_424
    assert index_key_hash(index_key("TopicTest", "order-2")) == 1_829_193_423
