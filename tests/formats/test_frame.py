"""Frames: round trips, prefixes, flipped bytes, bytes behind, and every outcome of the check."""

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stratamq.errors import CorruptRecordError, InvalidRequestError
from stratamq.formats import frame as frames
from stratamq.formats import frame_layout as layout
from stratamq.formats.frame import ZEROED, Blank, Frame, decode, encode_frame
from stratamq.formats.frame_check import CheckResult, FrameOutcome, check
from stratamq.formats.frame_check import check as check_directly
from stratamq.formats.frame_layout import MAGIC_V1, MAGIC_V2
from stratamq.formats.properties import encode_properties
from stratamq.formats.property_crc import (
    PROPERTY_CRC_BYTES,
    check_property_crc,
    encode_property_crc,
    fill_property_crc,
    has_property_crc,
    reserve,
)
from tests.formats import shapes, strategies
from tests.formats.shapes import V6, build

FRAMES = shapes.FRAMES | {
    "delayed": build(topic=b"SCHEDULE_TOPIC_XXXX", properties=b"DELAY\x013"),
}
every_shape = pytest.mark.parametrize("raw", FRAMES.values(), ids=FRAMES)


@given(strategies.frames(), st.binary(max_size=40), st.binary(max_size=40))
def test_what_is_decoded_is_encoded_to_the_same_bytes_at_any_position(raw, before, behind):
    buffer = before + raw + behind
    limit = len(before) + len(raw)
    frame = decode(memoryview(buffer), len(before))
    assert isinstance(frame, Frame)
    assert frames.encode_frame(frame) == raw
    assert decode(buffer, len(before), limit=limit) == frame
    assert check(bytearray(buffer), len(before)) == CheckResult(FrameOutcome.GOOD, len(raw))


@every_shape
def test_every_prefix_is_incomplete(raw):
    for size in range(len(raw)):
        assert check(raw[:size]) == CheckResult(FrameOutcome.INCOMPLETE, 0)
        assert check(raw, limit=size) == CheckResult(FrameOutcome.INCOMPLETE, 0)
        assert decode(raw[:size]) is None
    assert check(raw).outcome is FrameOutcome.GOOD


def lengths_of(raw: bytes) -> set[int]:
    """Positions of the bytes that hold a length or a type."""
    frame = decode(raw)
    hosts = len(frame.born_host) + len(frame.store_host)
    body_at = layout.FIXED_BYTES_WITHOUT_HOSTS + hosts
    topic_at = body_at + len(frame.body)
    topic_length_bytes = 1 if frame.magic == MAGIC_V1 else 2
    properties_at = topic_at + topic_length_bytes + len(frame.topic_raw)
    return {
        *range(layout.BODY_CRC_POSITION),
        *range(body_at - 4, body_at),
        *range(topic_at, topic_at + topic_length_bytes),
        *range(properties_at, properties_at + 2),
    }


@every_shape
def test_a_flipped_byte_is_noticed_where_the_format_can_notice_it(raw):
    """Lengths, magic, body CRC and body. Negative lengths of nothing still mean nothing."""
    frame = decode(raw)
    body_at = layout.FIXED_BYTES_WITHOUT_HOSTS + len(frame.born_host) + len(frame.store_host)
    guarded = lengths_of(raw)
    if frame.body:
        guarded |= {*range(layout.BODY_CRC_POSITION, layout.QUEUE_ID_POSITION)}
        guarded |= {*range(body_at, body_at + len(frame.body))}
    behind = bytes(64)
    for position in range(len(raw)):
        for mask in (0x01, 0x10, 0x80, 0xFF):
            damaged = bytearray(raw)
            damaged[position] ^= mask
            result = check(bytes(damaged) + behind)
            if position in guarded:
                body_gone = not frame.body and position == body_at - 4 and mask & 0x80
                properties_gone = not frame.properties_raw and position == len(raw) - 2
                if (body_gone or properties_gone) and result.outcome is FrameOutcome.GOOD:
                    continue
                assert result.outcome not in (FrameOutcome.GOOD, FrameOutcome.BLANK), (
                    position,
                    mask,
                )
            try:
                again = decode(bytes(damaged) + behind)
            except CorruptRecordError as error:
                assert error.position == 0
                assert error.reason == result.outcome.name.lower()
            else:
                if isinstance(again, Frame):
                    # What the format cannot notice is read as it is there, and nothing else.
                    assert again != frame
                    assert encode_frame(again) == bytes(damaged)[: again.total_size]
                else:
                    assert result.outcome in (
                        FrameOutcome.BLANK,
                        FrameOutcome.ZERO,
                        FrameOutcome.INCOMPLETE,
                    )


@given(st.binary(max_size=300), st.integers(0, 20))
@settings(max_examples=300)
def test_any_bytes_have_an_outcome_and_nothing_else_is_raised(raw, position):
    result = check(raw, position)
    assert isinstance(result.outcome, FrameOutcome)
    try:
        decode(raw, position)
    except CorruptRecordError as error:
        assert error.reason == result.outcome.name.lower()


@given(strategies.frames(), st.data())
@settings(max_examples=200)
def test_any_bytes_behind_a_good_magic_have_an_outcome(raw, data):
    damaged = bytearray(raw)
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(8, len(raw) - 1))] = data.draw(st.integers(0, 255))
    assert isinstance(check(bytes(damaged)).outcome, FrameOutcome)


def patched(raw: bytes, position: int, layout_of_field: str, value: int) -> bytes:
    changed = bytearray(raw)
    struct.pack_into(layout_of_field, changed, position, value)
    return bytes(changed)


BODY_LENGTH_AT = 84
TOPIC_LENGTH_AT = 88 + len(b"a body")
CASES = {
    "zeros": (bytes(100), CheckResult(FrameOutcome.ZERO, 0)),
    "eight zeros": (bytes(8), CheckResult(FrameOutcome.ZERO, 0)),
    "seven zeros": (bytes(7), CheckResult(FrameOutcome.INCOMPLETE, 0)),
    "nothing": (b"", CheckResult(FrameOutcome.INCOMPLETE, 0)),
    "magic without size": (
        patched(FRAMES["v1"], 0, ">i", 0),
        CheckResult(FrameOutcome.BAD_LENGTH, 0),
    ),
    "size without magic": (
        patched(FRAMES["v1"], 4, ">I", 0),
        CheckResult(FrameOutcome.BAD_MAGIC, 0),
    ),
    "wrong magic in a few bytes": (b"\0\0\0\1\1\1\1\1", CheckResult(FrameOutcome.BAD_MAGIC, 0)),
    "size below the smallest frame, few bytes": (
        struct.pack(">iI", 90, MAGIC_V1),
        CheckResult(FrameOutcome.BAD_LENGTH, 90),
    ),
    "size one less": (
        patched(FRAMES["v1"], 0, ">i", len(FRAMES["v1"]) - 1),
        CheckResult(FrameOutcome.BAD_LENGTH, len(FRAMES["v1"]) - 1),
    ),
    "size one more than there is": (
        patched(FRAMES["v1"], 0, ">i", len(FRAMES["v1"]) + 1),
        CheckResult(FrameOutcome.INCOMPLETE, 0),
    ),
    "negative size": (
        patched(FRAMES["v1"], 0, ">i", -5),
        CheckResult(FrameOutcome.BAD_LENGTH, -5),
    ),
    "body longer than the bytes": (
        patched(FRAMES["v1"], BODY_LENGTH_AT, ">i", 2**31 - 1),
        CheckResult(FrameOutcome.STRUCTURE, 0),
    ),
    "negative topic length": (
        patched(FRAMES["v1"], TOPIC_LENGTH_AT, ">b", -1),
        CheckResult(FrameOutcome.STRUCTURE, 0),
    ),
    "negative topic length of V2": (
        patched(FRAMES["v2"], TOPIC_LENGTH_AT, ">h", -1),
        CheckResult(FrameOutcome.STRUCTURE, 0),
    ),
    "wrong body": (
        FRAMES["v1"].replace(b"a body", b"A body"),
        CheckResult(FrameOutcome.BODY_CRC, 0),
    ),
    "DELAY no number": (
        build(topic=b"SCHEDULE_TOPIC_XXXX", properties=b"DELAY\x013s"),
        CheckResult(FrameOutcome.STRUCTURE, 0),
    ),
    "DELAY no number elsewhere": (
        build(topic=b"orders", properties=b"DELAY\x013s"),
        CheckResult(FrameOutcome.GOOD, len(build(topic=b"orders", properties=b"DELAY\x013s"))),
    ),
    "blank": (frames.encode_blank(8), CheckResult(FrameOutcome.BLANK, 8)),
    "blank before rubbish": (
        frames.encode_blank(200) + b"\xff" * 192,
        CheckResult(FrameOutcome.BLANK, 200),
    ),
}


@pytest.mark.parametrize(("raw", "wanted"), CASES.values(), ids=CASES)
def test_the_check_names_what_it_sees(raw, wanted):
    assert check(raw) == wanted
    if wanted.outcome is FrameOutcome.ZERO:
        assert decode(raw) is ZEROED
    elif wanted.outcome is FrameOutcome.BLANK:
        assert decode(raw) == Blank(wanted.size)


def test_body_checksum_is_looked_at_only_when_asked_for():
    damaged = FRAMES["v1"].replace(b"a body", b"A body")
    assert check(damaged, verify_body=False) == CheckResult(FrameOutcome.GOOD, len(damaged))
    assert decode(damaged, verify_body=False).body == b"A body"
    with pytest.raises(CorruptRecordError) as caught:
        decode(b"??" + damaged, 2)
    assert (caught.value.position, caught.value.reason) == (2, "body_crc")


def test_negative_lengths_of_nothing_are_read_as_rocketmq_reads_them():
    raw = patched(FRAMES["empty"], BODY_LENGTH_AT, ">i", -1)
    assert check(raw).outcome is FrameOutcome.GOOD
    assert decode(raw).body == b""
    raw = patched(FRAMES["empty"], len(FRAMES["empty"]) - 2, ">h", -1)
    assert decode(raw).properties_raw == b""


def test_check_is_one_function_under_two_names():
    assert check is check_directly


@pytest.mark.parametrize(
    "fields",
    [
        {"topic": b"t" * 128},
        {"topic": b"t" * 32768, "magic": MAGIC_V2},
        {"properties": b"p" * 32768},
        {"queue_id": 2**31},
        {"queue_offset": 2**63},
        {"born_host": b"1234"},
        {"store_host": b""},
    ],
    ids=str,
)
def test_a_field_that_does_not_fit_is_refused(fields):
    with pytest.raises(InvalidRequestError):
        build(**fields)


def test_a_blank_needs_eight_bytes():
    with pytest.raises(InvalidRequestError):
        frames.encode_blank(7)


def test_the_longest_topic_of_v1_has_127_bytes():
    assert decode(build(topic=b"t" * 127)).topic == "t" * 127
    assert frames.magic_for_topic("t" * 127) == MAGIC_V1
    assert frames.magic_for_topic("t" * 128) == MAGIC_V2
    assert frames.magic_for_topic("😀" * 64) == MAGIC_V2


@pytest.mark.parametrize("properties", [b"", b"A\x01b", b"A\x01b\x02"])
@pytest.mark.parametrize("shape", [{}, {"born_host": V6, "magic": MAGIC_V2}], ids=str)
def test_property_checksum_covers_the_whole_frame(properties, shape):
    frame = bytearray(build(properties=reserve(properties), **shape))
    assert has_property_crc(frame)
    fill_property_crc(frame)
    assert check_property_crc(bytes(frame)) is True
    assert decode(bytes(frame)).properties["__CRC32#"].isdecimal()
    assert bytes(frame[-PROPERTY_CRC_BYTES - 1 : -PROPERTY_CRC_BYTES]) in (b"\x02", b"\0", b"\x14")
    for position in range(len(frame) - PROPERTY_CRC_BYTES):
        frame[position] ^= 0x40
        assert check_property_crc(bytes(frame)) is False
        frame[position] ^= 0x40
    for position in range(len(frame) - 11, len(frame) - 1):
        frame[position] ^= 1
        assert check_property_crc(bytes(frame)) is False
        frame[position] ^= 1


def test_property_checksum_digits_begin_with_the_least_significant():
    assert encode_property_crc(1234567) == b"__CRC32#\x017654321000\x02"
    assert check_property_crc(build(properties=encode_properties({"A": "b"}))) is None
    assert check_property_crc(b"") is None
