"""Dispatch columns, compared with the scalar codecs, the fixtures and RocketMQ's report of them."""

import random
from functools import lru_cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stratamq.errors import CorruptRecordError
from stratamq.formats import dispatch, kernel
from stratamq.formats import frame as frames
from stratamq.formats.delay import dispatch_tags_code
from stratamq.formats.dispatch import dispatch_columns, displaced_columns, scan_lengths
from stratamq.formats.frame import Blank, Frame, decode, encode_blank
from stratamq.formats.frame_check import FrameOutcome, check
from stratamq.formats.frame_layout import MAGIC_V1, MAGIC_V2
from stratamq.formats.index_layout import index_key
from stratamq.formats.javahash import index_key_hash, java_string_hash
from stratamq.formats.properties import split_keys
from stratamq.formats.sysflag import is_in_queue
from tests.support.fixtures import ALL_STORES, expected, log_files, unpack
from tests.support.patience import patient

V4 = bytes.fromhex("7f00000100002a9f")
V6 = bytes(15) + b"\x01" + bytes.fromhex("00002a9f")
SCHEDULE = "SCHEDULE_TOPIC_XXXX"


def build(properties: bytes = b"", topic: str = "orders", **fields) -> bytes:
    defaults = {"body": b"b", "born_host": V4, "store_host": V4}
    return frames.encode(topic=topic.encode(), properties=properties, **{**defaults, **fields})


def log_of(rows: list[dict], base: int = 0) -> tuple[bytes, np.ndarray]:
    """Frames one behind the other, each with its place."""
    parts: list[bytes] = []
    for fields in rows:
        parts.append(build(**fields, physical_offset=base + sum(map(len, parts))))
    return b"".join(parts), np.array([len(part) for part in parts], np.uint32)


def keys_of(frame: Frame) -> list[int]:
    """Index hashes of one message, in the order of spec 7.2."""
    properties = frame.properties
    unique = [properties["UNIQ_KEY"]] if "UNIQ_KEY" in properties else []
    words = [*unique, *split_keys(properties.get("KEYS", ""))]
    return [index_key_hash(index_key(frame.topic, word)) for word in words]


def agrees(raw: bytes, lengths: np.ndarray, base: int = 0) -> None:
    columns = dispatch_columns(raw, base, lengths)
    members = []
    at = 0
    for length in lengths.tolist():
        member = decode(raw, at)
        if isinstance(member, Frame):
            members.append(member)
        at += length
    assert len(columns) == len(members)
    for number, frame in enumerate(members):
        properties = frame.properties
        assert (
            int(columns.physical_offset[number]),
            int(columns.size[number]),
            int(columns.queue_id[number]),
            int(columns.queue_offset[number]),
            int(columns.store_timestamp_ms[number]),
            int(columns.sys_flag[number]) & 0xFFFFFFFF,
            columns.topics[columns.topic_index[number]],
        ) == (
            frame.physical_offset,
            frame.total_size,
            frame.queue_id,
            frame.queue_offset,
            frame.store_timestamp_ms,
            frame.sys_flag & 0xFFFFFFFF,
            frame.topic,
        )
        assert int(columns.tags_code[number]) == dispatch_tags_code(
            frame.topic, properties.get("TAGS"), properties.get("DELAY"), frame.store_timestamp_ms
        )
        assert bool(columns.in_queue[number]) is is_in_queue(frame.sys_flag)
        assert bool(columns.in_index[number]) is (frame.sys_flag & 0xC != 0xC)
    found = list(zip(columns.key_row.tolist(), columns.key_hash.tolist(), strict=True))
    assert found == [(row, code) for row, frame in enumerate(members) for code in keys_of(frame)]


# --- what RocketMQ wrote ---


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    @lru_cache
    def get(name: str):
        return unpack(name, tmp_path_factory.mktemp("store"))

    return get


def usable(content: bytes, base: int) -> int:
    """Up to where a segment holds members."""
    at = 0
    while at < len(content):
        outcome, size = check(content, at)
        if outcome not in (FrameOutcome.GOOD, FrameOutcome.BLANK):
            break
        at += size
    return base + at


@pytest.mark.parametrize("name", ALL_STORES)
def test_the_columns_of_a_store_are_what_rocketmq_reads_in_its_frames(stores, name):
    wanted = {line["phyOffset"]: line for line in expected(name, "frame") if line["size"]}
    seen = 0
    for base, content in log_files(stores(name)):
        lengths = scan_lengths(content, base, usable(content, base))
        columns = dispatch_columns(content, base, lengths)
        agrees(content, lengths, base)
        for number in range(len(columns)):
            line = wanted[int(columns.physical_offset[number])]
            assert line["size"] == int(columns.size[number])
            assert line["topic"] == columns.topics[columns.topic_index[number]]
            assert line["queueId"] == int(columns.queue_id[number])
            assert line["queueOffset"] == int(columns.queue_offset[number])
            assert line["tagsCode"] == int(columns.tags_code[number])
            assert line["storeTimestamp"] == int(columns.store_timestamp_ms[number])
            assert line["sysFlag"] == int(columns.sys_flag[number])
            seen += 1
    assert seen == len(wanted) > 100


@pytest.mark.parametrize("name", ALL_STORES)
def test_a_store_read_in_steps_gives_the_same_columns(stores, name):
    base, content = log_files(stores(name))[1]
    whole = scan_lengths(content, base, base + len(content))
    for step in (1, 7, 1000):
        at, parts = base, []
        while at < base + len(content):
            part = scan_lengths(content[at - base :], at, base + len(content), step)
            assert 1 <= len(part) <= step
            parts.append(part)
            agrees(content[at - base :], part, at)
            at += int(part.sum())
        assert np.concatenate(parts).tolist() == whole.tolist()


# --- random messages ---

texts = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), max_size=9)
ascii_texts = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=9)
words = st.one_of(ascii_texts, texts)
property_names = st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "k", "DELA", "xTAGS", "KEYSx", ""])


@st.composite
def properties_texts(draw) -> bytes:
    items = []
    for _ in range(draw(st.integers(0, 4))):
        name = draw(property_names)
        value = " ".join(draw(st.lists(words, max_size=3)))
        items.append(draw(st.sampled_from([f"{name}\x01{value}", name, f"{name}\x01{value}\x01x"])))
    text = "\x02".join(items).encode() + draw(st.sampled_from([b"", b"\x02", b"\x02\x02"]))
    return draw(st.sampled_from([text, text, text, text[:-1], text + b"\xff", b"\xe4" + text]))


rows_of_any_kind = st.lists(
    st.fixed_dictionaries(
        {
            "properties": properties_texts(),
            "topic": st.sampled_from(["orders", "t", "käse", "订单"]),
            "sys_flag": st.sampled_from([0, 4, 8, 12, 3]),
            "born_host": st.sampled_from([V4, V6]),
            "store_host": st.sampled_from([V4, V6]),
            "magic": st.sampled_from([MAGIC_V1, MAGIC_V2]),
        }
    ),
    max_size=20,
)


@patient(200)
@given(rows_of_any_kind, st.integers(0, 2**40), st.booleans())
def test_columns_of_any_messages_are_what_the_scalar_codecs_give(rows, base, blank):
    raw, lengths = log_of(rows, base)
    if blank:
        raw += encode_blank(50).ljust(50, b"?")
        lengths = np.append(lengths, np.uint32(50))
    agrees(raw, lengths, base)


def alike(count: int, seed: int, change: float = 0.0) -> list[dict]:
    """Messages of one producer: separators in the same places, now and then one that is not."""
    chance = random.Random(seed)
    rows = []
    for number in range(count):
        tags = chance.choice(["a", "b", "c"])
        keys = f"{number:06d} {chance.randrange(100):02d}"
        text = f"UNIQ_KEY\x01{chance.getrandbits(64):016X}\x02KEYS\x01{keys}\x02TAGS\x01{tags}"
        if chance.random() < change:
            text = chance.choice(
                [
                    text.replace("TAGS", "TAGX"),
                    text.replace(" ", "_"),
                    text.replace("\x02KEYS", "KEYS\x02"),
                    text.replace("TAGS\x01" + tags, "TAGS\x01é"),
                    text.replace("KEYS\x01", "\x01KEYS"),
                    text.replace("U", "V"),
                    text[::-1],
                ]
            )
        rows.append({"properties": text.encode(), "topic": chance.choice(["orders", "t2"])})
    return rows


@pytest.mark.parametrize("change", [0.0, 0.02, 0.3, 1.0])
@pytest.mark.parametrize("seed", range(5))
def test_many_messages_that_look_alike_are_read_like_single_ones(change, seed):
    agrees(*log_of(alike(300, seed, change)))


def test_both_ways_through_the_properties_are_taken(monkeypatch):
    taken = {"layout": 0, "single": 0}
    parser = dispatch._PropertyParser
    layout, single = parser._take, parser._parse_singly

    def take(self, rows, matrix, of):
        taken["layout"] += len(rows)
        layout(self, rows, matrix, of)

    def parse(self, rows):
        taken["single"] += len(rows)
        single(self, rows)

    monkeypatch.setattr(kernel, "NATIVE", None)
    monkeypatch.setattr(parser, "_take", take)
    monkeypatch.setattr(parser, "_parse_singly", parse)
    agrees(*log_of(alike(300, 1, 0.05)))
    assert taken["layout"] > 200
    assert taken["single"] > 1


def word_with_hash(prefix: str, target: int) -> str:
    """Eight printable characters that give `prefix` + word this Java hash: digits of base 31."""
    lowest = ord("(")
    offset = sum(lowest * 31**power for power in range(8))
    wanted = (target - java_string_hash(prefix + "\0" * 8) - offset) % 2**32
    digits = []
    for _ in range(8):
        wanted, digit = divmod(wanted, 31)
        digits.append(chr(lowest + digit))
    return "".join(reversed(digits))


@pytest.mark.parametrize("count", [1, 20])
def test_the_one_hash_without_an_absolute_value_counts_as_zero(count):
    word = word_with_hash("orders#", 2**31)
    assert java_string_hash(f"orders#{word}") == -(2**31)
    raw, lengths = log_of([{"properties": f"KEYS\x01{word} x".encode()}] * count)
    agrees(raw, lengths)
    assert dispatch_columns(raw, 0, lengths).key_hash.tolist()[::2] == [0] * count


def test_the_last_of_two_properties_of_one_name_wins_but_an_empty_one_does_not():
    for text in (
        b"TAGS\x01a\x02TAGS\x01b",
        b"TAGS\x01a\x02TAGS\x01",
        b"TAGS\x01\x02TAGS\x01b",
        b"KEYS\x01k\x02KEYS\x01k1 k2\x02",
        b"UNIQ_KEY\x01u\x02UNIQ_KEY\x01",
    ):
        agrees(*log_of([{"properties": text}] * 20))


# --- delay ---


def test_in_the_schedule_topic_the_tag_code_is_the_time_of_delivery():
    rows = [
        {
            "properties": f"DELAY\x01{level}\x02TAGS\x01t".encode(),
            "topic": topic,
            "store_timestamp_ms": 1_000,
        }
        for level in ("1", "3", "18", "99", "0", "-1", "+2", "007")
        for topic in (SCHEDULE, "orders")
    ]
    agrees(*log_of(rows))
    raw, lengths = log_of(rows[:1])
    assert dispatch_columns(raw, 0, lengths).tags_code.tolist() == [2_000]
    assert dispatch_columns(raw, 0, lengths, (7,)).tags_code.tolist() == [1_007]


@pytest.mark.parametrize("level", [b"soon", b"1.5", b"99999999999", b"\xff", "１".encode() + b"x"])
def test_a_delay_that_is_no_number_is_corrupt_there_and_nowhere_else(level):
    rows = [{"properties": b"k\x01v"}, {"properties": b"DELAY\x01" + level, "topic": SCHEDULE}]
    raw, lengths = log_of(rows, 5_000)
    with pytest.raises(CorruptRecordError) as error:
        dispatch_columns(raw, 5_000, lengths)
    assert error.value.reason == "delay"
    assert error.value.position == 5_000 + int(lengths[0])
    agrees(*log_of([{"properties": b"DELAY\x01" + level}]))


# --- what is refused ---


def test_a_frame_with_another_physical_offset_is_refused_with_its_place():
    raw, lengths = log_of([{}] * 3, 700)
    with pytest.raises(CorruptRecordError) as error:
        dispatch_columns(raw, 701, lengths)
    assert (error.value.reason, error.value.position) == ("physical_offset", 701)
    moved = bytearray(raw)
    second = int(lengths[0])
    moved[second + 35] ^= 1
    with pytest.raises(CorruptRecordError) as error:
        dispatch_columns(bytes(moved), 700, lengths)
    assert error.value.position == 700 + second


SMALL = log_of(
    [
        {"properties": b"TAGS\x01a"},
        {"properties": b"KEYS\x01a b", "topic": "t2", "born_host": V6},
        {"properties": b"DELAY\x013", "topic": SCHEDULE},
    ]
)
BLANK = encode_blank(60).ljust(60, b"\0")


def scan(raw: bytes, end: int | None = None) -> list[int] | None:
    """None when it is refused; nothing but CorruptRecordError may be raised."""
    try:
        return scan_lengths(raw, 100, 100 + (len(raw) if end is None else end)).tolist()
    except CorruptRecordError as error:
        assert 100 <= error.position < 100 + max(len(raw), 1) + 8
        return None


def test_every_prefix_is_scanned_only_if_it_ends_with_a_member():
    raw = SMALL[0] + BLANK
    sizes = [*SMALL[1].tolist(), 60]
    ends = {sum(sizes[:count]): sizes[:count] for count in range(len(sizes) + 1)}
    for end in range(len(raw) + 1):
        assert scan(raw[:end]) == ends.get(end), end
        assert scan(raw, end) == ends.get(end), end


def test_a_range_that_extends_beyond_the_buffer_is_refused():
    raw = SMALL[0]
    for size in range(len(raw)):
        assert scan(raw[:size], len(raw)) is None


@pytest.mark.parametrize("mask", [0x01, 0x0C, 0x80, 0xFF])
def test_every_flipped_byte_is_refused_or_read_as_the_scalar_codecs_read_it(mask):
    raw = SMALL[0] + BLANK
    read = 0
    for at in range(len(raw)):
        flipped = bytearray(raw)
        flipped[at] ^= mask
        try:
            lengths = scan_lengths(bytes(flipped), 0, len(raw))
            agrees(bytes(flipped), lengths)
        except CorruptRecordError:
            continue
        read += 1
        assert int(lengths.sum()) == len(raw)
    assert 0 < read < len(raw)


@patient(300)
@given(st.binary(max_size=200), st.integers(0, 300))
def test_random_bytes_are_scanned_or_refused(raw, end):
    scan(raw, min(end, len(raw)))
    scan(raw, end)


def test_a_blank_must_end_the_range():
    assert scan(BLANK + SMALL[0]) is None
    assert scan(BLANK) == [60]
    assert isinstance(decode(BLANK), Blank)


def test_frames_away_from_their_places_have_the_same_columns_for_those_who_ask_for_such_alone():
    rows = [
        {"properties": b"KEYS\x01k%d\x02TAGS\x01t\x02" % i, "queue_offset": i} for i in range(40)
    ]
    there, lengths = log_of(rows, base=1 << 20)
    with pytest.raises(CorruptRecordError, match="not the frame's place"):
        dispatch_columns(there, 0, lengths)
    moved, kept = displaced_columns(there, 0, lengths), dispatch_columns(there, 1 << 20, lengths)
    assert moved.physical_offset.tolist() == kept.physical_offset.tolist()
    assert moved.key_hash.tolist() == kept.key_hash.tolist()
    assert moved.key_row.tolist() == kept.key_row.tolist()
    assert moved.tags_code.tolist() == kept.tags_code.tolist()
