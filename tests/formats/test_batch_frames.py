"""The fast encoder gives the bytes of the frame codec, with the broker's fields blank."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stratamq.errors import InvalidRequestError
from stratamq.formats import frame
from stratamq.formats.batch_frames import BatchEncoder, FrameShape
from stratamq.formats.frame_layout import MAGIC_V1, MAGIC_V2
from stratamq.formats.hosts import Host, encode_host
from stratamq.formats.properties import MAX_PROPERTIES_BYTES, encode_properties
from stratamq.formats.property_crc import PROPERTY_CRC_BYTES, has_property_crc, reserve
from tests.support.kernels import agree

V4 = encode_host(Host("10.1.2.3", 4567))
V6 = encode_host(Host("fd00:0:0:0:0:0:0:1", 4567))
I32 = st.integers(-(2**31), 2**31 - 1)
I64 = st.integers(-(2**63), 2**63 - 1)

rows = st.lists(
    st.tuples(
        st.binary(max_size=40),
        st.dictionaries(
            st.text("abcXYZ_é", min_size=1, max_size=6), st.text("0189 ü-", max_size=9), max_size=3
        ).map(encode_properties),
    ),
    max_size=5,
)
shapes = st.builds(
    FrameShape,
    born_host=st.sampled_from([V4, V6]),
    store_host_bytes=st.sampled_from([8, 20]),
    property_checksum=st.booleans(),
    version2=st.booleans(),
)


def scalar(shape: FrameShape, topic: str, body: bytes, properties: bytes, **fields: int) -> bytes:
    raw = topic.encode()
    return frame.encode(
        topic=raw,
        body=body,
        born_host=shape.born_host,
        store_host=bytes(shape.store_host_bytes),
        properties=reserve(properties) if shape.property_checksum else properties,
        magic=MAGIC_V1 if len(raw) <= 127 else MAGIC_V2,
        **fields,
    )


@given(shapes, st.text("abcé%", min_size=1, max_size=20), rows, I32, I32, I64, I32)
def test_frames_equal_those_of_the_scalar_codec(
    shape, topic, rows, flag, sys_flag, born_ms, reconsumed
):
    fields = {
        "flag": flag,
        "sys_flag": sys_flag,
        "born_timestamp_ms": born_ms,
        "reconsume_times": reconsumed,
    }
    encoder = BatchEncoder(shape)
    encoder.add(topic, rows, **fields)
    packed, frames = encoder.finish()
    expected = [scalar(shape, topic, body, properties, **fields) for body, properties in rows]
    assert frames == b"".join(expected)
    assert packed == b"".join(struct.pack(">I", len(one)) for one in expected)


def test_runs_of_several_topics_follow_each_other():
    shape = FrameShape(V4)
    encoder = BatchEncoder(shape)
    encoder.add("one", [(b"a", b"")], flag=1)
    encoder.add("two", [(b"b", b"k\x01v"), (b"c", b"")], flag=2)
    assert len(encoder.lengths) == 3
    assert encoder.finish()[1] == (
        scalar(shape, "one", b"a", b"", flag=1)
        + scalar(shape, "two", b"b", b"k\x01v", flag=2)
        + scalar(shape, "two", b"c", b"", flag=2)
    )


def test_every_frame_ends_in_the_room_for_the_checksum_when_the_broker_asks_for_it():
    encoder = BatchEncoder(FrameShape(V4, property_checksum=True))
    encoder.add("t", [(b"a", b""), (b"b", b"k\x01v"), (b"c", b"k\x01v\x02")])
    packed, frames = encoder.finish()
    position = 0
    for length in struct.unpack(">3I", packed):
        assert has_property_crc(frames[position : position + length])
        position += length


def test_topics_over_127_bytes_are_version_2_frames_only_where_the_broker_takes_them():
    encoder = BatchEncoder(FrameShape(V4, version2=True))
    encoder.add("t" * 128, [(b"body", b"")])
    _, frames = encoder.finish()
    assert frame.decode(frames).magic == MAGIC_V2
    with pytest.raises(InvalidRequestError, match="128 bytes"):
        BatchEncoder(FrameShape(V4)).add("t" * 128, [(b"body", b"")])


@pytest.mark.parametrize("checksum", [False, True])
def test_properties_that_do_not_fit_name_their_message(checksum):
    shape = FrameShape(V4, property_checksum=checksum)
    room = MAX_PROPERTIES_BYTES - (PROPERTY_CRC_BYTES + 1 if checksum else 0)
    encoder = BatchEncoder(shape)
    encoder.add("t", [(b"", b"x" * room)])
    with pytest.raises(InvalidRequestError) as caught:
        encoder.add("t", [(b"", b""), (b"", b"x" * (room + 1))])
    assert caught.value.fields["row"] == 1


@pytest.mark.parametrize("field", ["flag", "born_timestamp_ms", "reconsume_times"])
def test_numbers_that_do_not_fit_are_refused(field):
    with pytest.raises(InvalidRequestError):
        BatchEncoder(FrameShape(V4)).add("t", [(b"", b"")], **{field: 1 << 70})


def test_hosts_of_another_size_are_refused():
    with pytest.raises(InvalidRequestError):
        FrameShape(b"12345")


NUMBERED = st.builds(
    FrameShape,
    born_host=st.sampled_from([V4, V6]),
    property_checksum=st.booleans(),
    producer=st.sampled_from([0, 1 << 60]),
)
LONG_TEXT = MAX_PROPERTIES_BYTES - 60
"""Close to where an ending has no room behind it."""
TEXTS = st.one_of(st.binary(max_size=70), st.sampled_from([b"k\x01v", b"k\x01v\x02", b"\x02"]))
PLAIN = st.tuples(st.binary(max_size=200), TEXTS)
LARGE = st.sampled_from([(b"b" * 9_000, b""), (b"b" * 70_000, b"k\x01v")])
NO_BYTES = st.just((bytearray(b"body"), b"k\x01v"))
TOO_LONG = st.integers(LONG_TEXT, MAX_PROPERTIES_BYTES + 1).map(lambda size: (b"b", b"x" * size))
ANY_ROWS = st.one_of(
    st.lists(PLAIN, max_size=9),
    st.lists(st.one_of(PLAIN, LARGE), max_size=9),
    st.lists(st.one_of(PLAIN, NO_BYTES), max_size=9),
    st.tuples(st.lists(PLAIN, min_size=9, max_size=9), TOO_LONG).map(
        lambda both: [*both[0], both[1]]
    ),
)


@given(NUMBERED, st.lists(st.tuples(st.sampled_from(["one", "t" * 200]), ANY_ROWS), max_size=3))
def test_the_kernel_encodes_what_python_encodes_and_refuses_the_same(shape, runs):
    def encoded() -> object:
        encoder = BatchEncoder(shape)
        for number, (topic, rows) in enumerate(runs):
            encoder.add(topic, rows, flag=number // 2)
        return encoder.lengths, encoder.finish()

    agree(encoded)


@pytest.mark.parametrize("room", [0, 1])
@pytest.mark.parametrize("shape", [FrameShape(V4, producer=5), FrameShape(V4, 8, True)])
def test_the_last_byte_of_properties_fits_by_the_kernel_too(shape, room):
    properties = b"x" * (MAX_PROPERTIES_BYTES - len(shape.ending) - room)
    rows = [(b"body", b"")] * 9  # in the mean they are small, and the kernel's

    def encoded() -> object:
        encoder = BatchEncoder(shape)
        encoder.add("t", [*rows, (b"body", properties)])
        return encoder.finish()

    found = agree(encoded)
    assert (found[0] is InvalidRequestError) == (room == 0)


def test_rows_may_come_one_by_one():
    def encoded() -> object:
        encoder = BatchEncoder(FrameShape(V4))
        encoder.add("t", ((b"%d" % number, b"") for number in range(5)))
        return encoder.finish()

    assert len(agree(encoded)[0]) == 20
