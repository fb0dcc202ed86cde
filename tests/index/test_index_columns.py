"""The columnar builder writes the bytes that RocketMQ, and the scalar builder, write."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stratamq.formats import sysflag
from stratamq.formats.dispatch import DispatchColumns, dispatch_columns, scan_lengths
from stratamq.formats.frame_check import FrameOutcome, check
from stratamq.formats.index_columns import (
    IndexKeys,
    IndexState,
    index_keys,
    item_records,
    put_keys,
)
from stratamq.formats.index_file import IndexFileView
from stratamq.formats.index_layout import IndexHeader, encode_index_header, index_key
from stratamq.formats.javahash import index_key_hash, java_string_hash
from stratamq.formats.numbers import INT32_MIN
from tests.support import fixtures
from tests.support.index_files import IndexFileBuilder, IndexFilesBuilder, query_index_files

SLOTS, ITEMS = 5, 9

messages = st.lists(
    st.tuples(
        st.lists(st.sampled_from(["a#1", "a#2", "b#é", "Aa#x", "BB#x"]), max_size=4),
        st.integers(-3000, 9000),
    ),
    max_size=25,
)


def scalar_files(puts: list[tuple[str, int, int]], slots=SLOTS, items=ITEMS) -> list[bytes]:
    files: list[IndexFileBuilder] = []
    for key_text, offset, time_ms in puts:
        if not files or files[-1].is_full:
            last = files[-1].reader.header if files else None
            end = (last.end_phy_offset, last.end_timestamp_ms) if last else (0, 0)
            files.append(IndexFileBuilder.create(slots, items, *end))
        assert files[-1].put(key_text, offset, time_ms)
    return [bytes(file.buffer) for file in files]


def keys_of(puts: list[tuple[str, int, int]]) -> IndexKeys:
    return IndexKeys(
        np.array([index_key_hash(text) for text, _, _ in puts], np.int32),
        np.array([offset for _, offset, _ in puts], np.int64),
        np.array([time_ms for _, _, time_ms in puts], np.int64),
    )


def puts_of(drawn) -> list[tuple[str, int, int]]:
    time_ms = 1_500_000_000_000
    puts = []
    for number, (texts, step_ms) in enumerate(drawn):
        time_ms += step_ms
        puts += [(text, number * 100, time_ms) for text in texts]
    return puts


@given(messages, st.integers(1, 30))
@settings(max_examples=300)
def test_any_keys_in_any_portions_give_the_scalar_builders_bytes(drawn, portion):
    puts = puts_of(drawn)
    builder = IndexFilesBuilder(SLOTS, ITEMS)
    for start in range(0, len(puts), portion):
        builder.put(keys_of(puts[start : start + portion]))
    assert builder.files() == scalar_files(puts)


@given(messages, st.integers(0, 8))
def test_a_cut_leaves_what_was_before(drawn, kept):
    puts = puts_of(drawn)[: ITEMS - 1]
    kept = min(kept, len(puts))
    whole, before = IndexState(SLOTS, ITEMS), IndexState(SLOTS, ITEMS)
    before.put(keys_of(puts[:kept]))
    items = whole.put(keys_of(puts))
    whole.cut(1 + kept, items.slot[kept:], items.previous[kept:])
    assert whole.table.tolist() == before.table.tolist()
    assert (whole.next_item, whole.hash_slot_count) == (before.next_item, before.hash_slot_count)


@given(messages)
def test_chains_follow_from_the_hash_column_alone(drawn):
    puts = puts_of(drawn)[: ITEMS - 1]
    state, replayed = IndexState(SLOTS, ITEMS), IndexState(SLOTS, ITEMS)
    items = state.put(keys_of(puts))
    half = len(puts) // 2
    previous = [replayed.replay(part) for part in (items.key_hash[:half], items.key_hash[half:])]
    assert np.concatenate(previous).tolist() == items.previous.tolist()
    assert replayed.table.tolist() == state.table.tolist()
    assert replayed.hash_slot_count == state.hash_slot_count


@pytest.mark.parametrize("name", ["4.9.8-small-clean", "4.9.8-transactions-delay-batch"])
def test_rocketmqs_own_files_come_out_byte_for_byte(name, tmp_path):
    root = fixtures.unpack(name, tmp_path)
    theirs = [path.read_bytes() for path in sorted((root / "index").iterdir())]
    assert build(root).files() == theirs


def test_full_files_of_a_crashed_rocketmq_come_out_byte_for_byte(tmp_path):
    root = fixtures.unpack("4.9.8-crash", tmp_path)
    theirs = [path.read_bytes() for path in sorted((root / "index").iterdir())]
    assert build(root).files()[: len(theirs) - 1] == theirs[:-1]
    assert len(theirs) == 9


@pytest.mark.parametrize("name", fixtures.CLEAN_STORES)
def test_every_message_is_found_in_what_is_built(name, tmp_path):
    root = fixtures.unpack(name, tmp_path)
    geometry = fixtures.geometry(root)
    builder = build(root)
    readers = [IndexFileView(raw, geometry.slots, geometry.items) for raw in builder.files()]
    for line in fixtures.expected(name, "frame"):
        if line.get("uniqKey") and line["sysFlag"] & 12 != sysflag.TRANSACTION_ROLLBACK:
            key = index_key(line["topic"], line["uniqKey"])
            assert line["phyOffset"] in query_index_files(readers, key, 64, 0, 2**62)


def build(root) -> IndexFilesBuilder:
    geometry = fixtures.geometry(root)
    builder = IndexFilesBuilder(geometry.slots, geometry.items)
    for start, data in fixtures.log_files(root):
        end = 0
        while end + 8 <= len(data):
            outcome, size = check(data, end)
            if outcome not in (FrameOutcome.GOOD, FrameOutcome.BLANK):
                break
            end += size
        lengths = scan_lengths(data[:end], start, start + end)
        builder.put(index_keys(dispatch_columns(data[:end], start, lengths)))
    return builder


def test_the_golden_file_of_five_slots_and_six_items():
    vector = fixtures.vectors()["index_file_5slots_6items"]
    raw = bytes.fromhex(vector["hex"])
    reader = IndexFileView(raw, 5, 6)
    builder = IndexFilesBuilder(5, 6)
    header = reader.header
    times = [header.begin_timestamp_ms + 1000 * item.time_diff_seconds for item in reader]
    times[-1] = header.end_timestamp_ms
    records = item_records(raw, 5, 1, header.next_item)
    keys = IndexKeys(
        records["key_hash"].astype(np.int32),
        records["physical_offset"].astype(np.int64),
        np.array(times, np.int64),
    )
    builder.put(keys)
    assert builder.files() == [raw]


def test_the_golden_rollover_keeps_the_skew():
    vector = fixtures.vectors()["index_file_rollover"]
    created = bytes.fromhex(vector["headerAfterCreate"])
    end_ms = int.from_bytes(created[8:16], "big")
    end_offset = int.from_bytes(created[24:32], "big")
    before = IndexHeader(0, end_ms, 0, end_offset, 0, 6)
    state = IndexState(5, 6, before)
    assert encode_index_header(state.header()) == created
    items = state.put(
        IndexKeys(
            np.array([7], np.int32),
            np.array([end_offset + 144], np.int64),
            np.array([end_ms + 10_500], np.int64),
        )
    )
    assert items.records["seconds"].tolist() == [10]
    assert state.begin_timestamp_ms == end_ms + 10_500


def test_a_file_is_full_one_item_early_and_a_message_is_split_there():
    state = IndexState(SLOTS, ITEMS)
    keys = keys_of([("a#1", 100 * number, 1_500_000_000_000) for number in range(7)])
    list(put_keys(state, keys))
    last = keys_of([(text, 700, 1_500_000_000_000) for text in ("a#1", "a#2", "b#1")])
    parts = list(put_keys(state, last))
    assert [len(items) for _, items in parts] == [1, 2]
    assert [part.end_phy_offset for part, _ in parts] == [700, 700]
    assert state.is_full
    assert parts[1][0] is not state


def test_the_key_without_an_absolute_hash_is_indexed_in_slot_zero():
    key = min_value_key("t#")
    assert java_string_hash(key) == INT32_MIN
    state = IndexState(SLOTS, ITEMS)
    items = state.put(keys_of([(key, 0, 1_500_000_000_000)]))
    assert items.key_hash.tolist() == [0]
    assert items.slot.tolist() == [0]
    assert scalar_files([(key, 0, 1_500_000_000_000)])[0][40:44] == b"\0\0\0\1"


def min_value_key(prefix: str) -> str:
    """A text that begins with `prefix` and hashes to 0x80000000."""
    for number in range(100_000):
        head = f"{prefix}{number * 2_654_435_761 % 2**32:08x}"
        # Two units more: head·31² + first·31 + second.
        rest = (0x80000000 - java_string_hash(head) * 961) & 0xFFFFFFFF
        first, second = divmod(rest, 31)
        if 33 < first < 0xD000:
            return head + chr(first - 1) + chr(second + 31)
    raise AssertionError("no such key")


def test_rollbacks_are_left_out_and_everything_else_is_in():
    n = 4
    i64, i32 = np.zeros(n, np.int64), np.zeros(n, np.int32)
    columns = DispatchColumns(
        physical_offset=np.arange(n, dtype=np.int64),
        size=i32,
        queue_id=i32,
        queue_offset=i64,
        store_timestamp_ms=i64,
        sys_flag=np.array([0, 4, 8, 12], np.int32),
        tags_code=i64,
        topic_index=i32,
        topics=["t"],
        key_row=np.array([0, 1, 1, 2, 3, 3], np.int32),
        key_hash=np.arange(6, dtype=np.int32),
    )
    keys = index_keys(columns)
    assert keys.physical_offset.tolist() == [0, 1, 1, 2]
    assert keys.key_hash.tolist() == [0, 1, 2, 3]
