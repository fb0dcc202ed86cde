"""The peer status that two brokers exchange, byte by byte."""

import random

import pytest

from stratamq.errors import CorruptRecordError
from stratamq.formats.generation_number import make_number, starts_of, term_of
from stratamq.formats.log_state import Role
from stratamq.formats.members import Member, Members
from stratamq.formats.replication_fields import LENGTH
from stratamq.formats.replication_opening import MARK
from stratamq.formats.replication_peers import (
    PEER_MARK,
    PeerStatus,
    decode_peer_status,
    encode_peer_status,
)

STATUS = PeerStatus(
    7, Role.SYNC_MASTER, True, 3, 128, 4096, "broker-a", "h:1", "h:9", "",
    [(5, 0), (9, 64)], 11, "b", "c", True, 2048,
    Members(4, 0, (Member(0, "b", "h:9"), Member(2, "c", "", True, 3))),
)  # fmt: skip


def test_the_bytes():
    assert PEER_MARK == b"\xffSTP" != MARK
    assert encode_peer_status(STATUS) == bytes.fromhex(
        "00000085"
        "0000000000000007" "000000000000000b" "02" "01" "01" "0003"
        "0000000000000080" "0000000000001000" "0000000000000800"
        "08" "62726f6b65722d61" "01" "62" "01" "63"
        "0003" "683a31" "0003" "683a39" "0000"
        "00000004" "00" "02"
        "00" "00" "00000001" "01" "62" "0003" "683a39"
        "02" "01" "00000003" "01" "63" "0000"
        "0002" "0000000000000005" "0000000000000000" "0000000000000009" "0000000000000040"
    )  # fmt: skip


def test_what_is_encoded_is_decoded():
    assert decode_peer_status(encode_peer_status(STATUS)[LENGTH.size :]) == STATUS
    assert STATUS.is_master and STATUS.generation == 9


def test_a_number_gives_back_what_it_was_made_of():
    number = make_number(4095, (1 << 24) - 1, (1 << 27) - 1)
    assert number == (1 << 63) - 1
    assert (term_of(make_number(5, 9, 1)), starts_of(make_number(5, 9, 1))) == (5, 9)


@pytest.mark.parametrize(
    "bad",
    [
        {"held": 2}, {"minimum": -1}, {"minimum": 5000},
        {"generations": [(5, 64), (9, 0)]}, {"generations": [(-5, 0)]}, {"term": 4096},
        {"rejoining": 2}, {"confirmed": -1}, {"members": Members(1, 2, (Member(0, "b", ""),))},
        {"members": Members(1, 0, (Member(8, "b", ""),))},
        {"members": Members(1, 0, (Member(1, "b", ""), Member(0, "c", "")))},
        {"members": Members(1, 0, (Member(0, "b", ""), Member(1, "b", "")))},
    ],
)  # fmt: skip
def test_nonsense_is_refused(bad):
    fields = {name: getattr(STATUS, name) for name in STATUS.__slots__} | bad
    raw = encode_peer_status(PeerStatus(**fields))[LENGTH.size :]
    with pytest.raises(CorruptRecordError):
        decode_peer_status(raw)


@pytest.mark.parametrize("role", [0, 4])
def test_a_role_that_is_none_is_refused(role):
    raw = bytearray(encode_peer_status(STATUS)[LENGTH.size :])
    assert raw[16] == Role.SYNC_MASTER.value
    raw[16] = role
    with pytest.raises(CorruptRecordError):
        decode_peer_status(bytes(raw))


def test_every_prefix_and_random_bytes_are_refused():
    raw = encode_peer_status(STATUS)[LENGTH.size :]
    for length in range(len(raw)):
        with pytest.raises(CorruptRecordError):
            decode_peer_status(raw[:length])
    with pytest.raises(CorruptRecordError):
        decode_peer_status(raw + b"x")
    chance = random.Random(1)
    for _ in range(2_000):
        noise = chance.randbytes(chance.randrange(120))
        try:
            decode_peer_status(noise)
        except CorruptRecordError:
            continue
        raise AssertionError(noise)
