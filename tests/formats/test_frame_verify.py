"""Every flipped bit of a record with a checksum is seen; without one, every bit of the body."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stratamq.formats import frame as frame_format
from stratamq.formats.frame_verify import damage_in, first_damaged, record_checksums
from stratamq.formats.hosts import Host, encode_host
from stratamq.formats.properties import encode_properties
from stratamq.formats.property_crc import encode_property_crc, fill_property_crc, reserve

HOST = encode_host(Host("127.0.0.1", 10911))
PROPERTIES = encode_properties({"TAGS": "red", "KEYS": "one two"})
BODY = b"what was written " * 3


def frame(*, checksum: bool, properties: bytes = PROPERTIES, body: bytes = BODY) -> bytes:
    raw = bytearray(
        frame_format.encode(
            topic=b"orders",
            body=body,
            properties=reserve(properties) if checksum else properties,
            born_host=HOST,
            store_host=HOST,
        )
    )
    if checksum:
        fill_property_crc(raw)
    return bytes(raw)


def flipped(raw: bytes, bit: int) -> bytes:
    changed = bytearray(raw)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


@pytest.mark.parametrize("checksum", [True, False])
@pytest.mark.parametrize("properties", [PROPERTIES, b""])
@pytest.mark.parametrize("body", [BODY, b""])
def test_a_frame_as_it_was_written_is_whole(checksum, properties, body):
    assert damage_in(frame(checksum=checksum, properties=properties, body=body)) == ""


def test_every_flipped_bit_of_a_record_with_a_checksum_is_seen():
    raw = frame(checksum=True)
    unseen = [bit for bit in range(8 * len(raw)) if not damage_in(flipped(raw, bit))]
    assert unseen == []


def test_without_one_every_flipped_bit_of_the_body_is_seen():
    raw = frame(checksum=False)
    start = 8 * raw.index(BODY)
    bits = range(start, start + 8 * len(BODY))
    assert {damage_in(flipped(raw, bit)) for bit in bits} == {"body_crc"}


def test_a_length_that_cannot_be_is_seen_without_a_checksum():
    raw = bytearray(frame(checksum=False))
    at = raw.index(b"\x06orders")
    raw[at] = 120
    assert damage_in(bytes(raw)) == "length"


def test_the_first_of_many_is_named_whichever_kinds_they_are():
    raws = [frame(checksum=number % 2 == 0, body=b"x" * number) for number in range(1, 40)]
    sizes = np.array([len(raw) for raw in raws], np.int64)
    starts = sizes.cumsum() - sizes
    assert first_damaged(b"".join(raws), starts, sizes) is None
    for number in (37, 18, 5):
        raws[number] = flipped(raws[number], 8 * raws[number].index(b"x"))
        damaged = first_damaged(memoryview(b"".join(raws)), starts, sizes)
        assert damaged is not None and damaged[0] == number


def test_a_property_that_resembles_the_checksum_in_little_is_none():
    assert (
        damage_in(frame(checksum=False, properties=b"__user\x01" + b"0123456789" + b"\x02")) == ""
    )


def wiped(raw: bytes, count: int = 20) -> bytes:
    """The end of a record overwritten, its checksum with it."""
    return raw[:-20] + b"x" * count + raw[len(raw) - 20 + count :]


def test_a_checksum_that_was_wiped_out_is_missed_where_every_record_has_one():
    raw = wiped(frame(checksum=True))
    assert damage_in(raw) == ""
    assert damage_in(raw, sealed=True) == "record_crc"
    assert damage_in(frame(checksum=True), sealed=True) == ""


@pytest.mark.parametrize("count", [3, 40])
def test_it_is_missed_from_the_place_on_where_every_record_has_one(count):
    raws = [frame(checksum=number % 3 != 1) for number in range(count)]
    sizes = np.array([len(raw) for raw in raws], np.int64)
    starts = sizes.cumsum() - sizes
    joined = b"".join(raws)
    assert first_damaged(joined, starts, sizes) is None
    assert first_damaged(joined, starts, sizes, int(starts[1])) == (1, "record_crc")
    behind = first_damaged(joined, starts, sizes, int(starts[1]) + 1)
    assert behind == (None if count == 3 else (4, "record_crc"))


@given(st.lists(st.integers(0, 0x7FFFFFFF), min_size=1, max_size=40))
def test_record_checksums_are_read_as_they_are_written(numbers):
    text = b"".join(b"x" * 3 + encode_property_crc(number) for number in numbers)
    ends = np.arange(1, len(numbers) + 1) * (len(text) // len(numbers))
    marked, stated = record_checksums(np.frombuffer(text, np.uint8), ends)
    assert marked.all()
    assert stated.tolist() == numbers


def test_a_record_checksum_of_anything_but_digits_states_nothing():
    written = encode_property_crc(1_234_567_890)
    for place in range(len(written)):
        for byte in range(256):
            tail = bytearray(written)
            tail[place] = byte
            marked, stated = record_checksums(np.frombuffer(tail, np.uint8), np.array([20]))
            fixed = not 9 <= place <= 18
            assert marked[0] == (byte == written[place] or not fixed)
            if not fixed:
                digits = bytes(tail[9:19])
                assert stated[0] == (int(digits[::-1]) if digits.isdigit() else -1)
