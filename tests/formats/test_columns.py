"""Frames as columns, held against the scalar codec: fields, checks, patches, prefixes, flips."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stratamq.errors import CorruptRecordError
from stratamq.formats import columns as columns_module
from stratamq.formats import kernel
from stratamq.formats.columns import (
    FrameColumns,
    check_body_checksums,
    columns_at,
    frame_columns,
    windows,
)
from stratamq.formats.columns_patch import patch, scatter
from stratamq.formats.frame import Frame, decode, encode_blank, encode_frame
from stratamq.formats.frame_check import FrameOutcome, check
from stratamq.formats.frame_layout import MAGIC_V1, MAGIC_V2
from tests.formats import strategies
from tests.formats.shapes import FRAMES, build, every_shape
from tests.support.patience import patient


def array(raw: bytes | bytearray) -> np.ndarray:
    return np.frombuffer(raw, np.uint8)


def lengths(*raws: bytes) -> np.ndarray:
    return np.array([len(raw) for raw in raws], np.uint32)


def row(columns: FrameColumns, raw: bytes, number: int) -> dict:
    """What the columns hold for one frame."""

    def text(start: np.ndarray, length: np.ndarray) -> bytes:
        return raw[int(start[number]) : int(start[number] + length[number])]

    return {
        "total_size": int(columns.size[number]),
        "magic": MAGIC_V2 if columns.version2[number] else MAGIC_V1,
        "body_crc": int(columns.body_crc[number]) & 0xFFFFFFFF,
        "queue_id": int(columns.queue_id[number]),
        "queue_offset": int(columns.queue_offset[number]),
        "physical_offset": int(columns.physical_offset[number]),
        "sys_flag": int(columns.sys_flag[number]) & 0xFFFFFFFF,
        "store_timestamp_ms": int(columns.store_timestamp_ms[number]),
        "body": text(columns.body_start, columns.body_length),
        "topic_raw": text(columns.topic_start, columns.topic_length),
        "properties_raw": text(columns.properties_start, columns.properties_length),
    }


def scalar(frame: Frame) -> dict:
    return {
        "total_size": frame.total_size,
        "magic": frame.magic,
        "body_crc": frame.body_crc & 0xFFFFFFFF,
        "queue_id": frame.queue_id,
        "queue_offset": frame.queue_offset,
        "physical_offset": frame.physical_offset,
        "sys_flag": frame.sys_flag & 0xFFFFFFFF,
        "store_timestamp_ms": frame.store_timestamp_ms,
        "body": frame.body,
        "topic_raw": frame.topic_raw,
        "properties_raw": frame.properties_raw,
    }


def read(raws: list[bytes], base: int = 0) -> FrameColumns:
    return frame_columns(array(b"".join(raws)), lengths(*raws), base)


# --- reading ---


@patient()
@given(st.lists(strategies.frames(), max_size=8))
def test_every_field_is_what_the_scalar_codec_reads(raws):
    columns = read(raws)
    assert len(columns) == len(raws)
    joined = b"".join(raws)
    for number, raw in enumerate(raws):
        decoded = decode(raw)
        assert isinstance(decoded, Frame)
        assert row(columns, joined, number) == scalar(decoded)
        start = int(columns.store_timestamp_start[number])
        stamp = decoded.store_timestamp_ms.to_bytes(8, "big", signed=True)
        assert joined[start : start + 8] == stamp
    check_body_checksums(memoryview(joined), columns)


def test_all_shapes_stand_beside_each_other_in_any_order():
    for shift in range(len(FRAMES)):
        raws = list(FRAMES.values())
        raws = raws[shift:] + raws[:shift]
        columns = read(raws)
        for number, raw in enumerate(raws):
            assert row(columns, b"".join(raws), number) == scalar(decode(raw))


def read_each(raws: list[bytes]) -> FrameColumns:
    """The same as `read`, without a look at whether they are of one shape."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(columns_module, "_FEW", len(raws) + 1)
        return read(raws)


COLUMNS = (
    *("start", "size", "sys_flag", "version2", "body_start", "body_length", "topic_start"),
    *("topic_length", "properties_start", "properties_length", "body_crc", "queue_id", "flag"),
    *("queue_offset", "physical_offset", "born_timestamp_ms", "store_timestamp_ms"),
    *("store_timestamp_start", "reconsume_times", "prepared_transaction_offset", "any_v6"),
)


def numbered(count: int, **fields) -> list[bytes]:
    """Frames of one shape, all different."""
    return [
        build(body=b"%07d" % n, queue_id=n, queue_offset=n << 33, store_timestamp_ms=-n, **fields)
        for n in range(count)
    ]


@pytest.mark.parametrize("fields", [{}, {"body": b""}, {"properties": b""}, {"topic": b""}])
def test_frames_of_one_shape_are_read_like_any_others(monkeypatch, fields):
    monkeypatch.setattr(kernel, "NATIVE", None)
    raws = [build(**fields)] * 20 if "body" in fields else numbered(20, **fields)
    found, each = read(raws), read_each(raws)
    assert found.shape is not None
    assert each.shape is None
    sizes = lengths(*raws).astype(np.int64)
    assert columns_at(array(b"".join(raws)), sizes.cumsum() - sizes, sizes).shape == found.shape
    apart = columns_at(array(b"?" + b"".join(raws)), sizes.cumsum() - sizes + 1, sizes)
    assert apart.shape is None
    for name in COLUMNS:
        assert np.array_equal(getattr(found, name), getattr(each, name)), name
    assert found.hosts_alike == each.hosts_alike
    check_body_checksums(memoryview(b"".join(raws)), found)


@pytest.mark.parametrize("number", [0, 7, 19])
def test_a_byte_that_is_flipped_among_frames_of_one_shape_means_the_same(number):
    raws = numbered(20)
    for position in range(len(raws[0])):
        for bit in (0x01, 0x80):
            bad = bytearray(raws[number])
            bad[position] ^= bit
            flipped = [*raws[:number], bytes(bad), *raws[number + 1 :]]
            outcomes = []
            for reader in (read, read_each):
                try:
                    columns = reader(flipped)
                    check_body_checksums(memoryview(b"".join(flipped)), columns)
                except CorruptRecordError as error:
                    outcomes.append((error.reason, str(error), error.fields["frame"]))
                else:
                    outcomes.append([getattr(columns, name).tolist() for name in COLUMNS[:-1]])
            assert outcomes[0] == outcomes[1], (position, bit)


def test_frames_of_one_shape_are_patched_like_any_others():
    raws, count = numbered(20), 20
    fields = {
        "physical_offset": np.arange(count) + (1 << 40),
        "queue_id": np.arange(count, dtype=np.int32) - 3,
        "queue_offset": np.arange(count) * (1 << 35),
        "store_timestamp_ms": 1_700_000_000_123,
        "store_host": bytes(range(8)),
    }
    patched = []
    for reader in (read, read_each):
        into = np.frombuffer(bytearray(b"".join(raws)), np.uint8)
        patch(into, reader(raws), **fields)
        patched.append(into.tobytes())
    assert patched[0] == patched[1] != b"".join(raws)


def test_no_frames_are_no_rows():
    columns = frame_columns(array(b""), np.zeros(0, np.uint32))
    assert len(columns) == 0
    for name in ("queue_id", "queue_offset", "physical_offset", "store_timestamp_ms", "body_crc"):
        assert len(getattr(columns, name)) == 0
    check_body_checksums(memoryview(b""), columns)


@pytest.mark.parametrize("size", [8, 9, 90, 91, 500])
def test_a_blank_as_the_last_member_is_passed_over_whatever_follows_it(size):
    blank = (encode_blank(size) + FRAMES["v1"] * 5)[:size]
    columns = read([FRAMES["v1"], FRAMES["v2"], blank])
    assert len(columns) == 2
    assert len(read([blank])) == 0


def test_a_blank_that_is_not_the_last_member_is_no_frame():
    blank = encode_blank(100).ljust(100, b"\0")
    with pytest.raises(CorruptRecordError) as error:
        read([FRAMES["v1"], blank, FRAMES["v1"]])
    assert (error.value.reason, error.value.fields["frame"]) == ("magic", 1)


# --- what is refused ---


@every_shape
def test_every_prefix_is_refused_whether_its_length_field_agrees_or_not(raw):
    for size in range(len(raw)):
        for claimed in {size, len(raw)}:
            with pytest.raises(CorruptRecordError):
                frame_columns(array(raw[:size]), np.array([claimed], np.uint32))


def agrees(raw: bytes) -> None:
    """Columns accept exactly what the scalar check accepts, and read it alike."""
    expected = check(raw, verify_body=False)
    good = expected.outcome is FrameOutcome.GOOD and expected.size == len(raw)
    try:
        columns = frame_columns(array(raw), np.array([len(raw)], np.uint32))
    except CorruptRecordError as error:
        assert not good
        assert error.fields["frame"] == 0
        return
    if not len(columns):
        assert expected.outcome is FrameOutcome.BLANK
        return
    assert good, expected
    decoded = decode(raw, verify_body=False)
    assert isinstance(decoded, Frame)
    assert row(columns, raw, 0) == scalar(decoded)
    body_good = check(raw).outcome is FrameOutcome.GOOD
    try:
        check_body_checksums(memoryview(raw), columns)
    except CorruptRecordError as error:
        assert error.reason == "body_crc"
        assert not body_good
    else:
        assert body_good


@every_shape
@pytest.mark.parametrize("mask", [0x01, 0x10, 0x20, 0x80, 0xFF])
def test_every_flipped_byte_is_judged_as_the_scalar_check_does(raw, mask):
    for at in range(len(raw)):
        flipped = bytearray(raw)
        flipped[at] ^= mask
        agrees(bytes(flipped))


@patient(400)
@given(
    strategies.frames(),
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=6),
)
def test_random_damage_is_judged_as_the_scalar_check_does(raw, damage):
    damaged = bytearray(raw)
    for at, value in damage:
        damaged[at % len(raw)] = value
    agrees(bytes(damaged))


@patient(300)
@given(st.binary(max_size=300))
def test_random_bytes_are_refused_or_agreed_upon(raw):
    if raw:
        agrees(raw)


@patient()
@given(st.lists(strategies.frames(), min_size=2, max_size=6), st.data())
def test_the_first_bad_frame_is_named_with_its_place(raws, data):
    bad = data.draw(st.integers(0, len(raws) - 1))
    broken = bytearray(raws[bad])
    broken[4] ^= 0xFF
    raws[bad] = bytes(broken)
    with pytest.raises(CorruptRecordError) as error:
        read(raws, base=1000)
    assert error.value.fields["frame"] == bad
    assert error.value.position == 1000 + sum(map(len, raws[:bad]))


def test_a_body_that_does_not_match_is_named_and_one_of_no_bytes_is_not_checked():
    good, empty = FRAMES["v1"], build(body=b"", body_crc=77)
    bad = bytearray(good)
    bad[90] ^= 1
    joined = b"".join([good, empty, bytes(bad), bytes(bad)])
    columns = frame_columns(array(joined), lengths(good, empty, bytes(bad), bytes(bad)))
    with pytest.raises(CorruptRecordError) as error:
        check_body_checksums(memoryview(joined), columns, 500)
    assert error.value.fields["frame"] == 2
    assert error.value.position == 500 + len(good) + len(empty)


@pytest.mark.parametrize("claimed", [0, 1, 7, 8, 90, 2**31, 2**32 - 1])
def test_lengths_that_make_no_sense_are_refused(claimed):
    raw = FRAMES["v1"]
    for sizes in ([claimed], [len(raw), claimed], [claimed, len(raw)]):
        with pytest.raises(CorruptRecordError):
            frame_columns(array(raw + raw), np.array(sizes, np.uint32))


# --- patching ---


@patient()
@given(
    st.lists(strategies.frames(), min_size=1, max_size=6),
    st.integers(0, 2**62),
    st.integers(-(2**63), 2**63 - 1),
    st.binary(min_size=20, max_size=20),
    st.data(),
)
def test_a_patch_changes_the_brokers_fields_and_nothing_else(raws, offset, timestamp, host, data):
    decoded = [decode(raw) for raw in raws]
    width = len(decoded[0].store_host)
    keep = [i for i, frame in enumerate(decoded) if len(frame.store_host) == width]
    raws, decoded = [raws[i] for i in keep], [decoded[i] for i in keep]
    count = len(raws)
    ids = data.draw(st.lists(strategies.i32, min_size=count, max_size=count))
    queue_offsets = data.draw(st.lists(strategies.i64, min_size=count, max_size=count))
    joined = bytearray(b"".join(raws))
    columns = frame_columns(array(joined), lengths(*raws))
    patch(
        array(joined),
        columns,
        physical_offset=columns.start + offset,
        queue_id=np.array(ids, np.int32),
        queue_offset=np.array(queue_offsets, np.int64),
        store_timestamp_ms=timestamp,
        store_host=host[:width],
    )
    start = 0
    for frame, raw, queue_id, queue_offset in zip(decoded, raws, ids, queue_offsets, strict=True):
        expected = Frame(
            frame.total_size,
            frame.magic,
            frame.body_crc,
            queue_id,
            frame.flag,
            queue_offset,
            offset + start,
            frame.sys_flag,
            frame.born_timestamp_ms,
            frame.born_host,
            timestamp,
            host[:width],
            frame.reconsume_times,
            frame.prepared_transaction_offset,
            frame.body,
            frame.topic_raw,
            frame.properties_raw,
        )
        assert bytes(joined[start : start + len(raw)]) == encode_frame(expected)
        start += len(raw)


def test_windows_are_views_and_scatter_writes_through_them():
    raw = np.arange(10, dtype=np.uint8)
    assert windows(raw, 3).shape == (8, 3)
    assert windows(raw, 10).tolist() == [list(range(10))]
    assert windows(raw, 11).shape == (0, 11)
    scatter(raw, np.array([0, 5]), np.array([[90, 91], [92, 93]], np.uint8))
    assert raw.tolist() == [90, 91, 2, 3, 4, 92, 93, 7, 8, 9]
    scatter(raw, np.array([1, 8]), np.array([1, 1], np.uint8))
    assert raw.tolist() == [90, 1, 1, 3, 4, 92, 93, 7, 1, 1]
