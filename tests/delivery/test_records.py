"""Records as the bytes of a message: what is written is read, and nothing else is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stratamq_delivery.entries import (
    Buried,
    Completed,
    HandedOut,
    Moved,
    PassedOver,
    Started,
    Stopped,
)
from stratamq_delivery.records import GroupPlace, GroupRecord, decode, encode

from stratamq.errors import CorruptRecordError

OFFSETS = st.integers(0, 1 << 40)
TOKENS = st.integers(0, (1 << 64) - 1)
TEXTS = st.text(st.characters(codec="utf-8"), max_size=20)


@st.composite
def run_lists(draw):
    runs, end = [], 0
    for distance, length in draw(st.lists(st.tuples(OFFSETS, st.integers(1, 500)), max_size=5)):
        runs.append((end + distance, end + distance + length))
        end += distance + length
    return tuple(runs)


RUNS = run_lists()
HANDED_OUT = st.builds(HandedOut, RUNS, TOKENS, st.integers(1, 1000), OFFSETS, TEXTS, st.booleans())
MOVED = st.builds(lambda token, new: Moved(new.runs, token, new), TOKENS, HANDED_OUT)
ENTRIES = st.one_of(
    HANDED_OUT,
    MOVED,
    st.builds(Completed, RUNS, TOKENS),
    st.builds(PassedOver, RUNS),
    st.builds(Buried, RUNS, TOKENS, OFFSETS, OFFSETS, OFFSETS),
    st.builds(Started, OFFSETS),
    st.builds(Stopped),
)
PLACES = st.builds(GroupPlace, TEXTS, TEXTS, OFFSETS, st.integers(0, 1 << 20))
RECORDS = st.builds(
    GroupRecord,
    st.lists(st.tuples(PLACES, ENTRIES)).map(tuple),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)


@given(RECORDS)
def test_what_is_written_is_read(record):
    assert decode(encode(record)) == record


@given(RECORDS, st.data())
def test_damaged_bytes_are_a_record_or_an_error_by_name(record, data):
    body = bytearray(encode(record))
    place = data.draw(st.integers(0, len(body) - 1))
    body[place] ^= data.draw(st.integers(1, 255))
    try:
        decode(bytes(body[: data.draw(st.integers(0, len(body)))]))
    except CorruptRecordError as error:
        assert error.reason in {"head", "kind", "reference", "run", "text", "length", "number"}


def test_a_number_without_end_is_an_error():
    with pytest.raises(CorruptRecordError, match="number"):
        decode(encode(GroupRecord(())) + b"\x01" + b"\xff" * 100_000)


def test_a_batch_of_neighbours_takes_few_bytes():
    place = GroupPlace("billing", "orders", 1, 3)
    entry = HandedOut(((1_000_000, 1_000_032),), 1 << 60, 1, 1_800_000_000_000, "worker-1", False)
    one = encode(GroupRecord(((place, entry),)))
    two = encode(GroupRecord(((place, entry), (place, entry))))
    assert len(two) - len(one) == 24
