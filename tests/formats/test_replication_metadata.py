"""What a slave asks for beside the log: golden bytes, round trips, every prefix, every bit flip."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stratamq.errors import CorruptRecordError
from stratamq.formats.replication_fields import LENGTH, decode_length
from stratamq.formats.replication_metadata import (
    MAX_DOCUMENT_BYTES,
    MAX_NEWS_BYTES,
    NO_MARK,
    MetadataKind,
    MetadataRequest,
    News,
    Page,
    decode_ask,
    decode_news,
    encode_ask,
    encode_news,
)

KINDS = st.integers(0, 255)
TEXT = st.text(max_size=40)
ASKS = st.builds(
    MetadataRequest, TEXT, st.dictionaries(KINDS, st.binary(min_size=32, max_size=32), max_size=5)
)
PAGES = st.builds(Page, st.binary(max_size=200), st.binary(min_size=32, max_size=32), st.booleans())
NEWS = st.builds(
    News,
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.dictionaries(KINDS, PAGES, max_size=5),
    TEXT,
)


def body_of(message: bytes) -> bytes:
    (length,) = LENGTH.unpack(message[: LENGTH.size])
    body = message[LENGTH.size :]
    assert len(body) == length
    return body


def test_an_ask_is_these_bytes():
    message = encode_ask(MetadataRequest("b", {MetadataKind.TOPICS: NO_MARK}))
    assert message == bytes.fromhex("00000025 02 0162 01 01") + NO_MARK


def test_news_are_these_bytes():
    mark = bytes(range(32))
    message = encode_news(News(7, {MetadataKind.CONSUMER_OFFSETS: Page(b"{}", mark, True)}, "no"))
    head = bytes.fromhex("00000036 02 0000000000000007 0002")
    page = bytes.fromhex("01 03") + mark + bytes.fromhex("01 00000002")
    assert message == head + b"no" + page + b"{}"


@given(ASKS)
def test_an_ask_comes_back(ask: MetadataRequest):
    assert decode_ask(body_of(encode_ask(ask))) == ask


@given(NEWS)
def test_news_come_back(news: News):
    assert decode_news(body_of(encode_news(news))) == news


EXAMPLES = [
    (
        decode_ask,
        body_of(
            encode_ask(MetadataRequest("broker-a", dict.fromkeys(MetadataKind, bytes(range(32)))))
        ),
    ),
    (
        decode_news,
        body_of(encode_news(News(5, {1: Page(b"one"), 2: Page(b"two", more=True)}, "why"))),
    ),
]


@pytest.mark.parametrize(("decode", "body"), EXAMPLES, ids=["ask", "news"])
def test_a_message_that_is_cut_short_or_too_long_is_refused(decode, body: bytes):
    for size in range(len(body)):
        with pytest.raises(CorruptRecordError):
            decode(body[:size])
    with pytest.raises(CorruptRecordError):
        decode(body + b"\0")


@pytest.mark.parametrize(("decode", "body"), EXAMPLES, ids=["ask", "news"])
def test_a_flipped_bit_is_another_message_or_refused(decode, body: bytes):
    meant = decode(body)
    for bit in range(8 * len(body)):
        flipped = bytearray(body)
        flipped[bit // 8] ^= 1 << bit % 8
        try:
            assert decode(bytes(flipped)) != meant
        except CorruptRecordError:
            continue


def test_another_version_is_named():
    with pytest.raises(CorruptRecordError, match="version 1, 2 is known here"):
        decode_ask(b"\x01" + body_of(encode_ask(MetadataRequest("b", {})))[1:])


def test_nothing_is_allocated_for_a_length_beyond_reason():
    assert decode_length(LENGTH.pack(MAX_NEWS_BYTES), MAX_NEWS_BYTES) == MAX_NEWS_BYTES
    with pytest.raises(CorruptRecordError):
        decode_length(LENGTH.pack(MAX_NEWS_BYTES + 1), MAX_NEWS_BYTES)


def test_a_document_that_is_too_large_is_not_encoded():
    with pytest.raises(ValueError, match=str(MAX_DOCUMENT_BYTES + 1)):
        encode_news(News(1, {1: Page(bytes(MAX_DOCUMENT_BYTES + 1))}))
