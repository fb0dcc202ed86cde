"""The kernel in C gives what Python gives: columns, checksums, damage, texts, tags and keys."""

import random
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stratamq.formats import frame as frames
from stratamq.formats import kernel
from stratamq.formats.checksums import crc32_of_each, crc32_of_even
from stratamq.formats.columns import FrameColumns, body_checksums_hold, columns_at, frame_columns
from stratamq.formats.crc import reference_crc32_31
from stratamq.formats.dispatch import displaced_columns
from stratamq.formats.frame_scan import scan_frames
from stratamq.formats.frame_verify import NOWHERE, first_damaged
from stratamq.formats.log_damage import mark_off
from stratamq.formats.property_crc import fill_property_crc, reserve
from stratamq.formats.text_groups import group_texts
from tests.formats import strategies
from tests.formats.shapes import FRAMES, V4, V6
from tests.support.fixtures import ALL_STORES, log_files, unpack
from tests.support.kernels import agree, current

COLUMNS = (
    *("start", "size", "sys_flag", "any_v6", "version2", "body_start", "body_length"),
    *("topic_start", "topic_length", "properties_start", "properties_length", "body_crc"),
    *("queue_id", "queue_offset", "physical_offset", "flag", "born_timestamp_ms"),
    *("store_timestamp_ms", "reconsume_times", "prepared_transaction_offset"),
    "hosts_alike",
)
WORDS = ["TAGS", "KEYS", "UNIQ_KEY", "a", "b", "ab", "é", "€", "😀", " ", "  ", "\0", "K", "S"]
WORDS += [
    "INNER_MULTI_DISPATCH",
    "\x01",
    "\x02",
    "\x02TAGS\x01",
    "\x02KEYS\x01",
    "\x02UNIQ_KEY\x01",
]
WRONG = [b"\xff", b"\xed\xa0\x80", b"\xc0\xaf", b"\xf4\x90\x80\x80", b"\xe0\x80\x80", b"\xf0\x9f"]
"""Bytes that are no UTF-8: alone, a surrogate, too long, too large, too long, cut off."""
TEXTS = st.lists(st.sampled_from([*map(str.encode, WORDS), *WRONG]), max_size=12).map(b"".join)


def built(properties: bytes, *, sealed: bool = False, **fields: object) -> bytes:
    whole = {"topic": b"orders", "body": b"body", "born_host": V4, "store_host": V4, **fields}
    raw = bytearray(
        frames.encode(**whole, properties=reserve(properties) if sealed else properties)
    )
    if sealed:
        fill_property_crc(raw)
    return bytes(raw)


def lay(parts: list[bytes]) -> tuple[bytes, np.ndarray, np.ndarray]:
    sizes = np.array([len(part) for part in parts], np.int64)
    return b"".join(parts), sizes.cumsum() - sizes, sizes


def table(columns: FrameColumns) -> list[object]:
    return [getattr(columns, name) for name in COLUMNS]


def check_frames(data: bytes, starts: np.ndarray, sizes: np.ndarray, sealed_at: int = NOWHERE):
    """All that is done to frames, both ways."""
    raw, view = np.frombuffer(data, np.uint8), memoryview(data)
    agree(lambda: scan_frames(data))
    for offset in (0, 1000):
        agree(lambda offset=offset: mark_off(data, offset, offset + len(data)))
    agree(lambda: table(columns_at(raw, starts, sizes, 1000)))
    agree(lambda: table(frame_columns(raw, sizes)))
    agree(lambda: body_checksums_hold(view, columns_at(raw, starts, sizes)))
    agree(lambda: first_damaged(view, starts, sizes, sealed_at))
    agree(lambda: dispatched(data, sizes))


def dispatched(data: bytes, sizes: np.ndarray) -> list[object]:
    found = displaced_columns(data, 0, sizes.astype(np.uint32))
    return [getattr(found, name) for name in found.__slots__]


@pytest.mark.parametrize("count", [1, 8, 9, 40])
@pytest.mark.parametrize("name", [*FRAMES, "mixed"])
def test_frames_of_every_shape(name, count):
    parts = list(FRAMES.values()) * count if name == "mixed" else [FRAMES[name]] * count
    check_frames(*lay(parts))


@settings(max_examples=60)
@given(st.lists(strategies.frames(), max_size=14), st.booleans())
def test_frames_of_any_kind(parts, sealed):
    check_frames(*lay(parts), 0 if sealed else NOWHERE)


@pytest.mark.parametrize("sealed", [True, False])
@pytest.mark.parametrize("count", [1, 12])
def test_every_changed_byte_has_the_same_consequence(sealed, count):
    """Every length becomes too small and too large."""
    one = built(b"TAGS\x01red\x02KEYS\x01k1 k2", sealed=sealed)
    other = built(b"TAGS\x01blue", sealed=sealed, body=b"longer body", born_host=V6)
    data, starts, sizes = lay([one, other] * count)
    for place in range(len(one) + len(other)):
        for value in (0x00, 0x7F, 0xFF, data[place] ^ 1):
            changed = bytearray(data)
            changed[place] = value
            view = memoryview(changed)
            raw = np.frombuffer(changed, np.uint8)
            agree(lambda raw=raw: table(columns_at(raw, starts, sizes)))
            agree(lambda view=view: first_damaged(view, starts, sizes, 0 if sealed else NOWHERE))


@settings(max_examples=150)
@given(st.lists(TEXTS, min_size=1, max_size=20))
def test_tags_and_keys_of_any_text(texts):
    parts = [
        built(text, topic=b"orders" if i % 3 else b"t\xc3\xa9") for i, text in enumerate(texts)
    ]
    data, _, sizes = lay(parts)
    agree(lambda: dispatched(data, sizes))


def test_more_keys_than_there_was_room_for():
    data, _, sizes = lay([built(b"KEYS\x01" + b"k " * 1000)] * 20)
    assert len(agree(lambda: dispatched(data, sizes))[-2]) == 20_000


@given(st.binary(max_size=300), st.integers(0, 40), st.integers(0, 12), st.data())
def test_a_scan_of_any_bytes(noise, cut, count, data):
    whole = b"".join([built(b"TAGS\x01x", body=b"b" * size) for size in range(count)])
    raw = whole[: len(whole) - cut] + noise
    limit = data.draw(st.one_of(st.none(), st.integers(0, len(raw) + 200)))
    most = data.draw(st.one_of(st.none(), st.integers(0, 15)))
    agree(lambda: scan_frames(raw, limit=limit, most=most))


def test_more_frames_than_one_step_of_a_scan_takes():
    data = FRAMES["empty"] * 140_000
    assert len(scan_frames(data).sizes) == 140_000
    agree(lambda: len(scan_frames(data).sizes))


def test_checksums_of_every_length_and_alignment():
    data = random.Random(1).randbytes(2000)
    starts = np.array([start for start in range(18) for _ in range(340)], np.int64)
    ends = starts + np.tile(np.arange(340), 18)
    found = agree(lambda: crc32_of_each(memoryview(data), starts, ends))
    assert found[-339:-300] == [reference_crc32_31(data[17 : 17 + n]) for n in range(1, 40)]
    agree(lambda: crc32_of_even(memoryview(data), 3, 20, 90, 77))


@given(st.lists(st.sampled_from([b"a", b"ab", b"", b"abcdefgh1", b"abcdefgh2"]), max_size=60))
def test_texts_are_numbered_alike(texts):
    data, starts, lengths = lay(texts)
    agree(lambda: group_texts(np.frombuffer(data, np.uint8), starts, lengths))


def test_a_stretch_outside_the_buffer_is_an_error_and_nothing_is_read():
    native, raw = current(), np.zeros(200, np.uint8)
    for start, length in ((150, 91), (-50, 91), (2**63 - 50, 91), (0, -1), (10, 2**63 - 1)):
        at, size = np.array([start], np.int64), np.array([length], np.int64)
        one, byte = np.zeros(1, np.int64), np.zeros(1, np.uint8)
        end = np.array([(start + length + 2**63) % 2**64 - 2**63], np.int64)
        calls = (
            (native.columns, (at, size, np.zeros(13, np.int64), np.zeros(3, np.int32), byte)),
            (native.message_ids, (np.array([start + 43]), one, np.zeros(32, np.uint8))),
            (native.first_displaced, (np.array([start + 15]), 0)),
            (native.crc32_of_each, (at, end, one)),
            (native.first_unverified, (at, size, 0, b"")),
            (native.group, (at, size, np.zeros(1, np.int32), one, np.zeros(2, np.int32))),
            (native.gather, (at, size, np.zeros(91, np.uint8))),
        )
        for function, arguments in calls:
            if function in (native.message_ids, native.first_displaced) and start in (0, 10):
                continue  # they take no length
            with pytest.raises(ValueError, match="not within"):
                function(raw, *arguments)


def test_arrays_that_do_not_fit_each_other_are_refused():
    native, raw, two, three = current(), bytes(300), np.zeros(2, np.int64), np.zeros(3, np.int64)
    with pytest.raises(ValueError, match="needs 16"):
        native.crc32_of_each(raw, two, three, two)
    with pytest.raises(ValueError, match="needs 16"):
        native.crc32_of_each(raw, two, two, three)
    with pytest.raises(BufferError):
        native.crc32_of_each(raw, two, two, bytes(16))
    with pytest.raises(TypeError, match="arguments"):
        native.crc32_of_each(raw, two, two)
    with pytest.raises(ValueError):
        native.group(raw, two, two, np.zeros(2, np.int32), two, np.zeros(3, np.int32))


def colliding(count: int) -> list[bytes]:
    """Texts of eight bytes that the kernel's hash puts on one place of a small table."""
    found: dict[int, list[bytes]] = {}
    golden = 0x9E3779B97F4A7C15
    for number in range(1 << 18):
        text = b"%08d" % number
        mixed = ((8 * golden) ^ int.from_bytes(text, "little")) * golden % 2**64
        mixed = (mixed ^ mixed >> 32) * golden % 2**64
        same = found.setdefault(mixed >> 32 & 0xFFF, [])
        same.append(text)
        if len(same) == count:
            return same
    raise AssertionError("too few")


def test_texts_with_one_hash_are_numbered_all_the_same():
    """Who chooses topics could otherwise make each one be compared with all others."""
    data, starts, lengths = lay(colliding(60) * 20)
    raw = np.frombuffer(data, np.uint8)
    arrays = np.zeros(1200, np.int32), np.zeros(1200, np.int64), np.zeros(4096, np.int32)
    assert current().group(raw, starts, lengths, *arrays) == -1
    assert len(set(agree(lambda: group_texts(raw, starts, lengths))[0])) == 60


@pytest.mark.parametrize("store", ALL_STORES)
def test_what_rocketmq_wrote(store, tmp_path):
    for start, content in log_files(unpack(store, tmp_path)):
        scan = scan_frames(content)
        starts = scan.sizes.cumsum() - scan.sizes
        assert len(starts) or store.endswith("crash")
        agree(lambda content=content, at=start: mark_off(content, at, at + len(content)))
        data = content[: scan.end + 200]
        check_frames(data, starts, scan.sizes)
        agree(lambda data=data, start=start: scan_frames(data, limit=start + len(data)))


@pytest.mark.parametrize(
    ("wanted", "version", "says"),
    [
        ("", kernel.VERSION, "C"),
        ("c", kernel.VERSION, "C"),
        ("python", kernel.VERSION, "STRATAMQ_KERNEL says so"),
        ("", kernel.VERSION + 1, "install stratamq again"),
        ("", None, "install gcc"),
    ],
)
def test_which_kernel_is_used(wanted, version, says):
    found = None if version is None else SimpleNamespace(VERSION=version)
    native, said = kernel.choose(wanted, found)  # type: ignore[arg-type]
    assert says in said
    assert (native is not None) == (said == "C")


def test_the_sources_have_the_version_that_is_called():
    assert current().VERSION == kernel.VERSION


def hard_cases() -> Iterator[Callable[[], object]]:
    """Work in which each rule of a frame matters by itself."""
    sealed, plain = built(b"TAGS\x01red", sealed=True), built(b"KEYS\x01a \xf0\x9f\x98\x80")
    damaged = [
        plain[:4] + b"\0" + plain[5:],
        plain.replace(b"body", b"bodY"),
        sealed.replace(b"body", b"bodY"),
        sealed.replace(b"CRC32", b"crc32"),
        plain,
    ]
    for one in damaged:
        data, starts, sizes = lay([plain] * 9 + [one])
        raw = np.frombuffer(data, np.uint8)
        yield lambda raw=raw, s=starts, n=sizes: table(columns_at(raw, s, n))
        for at in (0, NOWHERE):
            yield lambda d=data, s=starts, n=sizes, at=at: first_damaged(d, s, n, at)
    many = [built(b"TAGS\x01%d\x02KEYS\x01%d" % (n, n * n)) for n in range(40)]
    data, _, sizes = lay([*many, plain, built(b"TAGS\x01one\x02TAGS\x01two")])
    yield lambda: dispatched(data, sizes)
    yield lambda: scan_frames(b"\0\0\0\0\xda\xa3\x20\xa7" * 4, most=3)


def test_where_one_rule_decides():
    for work in hard_cases():
        agree(work)
