"""The replication protocol's bytes, in pieces of any length."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stratamq.errors import CorruptRecordError
from stratamq.formats.replication import (
    MAX_TRANSFER_BYTES,
    REPORT,
    TRANSFER_HEAD,
    ReportReader,
    TransferReader,
    Transferred,
)
from tests.ha.captures import NAMES, capture


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({cut % (len(data) + 1) for cut in cuts} | {0, len(data)})
    return [data[a:b] for a, b in pairwise(places)]


def joined(found: list[Transferred]) -> list[tuple[int, bytes]]:
    """Transfers as (offset, body)."""
    transfers: list[tuple[int, bytes]] = []
    for piece in found:
        if piece.opens:
            transfers.append((piece.offset, b""))
        else:
            offset, body = transfers[-1]
            assert piece.offset == offset + len(body)
            transfers[-1] = (offset, body + piece.data)
    return transfers


CUTS = st.lists(st.integers(0, 1 << 20), max_size=40)


@given(st.lists(st.integers(0, (1 << 63) - 1), max_size=20), CUTS)
def test_reports_are_read_whatever_the_pieces(offsets, cuts):
    reader = ReportReader()
    data = b"".join(REPORT.pack(offset) for offset in offsets)
    assert [one for piece in pieces(data, cuts) for one in reader.feed(piece)] == offsets


@given(st.lists(st.tuples(st.integers(0, 1 << 40), st.binary(max_size=300)), max_size=20), CUTS)
def test_transfers_are_read_whatever_the_pieces(transfers, cuts):
    reader = TransferReader()
    data = b"".join(TRANSFER_HEAD.pack(offset, len(body)) + body for offset, body in transfers)
    found = [one for piece in pieces(data, cuts) for one in reader.feed(piece)]
    assert joined(found) == transfers


def test_every_split_of_a_transfer_gives_the_same():
    data = TRANSFER_HEAD.pack(77, 5) + b"hello" + TRANSFER_HEAD.pack(82, 0)
    for cut in range(len(data) + 1):
        reader = TransferReader()
        assert joined(reader.feed(data[:cut]) + reader.feed(data[cut:])) == [
            (77, b"hello"),
            (82, b""),
        ]


@pytest.mark.parametrize(
    ("offset", "length"), [(0, -1), (0, MAX_TRANSFER_BYTES + 1), (-1, 0), (0, 0x7FFFFFFF)]
)
def test_an_impossible_size_is_refused_before_anything_is_kept(offset, length):
    with pytest.raises(CorruptRecordError, match="does not use the"):
        TransferReader().feed(TRANSFER_HEAD.pack(offset, length))


@given(st.lists(st.binary(max_size=50), max_size=20))
def test_any_bytes_are_transfers_or_refused(data):
    reader = TransferReader()
    try:
        for piece in data:
            reader.feed(piece)
    except CorruptRecordError as error:
        assert error.reason == "length"


@pytest.mark.parametrize("name", NAMES)
def test_what_was_caught_on_rocketmqs_wire_is_read(name):
    caught = capture(name)
    assert ReportReader().feed(caught.to_master) == caught.reports
    found = joined(TransferReader().feed(caught.to_slave))
    assert [(offset, len(body)) for offset, body in found] == [
        (frame["offset"], frame["size"]) for frame in caught.frames
    ]
