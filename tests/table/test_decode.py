"""The columnar decoder gives for any frames what the scalar one gives for each."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stratamq.errors import CorruptRecordError
from stratamq.formats.columns import columns_at
from stratamq.formats.compression import Compression
from stratamq.formats.frame import encode
from stratamq.formats.frame_layout import BLANK, MAGIC_V1, MAGIC_V2
from stratamq.formats.property_crc import encode_property_crc
from stratamq.table.decode import BATCH_BYTES, Decoder
from stratamq.table.schema import COLUMNS, SCHEMA
from tests.support.compressing import compress_body
from tests.table.reference import rows_of

V4, V6 = bytes([10, 1, 2, 3, 0, 0, 42, 159]), bytes(range(16)) + bytes([0, 0, 42, 159])
MILLISECONDS = st.integers(-62_135_596_800_000, 253_402_300_799_999)
"""What Python's datetime can hold."""
PROPERTY_NAMES = st.sampled_from([b"TAGS", b"KEYS", b"UNIQ_KEY", b"a", b"", b"caf\xc3\xa9", b"\0"])
PROPERTY_VALUES = st.one_of(
    st.sampled_from([b"", b"one", b"two words", b" ", b"a  b", b"1\x012", b"\0", b"\xff\xfe"]),
    st.binary(max_size=6).map(lambda raw: raw.replace(b"\x02", b"")),
    st.text("ABC", min_size=3, max_size=3).map(str.encode),
)
ITEMS = st.one_of(
    st.tuples(PROPERTY_NAMES, PROPERTY_VALUES).map(b"\x01".join),
    st.sampled_from([b"", b"no separator", b"\x01"]),
)
PROPERTIES = st.lists(ITEMS, max_size=4).map(b"\x02".join)
FRAMES = st.fixed_dictionaries(
    {
        "topic": st.sampled_from([b"orders", b"flights", b"", b"\xc3\xa9", b"\xff", b"x" * 127]),
        "body": st.one_of(st.binary(max_size=40), st.just(b"thirteen byte")),
        "born_host": st.sampled_from([V4, V4, V6, bytes(8)]),
        "store_host": st.sampled_from([V4, V4, V6]),
        "properties": PROPERTIES,
        "queue_id": st.integers(-(2**31), 2**31 - 1),
        "flag": st.integers(-(2**31), 2**31 - 1),
        "queue_offset": st.integers(-(2**63), 2**63 - 1),
        "physical_offset": st.integers(-(2**63), 2**63 - 1),
        "sys_flag": st.integers(-(2**31), 2**31 - 1),
        "born_timestamp_ms": MILLISECONDS,
        "store_timestamp_ms": MILLISECONDS,
        "reconsume_times": st.integers(-(2**31), 2**31 - 1),
        "prepared_transaction_offset": st.integers(-(2**63), 2**63 - 1),
        "magic": st.sampled_from([MAGIC_V1, MAGIC_V1, MAGIC_V2]),
    }
)
EVERYTHING = Decoder()
PLAIN = {"topic": b"orders", "body": b"body", "born_host": V4, "store_host": V4}


def decode_all(data: bytes, decoder: Decoder = EVERYTHING) -> pa.RecordBatch:
    sizes, position = [], 0
    while position < len(data):
        sizes.append(BLANK.unpack_from(data, position)[0])
        position += sizes[-1]
    lengths = np.array(sizes, np.int64)
    raw = np.frombuffer(data, np.uint8)
    (batch,) = decoder.batches(raw, columns_at(raw, lengths.cumsum() - lengths, lengths))
    return batch


def check(data: bytes, decoder: Decoder = EVERYTHING) -> None:
    batch = decode_all(data, decoder)
    batch.validate(full=True)
    expected = [
        {name: row[name] for name in decoder.columns}
        for row in rows_of(data, decompress=decoder.decompress)
    ]
    assert batch.to_pylist() == expected


@given(st.lists(FRAMES, max_size=12))
def test_frames_of_any_kind(rows):
    check(b"".join(encode(**row) for row in rows))


@given(st.lists(FRAMES, min_size=1, max_size=4), st.lists(st.integers(0, 3), max_size=80))
@settings(max_examples=60)
def test_many_frames_of_few_kinds(kinds, turns):
    """Enough that look alike for the ways that take them together."""
    frames = [
        encode(**kinds[kind % len(kinds)] | {"physical_offset": number, "queue_offset": number})
        for number, kind in enumerate(turns)
    ]
    check(b"".join(frames))


@given(
    st.lists(PROPERTIES, min_size=1, max_size=3),
    st.lists(st.tuples(st.integers(0, 2), st.text("AB \0é", min_size=2, max_size=2)), max_size=60),
    st.sampled_from([b"KEYS", b"TAGS", b"other"]),
)
@settings(max_examples=60)
def test_many_property_texts_that_differ_in_one_value(texts, rows, name):
    frames = []
    for kind, value in rows:
        item = name + b"\x01" + value.encode()
        properties = b"\x02".join([texts[kind % len(texts)], item])
        frames.append(encode(**PLAIN, properties=properties))
    check(b"".join(frames))


@pytest.mark.parametrize("width", range(6))
def test_names_that_differ_in_rows_of_equal_layout(width):
    """Separators in the same places, other names: each row has its own."""
    frames = []
    for number in range(40):
        name = ["TAGS", "KEYS", "SAGT"][number % 3]
        properties = f"{name}\x01{'v' * width}{number:02}\x02UNIQ_KEY\x01{number:032X}"
        frames.append(encode(**PLAIN, properties=properties.encode()))
    check(b"".join(frames))


def test_doubled_names_keep_the_place_of_the_first_and_the_value_of_the_last():
    texts = [b"a\x01first\x02b\x01mid\x02a\x01last", b"a\x01first\x02b\x01mid\x02a\x01"]
    frames = [encode(**PLAIN, properties=texts[number % 2]) for number in range(40)]
    data = b"".join(frames)
    check(data)
    rows = decode_all(data).to_pylist()
    assert rows[0]["properties"] == [("a", "last"), ("b", "mid")]
    assert rows[1]["properties"] == [("a", "first"), ("b", "mid")]


def test_what_a_producer_of_ours_sends():
    frames = []
    for number in range(100):
        properties = f"TAGS\x01TagA\x02UNIQ_KEY\x01{number:032X}\x02KEYS\x01k{number % 10} all\x02"
        raw = properties.encode() + encode_property_crc(number)
        frames.append(encode(**PLAIN | {"body": bytes(1024)}, properties=raw))
    check(b"".join(frames))


@pytest.mark.parametrize("column", COLUMNS)
def test_each_column_by_itself_is_the_same(column):
    frames = []
    for number in range(30):
        host = V6 if number % 5 == 0 else V4
        properties = f"TAGS\x01t{number % 3}\x02KEYS\x01k{number}"
        fields = PLAIN | {"born_host": host, "store_host": host, "body": bytes(number)}
        frames.append(encode(**fields, properties=properties.encode()))
    data = b"".join(frames)
    check(data, Decoder((column,)))
    assert decode_all(data, Decoder((column,))).schema == pa.schema([SCHEMA.field(column)])


@given(st.lists(st.tuples(st.sampled_from([None, *Compression]), st.binary(max_size=50))))
def test_bodies_come_as_producers_had_them(rows):
    frames, plain = [], []
    for compression, body in rows:
        packed, flags = (body, 0) if compression is None else compress_body(body, compression)
        plain.append(body)
        frames.append(encode(**PLAIN | {"body": packed}, sys_flag=flags))
    data = b"".join(frames)
    check(data, Decoder(decompress=True))
    batch = decode_all(data, Decoder(("body",), decompress=True))
    assert [row["body"] for row in batch.to_pylist()] == plain


def test_a_body_that_is_no_such_stream_is_refused_only_when_it_is_asked_for():
    _, flags = compress_body(b"x", Compression.ZLIB)
    data = encode(**PLAIN, sys_flag=flags)
    assert decode_all(data).to_pylist()[0]["body"] == b"body"
    with pytest.raises(CorruptRecordError, match="ZLIB"):
        decode_all(data, Decoder(decompress=True))


def test_a_frame_that_contradicts_itself_is_refused():
    data = bytearray(encode(**PLAIN))
    data[84:88] = (1 << 20).to_bytes(4, "big")
    with pytest.raises(CorruptRecordError) as caught:
        decode_all(bytes(data))
    assert caught.value.reason == "body_length"


def test_no_frames_are_no_rows():
    batch = decode_all(b"")
    assert batch.num_rows == 0
    assert batch.schema == SCHEMA


def test_a_batch_ends_before_its_bodies_are_too_many_bytes():
    bodies = [
        bytes([n]) * size for n, size in enumerate((1, BATCH_BYTES, 1, BATCH_BYTES - 1, 1, 9))
    ]
    rows = [compress_body(body, Compression.ZLIB) for body in bodies]
    frames = [
        encode(**PLAIN | {"body": body}, sys_flag=flags, queue_offset=number)
        for number, (body, flags) in enumerate(rows)
    ]
    raw = np.frombuffer(b"".join(frames), np.uint8)
    sizes = np.array([len(one) for one in frames], np.int64)
    columns = columns_at(raw, sizes.cumsum() - sizes, sizes)
    batches = list(Decoder(("queueOffset", "body"), decompress=True).batches(raw, columns))
    assert [batch.column(0).to_pylist() for batch in batches] == [[0], [1], [2, 3], [4, 5]]
    assert [body.as_py() for batch in batches for body in batch.column(1)] == bodies
    (packed,) = Decoder(("body",)).batches(raw, columns)
    assert packed.column(0).to_pylist() == [body for body, _ in rows]
