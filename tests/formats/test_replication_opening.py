"""What two brokers of ours send before the frames: round trip, every prefix, and random bytes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stratamq.errors import CorruptRecordError
from stratamq.formats.replication_fields import LENGTH, MAX_MESSAGE_BYTES, decode_length
from stratamq.formats.replication_opening import (
    MARK,
    MasterAnswer,
    SlaveOpening,
    Verdict,
    decode_master_answer,
    decode_slave_opening,
    encode_master_answer,
    encode_slave_opening,
)

offsets = st.integers(0, (1 << 63) - 1)
generations = st.lists(st.tuples(offsets, offsets), max_size=20).map(
    lambda pairs: sorted(pairs, key=lambda pair: pair[1])
)
texts = st.text(max_size=60)
logs = st.tuples(offsets, offsets).map(sorted)


@st.composite
def has(draw) -> SlaveOpening:
    minimum, end = draw(logs)
    size = draw(st.integers(1, 1 << 40))
    member, identity, rejoining = draw(texts), draw(offsets), draw(st.booleans())
    return SlaveOpening(
        end, minimum, size, draw(texts), draw(generations), member, identity, rejoining, draw(texts)
    )


@st.composite
def keeps(draw) -> MasterAnswer:
    minimum, end = draw(logs)
    verdict = draw(st.sampled_from(Verdict))
    cut_to, confirmed, member = draw(offsets), draw(offsets), draw(texts)
    sentence, address = draw(texts), draw(texts)
    return MasterAnswer(
        verdict, cut_to, minimum, end, confirmed, sentence, address, draw(generations), member,
        draw(st.booleans()),
    )  # fmt: skip


def body(encoded: bytes) -> bytes:
    length = decode_length(encoded[: LENGTH.size])
    assert length == len(encoded) - LENGTH.size
    return encoded[LENGTH.size :]


@given(has())
def test_what_a_slave_has_comes_back(value):
    assert decode_slave_opening(body(encode_slave_opening(value))) == value


@given(keeps())
def test_what_it_shall_keep_comes_back(value):
    assert decode_master_answer(body(encode_master_answer(value))) == value


@given(has(), keeps(), st.data())
def test_a_part_is_refused(one, other, data):
    for encoded, decode in ((body(encode_slave_opening(one)), decode_slave_opening),
                            (body(encode_master_answer(other)), decode_master_answer)):  # fmt: skip
        with pytest.raises(CorruptRecordError):
            decode(encoded[: data.draw(st.integers(0, len(encoded) - 1))])
        with pytest.raises(CorruptRecordError):
            decode(encoded + b"\0")


@given(st.binary(max_size=200))
def test_any_bytes_are_refused_or_make_sense(data):
    for decode in (decode_slave_opening, decode_master_answer):
        try:
            decoded = decode(data)
        except CorruptRecordError:
            continue
        starts = [start for _, start in decoded.generations]
        assert starts == sorted(starts)


def test_long_texts_are_cut_between_characters():
    has = SlaveOpening(0, 0, 1, "ü" * 200, [])
    assert decode_slave_opening(body(encode_slave_opening(has))).name == "ü" * 127
    keeps = MasterAnswer(Verdict.REFUSED, 0, 0, 0, 0, "€" * 2_000, "", [])
    assert decode_master_answer(body(encode_master_answer(keeps))).sentence == "€" * 341


def test_more_than_any_peer_has_to_send_is_refused_before_it_is_read():
    assert decode_length(LENGTH.pack(MAX_MESSAGE_BYTES)) == MAX_MESSAGE_BYTES
    with pytest.raises(CorruptRecordError):
        decode_length(LENGTH.pack(MAX_MESSAGE_BYTES + 1))


def test_a_thousand_generations_fit():
    value = SlaveOpening(1 << 40, 0, 1 << 30, "b", [(number, number) for number in range(1_000)])
    assert decode_slave_opening(body(encode_slave_opening(value))) == value


def test_the_mark_is_no_offset():
    assert int.from_bytes(MARK.ljust(8, b"\0"), "big", signed=True) < 0
