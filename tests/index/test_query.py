"""Queries by word, unique key, time, order and number: each match once, no other message."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from stratamq_index.index_file import IndexFileReader
from stratamq_index.persistence import EngineSettings
from stratamq_index.query import MAX_ANSWER_BYTES, KeyQuery

from stratamq.files.real import RealFiles
from stratamq.files.simulated import SimulatedDisk
from stratamq.formats.file_names import offset_name
from stratamq.formats.index_columns import INDEX_ITEM_DTYPE
from stratamq.formats.index_layout import INDEX_ITEM, INDEX_SLOT, item_position, slot_position
from stratamq.formats.javahash import index_key_hash
from tests.index.harness import GENERATION, ITEMS, SLOTS, START_MS, Follower, TestLog, names
from tests.index.test_index_columns import min_value_key
from tests.support.disks import open_below

WHERE = ["memory", "disk"]


@pytest.fixture(params=WHERE)
def follower(request) -> Follower:
    """An index whose newest items are in memory, or all on disk."""
    follower = Follower(TestLog(SimulatedDisk(1).files())).start()
    settle = follower.apply

    def apply() -> None:
        settle()
        if request.param == "disk":
            follower.sync()

    follower.apply = apply  # type: ignore[method-assign]
    return follower


def test_a_word_of_keys_and_a_unique_key_are_found_newest_first(follower):
    first = follower.log.append("red blue", "U1")
    second = follower.log.append("blue", "U2")
    follower.apply()
    assert follower.offsets("orders", "blue", oldest_first=False) == [second, first]
    assert follower.offsets("orders", "blue") == [first, second]
    assert follower.offsets("orders", "red") == [first]
    assert follower.offsets("orders", "U2") == [second]


def test_a_unique_key_question_does_not_look_at_keys(follower):
    follower.log.append("U1")
    second = follower.log.append("other", "U1")
    follower.apply()
    assert follower.offsets("orders", "U1", unique_only=True) == [second]
    assert len(follower.offsets("orders", "U1")) == 2


def test_another_topic_is_another_key(follower):
    follower.log.append("k", topic="payments")
    follower.apply()
    assert follower.offsets("orders", "k") == []


def test_keys_of_one_hash_never_bring_the_other(follower):
    assert index_key_hash("orders#Aa") == index_key_hash("orders#BB")
    first = follower.log.append("Aa")
    second = follower.log.append("BB")
    follower.apply()
    assert follower.offsets("orders", "Aa") == [first]
    assert follower.offsets("orders", "BB") == [second]


def test_a_topic_and_key_that_join_to_the_same_text_are_distinguished(follower):
    follower.log.append("b#c", topic="a")
    second = follower.log.append("c", topic="a#b")
    follower.apply()
    assert follower.offsets("a#b", "c") == [second]


def test_a_message_that_has_a_key_twice_is_found_once(follower):
    offset = follower.log.append("k k other k", "k")
    follower.apply()
    assert follower.offsets("orders", "k") == [offset]


def test_the_key_without_an_absolute_hash_is_found(follower):
    key = min_value_key("orders#").removeprefix("orders#")
    assert index_key_hash(f"orders#{key}") == 0
    offset = follower.log.append("", key)
    follower.apply()
    assert follower.offsets("orders", key) == [offset]


def test_keys_beyond_ascii_are_found(follower):
    offset = follower.log.append("ключ-9 鍵")
    follower.apply()
    assert follower.offsets("orders", "ключ-9") == [offset]
    assert follower.offsets("orders", "鍵") == [offset]


def test_times_are_inclusive_and_to_the_millisecond(follower):
    offsets = [follower.log.append("k", step_ms=1) for _ in range(5)]
    follower.apply()
    for first in range(5):
        for last in range(first, 5):
            window = {"begin_ms": START_MS + 1 + first, "end_ms": START_MS + 1 + last}
            assert follower.offsets("orders", "k", **window) == offsets[first : last + 1]


def test_more_than_asked_for_is_reported(follower):
    offsets = [follower.log.append("k") for _ in range(5)]
    follower.apply()
    for most in range(1, 7):
        answer = follower.ask(KeyQuery("orders", "k", max_messages=most))
        assert [offset for offset, _ in answer.frames] == offsets[::-1][:most]
        assert answer.truncated == (most < 5)
        answer = follower.ask(KeyQuery("orders", "k", max_messages=most, oldest_first=True))
        assert [offset for offset, _ in answer.frames] == offsets[:most]


def test_the_frames_are_those_of_the_log(follower):
    follower.log.append("k", body=b"x" * 2000)
    follower.apply()
    [(_, raw)] = follower.ask(KeyQuery("orders", "k")).frames
    file = follower.log.files.open(f"commitlog/{offset_name(0)}")
    assert file.read(0, len(raw)) == raw
    assert follower.log.messages[0].frame.total_size == len(raw)


def test_an_answer_is_cut_where_a_grpc_message_would_not_hold_it():
    log = TestLog(SimulatedDisk(1).files(), segment_bytes=4 << 20)
    size = MAX_ANSWER_BYTES // 3
    offsets = [log.append("k", body=b"x" * size) for _ in range(4)]
    follower = Follower(log).start()
    answer = follower.ask(KeyQuery("orders", "k"))
    assert [offset for offset, _ in answer.frames] == offsets[::-1][:2]
    assert answer.truncated


def test_tag_keys_of_newer_rocketmqs_are_answered_where_they_are_indexed(follower):
    offset = follower.log.append("T#TagA")
    tagged = follower.log.append("x", tags="TagA")
    follower.apply()
    # We write no tag keys: only the word finds it.
    assert follower.offsets("orders", "T#TagA") == [offset]
    assert KeyQuery("orders", "T#TagA").matches(
        next(m.frame for m in follower.log.messages if m.offset == tagged)
    )


messages = st.lists(
    st.tuples(
        st.lists(st.sampled_from(["Aa", "BB", "k", "U1"]), max_size=3),
        st.sampled_from([None, "U1", "U2", "Aa"]),
        st.integers(-4000, 4000),
        st.booleans(),
    ),
    max_size=40,
)
windows = st.tuples(st.integers(-9000, 40_000), st.integers(0, 20_000))


@given(messages, windows, st.integers(1, 5), st.integers(1, 9))
@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
def test_any_question_is_answered_as_a_linear_scan_would(drawn, window, most, portion):
    """Clocks that go back, windows of any width, items in memory and on disk."""
    log = TestLog(SimulatedDisk(1).files())
    follower = Follower(log).start()
    for number, (words, unique, step_ms, synced) in enumerate(drawn):
        log.append(" ".join(words), unique, step_ms=step_ms)
        if number % portion == 0:
            follower.apply()
            if synced:
                follower.sync()
    follower.apply()
    begin_ms = max(START_MS + window[0], 0)
    for key in ("Aa", "BB", "k", "U1", "U2"):
        for unique_only in (False, True):
            question = KeyQuery(
                "orders", key, unique_only, most, begin_ms, begin_ms + window[1], True
            )
            expected = log.scan(question)
            answer = follower.ask(question)
            assert [offset for offset, _ in answer.frames] == expected[:most]
            assert answer.truncated == (len(expected) > most)
            newest = follower.ask(
                KeyQuery("orders", key, unique_only, most, begin_ms, begin_ms + window[1])
            )
            assert [offset for offset, _ in newest.frames] == expected[::-1][:most]


def test_an_hour_that_a_clock_was_set_back_hides_nothing():
    log = TestLog(SimulatedDisk(1).files())
    for step_ms in [1000] * 20 + [-3_590_000] + [1000] * 20:
        log.append("k", step_ms=step_ms)
    follower = Follower(log).start()
    times = sorted(message.frame.store_timestamp_ms for message in log.messages)
    for time_ms in times:
        question = KeyQuery("orders", "k", False, 100, time_ms, time_ms, True)
        assert follower.offsets("orders", "k", begin_ms=time_ms, end_ms=time_ms) == log.scan(
            question
        )


# --- damage ---


def one_file(words: int = 6) -> tuple[Follower, str]:
    log = TestLog(SimulatedDisk(1).files())
    for _ in range(words):
        log.append("k")
    follower = Follower(log).start()
    return follower, f"index/{names(log.files)[0]}"


def overwrite(follower: Follower, path: str, position: int, raw: bytes) -> None:
    file = follower.log.files.open(path, writable=True)
    file.write(position, raw)
    file.close()


def test_a_circle_of_items_is_walked_once():
    follower, path = one_file()
    key_hash = index_key_hash("orders#k")
    raw = INDEX_ITEM.pack(key_hash, follower.log.messages[1].offset, 0, 5)
    overwrite(follower, path, item_position(2, SLOTS), raw)
    found = follower.offsets("orders", "k")
    assert found == sorted(set(found))
    assert len(found) == 5


@pytest.mark.parametrize("number", [-5, 0, 7, 10**6, 2**31 - 1])
def test_an_item_that_leads_nowhere_ends_its_chain(number):
    follower, path = one_file()
    key_hash = index_key_hash("orders#k")
    raw = INDEX_ITEM.pack(key_hash, follower.log.messages[3].offset, 0, number)
    overwrite(follower, path, item_position(4, SLOTS), raw)
    expected = [message.offset for message in follower.log.messages[3:]]
    assert follower.offsets("orders", "k") == expected


@pytest.mark.parametrize("offset", [-1, 1, 5, 10**15, 2**62])
def test_an_item_that_points_beside_a_frame_brings_nothing(offset):
    follower, path = one_file()
    raw = INDEX_ITEM.pack(index_key_hash("orders#k"), offset, 0, 3)
    overwrite(follower, path, item_position(4, SLOTS), raw)
    del follower.log.messages[3]
    follower.assert_answers_like_the_log()


def test_an_item_that_points_above_what_is_indexed_brings_nothing():
    """The message there has the key, and the log has not confirmed it."""
    follower, path = one_file()
    unconfirmed = follower.log.append("k")
    raw = INDEX_ITEM.pack(index_key_hash("orders#k"), unconfirmed, 0, 3)
    overwrite(follower, path, item_position(4, SLOTS), raw)
    del follower.log.messages[3], follower.log.messages[-1]
    follower.assert_answers_like_the_log()


@pytest.mark.parametrize("number", [-1, 99, 2**31 - 1])
def test_a_slot_that_points_nowhere_brings_nothing(number):
    log = TestLog(SimulatedDisk(1).files())
    for _ in range(ITEMS):
        log.append("k")
    follower = Follower(log).start()
    slot = index_key_hash("orders#k") % SLOTS
    path = f"index/{names(log.files)[0]}"
    overwrite(follower, path, slot_position(slot), INDEX_SLOT.pack(number))
    assert follower.offsets("orders", "k") == [log.messages[-1].offset]


def test_a_frame_that_claims_another_place_brings_nothing():
    """An offset inside a body that holds a whole frame with the key."""
    log = TestLog(SimulatedDisk(1).files())
    log.append("k")
    inner = log.files.open(f"commitlog/{offset_name(0)}")
    frame = inner.read(0, log.end)
    outer = log.append("other", body=frame)
    log.append("k")
    follower = Follower(log).start()
    path = f"index/{names(log.files)[0]}"
    raw = INDEX_ITEM.pack(index_key_hash("orders#k"), outer + 88, 0, 1)
    overwrite(follower, path, item_position(3, SLOTS), raw)
    assert 0 in follower.offsets("orders", "k")
    assert outer + 88 not in follower.offsets("orders", "k")


def test_an_index_file_that_vanishes_takes_only_its_messages_along():
    log = TestLog(SimulatedDisk(1).files())
    log.fill(60)
    follower = Follower(log).start()
    before = {question: log.scan(KeyQuery(*question)) for question in log.questions()}
    record = follower.engine.records[1]
    file = IndexFileReader.open(log.files, f"index/{record.name}", follower.engine.geometry)
    items = [records for _, records in file.pieces(1, record.header.next_item)]
    gone = set(np.concatenate(items)["physical_offset"].tolist())
    file.close()
    log.files.unlink(f"index/{record.name}")
    lost = 0
    for question, offsets in before.items():
        found = follower.offsets(*question)
        assert set(offsets) - gone <= set(found) <= set(offsets)
        newest_first = follower.offsets(*question, oldest_first=False)
        assert newest_first == found[::-1]
        lost += len(offsets) - len(found)
    assert lost > 0
    assert any(set(offsets) - gone for offsets in before.values())


@pytest.mark.parametrize("at", ["body", "checksum"])
def test_a_damaged_message_is_left_out_and_named(at):
    disk = SimulatedDisk(1)
    log = TestLog(disk.files())
    offsets = [log.append("k", body=b"body" * 5) for _ in range(3)]
    follower = Follower(log).start()
    position = offsets[1] + (90 if at == "body" else 9)
    disk.rot(f"commitlog/{offset_name(0)}", position, b"\xa5")
    assert follower.offsets("orders", "k") == [offsets[0], offsets[2]]
    (line,) = follower.engine.lane.damage
    assert f"the message at log offset {offsets[1]} is damaged" in line


def test_a_query_keeps_few_index_files_open(tmp_path):
    log = TestLog(RealFiles(tmp_path))
    log.fill(150)
    follower = Follower(log, EngineSettings(SLOTS, ITEMS, max_open_files=2)).start()
    follower.sync()
    assert len(names(log.files)) > 6
    for topic, key in log.questions():
        follower.offsets(topic, key)
    opened = open_below(tmp_path / "index")
    assert len(opened) <= 3, "two for queries, and the file that is written"


def test_segments_that_were_deleted_are_not_answered():
    log = TestLog(SimulatedDisk(1).files())
    log.fill(80)
    follower = Follower(log).start()
    log.delete_below(2 * log.segment_bytes)
    # The index has no notice of it yet and detects it by itself.
    follower.assert_answers_like_the_log()


# --- long chains ---


def test_a_chain_of_thousands_is_walked_in_turns():
    log = TestLog(SimulatedDisk(1).files(), segment_bytes=1 << 20)
    count = 3000
    for number in range(count):
        log.append("k" if number % 3 else "other")
    follower = Follower(log, EngineSettings(4, 10_000)).start()
    expected = [m.offset for m in log.messages if m.frame.properties["KEYS"] == "k"]
    assert follower.offsets("orders", "k") == expected
    answer = follower.ask(KeyQuery("orders", "k", max_messages=3))
    assert [offset for offset, _ in answer.frames] == expected[::-1][:3]


def test_many_questions_at_once_share_few_descriptors():
    log = TestLog(SimulatedDisk(1).files())
    log.fill(150)
    settings_ = EngineSettings(SLOTS, ITEMS, max_open_files=1)
    follower = Follower(log, settings_, seed=3).start()
    clock = follower.clock
    asked = list(log.questions())
    answers = {}
    for topic, key in asked:
        # Every look at the clock takes a turn's time: each question is done in many turns.
        question = KeyQuery(topic, key, max_messages=10_000, oldest_first=True)
        follower.engine.ask(
            question, lambda answer, error, which=(topic, key): answers.update({which: answer})
        )
    monotonic_ns = clock.monotonic_ns
    clock.monotonic_ns = lambda: clock.advance_ms(20) or monotonic_ns()  # type: ignore[method-assign]
    follower.settle()
    for topic, key in asked:
        found = [offset for offset, _ in answers[topic, key].frames]
        assert found == log.scan(KeyQuery(topic, key))


def test_a_question_overtaken_by_a_cut_is_asked_again():
    log = TestLog(SimulatedDisk(1).files())
    log.fill(60)
    follower = Follower(log).start()
    topic, key = next(iter(log.questions()))
    answers = []
    follower.engine.ask(
        KeyQuery(topic, key, max_messages=10_000, oldest_first=True),
        lambda answer, error: answers.append((answer, error)),
    )
    middle = log.messages[30].offset
    log.cut(middle)
    follower.connect(cut_to=middle, generation=GENERATION + 1)
    follower.settle()
    [(answer, error)] = answers
    assert error is None
    expected = log.scan(KeyQuery(topic, key))
    assert [offset for offset, _ in answer.frames] == expected


def test_the_item_type_of_the_columns_is_the_scalar_layout():
    assert np.dtype(INDEX_ITEM_DTYPE).itemsize == INDEX_ITEM.size
